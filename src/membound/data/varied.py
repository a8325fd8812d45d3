"""Inputs that do not vary tell a network nothing: all examples the same, or a channel, as of a dead sensor."""

from typing import Any

import numpy as np

from membound.data.several import inputs_of
from membound.data.splits import Array, Split
from membound.errors import DataError

FIRST = 16  # examples: where these differ, no others are looked at


def check_varied(train: Split) -> None:
    """Refuse training data in memory whose inputs are all the same.

    >>> from membound.data import ArraySplit
    >>> check_varied(ArraySplit(np.ones((3, 1, 2, 2), np.uint8), np.array([0, 1, 0])))
    Traceback (most recent call last):
    ...
    membound.errors.DataError: the inputs of the training data (x_train) are all the same, in all 3 examples: nothing \
can be learned from them; check how x_train was made
    """
    x = _held(train)
    if x is None or len(x) < 2 or not all(bool((part == x[0]).all()) for part in (x[:FIRST], x)):
        return
    raise DataError(
        f"the inputs of the training data (x_train) are all the same, in all {len(x):,} examples: nothing can be "
        "learned from them; check how x_train was made"
    )


def constant_channels(train: Split) -> list[int]:
    """The numbers of channels [n, C, ...] that have one value only, of training data in memory.

    >>> from membound.data.examples import ExampleSplit
    >>> constant_channels(ExampleSplit(np.float32([[0, 1, 7], [2, 1, 7]]), np.array([0, 1])))
    [1, 2]
    """
    x = _held(train)
    if x is None or not len(x) or inputs_of(train) is not None:
        return []
    found = list(range(x.shape[1]))
    for part in (x[:FIRST], x):
        found = [c for c in found if bool((part[:, c] == x[0, c].flat[0]).all())]
    return found


def _held(train: Split) -> Array | None:
    held: Any = getattr(train, "images", None)
    return held if isinstance(held, np.ndarray) and held.ndim > 1 else None
