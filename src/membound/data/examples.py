"""Examples of any shape with targets of any kind, for tasks beyond classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from membound.data.splits import Array, Rows, as_indices
from membound.errors import DataError

CLASSES, SEGMENTATION, REGRESSION = "classes", "segmentation", "regression"
IGNORED = 255  # the class of pixels that nobody labelled
UNSEEN = "no training pixel is of class "  # how a note on such classes begins
_FEW = 5  # classes without pixels that are named
NUMBERS_OF = "one-hot: for classes, {} their numbers, y.argmax(1)"  # what is said of such targets


def is_one_hot(targets: Array) -> bool:
    """Whether all are rows of zeros with a single one: classes, which would be taken for numbers or masks.

    >>> is_one_hot(np.eye(3)), is_one_hot(np.ones((3, 1))), is_one_hot(np.ones((3, 2)))
    (True, False, False)
    """
    if targets.ndim != 2 or targets.shape[1] < 2 or not len(targets):
        return False
    return bool((((targets == 0) | (targets == 1)).all(1) & (targets.sum(1) == 1)).all())


def check_masks(where: str, *halves: Array) -> None:
    """Refuse masks of one class: any network would be right, and none would have learned.

    >>> check_masks("roads", np.uint8([[[0, 255]]]))
    Traceback (most recent call last):
    membound.errors.DataError: roads: masks hold only 0 and 255, and 255 is ignored: if it is the second class, write \
1 in its place
    """
    labelled = [masks[masks != IGNORED] for masks in halves]
    if not all(each.size for each in labelled):
        raise DataError(
            f"{where}: every pixel of the masks is {IGNORED}, which is ignored: there is nothing to learn"
        )
    lowest, highest = min(each.min() for each in labelled), max(each.max() for each in labelled)
    if lowest < highest:
        return
    if any(each.size < masks.size for each, masks in zip(labelled, halves, strict=True)):
        raise DataError(
            f"{where}: masks hold only {lowest} and {IGNORED}, and {IGNORED} is ignored: if it is the second class, "
            f"write {0 if lowest else 1} in its place"
        )
    raise DataError(f"{where}: masks hold only {lowest}: segmentation takes two classes or more")


def note_unseen(masks: Array, classes: Sequence[str]) -> tuple[str, ...]:
    """A note on classes that no pixel of the training masks is of, which no network can learn.

    >>> note_unseen(np.uint8([[[0, 2]]]), ("ground", "road", "sign"))
    ('no training pixel is of class road (1): check the numbers in the masks',)
    """
    there = {int(number) for mask in masks for number in np.flatnonzero(np.bincount(mask.ravel()))}
    missing = [
        name if name == str(number) else f"{name} ({number})"
        for number, name in enumerate(classes)
        if number not in there
    ]
    shown = ", ".join(missing[:_FEW]) + (f" and {len(missing) - _FEW} more" if len(missing) > _FEW else "")
    return (f"{UNSEEN}{shown}: check the numbers in the masks",) if missing else ()


@dataclass(frozen=True, eq=False)
class ExampleSplit:
    """Examples of any shape held in memory, with a target each: class numbers, or numbers of any shape.

    >>> split = ExampleSplit(np.zeros((3, 5), np.float32), np.ones((3, 2), np.float32))
    >>> split.shape, split.read([0, 0]).shape, split.take([2]).labels.shape
    ((5,), (2, 5), (1, 2))
    >>> split
    ExampleSplit(3 examples, 5 float32, targets 2 float32)
    """

    images: Array
    labels: Any  # [n, ...]
    reading: str = field(default="", kw_only=True)  # how the file's arrays were read, for messages

    @property
    def shape(self) -> Any:
        """Of one example."""
        return self.images.shape[1:]

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        one, target = (
            f"{' x '.join(map(str, each.shape[1:]))} {each.dtype}" for each in (self.images, self.labels)
        )
        return f"{type(self).__name__}({len(self):,} examples, {one}, targets {target.strip()})"

    def read(self, indices: Rows) -> Array:
        """The chosen examples, copied."""
        chosen: Array = self.images[as_indices(indices, len(self))]
        return chosen

    def take(self, indices: Rows) -> "ExampleSplit":
        """The split of the chosen examples, copied."""
        chosen = as_indices(indices, len(self))
        return ExampleSplit(self.images[chosen], self.labels[chosen], reading=self.reading)
