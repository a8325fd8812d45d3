"""Widths of a network, tried at the same bytes: wide and sparse against narrow and dense, by successive halving.

All are trained for a short while and judged on validation images; the better half goes on to a longer training, and so
on. Together the trials take at most SHARE of the steps of one training, to which the final one is added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from membound.errors import MemboundError
from membound.search.allocation import Score
from membound.search.bounds import Average
from membound.search.budget import Limit, make_plans
from membound.search.jobs import Job
from membound.search.problem import Fresh, Problem, fine_tuned
from membound.search.scoring import check_scored
from membound.search.workshop import Workshop, as_candidate
from membound.train.recipe import WarmCosine
from membound.zoo.networks import widened

SHARE = 1.5  # of the steps of one training that all trials may take together


def check_width(model: object) -> None:
    """Whether a network's width can be varied; if not, it is said how."""
    if isinstance(model, nn.Module):
        raise MemboundError(
            "widths needs a function with a parameter `width` that makes the network: a module has one width, which "
            "cannot be changed",
            about="widths",
        )
    widened(model, 1.0)


def of_width(problem: Problem, factor: float) -> Problem:
    """The same problem with a network so many times as wide."""
    if factor == 1:
        return problem
    make = problem.make
    assert isinstance(make, Fresh)
    factory: Callable[..., nn.Module] = make.factory
    return replace(problem, make=Fresh(partial(factory, width=widened(factory, factor))))


def rounds(count: int) -> list[tuple[int, float]]:
    """How many candidates each round has, and for which part of a training: the better half of each is in the next.

    >>> rounds(4), rounds(2), rounds(1)
    ([(4, 0.1875), (2, 0.375)], [(2, 0.75)], [])
    """
    sizes = []
    while count > 1:
        sizes.append(count)
        count = (count + 1) // 2
    return [(size, min(SHARE / len(sizes) / size, 1.0)) for size in sizes]


class WidthSearch:
    """Which width is best for each limit."""

    def __init__(
        self,
        workshop: Workshop,
        factors: Sequence[float],
        seed: int,
        score: Score,
        members: int,
        average: Average,
    ) -> None:
        self.workshop, self.seed, self.score = workshop, seed, score
        self.members, self.average = members, average
        base = workshop.problem
        self.problems = {factor: of_width(base, factor) for factor in sorted(factors)}
        self.candidates: list[dict[str, Any]] = []

    def run(self, limits: Sequence[Limit]) -> list[float]:
        """The best width for each limit, by validation images."""
        left = {limit: self._possible(limit) for limit in limits}
        longest = max(len(each) for each in left.values())
        for number, (_, part) in enumerate(rounds(longest)):
            self._round(number, part, {limit: these for limit, these in left.items() if len(these) > 1}, left)
        return [left[limit][0] for limit in limits]

    def describe(self, limit: Limit, chosen: float) -> str:
        """What was tried for a limit, in a sentence: the scores of the longest training of each width."""
        mine = [each for each in self.candidates if each["budget"] == limit.text]
        last = {each["width"]: each["accuracy"] for each in mine}  # of the last round that it was in
        first = {each["width"]: each["accuracy"] for each in mine if each["round"] == 1}
        if not mine:
            return (
                f"width {chosen:g}, the only one that {'fits' if len(self.problems) > 1 else 'was asked for'}"
            )
        shown = [f"{factor:g}: {_show(score)}" for factor, score in sorted(last.items())]
        gain = ""
        if chosen != 1 and first.get(1.0) is not None and first[chosen] is not None:
            gain = f", {first[chosen] - first[1.0]:+.2f} points against width 1 in the first round"
        return f"width {chosen:g} was taken{gain} (validation, short trainings: {', '.join(shown)})"

    def _possible(self, limit: Limit) -> list[float]:
        """The widths that can be brought under a limit at all."""
        found, reasons = [], []
        for factor, problem in self.problems.items():
            try:
                self._share(problem, limit)
                found.append(factor)
            except MemboundError as error:
                reasons.append(error)
        if not found:
            raise reasons[0]
        return found

    def _share(self, problem: Problem, limit: Limit) -> int:
        return make_plans(problem, [limit], self.members, self.average, self.seed)[0].share

    def _round(
        self, number: int, part: float, trying: dict[Limit, list[float]], left: dict[Limit, list[float]]
    ) -> None:
        facts: dict[tuple[Limit, float], dict[str, Any]] = {}
        base = self.workshop.problem
        try:
            for factor, problem in self.problems.items():
                limits = [limit for limit, these in trying.items() if factor in these]
                self.workshop.problem = problem
                jobs = [self._job(problem, limit, factor, number, part) for limit in limits]
                found = self.workshop.do(jobs, weights=False)
                facts |= {(limit, factor): each for limit, each in zip(limits, found, strict=True)}
        finally:
            self.workshop.problem = base
        for limit, these in trying.items():
            scores = {factor: facts[limit, factor]["accuracy"] for factor in these}
            check_scored([facts[limit, factor] for factor in these], "every width")
            best = sorted(these, key=lambda factor: math.inf if scores[factor] is None else -scores[factor])
            left[limit] = best[: (len(these) + 1) // 2]
            self.candidates += [as_candidate(facts[limit, factor], factor in left[limit]) for factor in these]

    def _job(self, problem: Problem, limit: Limit, factor: float, number: int, part: float) -> Job:
        whole = problem.training.recipe
        steps = max(int(part * whole.steps), 1)
        peak = fine_tuned(whole, steps).lr(0)
        recipe = replace(whole, steps=steps, lr=WarmCosine(peak, min(200, steps // 10), steps))
        return Job(
            f"width-{factor:g}-{limit.label}-{number}",
            self.seed,
            recipe=recipe,
            limit=self._share(problem, limit),
            score=self.score,
            may_fail=True,
            about={"budget": limit.text, "width": factor, "round": number + 1},
        )


def _show(score: float | None) -> str:
    return "diverged" if score is None else f"{score:.2f}"
