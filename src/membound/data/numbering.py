"""Class numbers that nothing is of: usually a slip in labels or masks, and a network grows with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from membound.data.examples import IGNORED
from membound.data.splits import Array
from membound.errors import DataError

if TYPE_CHECKING:
    from membound.data.splits import Dataset

UNUSED = "no example has class "  # how a note on such classes begins
CLASSES_KEY = "classes"  # the array of an .npz that names the classes
_FEW = 5  # numbers that are named


def used_numbers(halves: Sequence[Array]) -> Array:
    """The numbers that labels hold, or masks but for ignored pixels, in order.

    >>> used_numbers([np.uint8([[[0, 255], [7, 0]]])]).tolist()
    [0, 7]
    """
    found = [np.unique(labels) for labels in halves]
    every: Array = np.unique(np.concatenate(found))
    return every[every != IGNORED] if halves[0].ndim > 1 else every


def note_unused(halves: Sequence[Array]) -> tuple[str, ...]:
    """A note on numbers below the largest label that no example has.

    >>> note_unused([np.array([0, 1, 4]), np.array([1, 0])])
    ('no example has class 2 and 3, and the largest label is 4: check the labels',)
    >>> note_unused([np.array([1, 2]), np.array([1, 2])]), note_unused([np.array([0, 1]), np.array([2])])
    ((), ())
    """
    used = used_numbers(halves)
    missing = np.setdiff1d(np.arange(used.max() + 1), used).tolist()
    if missing in ([], [0]):  # labels that begin at 1 have a note of their own
        return ()
    return (f"{UNUSED}{_listed(missing)}, and the largest label is {used.max()}: check the labels",)


def note_from_one(labels: Array) -> tuple[str, ...]:
    """A note on labels that seem to count from 1: the output of class 0 never wins.

    >>> note_from_one(np.array([1, 4])), note_from_one(np.array([0, 1]))
    (('labels begin at 1 and go to 4, so class 0 has no examples: subtract 1, if they count from 1',), ())
    """
    if not labels.size or labels.min() != 1 or labels.max() == 1:
        return ()
    return (
        f"labels begin at 1 and go to {labels.max()}, so class 0 has no examples: subtract 1, if they count from 1",
    )


def refuse_gaps(halves: Sequence[Array], confirm: str, where: str = "") -> None:
    """Stop where labels have left out more than half of the numbers up to the largest; `confirm` says how to go on.

    >>> refuse_gaps([np.uint8([[[0, 1], [2, 200]]])], "list all classes in classes.txt", "roads: ")
    Traceback (most recent call last):
    membound.errors.DataError: roads: mask values are 0, 1, 2 and 200, so there would be 201 classes, 197 of them \
without a pixel: renumber them, or list all classes in classes.txt to confirm
    >>> refuse_gaps([np.array([0, 3])], "")
    """
    used = used_numbers(halves)
    count = int(used.max()) + 1 if used.size else 0
    if 2 * (count - used.size) <= count:
        return
    masks = halves[0].ndim > 1
    raise DataError(
        f"{where}{'mask values' if masks else 'labels'} are {_listed(used.tolist())}, so there would be {count:,} "
        f"classes, {count - used.size:,} of them without {'a pixel' if masks else 'an example'}: renumber them, or "
        f"{confirm} to confirm"
    )


def check_numbering(dataset: "Dataset") -> None:
    """The same for a data set, before it is trained on, unless a person has named its classes."""
    if dataset.confirm:
        refuse_gaps([dataset.train.labels, dataset.test.labels], dataset.confirm, f"{dataset.name}: ")


def named_classes(where: str, names: Any, count: int) -> tuple[str, ...]:
    """The names in the array `classes` of an .npz, one for each of `count` numbers or more.

    >>> named_classes("x.npz", np.array(["cat", "dog"]), 2)
    ('cat', 'dog')
    """
    if names.dtype.kind != "U" or names.ndim != 1:
        raise DataError(
            f"{where}: {CLASSES_KEY} is {names.dtype} {list(names.shape)}: it must be the names of the classes, an "
            "array of strings [classes]"
        )
    if len(names) < count:
        raise DataError(f"{where}: {CLASSES_KEY} has {len(names)} names, and labels go up to {count - 1}")
    return tuple(map(str, names))


def _listed(numbers: Sequence[int]) -> str:
    """A few numbers in words.

    >>> _listed([0, 1, 2, 200]), _listed([3]), _listed(list(range(9)))
    ('0, 1, 2 and 200', '3', '0, 1, 2, 3, 4 and 4 more')
    """
    shown = [str(number) for number in numbers]
    if len(shown) > _FEW + 1:
        shown = [*shown[:_FEW], f"{len(shown) - _FEW:,} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
