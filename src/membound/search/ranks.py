"""The run directory of a fit that several processes of a torchrun do together.

The leader has the directory. Every other process keeps what is finished in a folder of its own, which vanishes, so that
all go the same way; they begin with what the leader has finished before, and read checkpoints where the leader writes
them.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from membound.errors import MemboundError
from membound.search.differences import Differing, find_differences
from membound.search.ledger import JOBS, RunDirectory, open_run
from membound.train.parallel import World


@contextmanager
def open_together(
    world: World, path: Path | None, config: Mapping[str, Any], differing: Differing
) -> Iterator[RunDirectory]:
    """`open_run` in the leader, and a copy of what it holds in the others."""
    check_alike(world, config)
    with ExitStack() as stack:
        found: list[RunDirectory] = []

        def open_here() -> list[tuple[str, bool]]:
            found.append(stack.enter_context(open_run(path, config, differing=differing)))
            return [(entry.key, entry.has_weights) for entry in found[0].entries()]

        finished = world.from_leader(open_here)
        if not world.leads:
            found.append(stack.enter_context(open_run(None, config)))
        (directory,) = found
        if not world.leads and path is not None:
            directory.jobs = path / JOBS
        for key, has_weights in finished if world.size > 1 else ():
            facts, tensors = world.from_leader(partial(_content, directory, key, has_weights))
            if not world.leads:
                directory.record(key, facts, tensors)
        yield directory


def _content(directory: RunDirectory, key: str, has_weights: bool) -> tuple[dict[str, Any], Any]:
    entry = directory.finished(key)
    assert entry is not None
    return entry.facts, directory.weights(key) if has_weights else None


def check_alike(world: World, config: Mapping[str, Any]) -> None:
    """Whether all processes were asked for the same fit: else they would wait for each other forever."""
    leaders = world.from_leader(lambda: config)
    differs = next(find_differences(leaders, config), None)
    where = (
        "" if differs is None else f": {differs[0]} is {differs[1]} in the first and {differs[2]} in this one"
    )
    if world.sum(float(differs is not None))[0]:
        raise MemboundError(
            f"the processes of this torchrun were not asked for the same fit{where}; give all of them the same "
            "network, data and options"
        )
