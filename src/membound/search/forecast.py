"""How long a fit still takes: the trainings that are under way, and all of them."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from membound.report.text import show_duration
from membound.search.bounds import Bound
from membound.search.jobs import Job
from membound.search.ledger import RunDirectory
from membound.search.problem import Problem
from membound.search.request import Choices
from membound.search.widths import rounds
from membound.search.within import CLOSE, SPARE
from membound.search.work import BOUNDED, TAUGHT, Work

LEAST_SECONDS = 2.0  # before the pace of a training says anything


def expected_work(problem: Problem, bound: Bound, choices: Choices, taught: bool, at_once: int) -> Work:
    """All trainings of a fit from its beginning; `at_once` of them where sizes are searched."""
    whole, data = problem.training.recipe.steps, problem.data
    cost = TAUGHT if taught else BOUNDED
    final = max(len(bound.amounts), 1) * bound.members * cost + choices.dense
    judged_apart = data.test is None and data.given is None and data.validation is not None
    trainings = 2 * final if judged_apart and not bound.searches else final
    if choices.teacher == "auto":
        trainings += 1
    if isinstance(choices.widths, tuple):
        trials = sum(size * part for size, part in rounds(len(choices.widths)))
        trainings += trials * cost * len(bound.amounts)
    if bound.within is not None:
        trainings += 1 + cost * _probes(problem, at_once)
    if choices.is_greedy:
        trainings += 1
    open_ended = choices.is_greedy or bound.stages is not None
    return Work(trainings * whole, whole, cost, open_ended)


def _probes(problem: Problem, at_once: int) -> int:
    """Networks that are tried until the smallest size is known closely enough."""
    ratio = problem.measure.dense() / (SPARE * problem.least())
    times = math.log(max(ratio, CLOSE)) / math.log(CLOSE)
    return at_once * math.ceil(math.log(max(times, 1.0)) / math.log(at_once + 1))


def left_to_do(work: Work, directory: RunDirectory) -> Work:
    """The same without the trainings that a run directory has finished."""
    finished = 0.0
    for entry in directory.entries():
        if "job" in entry.facts:
            finished += _of_entry(work, entry.facts)
    return replace(work, steps=work.steps - finished)


def _of_entry(work: Work, facts: Mapping[str, Any]) -> float:
    said = facts["job"]
    ruled = said.get("limit") is not None or bool(said.get("counts"))
    job = Job(said["key"], 0, limit=1 if ruled else None, network=said.get("network"), about=said["about"])
    return work.of(job, 1.0, facts["steps"])


class Forecast:
    """Follows trainings, and says how long those of this stage and all that is left will take, at their pace.

    >>> now = [0.0]
    >>> forecast, job = Forecast(lambda: now[0]), Job("dense", 0)
    >>> forecast.expect(Work(300.0, 100))
    >>> for step in (0, 50):
    ...     now[0] = step / 5
    ...     forecast.note(job, step, 100)
    >>> forecast.left()
    50.0
    >>> forecast.describe()
    'about 10.0 s left, 50.0 s for the whole fit'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.work: Work | None = None
        self.stage = _Stage()
        self.taken: dict[str, float] = {}
        self.missing: dict[str, float] = {}  # of those under way
        self.first = self.last = (0.0, 0.0)  # when it was looked at, and what had been done
        self.pace: float | None = None  # of trainings before

    def expect(self, work: Work) -> None:
        """A fit begins that has so much to do."""
        self.work, self.taken, self.missing = work, {}, {}

    def begin(self, steps: Mapping[str, int]) -> None:
        """These trainings, of so many steps, are next, and nothing else until they are done."""
        self.stage = _Stage(dict(steps))

    def note(self, job: Job, step: int, steps: int) -> None:
        """A training is this far; others that begin when none is under way have a pace of their own."""
        if self.stage.is_over:
            self.stage = _Stage()
        self.stage.note(job.key, step, steps, self.clock())
        if self.work is None:
            return
        begins = not self.missing
        known = self.taken.get(job.key)
        self.taken[job.key] = self.work.of(job, step / steps, steps)
        self.missing[job.key] = self.work.of(job, 1 - step / steps, steps)
        self.last = self.clock(), sum(self.taken.values())
        if begins or (known is None and step > 0):  # steps of an earlier start say nothing about the pace
            self.first = self.last
        if step >= steps:
            self._end(job.key)

    def done(self, job: Job) -> None:
        """A training is finished, or given up."""
        if job.key in self.stage.steps:
            steps = self.stage.steps[job.key]
            self.stage.note(job.key, steps, steps, self.clock())
        if job.key in self.missing:
            self.taken[job.key] += self.missing[job.key]
            self._end(job.key)

    def _end(self, key: str) -> None:
        self.pace = self._pace()
        del self.missing[key]

    def _pace(self) -> float | None:
        seconds, work = self.last[0] - self.first[0], self.last[1] - self.first[1]
        return work / seconds if seconds >= LEAST_SECONDS and work > 0 else self.pace

    def left(self) -> float | None:
        """Seconds to the end of the fit, as of the last look; None if that is not known, or nothing else is to come."""
        pace = self._pace()
        if self.work is None or pace is None:
            return None
        missing = self.work.steps - sum(self.taken.values())
        return missing / pace if missing - sum(self.missing.values()) > 0.01 * self.work.whole else None

    def describe(self, where: str = "") -> str:
        """For people: of this stage, and `where` that is, then of the whole fit; empty if it is not known."""
        stage, whole = self.stage.left(self.clock()), self.left()
        words = [] if stage is None else [f"about {show_duration(stage)} left{where}"]
        if whole is not None and self.work is not None:
            words.append(
                f"{'at least ' if self.work.open_ended else ''}{show_duration(whole)} for the whole fit"
            )
        return ", ".join(words)


@dataclass
class _Stage:
    """Steps of trainings that belong together, and how fast they are taken."""

    steps: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    first: tuple[float, int] | None = None
    last: tuple[float, int] = (0.0, 0)

    @property
    def is_over(self) -> bool:
        return self.taken == self.steps

    def note(self, key: str, step: int, steps: int, now: float) -> None:
        """A training is this far; what it had taken when it was first seen may be from an earlier start."""
        together = key not in self.taken and step < steps and self.first is not None
        if together and self.last == self.first:  # side by side: the pace is seen from the last of them on
            self.first = None
        self.steps[key], self.taken[key] = steps, step
        self.last = now, sum(self.taken.values())
        self.first = self.first or self.last

    def left(self, now: float) -> float | None:
        """Seconds to the end at the pace so far, or None as long as there is none."""
        if self.first is None or self.last[1] <= self.first[1] or self.last[0] <= self.first[0]:
            return None
        pace = (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])
        missing = sum(self.steps.values()) - self.last[1]
        return max(missing / pace - (now - self.last[0]), 0.0) if missing > 0 else None
