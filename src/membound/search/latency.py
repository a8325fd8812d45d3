"""A bound on latency: how large a file may be so that an image takes no longer, measured on this machine.

Time is no function that can be projected on, but it falls with the number of weights. So before anything is trained,
the network is cut to one size after another, as it starts, and timed in the runtime; the largest size that is fast
enough becomes the budget. What is trained then is timed, too: if it is too slow, it is trained again, smaller.
"""

from dataclasses import dataclass, replace
from typing import Any

from membound.errors import MemboundError
from membound.modules import plain_keys
from membound.run.net import Net
from membound.search import timing
from membound.search.bits import WIDE, Types, as_if_trained
from membound.search.bounds import WHOLE
from membound.search.budget import Limit
from membound.search.deployed import Fitted
from membound.search.integers import note_time, time_whole
from membound.search.ledger import RunDirectory
from membound.search.problem import Problem
from membound.train.parallel import World
from membound.train.projection import project_

PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.02, 0.01)  # of each layer's weights
TRIES = 3  # trainings, each of a smaller network
KEY = "latency"  # of what was measured, in a run directory


@dataclass(frozen=True)
class LatencyBound:
    """So many milliseconds for one image, on so many threads of this machine."""

    ms: float
    threads: int = 1
    text: str | None = None  # as it was written

    def limit(
        self, problem: Problem, directory: RunDirectory, limit: Limit, world: World
    ) -> tuple[Limit, list[str]]:
        """The limit, or less where the network would be too slow, and notes; a run that goes on keeps what it measured.

        Where weights have to go, a note says so if the engine int8 would be fast enough with all of them.
        """
        entry = directory.finished(KEY)
        # One process alone: others would be in its way.
        facts = world.from_leader(lambda: find_size(problem, self, limit)) if entry is None else entry.facts
        if entry is None:
            directory.record(KEY, facts, None)
        found = limit.number if facts.get("slack") else min(int(facts["bytes"]), limit.number)
        if found < limit.number:
            notes = note_time(facts.get("whole_int8"), self.ms, limit)
            return Limit(self.name, found, f"{found}"), notes
        return Limit(self.name, found, limit.text) if limit.text == WHOLE else limit, []

    @property
    def name(self) -> str:
        """Of a network that it bounds.

        >>> LatencyBound(0.25).name
        'in 0.25 ms'
        """
        return f"in {self.shown}"

    @property
    def shown(self) -> str:
        """
        >>> LatencyBound(1e-5, text="0.01 us").shown, LatencyBound(4.0).shown
        ('0.01 us', '4 ms')
        """
        return self.text or f"{self.ms:g} ms"


def find_size(problem: Problem, bound: LatencyBound, limit: Limit) -> dict[str, Any]:
    """The largest size, of some, at which the network as it starts is fast enough.

    Where it is with all of its weights, in the types that the limit has room for, time does not bind (`slack`).
    """
    whole = _whole_types(problem, limit)
    sizes: list[tuple[float, Types]] = [(1.0, whole)] if whole != problem.types else []
    sizes += [(part, problem.types) for part in PARTS]
    fastest = float("inf")
    for part, types in sizes:
        stored = replace(problem.files, types=types).stored(_cut(problem, part, types))
        taken = timing.measure([Net(stored, threads=bound.threads)])[0].ms
        if taken <= bound.ms:
            found = {"bytes": stored.file_bytes, "ms": taken, "part": part}
            if part == 1:
                return found | ({"slack": True} if types is sizes[0][1] else {})
            return found | {"whole_int8": time_whole(problem, bound.threads)}
        fastest = min(fastest, taken)
    raise MemboundError(
        f"a latency of {bound.shown} cannot be met here: with {PARTS[-1]:.0%} of its weights this network takes "
        f"{fastest:.3g} ms on {bound.threads} thread{'s' if bound.threads > 1 else ''}; allow more",
        about="latency",
    )


def _whole_types(problem: Problem, limit: Limit) -> Types:
    """Of the values of a network that no bound makes smaller; where bits are chosen, training starts with few."""
    if not problem.target.chooses:
        return problem.types
    return problem.plain_types if problem.plain_bytes <= limit.number else dict.fromkeys(problem.types, WIDE)


def _cut(problem: Problem, part: float, types: Types) -> dict[str, Any]:
    """The network as it starts, with a part of the weights of each bounded layer, in few bits as it will be."""
    state = {name: value.clone() for name, value in plain_keys(problem.make(0).state_dict()).items()}
    for name in problem.weights:
        project_(state[name], max(int(part * state[name].numel()), 1))
        state[name] = as_if_trained(state[name], types[name])
    return state


def smaller(limit: Limit, file_bytes: int, taken: float, bound: LatencyBound) -> Limit:
    """A limit at which the network should be fast enough, where one of so many bytes is not.

    >>> smaller(Limit("10KB", 10000), 9900, 8.0, LatencyBound(4.0))
    Limit(text='in 4 ms', number=4455, key='4455')
    """
    number = int(min(limit.number, file_bytes) * min(bound.ms / taken, 0.95) * 0.9)
    return Limit(bound.name, number, f"{number}")


def told(fitted: Fitted, limit: Limit, asked: Limit, bound: LatencyBound) -> Fitted:
    """With the time that it takes, what was allowed, and what that left of the budget `asked`, among its facts."""
    threads, taken = f"{bound.threads} thread{'s' if bound.threads > 1 else ''}", fitted.facts["latency_ms"]
    note = f"latency: {taken:.3g} ms per image on {threads} of this machine; the limit is {bound.shown}"
    if limit.key is None:
        note += ": this does not bind"
    elif limit.key == WHOLE:
        note += ": this does not bind, so no weight has to go"
    elif asked.text != WHOLE:
        used = f"{fitted.file_bytes:,} of {asked.number:,} bytes"
        note += f"; so the file takes {used}, and a larger one would be too slow"
    about = {"bound_ms": bound.ms, "threads": bound.threads, "measured_ms": taken}
    tried = [*fitted.facts.get("tried", ()), note]
    return replace(fitted, facts={**fitted.facts, "latency_bound": about, "tried": tried})
