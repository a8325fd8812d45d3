"""Losses and scores of tasks beyond classes: segmentation and regression."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from membound.data import Dataset, Split
from membound.data.examples import CLASSES, IGNORED, REGRESSION, SEGMENTATION, check_masks
from membound.errors import TrainingError
from membound.train.task import Task
from membound.units import R_SQUARED


def task_of(data: Dataset) -> Task:
    """What networks are trained for on this data, unless a loss is given."""
    return _task(data.task, data.train.labels)


def inferred_task(split: Split) -> Task:
    """The same of examples that do not say it: by their targets, as those of an .npz.

    >>> import numpy as np
    >>> from membound.data.examples import ExampleSplit
    >>> inferred_task(ExampleSplit(np.zeros((1, 1, 2, 2), np.uint8), np.array([[[0, 1], [1, 0]]]))).name
    'mean IoU'
    """
    labels: Any = split.labels
    if labels.dtype.kind == "f":
        return _task(REGRESSION, labels)
    is_mask = labels.ndim == 3 and tuple(split.shape[1:]) == labels.shape[1:]
    return _task(SEGMENTATION if is_mask else CLASSES, labels)


def _task(kind: str, targets: Any) -> Task:
    if kind == CLASSES:
        return Task()
    if kind == REGRESSION:
        labels = torch.from_numpy(targets).double().reshape(len(targets), -1)
        variance = float(labels.var(0, correction=0).mean()) or 1.0
        return Task(squared_error, Explained(variance), name=R_SQUARED)
    check_masks("training data", targets)
    return Task(pixel_loss, image_iou, name="mean IoU")


def pixel_loss(outputs: Tensor, masks: Tensor) -> Tensor:
    """The cross entropy of pixels, without those that are ignored.

    >>> round(float(pixel_loss(torch.zeros(1, 4, 2, 2), torch.zeros(1, 2, 2, dtype=torch.uint8))), 4)
    1.3863
    """
    if outputs.dim() != 4 or outputs.shape[2:] != masks.shape[1:]:
        raise TrainingError(
            f"the network gives {list(outputs.shape)} for masks of {list(masks.shape)}: segmentation takes a score for "
            "each class at each pixel, [n, classes, H, W]"
        )
    total = nn.functional.cross_entropy(outputs, masks.long(), ignore_index=IGNORED, reduction="sum")
    return total / (masks != IGNORED).sum().clamp(min=1)


def image_iou(outputs: Tensor, masks: Tensor) -> Tensor:
    """The mean over images of the mean IoU of the classes that are there or are said to be.

    >>> scores = torch.tensor([[[[1.0, 1.0]], [[0.0, 2.0]]]])  # one image of two pixels: 0, then 1
    >>> float(image_iou(scores, torch.tensor([[[0, 0]]], dtype=torch.uint8)))
    0.25
    """
    known = masks != IGNORED
    said, classes = outputs.argmax(1), outputs.shape[1]
    overlaps, unions = [], []
    for number in range(classes):
        mine, theirs = (said == number) & known, (masks == number) & known
        overlaps.append((mine & theirs).flatten(1).sum(1).double())
        unions.append((mine | theirs).flatten(1).sum(1).double())
    overlap, union = torch.stack(overlaps, 1), torch.stack(unions, 1)
    there = (union > 0).double()
    each = (overlap / union.clamp(min=1)).sum(1) / there.sum(1).clamp(min=1)
    return torch.where(there.sum(1) > 0, each, 1.0).mean()


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of the squared errors; a target of one number may be [n] or [n, 1]."""
    return nn.functional.mse_loss(_alike(outputs, targets), targets)


@dataclass(frozen=True)
class Explained:
    """R²: the part of the variance of the training targets that predictions explain; 1 is perfect.

    >>> Explained(variance=2.0)(torch.zeros(4, 1), torch.ones(4, 1))
    tensor(0.5000)
    """

    variance: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        gap = _alike(outputs, targets) - targets
        return 1 - (gap**2).mean() / self.variance

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The part of each example, [n], whose mean is R²: how they differ says how sure it is.

        >>> Explained(variance=2.0).each(torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]))
        tensor([ 0.5000, -1.0000])
        """
        gap = _alike(outputs, targets) - targets
        return (
            1 - (gap**2).flatten(1).mean(1) / self.variance if gap.dim() > 1 else 1 - gap**2 / self.variance
        )


def _alike(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.numel() != targets.numel():
        raise TrainingError(
            f"the network gives {list(outputs.shape)} for targets of {list(targets.shape)}, which are floats: for "
            "classes, give integers, y.astype('int64'); for regression, a network with one output for each number of a "
            "target"
        )
    return outputs.reshape(targets.shape)
