"""Learning from other networks: their scores of the training images beside the labels.

>>> import numpy as np
>>> from membound.data import ArraySplit
>>> plain = ArraySplit(np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 2, 1]))
>>> taught = teach(plain, np.zeros((4, 3), np.float32))
>>> task = distillation(temperature=3.0)
>>> float(task.batch_score(torch.eye(3)[plain.labels], torch.from_numpy(taught.labels)))
100.0
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from membound.data import Split
from membound.data.examples import ExampleSplit
from membound.errors import DataError, TrainingError
from membound.train.batches import Feeder, whole
from membound.train.task import Task

TEMPERATURE, PART = (
    3.0,
    0.5,
)  # as good as any that were tried, and none of these diverged: results/distillation.json


def distillation(temperature: float = TEMPERATURE, part: float = PART) -> Task:
    """Classification of images that `teach` has prepared; accuracy in percent counts the labels, as ever.

    The loss grows with the square of the temperature: high ones need a lower learning rate. Images that have no
    teacher, such as those held out, have their labels alone.
    """
    check_numbers(temperature, part)
    return Task(TaughtLoss(temperature, part), taught_accuracy)


def check_numbers(temperature: float, part: float) -> None:
    """Whether a loss can be made of them."""
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (temperature, part))
    if not numbers or not (0 < temperature < math.inf and 0 <= part <= 1):
        raise TrainingError(
            f"temperature={temperature!r}, part={part!r}: a temperature above 0 and a part from 0 to 1 are needed",
            about=("temperature", "teacher_part"),
        )


def teach(split: Split, scores: npt.ArrayLike) -> ExampleSplit:
    """The images of `split` with a teacher's class scores [n, classes] beside their labels."""
    scores = np.asarray(scores, np.float32)
    if scores.ndim != 2 or len(scores) != len(split) or split.labels.ndim != 1:
        raise DataError(
            f"the scores are {list(scores.shape)} for {len(split)} images with labels {list(split.labels.shape)}: "
            "one row of class scores for each image is needed, and class numbers as labels"
        )
    if not 0 <= split.labels.min(initial=0) <= split.labels.max(initial=0) < scores.shape[1]:
        raise DataError(f"there are scores of {scores.shape[1]} classes, but a label is {split.labels.max()}")
    if not np.isfinite(scores).all():
        raise DataError("a score of the teacher is not finite")
    labels = np.concatenate([split.labels[:, None], scores], 1, dtype=np.float32)
    return ExampleSplit(split.read(np.arange(len(split))), labels)


@torch.no_grad()
def mean_scores(networks: Iterable[nn.Module], feeder: Feeder) -> npt.NDArray[np.float32]:
    """The class scores of all images of the feeder's split, averaged over the networks."""
    found = []
    for network in networks:
        network.to(feeder.device).eval()
        found.append(torch.cat([network(x) for x, _ in feeder.batches(whole(feeder.split, 1000))]).cpu())
        network.cpu()
    mean: npt.NDArray[np.float32] = torch.stack(found).mean(0).float().numpy()
    return mean


@dataclass(frozen=True)
class TaughtLoss:
    """`part` of the loss is the cross entropy with the teacher's probabilities, both softened by the temperature."""

    temperature: float
    part: float

    def __call__(self, scores: Tensor, targets: Tensor) -> Tensor:
        if targets.dim() == 1:  # images without a teacher, such as those held out
            return nn.functional.cross_entropy(scores, targets)
        return taught_loss(scores, targets[:, 0].long(), targets[:, 1:], self.temperature, self.part)


def taught_loss(
    scores: Tensor, labels: Tensor, teacher: Tensor, temperature: float, part: float, smoothing: float = 0.0
) -> Tensor:
    """(1 - part) CE(scores, labels) + part T^2 CE(scores / T, softmax(teacher / T)), the mean over a batch."""
    soft = nn.functional.cross_entropy(scores / temperature, (teacher / temperature).softmax(1))
    # Softened gradients are smaller by the square of the temperature (Hinton et al., 2015).
    plain = nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing)
    return (1 - part) * plain + part * temperature**2 * soft


def taught_accuracy(scores: Tensor, targets: Tensor) -> Tensor:
    """In percent."""
    labels = targets if targets.dim() == 1 else targets[:, 0]
    return 100 * (scores.argmax(1) == labels).double().mean()
