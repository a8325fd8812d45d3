"""How long fitted networks take here, by turns with each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from membound.report.elsewhere import OURS
from membound.run.net import Net, in_integers
from membound.search import timing
from membound.search.deployed import Fitted
from membound.search.measure import FileBytes
from membound.search.problem import State, Target
from membound.store.model import StoredModel
from membound.train.parallel import World


def describe_speed(files: FileBytes, state: State, about: Mapping[str, Any]) -> str:
    """What formats for speed give and cost: the same weights, beside the smallest formats."""
    small = replace(files, prefer="bytes").stored(state)
    slow, fast = timing.measure([Net(small, threads=1), Net(files.stored(state), threads=1)])
    return (
        f"formats for speed: in the smallest formats the same weights take {slow.ms / fast.ms:.2g} times as long on "
        f"one thread of this machine, and {small.file_bytes:,} of these {about['file_bytes']:,} bytes"
    )


def with_latencies(
    results: Sequence[Fitted],
    dense: StoredModel | None,
    eight_bits: StoredModel | None,
    threads: int,
    target: Target,
    world: World,
) -> list[Fitted]:
    """The same with the time of one input among their facts and those of dense, all measured in one race.

    Files with layers that may run in 8-bit integers are timed with these as well, by turns with floats, and dense in 8
    bits is timed with these alone. One process races alone: others would be in its way.
    """
    elsewhere = bool(target.micro)  # whose integers are its own, and whose time is estimated

    def race() -> tuple[list[list[timing.Latency]], list[int | None]]:
        """Of each file: in floats, and in integers where it has any; of dense; of dense in 8 bits. And memory."""
        stored = [found.files.stored(found.model.state_dict()) for found in results]
        groups = [[Net(each, threads=threads)] for each in stored]
        if not elsewhere:
            groups = [[net, *_in_integers(net, threads)] for (net,) in groups]
        memory = [
            integers[0].memory(target.isa, threads=1, max_batch=target.batch).total if integers else None
            for _, *integers in groups
        ]
        groups.append([] if dense is None else [Net(dense, threads=threads)])
        rounded = None if dense is None or elsewhere else eight_bits
        groups.append([] if rounded is None else _in_integers(Net(rounded, threads=threads), threads))
        found = iter(timing.measure([net for group in groups for net in group]))
        return [[next(found) for _ in group] for group in groups], memory

    taken, memory = world.from_leader(race)
    *times, whole, rounded = [[each.facts(threads, on_host=elsewhere) for each in group] for group in taken]
    return [
        replace(
            found,
            facts={**found.facts, **floats, **_of_integers(integers, room)},
            dense=_beside(found.dense, whole, rounded),
        )
        for found, (floats, *integers), room in zip(results, times, memory, strict=True)
    ]


def _of_integers(times: Sequence[Mapping[str, float]], memory: int | None) -> dict[str, Any]:
    return {"engine_int8": {**times[0], "memory_bytes": memory}} if times else {}


def _beside(
    dense: Mapping[str, Any] | None,
    whole: Sequence[Mapping[str, float]],
    rounded: Sequence[Mapping[str, float]],
) -> dict[str, Any] | None:
    """The facts of dense with its time, and that of its 8 bits in integers."""
    if dense is None:
        return None
    found = {**dense, **(whole[0] if whole else {})}
    if rounded and found.get("int8"):
        found["int8"] = {**found["int8"], **rounded[0], "latency_by": OURS}
    return found


def _in_integers(net: Net, threads: int) -> list[Net]:
    other = in_integers(net, threads)
    return [] if other is None else [other]
