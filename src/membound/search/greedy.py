"""The paper's greedy search: each round cuts a part of one layer's nonzeros, in one candidate for each layer.

Every candidate goes on from the last winner and is trained; the one with the best validation accuracy wins, and the
next round starts from that network, until the budget holds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from membound.errors import MemboundError, TrainingError
from membound.search.jobs import Job
from membound.search.problem import Problem
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
            raise MemboundError(f"a greedy step of {self.step} cannot be: it is a fraction between 0 and 1")


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
    options = options or Greedy()
    layers = _layers(workshop.problem, options)
    (winner,) = workshop.do([Job(DENSE, seed, about={"round": 0})])
    _check_possible(workshop, layers, min(limits))
    yield Round(0, [winner], winner)
    number = 0
    for limit in sorted(limits, reverse=True):
        while winner["size"] > limit:
            number += 1
            jobs = _candidates(workshop, winner, layers, number, limit, seed, options.step)
            if not jobs:
                raise TrainingError(
                    f"the greedy search cannot go below {winner['size']:,}: every layer is at one weight; allow more"
                )
            found = workshop.do(jobs)
            winner = max(found, key=_merit)
            if "failure" in winner:
                raise TrainingError(f"every candidate of round {number} has failed: {winner['failure']}")
            workshop.forget([facts["job"]["key"] for facts in found if facts is not winner])
            yield Round(number, list(found), winner)


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


def _check_possible(workshop: Workshop, layers: Sequence[str], limit: int) -> None:
    """Before hundreds of rounds are trained that cannot get there."""
    least = workshop.problem.measure.least(layers, workshop.state(DENSE))
    if limit < least:
        raise TrainingError(
            f"the greedy search cannot get to {limit:,}: with one weight a layer it takes {least:,}; allow more"
        )


def _merit(facts: Facts) -> tuple[float, float, str]:
    """The best accuracy wins; then the lowest loss; then the name, so that a search is the same every time."""
    accuracy, loss = facts["accuracy"], facts["loss"]  # what was not finite is none
    return (
        -math.inf if accuracy is None else accuracy,
        -math.inf if loss is None else -loss,
        facts["job"]["key"],
    )


def _candidates(
    workshop: Workshop, winner: Facts, layers: Sequence[str], number: int, limit: int, seed: int, step: float
) -> list[Job]:
    jobs = []
    for name in layers:
        count = _cut(workshop, winner, name, limit, step)
        if count >= 1:
            counts = {**winner["counts"], name: count}
            about = {"round": number, "layer": name}
            key = f"r{number:03d}-{name.removesuffix('.weight')}"
            # Images in another order every round: a candidate sees only some of them, and should not see the same.
            start = winner["job"]["key"]
            jobs.append(
                Job(key, seed + number, start, tuning=True, counts=counts, may_fail=True, about=about)
            )
    return jobs


def _cut(workshop: Workshop, winner: Facts, name: str, limit: int, step: float) -> int:
    """What is left of a layer's nonzeros: a step less, or only as much less as the limit asks for."""
    counts, cost = winner["counts"], workshop.problem.cost
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
