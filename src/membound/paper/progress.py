"""How far a figure is, in lines: networks that are trained, and between them the steps of a long one."""

import threading
import time
from collections.abc import Callable
from typing import Any

from membound.paper.lab import count_networks
from membound.report.text import show_duration
from membound.search.jobs import Job
from membound.train.run import Progress

SECONDS = 5.0  # between two lines


class Lines:
    """Says no more than a person can read; it may be called from several threads.

    >>> lines = Lines(print, clock=iter([0.0, 2.0, 6.0, 20.0]).__next__)
    >>> lines.begin(4)
    >>> for _ in range(2):
    ...     lines.done(Job("dense", 0), {})
      2 of 4 networks trained, about 6.0 s left
    >>> lines.show(Job("dense", 0), Progress(10, 40, 0.25))
      2 of 4 networks trained, now at step 10 of 40, about 15.6 s left
    >>> lines = Lines(print, clock=iter([0.0, 6.0]).__next__)
    >>> lines.begin(None)
    >>> lines.done(Job("dense", 0), {})
      1 network trained
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock, self.lock = write, clock, threading.Lock()
        self.total: int | None = None
        self.trained, self.begun, self.said = 0, 0.0, 0.0
        self.under_way: dict[tuple[str, int], float] = {}  # what part of each is done

    def begin(self, networks: int | None) -> None:
        """So many are to be trained; None where nobody can say, as of a search."""
        with self.lock:
            self.total, self.trained, self.under_way = networks, 0, {}
            self.begun = self.said = self.clock()

    def show(self, job: Job, progress: Progress) -> None:
        with self.lock:
            self.under_way[job.key, job.seed] = progress.step / progress.steps
            self._say(f", now at step {progress.step:,} of {progress.steps:,}")

    def done(self, job: Job, facts: dict[str, Any]) -> None:
        with self.lock:
            self.trained += 1
            self.under_way.pop((job.key, job.seed), None)
            self._say("")

    def _say(self, more: str) -> None:
        now = self.clock()
        if now - self.said < SECONDS:
            return
        self.said = now
        networks = count_networks(self.trained)  # of so many, where that is known
        if self.total is not None:
            networks = f"{self.trained:,} of {count_networks(self.total)}"
        left, done = "", self.trained + sum(self.under_way.values())
        if self.total is not None and 0 < done < self.total:
            seconds = (now - self.begun) / done * (self.total - done)
            left = f", about {show_duration(seconds)} left"
        self.write(f"  {networks} trained{more}{left}")
