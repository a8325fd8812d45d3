"""The dense network rounded to 8 bits, which costs no training: whether it fits a budget too, and is clearly better."""

from dataclasses import dataclass, replace
from typing import Any

from membound.errors import ModelError
from membound.report.text import show_own
from membound.run.inspection import inspect
from membound.search.bounds import Bound
from membound.search.measure import FileBytes, deployed_bytes
from membound.search.micro import calibrated, describe_micro
from membound.search.problem import Problem, State
from membound.search.scoring import clearly_worse, is_below, score_on_training, score_stored
from membound.store.model import StoredModel
from membound.train.evaluation import Score
from membound.units import parse_latency

UNLEARNED = 0.02  # of the training images: what a network must miss of them to count as worse


@dataclass(frozen=True, eq=False)
class EightBits:
    """The weights of the dense network in 8 bits, a scale for each row."""

    files: FileBytes
    state: State
    stored: StoredModel
    device: dict[str, Any]  # what it takes on a microcontroller, for one
    estimate: Score | None = None  # on validation images, of a network that was trained without them

    def describe(self, problem: Problem) -> dict[str, Any]:
        """What it takes."""
        micro = self.device.get("micro")
        return self.device | {
            "file_bytes": self.stored.file_bytes,
            "memory_bytes": micro["ram_bytes"]
            if micro
            else deployed_bytes(self.stored, problem.target.batch, problem.target.isa),
            "nonzeros": inspect(self.stored)["nonzeros"],
        }


def in_8_bits(problem: Problem, state: State, held_out: State | None = None) -> EightBits | None:
    """The dense network in 8 bits; `held_out` are weights trained without the validation images, which judge it."""
    files, target = replace(problem.files, values="p8", types={}), problem.target
    try:
        stored = _stored(files, state, problem)
        device = {"micro": describe_micro(stored, target.clock, target.level)} if target.micro else {}
        estimate = None
        if held_out is not None and problem.data.validation is not None:
            estimate = score_stored(_stored(files, held_out, problem), problem.data.validation, problem)
    except ModelError:  # a value that a scale of 16 bits cannot hold
        return None
    return EightBits(files, state, stored, device, estimate)


def _stored(files: FileBytes, state: State, problem: Problem) -> StoredModel:
    """As it is deployed: a microcontroller computes in integers."""
    data = problem.data
    if problem.target.micro:
        files = calibrated(files, state, data.train, data.preprocess)
    return files.stored(state)


def fits(int8: dict[str, Any] | None, bound: Bound, limit: int, memory: int | None) -> bool:
    """Whether dense in 8 bits is within the same bounds.

    >>> fits({"file_bytes": 900, "memory_bytes": 3000, "nonzeros": 80}, Bound(budget=1000), 1000, None)
    True
    >>> fits({"file_bytes": 900, "memory_bytes": 3000, "nonzeros": 80}, Bound(budget=1000, ram=2000), 1000, 2000)
    False
    """
    if not int8 or bound.searches:
        return False
    micro = int8.get("micro")
    if bound.latency is not None and (not micro or micro["ms"] > parse_latency(bound.latency)):
        return False
    kinds = {"file": "file_bytes", "ram": "memory_bytes", "nonzeros": "nonzeros"}
    size = micro["flash_bytes"] if micro else int8[kinds[bound.kind]]
    needed = micro["ram_bytes"] if micro else int8["memory_bytes"]
    return bool(size <= limit and (memory is None or needed <= memory))


def better_in_8_bits(
    problem: Problem, ours: StoredModel, estimate: Score | None, dense: EightBits
) -> tuple[Score, Score, str] | None:
    """Both scores, and the images they are of, where dense in 8 bits is clearly better; test images decide nothing.

    The best judges are images that neither was trained on: those that a user has given for choices, or that were held
    out as nothing else can judge. Where there are none, training images still show which network has not learned.
    """
    given = problem.data.given
    if given is not None:
        mine, theirs = (score_stored(stored, given, problem) for stored in (ours, dense.stored))
    elif estimate is not None and dense.estimate is not None:
        mine, theirs = estimate, dense.estimate
    else:
        mine, theirs = score_on_training([ours, dense.stored], problem)
        return (mine, theirs, "training") if has_not_learned(mine, theirs) else None
    return (mine, theirs, "validation") if clearly_worse(mine, theirs) else None


def has_not_learned(score: Score, other: Score) -> bool:
    """Whether a network misses on training images what another has learned: a little less may just be less by heart.

    >>> dense = Score(100, 99, 0.1)
    >>> has_not_learned(Score(100, 95, 0.2), dense), has_not_learned(Score(100, 98, 0.2), dense)
    (True, False)
    """
    if score.errors is not None and other.errors is not None:
        return score.errors - other.errors > UNLEARNED * score.images
    return is_below(score, other, UNLEARNED * abs(other.accuracy))


def describe_choice(ours: Score, theirs: Score, images: str) -> str:
    """Why the dense network in 8 bits was taken.

    >>> describe_choice(Score(100, 95, 0.2), Score(100, 99, 0.1), "validation")
    'dense in 8 bits: it fits this budget, and is better on 100 validation images (99.00 % against 95.00 %)'
    """
    points = ours.errors is not None
    mine, other = (
        f"{score.accuracy:.2f} %" if points else show_own(score.accuracy) for score in (ours, theirs)
    )
    return (
        f"dense in 8 bits: it fits this budget, and is better on {ours.images:,} {images} images "
        f"({other} against {mine})"
    )
