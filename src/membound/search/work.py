"""How much a fit has to do, in steps of training."""

from dataclasses import dataclass, replace

from membound.search.jobs import Job

BOUNDED, TAUGHT = 1.1, 1.4  # as long as a dense step: one with projections; one that also asks a teacher


@dataclass(frozen=True)
class Work:
    """What a fit has to do: dense steps, or what takes as long as so many.

    The parts of networks with and without a bound are told apart: `bounded` is a guess, until both have been timed.
    A search of rounds is not counted, as nobody knows how many it takes: the work is `open_ended`.
    """

    plain: float  # of networks without a bound
    whole: int  # steps of one training from beginning to end
    ruled: float = 0.0  # of networks under a bound, in dense steps
    bounded: float = BOUNDED  # how long a step under a bound takes
    open_ended: bool = False

    @property
    def steps(self) -> float:
        """Of both."""
        return self.plain + self.ruled

    def less(self, plain: float, ruled: float) -> "Work":
        """The same without what is done already."""
        return replace(self, plain=self.plain - plain, ruled=self.ruled - ruled)

    def times(self, fits: int) -> "Work":
        """The same for so many fits."""
        return replace(self, plain=fits * self.plain, ruled=fits * self.ruled)

    def of(self, job: Job, part: float, steps: int) -> float:
        """What `part` of a training of so many steps is worth."""
        if self.open_ended and job.about.get("round"):
            return 0.0
        if job.network is not None:  # a teacher, which takes about as long as its pupil
            return part * self.whole
        return part * steps * (self.bounded if job.is_ruled else 1.0)
