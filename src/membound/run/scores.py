"""Scores of tasks beyond classes, in numpy: what `evaluate` says of a file that runs without torch."""

from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data.examples import IGNORED, REGRESSION
from membound.units import R_SQUARED, standard_error

Array = npt.NDArray[Any]


class SegmentScore:
    """Mean IoU over images, and over all pixels the share that is right, the IoU of each class, and their mean.

    The IoU (intersection over union) of a class is the pixels that are it and are predicted so, divided by the pixels
    that are either. The mean of an image is over the classes that are in it or are predicted.
    """

    name = "mean IoU"

    def __init__(self, classes: int) -> None:
        self.table = np.zeros((classes, classes), np.int64)  # what pixels are, and what they are said to be
        self.each: list[float] = []  # of each image

    def add(self, outputs: Array, masks: Array) -> None:
        said = outputs.argmax(1)
        for mine, mask in zip(said, masks, strict=True):
            table = self._count(mine, mask)
            self.table += table
            self.each.append(mean_iou(table))

    def _count(self, said: Array, mask: Array) -> npt.NDArray[np.int64]:
        count = len(self.table)
        known = mask != IGNORED
        pairs = mask[known].astype(np.int64) * count + np.minimum(said[known], count - 1)
        return np.bincount(pairs, minlength=count * count).reshape(count, count)

    def class_iou(self) -> tuple[float | None, ...]:
        """Of each class; None of one that is neither there nor said."""
        both = self.table.sum(0) + self.table.sum(1) - np.diag(self.table)
        return tuple(None if not b else float(a / b) for a, b in zip(np.diag(self.table), both, strict=True))

    def facts(self) -> dict[str, Any]:
        """What is known once every image was added."""
        return {
            "score": fmean(self.each),
            "standard_error": standard_error(self.each),
            "pixels_right": float(np.trace(self.table) / max(self.table.sum(), 1)),
            "mean_class_iou": mean_iou(self.table),
            "class_iou": list(self.class_iou()),
            "collapsed": only_class(self.table),
        }


def only_class(table: npt.NDArray[np.int64]) -> int | None:
    """The class that is said of everything, where there is more than one: then a score says nothing else.

    `table` counts, for what things are (rows), what they are said to be (columns).

    >>> only_class(np.array([[0, 9], [0, 3]])), only_class(np.array([[1, 9], [0, 3]])), only_class(np.array([[9]]))
    (1, None, None)
    """
    (said,), there = np.nonzero(table.sum(0)), np.count_nonzero(table.sum(1))
    return int(said[0]) if len(said) == 1 and there > 1 else None


def mean_iou(table: npt.NDArray[np.int64]) -> float:
    """Over the classes that are there or are said to be.

    >>> mean_iou(np.array([[3, 1], [0, 4]])), mean_iou(np.array([[5, 0], [0, 0]]))
    (0.775, 1.0)
    """
    both = table.sum(0) + table.sum(1) - np.diag(table)
    return float((np.diag(table)[both > 0] / both[both > 0]).mean()) if both.any() else 1.0


class NumberScore:
    """R²: the part of the variance of the training targets that predictions explain; and the errors in their units."""

    name = R_SQUARED

    def __init__(self, variance: float) -> None:
        self.variance = variance
        self.squares, self.absolutes, self.count = 0.0, 0.0, 0
        self.each: list[float] = []  # of each example: their mean is R²

    def add(self, outputs: Array, targets: Array) -> None:
        gap = outputs.astype(np.float64).reshape(len(targets), -1) - targets.reshape(len(targets), -1)
        self.squares += float((gap**2).sum())
        self.absolutes += float(np.abs(gap).sum())
        self.count += gap.size
        self.each += (1 - (gap**2).mean(1) / self.variance).tolist()

    def facts(self) -> dict[str, Any]:
        """What is known once every example was added."""
        mean = self.squares / self.count
        return {
            "score": 1 - mean / self.variance,
            "standard_error": standard_error(self.each),
            "mean_absolute_error": self.absolutes / self.count,
            "root_mean_square_error": mean**0.5,
        }


def variance_of(targets: Array) -> float:
    """The mean over the outputs of their variance; 1 where all are the same.

    >>> variance_of(np.array([[0.0, 5.0], [2.0, 5.0]]))
    0.5
    """
    columns = targets.astype(np.float64).reshape(len(targets), -1)
    return float(columns.var(0).mean()) or 1.0


def score_for(task: str, classes: int, train_targets: Array) -> SegmentScore | NumberScore:
    """The score of a task that is not classification."""
    return NumberScore(variance_of(train_targets)) if task == REGRESSION else SegmentScore(classes)
