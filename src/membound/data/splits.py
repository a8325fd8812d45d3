"""Splits and data sets, and the seeded ways to choose images from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from membound.errors import DataError

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
Rows = Sequence[int] | npt.NDArray[Any]

# Each use of a seed has a stream of its own, so that bag(seed=0) and subsample(seed=0) are independent.
_VALIDATION, _SUBSAMPLE, _BAG = range(3)


class Split(Protocol):
    """One half of a data set: labelled images of one shape, read by index (from any thread)."""

    @property
    def labels(self) -> Labels:
        """The class of each image, int64 [n]."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""

    def __len__(self) -> int: ...

    def read(self, indices: Rows) -> Array:
        """The chosen images, [len(indices), C, H, W], uint8 or float32."""

    def take(self, indices: Rows) -> "Split":
        """The split of the chosen images, in that order; an index may repeat."""


@dataclass(frozen=True, eq=False)
class ArraySplit:
    """Images held in memory.

    >>> split = mb.data.ArraySplit(np.zeros((3, 1, 2, 2), np.uint8), np.array([0, 1, 1]))
    >>> len(split.take([2, 2, 0, 1])), split.read([1]).shape
    (4, (1, 1, 2, 2))
    """

    images: Array
    labels: Labels
    reading: str = field(default="", kw_only=True)  # how the file's arrays were read, for messages

    def __post_init__(self) -> None:
        images, labels = self.images, np.asarray(self.labels)
        if images.ndim != 4 or images.dtype not in (np.uint8, np.float32):
            raise DataError(
                f"images are {images.dtype} {list(images.shape)}: they must be uint8 or float32 [n, C, H, W]"
            )
        object.__setattr__(self, "labels", as_labels(labels, len(images)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"ArraySplit({len(self):,} images, {shape} {self.images.dtype})"

    def read(self, indices: Rows) -> Array:
        """The chosen images, copied."""
        chosen: Array = self.images[as_indices(indices, len(self))]
        return chosen

    def take(self, indices: Rows) -> "ArraySplit":
        """The split of the chosen images, copied."""
        chosen = as_indices(indices, len(self))
        return ArraySplit(self.images[chosen], self.labels[chosen], reading=self.reading)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split of one shape, and the names of their classes.

    `notes` says what a person should know about how it was read: files left out, a split that was drawn. `photos` says
    that images are of things that look alike mirrored and shifted, so that they are augmented by default. `task` is
    what the labels are: 'classes', 'segmentation' (masks of class numbers [n, H, W]) or 'regression' (numbers). Where
    the classes were only counted, up to the largest label, `confirm` says how they can be named.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    photos: bool = False
    task: str = "classes"
    confirm: str = ""

    def __post_init__(self) -> None:
        for half, split in (("training", self.train), ("test", self.test)):
            if len(split) == 0:
                raise DataError(f"{self.name}: the {half} split has no images")
            if self.task == "classes" and split.labels.max() >= len(self.classes):
                raise DataError(
                    f"{self.name}: the {half} split has label {split.labels.max()}, "
                    f"but there are {len(self.classes)} classes (labels count from 0)"
                )
        if tuple(self.train.shape) != tuple(self.test.shape):
            raise DataError(
                f"{self.name}: training examples are {list(self.train.shape)} and test examples "
                f"{list(self.test.shape)}: they must be alike"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return self.train.shape

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        images = f"{len(self.train):,} training and {len(self.test):,} test images"
        classes = f"{len(self.classes)} class{'' if len(self.classes) == 1 else 'es'}"
        return f"Dataset({self.name!r}: {images}, {shape}, {classes})"


def as_indices(indices: Rows, length: int) -> npt.NDArray[np.intp]:
    """`indices` as a checked one-dimensional array of integers in [0, length)."""
    array = np.asarray(indices)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.intp)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"indices are {array.dtype} {list(array.shape)}: they must be integers [n]")
    if array.min() < 0 or array.max() >= length:
        raise DataError(f"indices run from {array.min()} to {array.max()}: allowed are 0 to {length - 1}")
    return array.astype(np.intp, copy=False)


def refuse_texts(labels: Array) -> None:
    """Of labels that are names, such as those of classes.

    >>> refuse_texts(np.array(["walk", "run"]))
    Traceback (most recent call last):
    ...
    membound.errors.DataError: labels are texts, such as 'walk': number the classes from 0, alike in all parts of the \
data, as np.unique(y, return_inverse=True)[1] does
    """
    if labels.dtype.kind in "USO":
        such = f", such as {str(labels.flat[0])[:20]!r}" if labels.size else ""
        raise DataError(
            f"labels are texts{such}: number the classes from 0, alike in all parts of the data, as "
            "np.unique(y, return_inverse=True)[1] does"
        )


def as_labels(labels: Array, length: int) -> Labels:
    """`labels` as a checked int64 array of `length` classes."""
    refuse_texts(labels)
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise DataError(f"labels are {labels.dtype} {list(labels.shape)}: they must be integers [n]")
    if len(labels) != length:
        raise DataError(f"{length} examples but {len(labels)} labels: give one label for each example")
    if length and labels.min() < 0:
        raise DataError(f"label {labels.min()} is negative: classes count from 0")
    return labels.astype(np.int64, copy=False)


def validation_split(
    split: Split, count_or_fraction: int | float, seed: int = 0, stratified: bool = True
) -> tuple[Split, Split]:
    """(train, validation): `count_or_fraction` images drawn for validation, both in their old order.

    An int is a count, a float a fraction, of which at least one image is drawn. Stratified: every class gives its
    share, by largest remainder, so the total is exact; a class gives its last image only when there is no other way.

    >>> split = mb.data.ArraySplit(np.zeros((10, 1, 1, 1), np.uint8), np.arange(10) % 2)
    >>> train, validation = mb.data.validation_split(split, 0.4)
    >>> train.labels.tolist(), validation.labels.tolist()
    ([0, 1, 0, 1, 0, 1], [1, 0, 0, 1])
    """
    total = len(split)
    count = _resolve_count(count_or_fraction, total)
    if total < 2:
        raise DataError(
            f"there {'is 1 image' if total else 'are no images'}, and some are held out for validation: give at least "
            "2, or validation or test data of its own"
        )
    if not 0 < count < total:
        raise DataError(
            f"a validation split of {count} of {total} images leaves one side empty: "
            f"take a count from 1 to {total - 1}, or a larger or smaller fraction"
        )
    order = _generator(_VALIDATION, seed).permutation(total)
    chosen = np.zeros(total, bool)
    if stratified:
        labels = split.labels[order]
        for label, quota in zip(*_quotas(split.labels, count), strict=True):
            chosen[order[labels == label][:quota]] = True
    else:
        chosen[order[:count]] = True
    return split.take(np.flatnonzero(~chosen)), split.take(np.flatnonzero(chosen))


def subsample(split: Split, count: int, seed: int = 0) -> Split:
    """`count` images drawn without replacement, in their old order; a seed's larger draws hold its smaller.

    >>> split = mb.data.ArraySplit(np.zeros((10, 1, 1, 1), np.uint8), np.arange(10))
    >>> mb.data.subsample(split, 3).labels.tolist(), mb.data.subsample(split, 4).labels.tolist()
    ([4, 7, 8], [0, 4, 7, 8])
    """
    total = len(split)
    if isinstance(count, bool) or not isinstance(count, Integral) or not 0 < count <= total:
        raise DataError(f"cannot draw {count} of {total} images: take a count from 1 to {total}")
    return split.take(np.sort(_generator(_SUBSAMPLE, seed).permutation(total)[:count]))


def bag(split: Split, seed: int = 0) -> Split:
    """A bootstrap resample: as many images, drawn with replacement.

    >>> split = mb.data.ArraySplit(np.zeros((6, 1, 1, 1), np.uint8), np.arange(6))
    >>> mb.data.bag(split).labels.tolist(), mb.data.bag(split, seed=1).labels.tolist()
    ([5, 1, 0, 1, 2, 4], [1, 5, 1, 5, 0, 1])
    """
    if len(split) == 0:
        raise DataError("cannot resample a split that has no images")
    return split.take(_generator(_BAG, seed).integers(0, len(split), len(split)))


def _generator(stream: int, seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise DataError(f"seed {seed!r} is not allowed: take an integer from 0 up")
    return np.random.Generator(np.random.PCG64([stream, int(seed)]))


def _resolve_count(count_or_fraction: int | float, total: int) -> int:
    if isinstance(count_or_fraction, Integral) and not isinstance(count_or_fraction, bool):
        return int(count_or_fraction)
    if isinstance(count_or_fraction, Real) and 0 < count_or_fraction < 1:
        return max(round(float(count_or_fraction) * total), 1)
    raise DataError(
        f"{count_or_fraction!r} is neither a count of images (an int) nor a fraction in (0, 1) (a float)"
    )


def _quotas(labels: Labels, count: int) -> tuple[Labels, Array]:
    """The classes there are, and how many of `count` images each gives (in exact arithmetic)."""
    classes, sizes = np.unique(labels, return_counts=True)
    quotas = count * sizes // len(labels)
    remainders = count * sizes % len(labels)
    would_empty = sizes - quotas <= 1
    order = np.lexsort((-remainders, would_empty))
    quotas[order[: count - quotas.sum()]] += 1
    return classes, quotas
