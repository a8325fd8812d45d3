"""How long networks take for one input: by turns, as in `membound bench`, so that a busy moment meets all alike."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from membound.run.net import Net

TURNS, LEAST_TURNS = 20, 4
TURN_RUNS, TURN_SECONDS = 50, 0.025  # at most, of one network
SECONDS = 1.0  # for each network: after that, no more turns than the least


@dataclass(frozen=True)
class Latency:
    """The least milliseconds of all runs; and how far above that a usual turn ends, as a part of it."""

    ms: float
    spread: float = 0.0

    def facts(self, threads: int, on_host: bool = False) -> dict[str, float]:
        """For JSON; `on_host` says so in the names, where a network is for another machine.

        >>> Latency(0.5).facts(1, on_host=True)
        {'host_latency_ms': 0.5, 'host_latency_spread': 0.0, 'host_threads': 1}
        """
        found = {"latency_ms": self.ms, "latency_spread": self.spread, "threads": threads}
        return {f"host_{name}": value for name, value in found.items()} if on_host else found


Run = Callable[[], object]  # one input through a network


def measure(nets: Sequence[Net]) -> list[Latency]:
    """The latency of each."""
    return race([one_input(net) for net in nets])


def one_input(net: Net) -> Run:
    """A call of the network with zeros."""
    zeros = [np.zeros((1, *port.shape), np.int64 if port.whole else np.float32) for port in net.inputs]
    return partial(net, *zeros)


def race(runs: Sequence[Run]) -> list[Latency]:
    """The latency of each, whatever runtime it is of."""
    turns: list[list[float]] = [[] for _ in runs]
    until = time.monotonic() + SECONDS * len(runs)
    for turn in range(TURNS):
        if turn >= LEAST_TURNS and time.monotonic() > until:
            break
        for run, found in zip(runs, turns, strict=True):
            run()  # the one before has had the caches
            found.append(_least(run))
    return [Latency(1e3 * min(found), median(found) / min(found) - 1) for found in turns]


def _least(run: Run) -> float:
    best, until = float("inf"), time.perf_counter() + TURN_SECONDS
    for _ in range(TURN_RUNS):
        begun = time.perf_counter()
        run()
        ended = time.perf_counter()
        best = min(best, ended - begun)
        if ended > until:
            break
    return best
