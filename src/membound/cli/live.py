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

from membound.report.advice import in_options
from membound.report.text import shorten, show_count
from membound.search.forecast import Forecast
from membound.search.jobs import Job, Order, Outcome, Show
from membound.search.place import Watch
from membound.search.problem import Problem
from membound.search.progress import RESUMES, by_lines, describe_done, describe_job, write_line
from membound.search.work import Work
from membound.search.workshop import Workers
from membound.train.run import Progress

MOST_ROWS = 12
MOST_LETTERS = 15  # of the name of a training
PER_SECOND = 4
CHECKING = "checking the bound"  # with one weight in each layer, before anything is trained
IN_TRAINING = "accuracy and size in training; files are measured at the end"


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

    def __init__(self, clock: Callable[[], float] = time.monotonic, hint: str = "") -> None:
        self._hint = hint  # said once, with the first time left that is long
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._stage = CHECKING
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
            self._forecast.begin(
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
            hint = self._hint if self._hint and self._forecast.is_long() else ""
            self._hint = "" if hint else self._hint
        if hint:
            _write(hint)

    def done(self, job: Job, facts: dict[str, Any]) -> None:
        """A training is finished."""
        with self._lock:
            row = self._row(job)
            self._forecast.done(job)
            row.step = row.steps = facts["steps"]
            row.accuracy, row.size, row.done = facts["accuracy"], _size(facts), True

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
        last = next(reversed(self._rows.values()), None)
        in_round = last is not None and "round" in last.job.about
        left = self._forecast.describe(f" in round {last.job.about['round']}" if last and in_round else "")
        return f"{self._stage}{left and f': {left}'}"

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
        more = f"and {hidden} more under way\n" if hidden else ""
        table.caption = f"{more}{IN_TRAINING}"
        return table


def _show_loss(loss: float | None) -> str:
    if loss is None:
        return ""
    return f"{loss:.4f}" if loss < 100 else f"{loss:.2g}"


@contextmanager
def watched(verbose: bool, resumes: bool) -> Iterator[tuple[Watch, Board | None]]:
    """Whom a fit tells, on stderr: a table when a person watches, else lines; `verbose` says all.

    One that cannot be resumed says how it could be, if it takes minutes.
    """
    hint = "" if resumes else RESUMES.format("--run-dir DIR", "command")
    if not sys.stderr.isatty():
        yield by_lines(_write, hint=hint), None
        return
    board = Board(hint=hint)

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
        yield Watch(board.show, done, board.say, note=_write, expect=board.expect), board


def _write(text: str) -> None:
    """A line in the words of a command, which has options."""
    write_line(in_options(text))


def _size(facts: dict[str, Any]) -> int | None:
    """In the unit of its bound; of a microcontroller it is known when the file is."""
    return None if facts.get("size_in") in (None, "bytes of flash") else facts["size"]
