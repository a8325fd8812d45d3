"""How long networks take for one input: by turns, as in `membound bench`, so that a busy moment meets all alike."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

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


def measure(nets: Sequence[Net]) -> list[Latency]:
    """The latency of each."""
    given = [
        [np.zeros((1, *port.shape), np.int64 if port.whole else np.float32) for port in net.inputs]
        for net in nets
    ]
    turns: list[list[float]] = [[] for _ in nets]
    until = time.monotonic() + SECONDS * len(nets)
    for turn in range(TURNS):
        if turn >= LEAST_TURNS and time.monotonic() > until:
            break
        for net, inputs, found in zip(nets, given, turns, strict=True):
            net(*inputs)  # the one before has had the caches
            found.append(_least(net, inputs))
    return [Latency(1e3 * min(found), median(found) / min(found) - 1) for found in turns]


def _least(net: Net, inputs: Sequence[npt.NDArray[Any]]) -> float:
    best, until = float("inf"), time.perf_counter() + TURN_SECONDS
    for _ in range(TURN_RUNS):
        begun = time.perf_counter()
        net(*inputs)
        ended = time.perf_counter()
        best = min(best, ended - begun)
        if ended > until:
            break
    return best
