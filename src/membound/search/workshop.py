"""Where jobs meet the ledger: what is finished is never done again, what is not goes to the workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from membound.search.jobs import Job, Order, Outcome, Show, carry_out
from membound.search.ledger import RunDirectory
from membound.search.problem import Problem
from membound.train.batches import Feeders
from membound.train.parallel import join

# Does orders, in any order, and gives outcomes as they come.
Workers = Callable[[Problem, Sequence[Order], Show | None], Iterator[tuple[Job, Outcome]]]
Finished = Callable[[Job, dict[str, Any]], None]


def this_process(device: torch.device) -> Workers:
    """All work is done here, on one device, to which the images go once.

    Under torchrun all of its processes do it together, and come to what the leader finds.
    """
    feeders: Feeders = {}
    world = join(device)

    def work(problem: Problem, orders: Sequence[Order], show: Show | None) -> Iterator[tuple[Job, Outcome]]:
        for job, outcome in carry_out(problem, orders, device, show, feeders, world):
            yield job, Outcome(world.from_leader(outcome.facts.copy), outcome.state)

    return work


class Workshop:
    """Has jobs done and keeps what came of them."""

    def __init__(
        self,
        problem: Problem,
        directory: RunDirectory,
        workers: Workers,
        show: Show | None = None,
        tell: Finished | None = None,
        tensorboard: bool = False,
    ) -> None:
        self.problem, self.directory, self.workers = problem, directory, workers
        self.show, self.tell, self.tensorboard = show, tell, tensorboard

    def do(self, jobs: Sequence[Job], weights: bool = True) -> list[dict[str, Any]]:
        """The facts of every job, in this order; those that the ledger has are not done again.

        Without `weights` nobody can go on from these networks.
        """
        waiting = [job for job in jobs if not self.has(job.key)]
        starts: dict[str, dict[str, Tensor]] = {}
        for job in waiting:
            if job.start is not None and job.start not in starts:
                starts[job.start] = self.directory.weights(job.start)
        orders = [
            Order(
                job,
                None if job.start is None else starts[job.start],
                self.directory.job_folder(job.key),
                self.directory.path / "tensorboard" / job.key if self.tensorboard else None,
            )
            for job in waiting
        ]
        if orders:
            for job, outcome in self.workers(self.problem, orders, self.show):
                self.directory.record(
                    job.key, outcome.facts, outcome.state if weights and not outcome.failed else None
                )
                self.directory.log(f"{job.key}: {_summary(outcome.facts)}")
                if self.tell is not None:
                    self.tell(job, outcome.facts)
        return [self.facts(job.key) for job in jobs]

    def has(self, key: str) -> bool:
        """Whether a job is finished."""
        return self.directory.finished(key) is not None

    def state(self, key: str) -> dict[str, Tensor]:
        """The weights of a finished job."""
        return self.directory.weights(key)

    def facts(self, key: str) -> dict[str, Any]:
        """What is known of a finished job."""
        entry = self.directory.finished(key)
        assert entry is not None
        return entry.facts

    def forget(self, keys: Sequence[str]) -> None:
        """Drop the weights of jobs that nobody will go on from."""
        for key in keys:
            self.directory.forget_weights(key)


def as_candidate(facts: Mapping[str, Any], won: bool) -> dict[str, Any]:
    """The facts of a job for the history of a search, without its curves."""
    kept = ("accuracy", "size", "nonzeros", "weight_nonzeros", "counts", "types", "steps", "seconds")
    about = facts["job"]["about"]
    return {"key": facts["job"]["key"], **about, **{name: facts.get(name) for name in kept}, "won": won}


def _summary(facts: dict[str, Any]) -> str:
    if "failure" in facts:
        return str(facts["failure"])
    accuracy = "" if facts["accuracy"] is None else f"accuracy {facts['accuracy']:.3f}, "
    return f"{accuracy}size {facts['size']:,}, {facts['nonzeros']:,} nonzeros, {facts['seconds']:.1f} s"
