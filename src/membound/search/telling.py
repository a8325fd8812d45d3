"""What a function that makes a network is told of the data: how many classes and channels there are."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from membound.data import Dataset, Split
from membound.data.examples import IGNORED
from membound.data.numbering import refuse_gaps
from membound.data.several import inputs_of
from membound.search.request import Examples
from membound.zoo.networks import known_options

Maker = Callable[..., nn.Module]
Splits = tuple[Split, Split | None, Split | None]  # for training, for choices, for the last word


def told(make: Maker, splits: Splits, examples: Examples) -> Maker:
    """The same function, told what it has parameters for, as on the command line; what a partial fills stays.

    >>> import numpy as np
    >>> from membound.data.examples import ExampleSplit
    >>> def net(classes, channels=1, depth=3): ...
    >>> examples = Examples(train_data=None)
    >>> train = ExampleSplit(np.zeros((3, 2, 4, 4)), np.array([0, 4, 2]))
    >>> told(net, (train, None, None), examples).keywords
    {'classes': 5, 'channels': 2}
    """
    train = splits[0]
    channels = None if inputs_of(train) is not None else train.shape[0]
    options = known_options(make, count_outputs(splits, examples), channels)
    labels: list[Any] = [split.labels for split in splits if split is not None]
    counted = (
        "classes" in options and examples.classes is None and not isinstance(examples.train_data, Dataset)
    )
    if counted and all(each.dtype.kind in "iu" for each in labels):
        refuse_gaps(labels, "give classes=[...], a name for each number,")
    return partial(make, **options) if options else make


def count_outputs(splits: Splits, examples: Examples) -> int | None:
    """Classes, of examples or of pixels; of regression, the numbers of a target; None where that is not known.

    >>> import numpy as np
    >>> from membound.data.examples import ExampleSplit
    >>> x, none = np.zeros((2, 1, 2, 2)), Examples(train_data=None)
    >>> masks, numbers = np.array([[[0, 255], [2, 0]]] * 2, np.uint8), np.zeros((2, 3))
    >>> each = [ExampleSplit(x, y) for y in (masks, numbers, numbers[:, 0], np.array([0, 1]), np.array([4, 1]))]
    >>> [count_outputs((split, None, None), none) for split in each]
    [3, 3, 1, 2, 5]
    >>> count_outputs((each[3], None, each[4]), none)
    5
    >>> count_outputs((each[3], None, None), Examples(train_data=None, classes=("a", "b", "c")))
    3
    """
    if examples.classes is not None:
        return len(examples.classes)
    if isinstance(examples.train_data, Dataset):
        return len(examples.train_data.classes)
    labels: Any = splits[0].labels
    if labels.dtype.kind == "f":
        return None if labels.ndim > 2 else 1 if labels.ndim == 1 else int(labels.shape[1])
    highest = [_highest(split.labels) for split in splits if split is not None]
    known = [number for number in highest if number is not None]
    return max(known) + 1 if known else None


def _highest(labels: Any) -> int | None:
    known = labels[labels != IGNORED] if labels.ndim > 1 else labels
    return int(known.max()) if labels.dtype.kind in "iu" and known.size else None
