"""The paper's greedy search: each round cuts a part of one layer's nonzeros, in one candidate for each layer.

Every candidate goes on from the last winner and is trained; the one with the best validation accuracy wins, and the
next round starts from that network, until the budget holds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from membound.errors import MemboundError, TrainingError
from membound.search.jobs import Job
from membound.search.problem import Problem
from membound.search.scoring import check_scored
from membound.search.workshop import Workshop

Facts = Mapping[str, Any]
DENSE = "dense-part"  # the job of the network that the search starts from


@dataclass(frozen=True)
class Greedy:
    """How the search goes: `step` is the part of a layer's nonzeros that a candidate loses."""

    step: float = 0.2
    layers: Sequence[str] | None = None  # the weights that may be cut; all bounded ones by default

    def __post_init__(self) -> None:
        if not 0 < self.step < 1:
            raise MemboundError(f"greedy_step must be a fraction between 0 and 1, got {self.step}")


@dataclass(frozen=True)
class Round:
    """One round: its candidates' facts, and those of the one that won."""

    number: int
    candidates: list[Facts]
    winner: Facts


def search(
    workshop: Workshop, limits: Sequence[int], seed: int, options: Greedy | None = None
) -> Iterator[Round]:
    """Rounds until the least of `limits` holds; the first is the dense network alone."""
    going = Search(workshop, limits, seed, options)
    while jobs := going.jobs():
        yield going.take(workshop.do(jobs))


def search_together(workshop: Workshop, searches: Sequence["Search"]) -> list[list[Round]]:
    """The rounds of several searches, whose candidates are trained side by side; their prefixes must differ."""
    rounds: list[list[Round]] = [[] for _ in searches]
    while any(waiting := [each.jobs() for each in searches]):
        found = iter(workshop.do([job for jobs in waiting for job in jobs]))
        for each, jobs, mine in zip(searches, waiting, rounds, strict=True):
            if jobs:
                mine.append(each.take([next(found) for _ in jobs]))
    return rounds


class Search:
    """One search, a round at a time: the jobs of the next round, then what came of them."""

    def __init__(
        self,
        workshop: Workshop,
        limits: Sequence[int],
        seed: int,
        options: Greedy | None = None,
        prefix: str = "",
        also: Sequence[str] = (),
    ) -> None:
        self.workshop, self.seed, self.prefix, self.also = workshop, seed, prefix, also
        self.options = options or Greedy()
        self.layers = _layers(workshop.problem, self.options)
        self.limits = sorted(limits, reverse=True)
        self.number = 0
        self.winner: Facts | None = None

    def jobs(self) -> list[Job]:
        """The candidates of the next round; none when the last limit holds."""
        if self.winner is None:
            return [Job(self.prefix + DENSE, self.seed, also=self.also, about={"round": 0})]
        size = self.winner["size"]
        left = [limit for limit in self.limits if limit < size]
        if not left:
            return []
        found = self._candidates(self.winner, left[0])
        if not found:
            raise TrainingError(
                f"the greedy search cannot go below {size:,}: every layer is down to one weight; raise the budget"
            )
        return found

    def take(self, found: Sequence[Facts]) -> Round:
        """The round that these are the facts of."""
        if self.winner is None:
            (self.winner,) = found
            check_scored(found, "the dense network, which the search starts from,")
            self._check_possible()
            return Round(0, list(found), self.winner)
        self.number += 1
        self.winner = max(found, key=_merit)
        if "failure" in self.winner:
            raise TrainingError(
                f"every candidate of round {self.number} has failed: {self.winner['failure']}"
            )
        check_scored(found, f"every candidate of round {self.number}")
        self.workshop.forget([facts["job"]["key"] for facts in found if facts is not self.winner])
        return Round(self.number, list(found), self.winner)

    def _check_possible(self) -> None:
        """Before hundreds of rounds are trained that cannot get there."""
        limit, workshop = self.limits[-1], self.workshop
        least = workshop.problem.measure.least(self.layers, workshop.state(self.prefix + DENSE))
        if limit < least:
            raise TrainingError(
                f"the greedy search cannot get to {limit:,}: with one weight a layer it takes {least:,}; raise the "
                "budget"
            )

    def _candidates(self, winner: Facts, limit: int) -> list[Job]:
        jobs = []
        number = self.number + 1
        for name in self.layers:
            count = _cut(self.workshop.problem, winner, name, limit, self.options.step)
            if count >= 1:
                counts = {**winner["counts"], name: count}
                about = {"round": number, "layer": name}
                key = f"{self.prefix}r{number:03d}-{name.removesuffix('.weight')}"
                # Images in another order every round: a candidate sees only some, and should not see the same.
                job = Job(
                    key, self.seed + number, winner["job"]["key"], tuning=True, counts=counts, about=about
                )
                jobs.append(replace(job, also=self.also, may_fail=True))
        return jobs


def fewest_rounds(problem: Problem, winner: Facts, limit: int, options: Greedy | None = None) -> int:
    """How many rounds a search takes at least from here: each of them cuts the layer that takes the most away."""
    options, rounds = options or Greedy(), 0
    layers, types = _layers(problem, options), winner.get("types") or problem.types
    counts, size = dict(winner["counts"]), float(winner["size"])
    while size > limit:
        now = {**winner, "counts": counts, "size": size}
        cuts = {name: _cut(problem, now, name, limit, options.step) for name in layers}
        costs = {
            name: float(problem.cost({**counts, name: count}, types))
            for name, count in cuts.items()
            if count >= 1
        }
        if not costs:
            break
        best = min(costs, key=costs.__getitem__)
        size += costs[best] - float(problem.cost(counts, types))
        counts[best] = cuts[best]
        rounds += 1
    return rounds


def _layers(problem: Problem, options: Greedy) -> Sequence[str]:
    """The weights that may be cut."""
    if problem.data.validation is None:
        raise MemboundError(
            "a greedy search chooses by validation images, and there are none: hold some of the training images out"
        )
    layers = problem.weights if options.layers is None else options.layers
    if unknown := [name for name in layers if name not in problem.weights]:
        raise MemboundError(
            f"{unknown[0]!r} cannot be cut: the weights under the bound are {', '.join(problem.weights)}"
        )
    return layers


def _merit(facts: Facts) -> tuple[float, float, str]:
    """The best accuracy wins; then the lowest loss; then the name, so that a search is the same every time."""
    accuracy, loss = facts["accuracy"], facts["loss"]  # what was not finite is none
    return (
        -math.inf if accuracy is None else accuracy,
        -math.inf if loss is None else -loss,
        facts["job"]["key"],
    )


def _cut(problem: Problem, winner: Facts, name: str, limit: int, step: float) -> int:
    """What is left of a layer's nonzeros: a step less, or only as much less as the limit asks for."""
    counts, types = winner["counts"], winner.get("types") or problem.types

    def cost(counts: Mapping[str, int]) -> Any:
        return problem.cost(counts, types)

    full: int = min(counts[name] - 1, max(round(counts[name] * (1 - step)), 1))

    def size(count: int) -> float:  # what the network takes besides is what it took
        return float(winner["size"] + cost({**counts, name: count}) - cost(counts))

    if full < 1 or size(full) > limit:
        return full
    low: int
    high: int
    low, high = full, counts[name]  # within the limit, and not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low
