"""How good stored networks are, measured through the runtime that deploys them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from membound.data import Split
from membound.data.several import inputs_of
from membound.errors import TrainingError
from membound.report.paired import BETTER, WORSE
from membound.report.spread import compare
from membound.run.micro_net import MicroNet
from membound.run.net import Net
from membound.run.scores import SegmentScore
from membound.search.measure import FileBytes
from membound.search.problem import Problem, State
from membound.store.model import StoredModel
from membound.train.batches import size_together
from membound.train.evaluation import Score
from membound.train.task import Task
from membound.train.tasks import Explained, image_iou

AT_ONCE = 64  # that the runtime takes at once
ROUNDING = 0.1  # points that 16-bit values may cost before 32 bits are taken
ROUNDED_EXAMPLES, ROUNDED_ERRORS = 2000, 2  # that this is seen on; and errors more that are chance


def score_stored(stored: StoredModel, split: Split, problem: Problem, engine: str = "float") -> Score:
    """How good a stored network is on a split, through the runtime."""
    return _score_all([stored], split, problem, engine)[0]


def _score_all(
    networks: Sequence[StoredModel], split: Split, problem: Problem, engine: str = "float"
) -> list[Score]:
    """The same for several, each on the very same inputs: what is read anew may be augmented at random."""
    nets = [_runner(stored, engine) for stored in networks]
    tallies = [_Tally(problem.task) for _ in nets]
    together = size_together(split)  # as in training
    inputs = inputs_of(split)
    for begin in range(0, len(split), together):
        rows = np.arange(begin, min(begin + together, len(split)))
        images = split.read(rows)
        x = problem.data.preprocess(images)
        targets = torch.from_numpy(np.ascontiguousarray(split.labels[rows]))
        for net, tally in zip(nets, tallies, strict=True):
            pixels = isinstance(net, MicroNet) and net.plan.net.takes_pixels
            outputs = net(images if pixels else x) if inputs is None else inputs.call(net, x)
            tally.add(_as_tensors(outputs), targets)
    return [tally.score(len(split)) for tally in tallies]


def _as_tensors(outputs: Any) -> Any:
    """What the network gives in torch: a tensor, a tuple of them or a dict."""
    if isinstance(outputs, dict):
        return {name: torch.from_numpy(each) for name, each in outputs.items()}
    if isinstance(outputs, tuple):
        return tuple(map(torch.from_numpy, outputs))
    return torch.from_numpy(outputs)


def _runner(stored: StoredModel, engine: str) -> Net | MicroNet:
    """What runs a network where it is deployed: a file that says how its values become int8 is for integers."""
    return MicroNet(stored) if stored.activations else Net(stored, max_batch=AT_ONCE, engine=engine)


@dataclass
class _Tally:
    """Adds up losses and scores of batches."""

    task: Task
    gained: float = 0.0
    loss: float = 0.0
    seen: int = 0
    wrong: list[int] = field(default_factory=list)
    classes: Tensor = field(
        default_factory=lambda: torch.zeros(0, 2, dtype=torch.long)
    )  # images, errors of each
    pixels: SegmentScore | None = None  # of masks
    explained: list[float] = field(default_factory=list)  # of numbers that are predicted, for each example

    @torch.no_grad()
    def add(self, outputs: Any, targets: Tensor) -> None:
        self.loss += float(self.task.batch_loss(outputs, targets)) * len(targets)
        if self.task.counts:
            right = outputs.argmax(1) == targets
            self.gained += int(right.sum())
            self._count(targets.long(), right)
            self.wrong += (self.seen + (~right).nonzero().flatten()).tolist()
        else:
            self.gained += float(self.task.batch_score(outputs, targets)) * len(targets)
        if self.task.score is image_iou:
            self.pixels = self.pixels or SegmentScore(outputs.shape[1])
            self.pixels.add(outputs.numpy(), targets.numpy())
        if isinstance(self.task.score, Explained):
            self.explained += self.task.score.each(outputs, targets).tolist()
        self.seen += len(targets)

    def _count(self, targets: Tensor, right: Tensor) -> None:
        count = max(len(self.classes), int(targets.max()) + 1)
        found = torch.stack([torch.bincount(each, minlength=count) for each in (targets, targets[~right])], 1)
        found[: len(self.classes)] += self.classes
        self.classes = found

    def score(self, images: int) -> Score:
        if self.task.counts:
            by_class = tuple((each[0], each[1]) for each in self.classes.tolist())
            wrong = tuple(self.wrong)
            return Score(images, int(self.gained), self.loss / images, by_class=by_class, wrong=wrong)
        score = Score(images, None, self.loss / images, self.gained / images)
        if self.explained:
            return replace(score, image_scores=tuple(self.explained))
        if self.pixels is None:
            return score
        return replace(score, class_iou=self.pixels.class_iou(), image_scores=tuple(self.pixels.each))


def rounding_hurts(problem: Problem, files: FileBytes, state: State) -> bool:
    """Whether storing values in few bits costs more than chance and ROUNDING, on some of the training images.

    A score of its own has no points: there it is a hundredth of the score.
    """
    plain = replace(files, values="f32", types={})
    exact, rounded = score_on_training([plain.stored(state), files.stored(state)], problem)
    return clearly_worse(rounded, exact) and not _within_spread(rounded, exact)


def _within_spread(score: Score, other: Score) -> bool:
    """Whether two scores on the same examples differ by no more than chance, by the rule of the last verdict.

    >>> scores = [Score(2000, 2000 - len(wrong), 0.1, wrong=tuple(wrong)) for wrong in (range(9, 21), range(9))]
    >>> _within_spread(*scores)  # 12 errors in place of 9 others
    True
    >>> _within_spread(scores[0], Score(2000, 2000, 0.1, wrong=()))
    False
    """
    names = ("accuracy", "errors", "images", "wrong")
    found = compare(*({name: getattr(each, name) for name in names} for each in (score, other)))
    return found is not None and found.verdict not in (None, BETTER, WORSE)


def score_on_training(networks: Sequence[StoredModel], problem: Problem) -> list[Score]:
    """How good stored networks are on some of the training images."""
    train = problem.data.train
    some = np.linspace(0, len(train) - 1, min(ROUNDED_EXAMPLES, len(train)), dtype=np.int64)
    return _score_all(networks, train.take(some), problem)


def clearly_worse(score: Score, other: Score) -> bool:
    """Whether a score is worse than another on the same examples, by more than chance and ROUNDING.

    >>> clearly_worse(Score(1000, 950, 0.1), Score(1000, 990, 0.1)), clearly_worse(Score(99, 97, 0), Score(99, 98, 0))
    (True, False)
    """
    if score.errors is not None and other.errors is not None:
        return score.errors - other.errors > max(ROUNDED_ERRORS, ROUNDING / 100 * score.images)
    return is_below(score, other, abs(other.accuracy) / 100)


def is_below(score: Score, other: Score, by: float = 0.0) -> bool:
    """Whether a score is lower than another by more than `by`; one that is not finite is lower than any that is.

    >>> nan, one = Score(9, None, 0.1, value=float("nan")), Score(9, None, 0.1, value=1.0)
    >>> is_below(nan, one), is_below(one, nan), is_below(nan, nan), is_below(one, one)
    (True, False, False, False)
    """
    if score.known is None or other.known is None:
        return score.known is None and other.known is not None
    return other.known - score.known > by


def check_scored(found: Sequence[Mapping[str, Any]], what: str) -> None:
    """Refuse to choose where no validation score is finite: one that is not is never the best."""
    if all(facts["accuracy"] is None for facts in found if "failure" not in facts):
        raise TrainingError(
            f"{what} has no finite validation score, so nothing can be chosen by it: fix the score function, or lower "
            "lr if training diverges"
        )
