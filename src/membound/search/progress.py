"""A fit as lines on stderr, for a pipe, a log or a notebook: what begins, how far it is, what is done."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from membound.report.text import show_duration, show_own
from membound.search.forecast import Forecast
from membound.search.jobs import Job
from membound.search.ledger import JOBS, RunDirectory
from membound.search.place import Place, Watch
from membound.search.request import Choices
from membound.train.resume import saved_step
from membound.train.run import Progress
from membound.units import name_budget

RESUMES = "if this may be stopped, give {}: then the same {} goes on where it was"
SECONDS = 10.0  # between two lines about the same stage of a fit


def write_line(text: str) -> None:
    """To stderr, at once; stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def watch_of(place: Place, choices: Choices) -> Watch:
    """Who is told: the watch that was given, or lines; these name a strategy that was asked for."""
    asked = None if choices.strategy is None else choices.strategy_name
    hint = RESUMES.format("run_dir='a folder'", "call") if place.run_dir is None else ""
    return place.watch or (by_lines(strategy=asked, hint=hint) if place.progress else Watch())


def by_lines(
    write: Callable[[str], None] = write_line,
    clock: Callable[[], float] = time.monotonic,
    every: float = SECONDS,
    strategy: str | None = None,
    hint: str = "",
) -> Watch:
    """Tells what a fit does in lines: each stage, each network that is done, and between them at most one in a while.

    A `strategy` tells apart the lines of several fits. A `hint` is said once, with the first time that is long.

    >>> watch = by_lines(print, clock=iter([0.0, 5.0, 12.0]).__next__)
    >>> watch.say("training the dense network")
    training the dense network
    >>> for step in (1, 50, 100):
    ...     watch.show(Job("dense", 0), Progress(step, 400, 0.25))
    dense: step 100 of 400, loss 0.2500, about 36.4 s left
    """
    lines = _Lines(write, clock, every, strategy, hint)
    return Watch(lines.show, lines.done, lines.say, note=lines.say, expect=lines.forecast.expect)


class _Lines:
    """Says no more than a person can read; it may be called from several threads."""

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float],
        every: float,
        strategy: str | None,
        hint: str,
    ) -> None:
        self.write, self.clock, self.every, self.strategy = write, clock, every, strategy
        self.hint = hint
        self.lock = threading.Lock()
        self.said: float | None = None
        self.now = 0.0
        self.forecast = Forecast(lambda: self.now)

    def say(self, text: str) -> None:
        with self.lock:
            self.write(text)

    def show(self, job: Job, progress: Progress) -> None:
        with self.lock:
            self.now = now = self.clock()
            self.forecast.note(job, progress.step, progress.steps)
            if self.said is None:
                self.said = now
            if now - self.said < self.every or progress.step == progress.steps:
                return
            self.said = now
            far = f"step {progress.step:,} of {progress.steps:,}, {progress.say_loss()}"
            left = self.forecast.describe()
            self.write(f"{describe_job(job, self.strategy)}: {far}{left and f', {left}'}")
            if self.hint and self.forecast.is_long():
                self.write(self.hint)
                self.hint = ""

    def done(self, job: Job, facts: dict[str, Any]) -> None:
        with self.lock:
            self.forecast.done(job)
            self.write(describe_done(job, facts, self.strategy))


def tell_resumed(directory: RunDirectory, watch: Watch) -> None:
    """Where a run goes on: how many networks are finished, and from which step the others go on."""
    finished = len(directory.entries())
    found = ((folder.name, saved_step(folder)) for folder in sorted((directory.path / JOBS).glob("*")))
    under_way = [f"{name} goes on from step {step:,}" for name, step in found if step is not None]
    if finished or under_way:
        networks = "network is" if finished == 1 else "networks are"
        parts = [f"{finished} {networks} finished", *under_way]
        watch.warn(f"resumed {directory.path}: {', '.join(parts)}")


def describe_done(job: Job, facts: dict[str, Any], strategy: str | None = None) -> str:
    """One line about a network that is trained, or why it is not; its file is measured at the end.

    >>> facts = {"accuracy": 98.0, "errors": 20, "images": 1000, "size": 1990, "size_in": "bytes", "seconds": 12.0}
    >>> describe_done(Job("final-2KB-0", 0, limit=2000, about={"budget": "2KB"}), facts)
    '2KB: trained, accuracy 98.00 % in torch on 1,000 examples, 1,990 of 2,000 bytes, 12.0 s'
    """
    if "failure" in facts:
        return f"{describe_job(job, strategy)}: {facts['failure']}"
    accuracy = ""
    if facts["accuracy"] is not None:
        own = facts["errors"] is None  # a score of the user's own
        found = f"score {show_own(facts['accuracy'])}" if own else f"accuracy {facts['accuracy']:.2f} %"
        count = f" on {facts['images']:,} examples" if facts.get("images") else ""
        accuracy = f"{found} in torch{count}, "
    # Of a dense network what is measured is its size in the values that are fitted, which nobody asked for.
    size = "" if job.limit is None and job.counts is None else f"size {facts['size']:,}, "
    if job.limit is not None:
        size = f"{_describe_size(facts['size'], facts.get('size_in'), job.limit)}, "
    return f"{describe_job(job, strategy)}: trained, {accuracy}{size}{show_duration(facts['seconds'])}"


def _describe_size(size: int, unit: str | None, limit: int) -> str:
    """What a bound counts; where there are too many, the last weights go when the file is written.

    The flash of a microcontroller is known when the file is: weights may have fewer values than their bits allow.

    >>> _describe_size(5971, "bytes of flash", 6000), _describe_size(2010, "bytes", 2000)
    ('at most 5,971 of 6,000 bytes of flash', 'to be trimmed to 2,000 bytes')
    >>> _describe_size(5971, None, 6000)
    'within its bounds'
    """
    if unit is None:
        return "within its bounds" if size <= limit else "to be trimmed to its bounds"
    if size > limit:
        return f"to be trimmed to {limit:,} {unit}"
    return f"{'at most ' if unit.endswith('flash') else ''}{size:,} of {limit:,} {unit}"


def describe_job(job: Job, strategy: str | None = None) -> str:
    """What a training is for, in a few words; a `strategy` is named with a network under a bound.

    >>> describe_job(Job("dense-part", 0, about={"round": 0}))
    'dense, without the validation images'
    >>> describe_job(Job("r003-conv1", 3, counts={}, about={"round": 3, "layer": "conv1.weight"}))
    'round 3: conv1'
    >>> describe_job(Job("final-20KiB-1", 1, limit=20480, about={"budget": "20KiB", "member": 1}))
    '20KiB, member 2'
    >>> describe_job(Job("final-20KiB-0", 0, limit=20480, about={"budget": "20KiB"}), "uniform")
    '20KiB, uniform'
    >>> describe_job(Job("final-10pct-0", 0, limit=2000, about={"budget": "10%"}))
    'budget 10%'
    """
    about = job.about
    what = str(about.get("layer") or name_budget(about.get("budget") or job.key)).removesuffix(".weight")
    if job.limit is None and job.counts is None:
        what = "dense"
    elif "layer" not in about and "budget" not in about and job.limit is not None:
        what = f"{job.limit:,}"
    if about.get("width") is not None:
        what += f", width {about['width']:g}"
    if job.network is not None:
        what = job.network
    if about.get("member") is not None:
        what += f", member {about['member'] + 1}"
    if strategy is not None and job.limit is not None:
        what += f", {strategy}"
    if about.get("round") == 0 and what == "dense":
        return "dense, without the validation images"
    return f"round {about['round']}: {what}" if "round" in about else what
