"""How long a fit still takes: the trainings that are under way, and all of them."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

LONG = 60.0  # seconds: who stops then loses something
LEAST_SECONDS = 2.0  # before the pace of a training says anything,
LEAST_PART, ENOUGH_SECONDS = 0.1, 30.0  # and such a part of it or so many seconds: the first steps are slow
# Of a training under a bound: its bits are chosen by then, in projections that take far longer.
SETTLED = 0.25


def expected_work(problem: Problem, bound: Bound, choices: Choices, taught: bool, at_once: int) -> Work:
    """All trainings of a fit from its beginning; `at_once` of them where sizes are searched."""
    whole, data = problem.training.recipe.steps, problem.data
    cost = TAUGHT if taught else BOUNDED
    amounts = len(bound.amounts)
    plain, ruled = int(choices.dense), cost * max(amounts, 1) * bound.members
    judged_apart = data.test is None and data.given is None and data.validation is not None
    if judged_apart and not bound.searches:
        plain, ruled = 2 * plain, 2 * ruled
    if choices.teacher == "auto":
        plain += 1
    if isinstance(choices.widths, tuple):
        trials = sum(size * part for size, part in rounds(len(choices.widths)))
        ruled += trials * cost * amounts
    if bound.within is not None:
        plain += 1
        ruled += cost * _probes(problem, at_once)
    if choices.is_greedy:
        plain += 1
    open_ended = choices.is_greedy or bound.stages is not None
    return Work(plain * whole, whole, ruled * whole, cost, open_ended)


def _probes(problem: Problem, at_once: int) -> int:
    """Networks that are tried until the smallest size is known closely enough."""
    ratio = problem.measure.dense() / (SPARE * problem.least())
    times = math.log(max(ratio, CLOSE)) / math.log(CLOSE)
    return at_once * math.ceil(math.log(max(times, 1.0)) / math.log(at_once + 1))


def left_to_do(work: Work, directory: RunDirectory) -> Work:
    """The same without the trainings that a run directory has finished."""
    finished = {False: 0.0, True: 0.0}  # by whether they are under a bound
    for entry in directory.entries():
        if "job" in entry.facts:
            job = _job_of(entry.facts["job"])
            finished[job.is_ruled] += work.of(job, 1.0, entry.facts["steps"])
    return work.less(finished[False], finished[True])


def _job_of(said: Mapping[str, Any]) -> Job:
    """As much of a job as its work depends on."""
    ruled = said.get("limit") is not None or bool(said.get("counts"))
    return Job(said["key"], 0, limit=1 if ruled else None, network=said.get("network"), about=said["about"])


class Forecast:
    """Follows trainings, and says how long those of this stage and all that is left will take, at their pace.

    Steps under a bound take longer than dense ones. How much longer is unknown until both have been timed: until then
    they count as dense steps, and what is left is "at least" that.

    >>> now = [0.0]
    >>> forecast, job = Forecast(lambda: now[0]), Job("dense", 0)
    >>> forecast.expect(Work(300.0, 100))
    >>> for step in (0, 50):
    ...     now[0] = step / 5
    ...     forecast.note(job, step, 100)
    >>> forecast.left()
    50.0
    >>> forecast.describe()
    'about 10.0 s left, 50.0 s left in all'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.work: Work | None = None
        self.stage = _Stage()
        self.seen: dict[str, _Seen] = {}
        self.first = self.last = (0.0, 0.0)  # when it was looked at, and what had been done
        self.timed: set[bool] = set()  # whether what was done since the first look was under a bound
        self.paces: dict[bool, float] = {}  # of trainings before

    def expect(self, work: Work) -> None:
        """A fit begins that has so much to do."""
        self.work, self.seen = work, {}

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
        begins = not any(seen.missing is not None for seen in self.seen.values())
        is_new = job.key not in self.seen
        done, missing = (self.work.of(job, part, steps) for part in (step / steps, 1 - step / steps))
        self.seen[job.key] = _Seen(job.is_ruled, done, missing)
        self.last = self.clock(), sum(seen.done for seen in self.seen.values())
        if begins:
            self.timed = set()
        self.timed.add(job.is_ruled)
        if begins or (is_new and step > 0):  # steps of an earlier start say nothing about the pace
            self.first = self.last
        if step >= steps:
            self._end(job.key)

    def done(self, job: Job) -> None:
        """A training is finished, or given up."""
        if job.key in self.stage.steps:
            steps = self.stage.steps[job.key]
            self.stage.note(job.key, steps, steps, self.clock())
        seen = self.seen.get(job.key)
        if seen is not None and seen.missing is not None:
            seen.done += seen.missing
            self._end(job.key)

    def _end(self, key: str) -> None:
        self.paces = self._paces()
        self.seen[key].missing = None

    def _paces(self) -> dict[bool, float]:
        """Work a second, with a bound and without; trainings side by side have one pace."""
        seconds, work = self.last[0] - self.first[0], self.last[1] - self.first[1]
        if self.work is None or self._unsettled() or not _says_something(seconds, work / self.work.whole):
            return self.paces
        return {**self.paces, **dict.fromkeys(self.timed, work / seconds)}

    def _unsettled(self) -> bool:
        """Whether a training under a bound is under way whose pace so far is not that of the rest."""
        under_way = [seen for seen in self.seen.values() if seen.is_ruled and seen.missing is not None]
        return any(seen.done < SETTLED * (seen.done + (seen.missing or 0.0)) for seen in under_way)

    def left(self) -> float | None:
        """Seconds to the end of the fit, as of the last look; None if that is not known, or nothing else is to come."""
        paces = self._paces()
        if self.work is None or not paces or (True not in paces and self._unsettled()):
            return None
        under_way = sum(seen.missing or 0.0 for seen in self.seen.values())
        missing = {False: self.work.plain, True: self.work.ruled}
        for seen in self.seen.values():
            missing[seen.is_ruled] -= seen.done
        if sum(missing.values()) - under_way <= 0.01 * self.work.whole:
            return None
        if True not in paces:
            return (max(missing[False], 0.0) + max(missing[True], 0.0) / self.work.bounded) / paces[False]
        other = paces[True]  # as long as dense steps have not been timed
        return sum(max(work, 0.0) / paces.get(kind, other) for kind, work in missing.items())

    def is_long(self) -> bool:
        """Whether minutes may be left: then a person may want to stop, and go on later."""
        return max(self.stage.left(self.clock()) or 0.0, self.left() or 0.0) >= LONG

    @property
    def is_least(self) -> bool:
        """Whether the fit takes that long at least: some of it cannot be known yet."""
        work = self.work
        return work is not None and (work.open_ended or (work.ruled > 0 and True not in self._paces()))

    def describe(self, where: str = "") -> str:
        """For people: of this stage, and `where` that is, then of the whole fit; empty if it is not known."""
        stage, whole = self.stage.left(self.clock()), self.left()
        words = [] if stage is None else [f"about {show_duration(stage)} left{where}"]
        if whole is not None:
            words.append(f"{'at least ' if self.is_least else ''}{show_duration(whole)} left in all")
        return ", ".join(words)


def _says_something(seconds: float, part: float) -> bool:
    """Whether the pace of `part` of a training is more than that of its first steps.

    >>> _says_something(1.0, 0.5), _says_something(10.0, 0.05), _says_something(10.0, 0.2), _says_something(60.0, 0.001)
    (False, False, True, True)
    """
    return part > 0 and seconds >= LEAST_SECONDS and (part >= LEAST_PART or seconds >= ENOUGH_SECONDS)


@dataclass
class _Seen:
    """A training that was looked at."""

    is_ruled: bool  # under a bound
    done: float
    missing: float | None  # None when it is over


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
        if self.first is None:
            return None
        seconds, taken = self.last[0] - self.first[0], self.last[1] - self.first[1]
        if not _says_something(seconds, taken / sum(self.steps.values())):
            return None
        pace = taken / seconds
        missing = sum(self.steps.values()) - self.last[1]
        return max(missing / pace - (now - self.last[0]), 0.0) if missing > 0 else None
