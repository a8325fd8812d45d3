"""Examples of any shape with targets of any kind, for tasks beyond classes."""

from dataclasses import dataclass
from typing import Any

from membound.data.splits import Array, Rows, as_indices

CLASSES, SEGMENTATION, REGRESSION = "classes", "segmentation", "regression"
IGNORED = 255  # the class of pixels that nobody labelled
NUMBERS_OF = "one-hot: for classes, {} their numbers, y.argmax(1)"  # what is said of such targets


def is_one_hot(targets: Array) -> bool:
    """Whether all are rows of zeros with a single one: classes, which would be taken for numbers or masks.

    >>> import numpy as np
    >>> is_one_hot(np.eye(3)), is_one_hot(np.ones((3, 1))), is_one_hot(np.ones((3, 2)))
    (True, False, False)
    """
    if targets.ndim != 2 or targets.shape[1] < 2 or not len(targets):
        return False
    return bool((((targets == 0) | (targets == 1)).all(1) & (targets.sum(1) == 1)).all())


@dataclass(frozen=True, eq=False)
class ExampleSplit:
    """Examples of any shape held in memory, with a target each: class numbers, or numbers of any shape.

    >>> import numpy as np
    >>> split = ExampleSplit(np.zeros((3, 5), np.float32), np.ones((3, 2), np.float32))
    >>> split.shape, split.read([0, 0]).shape, split.take([2]).labels.shape
    ((5,), (2, 5), (1, 2))
    >>> split
    ExampleSplit(3 examples, 5 float32, targets 2 float32)
    """

    images: Array
    labels: Any  # [n, ...]

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
        return ExampleSplit(self.images[chosen], self.labels[chosen])
