"""A fit as it goes, for who watches: a small table of the trainings under way and of those just done."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from membound.report.text import shorten, show_count, show_duration
from membound.search.forecast import Forecast
from membound.search.jobs import Job, Order, Outcome, Show
from membound.search.place import Watch
from membound.search.problem import Problem
from membound.search.progress import by_lines, describe_done, describe_job, write_line
from membound.search.work import Work
from membound.search.workshop import Workers
from membound.train.run import Progress

MOST_ROWS = 12
MOST_LETTERS = 15  # of the name of a training
PER_SECOND = 4


@dataclass
class _Row:
    """One training."""

    job: Job
    step: int = 0
    steps: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    size: int | None = None
    done: bool = False


class Board:
    """What is known of the trainings of a fit; rich draws it from a thread of its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._stage = "preparing"
        self._pace = _Pace()
        self._forecast = Forecast(clock)

    def expect(self, work: Work) -> None:
        """How much the whole fit has to do."""
        with self._lock:
            self._forecast.expect(work)

    def say(self, text: str) -> None:
        """What the fit is about to do."""
        with self._lock:
            self._stage = text

    def begin(self, problem: Problem, jobs: Sequence[Job]) -> None:
        """These are next, and nothing else until they are done."""
        training = problem.training
        with self._lock:
            self._pace = _Pace(
                {job.key: (training.tuning if job.tuning else training.recipe).steps for job in jobs}
            )

    def show(self, job: Job, progress: Progress) -> None:
        """A training is this far."""
        with self._lock:
            row = self._row(job)
            row.step, row.steps, row.loss = progress.step, progress.steps, progress.loss
            if progress.score is not None:
                row.accuracy = progress.score.accuracy
            self._forecast.note(job, progress.step, progress.steps)
            self._pace.note(job.key, progress.step, progress.steps, self._clock())

    def done(self, job: Job, facts: dict[str, Any]) -> None:
        """A training is finished."""
        with self._lock:
            row = self._row(job)
            self._forecast.done(job)
            row.step = row.steps = facts["steps"]
            row.accuracy, row.size, row.done = facts["accuracy"], facts["size"], True
            self._pace.note(job.key, facts["steps"], facts["steps"], self._clock())

    def count(self, workers: Workers) -> Workers:
        """The same workers, whose orders are noted here: only then is it known how much there is to do."""

        def noted(
            problem: Problem, orders: Sequence[Order], show: Show | None
        ) -> Iterator[tuple[Job, Outcome]]:
            self.begin(problem, [order.job for order in orders])
            return workers(problem, orders, show)

        return noted

    def _row(self, job: Job) -> _Row:
        """The row of a job; of those done only as many are kept as are shown."""
        row = self._rows.setdefault(job.key, _Row(job))
        if row.done:  # the same job again, for other values
            row = self._rows[job.key] = _Row(job)
        finished = [key for key, each in self._rows.items() if each.done]
        for key in finished[: max(len(finished) - MOST_ROWS, 0)]:
            del self._rows[key]
        return row

    def rows(self) -> list[_Row]:
        """At most so many: what is under way first, then what was done last, in the order they began."""
        active = [row for row in self._rows.values() if not row.done][:MOST_ROWS]
        finished = [row for row in self._rows.values() if row.done]
        room = MOST_ROWS - len(active)
        return finished[len(finished) - min(room, len(finished)) :] + active

    def headline(self) -> str:
        """The stage, and the time that is left of it and of all; of a search it is not known how many rounds follow."""
        left = self._pace.left(self._clock())
        if left is None:
            return self._stage
        last = next(reversed(self._rows.values())).job
        part = f" in round {last.about['round']}" if "round" in last.about else ""
        whole = self._forecast.describe()
        return f"{self._stage}: about {show_duration(left)} left{part}{whole and f', {whole}'}"

    def __rich__(self) -> Table:
        with self._lock:
            return self._draw()

    def _draw(self) -> Table:
        rows = self.rows()
        table = Table(
            title=self.headline(), title_justify="left", title_style="bold",
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
        )  # fmt: skip
        table.add_column("network", no_wrap=True, min_width=12)  # 60 columns in all
        for head, width in (("step", 14), ("loss", 6), ("accuracy", 8), ("size", 9)):
            table.add_column(head, justify="right", no_wrap=True, min_width=width)
        for row in rows:
            steps = f"{row.step:,}/{row.steps:,}" if row.steps else ""
            table.add_row(
                shorten(describe_job(row.job), MOST_LETTERS),
                "done" if row.done else steps,
                _show_loss(row.loss),
                "" if row.accuracy is None else f"{row.accuracy:.2f} %",
                "" if row.size is None else show_count(row.size),
                style="dim" if row.done else None,
            )
        hidden = sum(not row.done for row in self._rows.values()) - sum(not row.done for row in rows)
        if hidden:
            table.caption = f"and {hidden} more under way"
        return table


class _Pace:
    """Steps of a batch of trainings that belong together, and how fast they are taken."""

    def __init__(self, steps: dict[str, int] | None = None) -> None:
        self.steps = steps or {}
        self.taken: dict[str, int] = {}
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] = (0.0, 0)

    def note(self, key: str, step: int, steps: int, now: float) -> None:
        """A training is this far; what it had taken when it was first seen may be from an earlier start."""
        together = key not in self.taken and step < steps and self.first is not None
        if (
            together and self.last == self.first
        ):  # they began side by side: the pace is seen from the last of them on
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


def _show_loss(loss: float | None) -> str:
    if loss is None:
        return ""
    return f"{loss:.4f}" if loss < 100 else f"{loss:.2g}"


@contextmanager
def watched(verbose: bool, quiet: bool = False) -> Iterator[tuple[Watch, Board | None]]:
    """Whom a fit tells: a table when a person watches, else lines, unless `quiet`; `verbose` says all."""
    if not sys.stderr.isatty():
        yield by_lines() if verbose or not quiet else Watch(), None
        return
    board = Board()

    def done(job: Job, facts: dict[str, Any]) -> None:
        board.done(job, facts)
        if verbose:
            write_line(describe_done(job, facts))

    live = Live(
        console=Console(stderr=True),
        get_renderable=lambda: board,
        refresh_per_second=PER_SECOND,
        transient=True,
        redirect_stdout=False,
    )
    with live:
        yield Watch(board.show, done, board.say, note=write_line, expect=board.expect), board
