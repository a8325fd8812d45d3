"""A bound on latency: how large a file may be so that an image takes no longer, measured on this machine.

Time is no function that can be projected on, but it falls with the number of weights. So before anything is trained,
the network is cut to one size after another, as it starts, and timed in the runtime; the largest size that is fast
enough becomes the budget. What is trained then is timed, too: if it is too slow, it is trained again, smaller.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from membound.errors import MemboundError
from membound.modules import plain_keys
from membound.run.net import Net
from membound.search.bits import as_if_trained
from membound.search.budget import Limit
from membound.search.deployed import Fitted, measure_latency
from membound.search.ledger import RunDirectory
from membound.search.problem import Problem
from membound.train.parallel import World
from membound.train.projection import project_

PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.02, 0.01)  # of each layer's weights
TRIES = 3  # trainings, each of a smaller network
KEY = "latency"  # of what was measured, in a run directory
UNITS = {"": 1.0, "ms": 1.0, "s": 1000.0, "us": 0.001}


@dataclass(frozen=True)
class LatencyBound:
    """So many milliseconds for one image, on so many threads of this machine."""

    ms: float
    threads: int = 1

    def time(self, fitted: Fitted) -> float:
        """Milliseconds that the network takes as it will be deployed."""
        stored = fitted.files.stored(fitted.model.state_dict())
        return measure_latency(Net(stored, threads=self.threads))

    def limit(self, problem: Problem, directory: RunDirectory, limit: Limit, world: World) -> Limit:
        """The limit, or less where the network would be too slow; a run that goes on keeps what it measured first."""
        entry = directory.finished(KEY)
        # One process alone: others would be in its way.
        facts = world.from_leader(lambda: find_size(problem, self)) if entry is None else entry.facts
        if entry is None:
            directory.record(KEY, facts, None)
        found = min(int(facts["bytes"]), limit.number)
        return limit if found == limit.number else Limit(f"{found}", found)


def parse_latency(text: str | float) -> float:
    """Milliseconds.

    >>> parse_latency("5ms"), parse_latency("0.2 s"), parse_latency(3)
    (5.0, 200.0, 3.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", str(text))
    if match is None or match[2] not in UNITS or float(match[1]) <= 0:
        raise MemboundError(
            f"latency={text!r}: write a time above 0 in ms, s or us, as in '5 ms'", about="latency"
        )
    return float(match[1]) * UNITS[match[2]]


def find_size(problem: Problem, bound: LatencyBound) -> dict[str, Any]:
    """The largest size, of some, at which the network as it starts is fast enough."""
    fastest = float("inf")
    for part in PARTS:
        stored = replace(problem.files, types=problem.types).stored(_cut(problem, part))
        taken = measure_latency(Net(stored, threads=bound.threads))
        if taken <= bound.ms:
            return {"bytes": stored.file_bytes, "ms": taken, "part": part}
        fastest = min(fastest, taken)
    raise MemboundError(
        f"a latency of {bound.ms:g} ms cannot be met here: with {PARTS[-1]:.0%} of its weights this network takes "
        f"{fastest:.3g} ms on {bound.threads} thread{'s' if bound.threads > 1 else ''}; allow more",
        about="latency",
    )


def _cut(problem: Problem, part: float) -> dict[str, Any]:
    """The network as it starts, with a part of the weights of each bounded layer, in few bits as it will be."""
    state = {name: value.clone() for name, value in plain_keys(problem.make(0).state_dict()).items()}
    for name in problem.weights:
        project_(state[name], max(int(part * state[name].numel()), 1))
        state[name] = as_if_trained(state[name], problem.types[name])
    return state


def smaller(limit: Limit, taken: float, bound: LatencyBound) -> Limit:
    """A limit at which the network should be fast enough.

    >>> smaller(Limit("10KB", 10000), 8.0, LatencyBound(4.0))
    Limit(text='4500', number=4500)
    """
    number = int(limit.number * min(bound.ms / taken, 0.95) * 0.9)
    return Limit(f"{number}", number)


def told(fitted: Fitted, taken: float, bound: LatencyBound) -> Fitted:
    """With the time that it takes, and what was allowed, among its facts."""
    threads = f"{bound.threads} thread{'s' if bound.threads > 1 else ''}"
    note = f"latency: {taken:.3g} ms an image on {threads} of this machine, where {bound.ms:g} ms are allowed"
    about = {"bound_ms": bound.ms, "threads": bound.threads, "measured_ms": taken}
    tried = [*fitted.facts.get("tried", ()), note]
    return replace(fitted, facts={**fitted.facts, "latency_bound": about, "tried": tried})
