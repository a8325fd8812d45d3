"""How long fitted networks take here, by turns with each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from membound.run.net import Net, may_use_integers
from membound.search import timing
from membound.search.deployed import Fitted
from membound.search.measure import FileBytes
from membound.search.problem import State
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
    results: Sequence[Fitted], dense: StoredModel | None, threads: int, world: World
) -> list[Fitted]:
    """The same with the time of one input among their facts and those of dense, all measured in one race.

    Files with layers that may run in 8-bit integers are timed with these as well, by turns with floats. One process
    races alone: others would be in its way.
    """
    elsewhere = any("micro" in found.facts for found in results)  # and in the integers of that machine alone

    def race() -> list[list[timing.Latency]]:
        """Of each file: in floats, and in integers where it has any; then of dense."""
        stored = [found.files.stored(found.model.state_dict()) for found in results]
        groups = [[Net(each, threads=threads)] for each in stored]
        if not elsewhere:
            groups = [
                [net, *([Net(net.model, threads=threads, engine="int8")] if may_use_integers(net) else [])]
                for (net,) in groups
            ]
        if dense is not None:
            groups.append([Net(dense, threads=threads)])
        found = iter(timing.measure([net for group in groups for net in group]))
        return [[next(found) for _ in group] for group in groups]

    times = [
        [taken.facts(threads, on_host=elsewhere) for taken in group] for group in world.from_leader(race)
    ]
    beside = {} if dense is None else times.pop()[0]
    return [
        replace(
            found,
            facts={**found.facts, **floats, **({"engine_int8": integers[0]} if integers else {})},
            dense=None if found.dense is None else {**found.dense, **beside},
        )
        for found, (floats, *integers) in zip(results, times, strict=True)
    ]
