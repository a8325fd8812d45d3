"""How long fitted networks take here, by turns with each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from membound.run.net import Net
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

    One process races alone: others would be in its way.
    """
    elsewhere = any("micro" in found.facts for found in results)  # and in the integers of that machine alone

    def race() -> list[timing.Latency]:
        stored = [found.files.stored(found.model.state_dict()) for found in results]
        nets = [Net(each, threads=threads) for each in stored]
        if not elsewhere:
            nets += [Net(each, threads=threads, engine="int8") for each in stored]
        return timing.measure(nets if dense is None else [*nets, Net(dense, threads=threads)])

    times = [taken.facts(threads, on_host=elsewhere) for taken in world.from_leader(race)]
    count, beside = len(results), {} if dense is None else times.pop()
    in_integers = [{}] * count if elsewhere else [{"engine_int8": taken} for taken in times[count:]]
    return [
        replace(
            found,
            facts={**found.facts, **taken, **more},
            dense=None if found.dense is None else {**found.dense, **beside},
        )
        for found, taken, more in zip(results, times[:count], in_integers, strict=True)
    ]
