"""How much a fit has to do, in steps of training."""

from dataclasses import dataclass

from membound.search.jobs import Job

BOUNDED, TAUGHT = 1.1, 1.4  # as long as a dense step: one with projections; one that also asks a teacher


@dataclass(frozen=True)
class Work:
    """What a fit has to do: dense steps, or what takes as long as so many.

    A search of rounds is not counted, as nobody knows how many it takes: the work is `open_ended`.
    """

    steps: float
    whole: int  # steps of one training from beginning to end
    bounded: float = BOUNDED  # how long a step under a bound takes
    open_ended: bool = False

    def of(self, job: Job, part: float, steps: int) -> float:
        """What `part` of a training of so many steps is worth."""
        if self.open_ended and job.about.get("round"):
            return 0.0
        if job.network is not None:  # a teacher, which takes about as long as its pupil
            return part * self.whole
        return part * steps * (self.bounded if job.is_ruled else 1.0)
