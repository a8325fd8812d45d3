"""Means and deviations of a split, accumulated exactly and streamed; what a data set holds, as JSON."""

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data.examples import REGRESSION
from membound.data.several import inputs_of
from membound.data.splits import Array, ArraySplit, Dataset, Split, subsample
from membound.errors import DataError

Float32 = npt.NDArray[np.float32]

_BLOCK = 64  # images read at a time by one thread
DESCRIBED = 10_000  # images of a folder that `describe` decodes for its mean and deviation


def mean_image(split: Split) -> Float32:
    """The mean over images, float32 [C, H, W]: exact sums for uint8, float64 ones for float32.

    >>> split = mb.data.ArraySplit(np.array([[[[0, 255]]], [[[1, 255]]]], np.uint8), np.array([0, 1]))
    >>> mb.data.mean_image(split).tolist()
    [[[0.5, 255.0]]]
    """
    total = np.zeros(split.shape, np.float64)
    for block in _blocks(split):
        # A block's sum is below 2**53, and so is the total of 2**45 uint8 images: every addition is exact.
        total += block.sum(axis=0, dtype=np.uint32 if block.dtype == np.uint8 else np.float64)
    return (total / len(split)).astype(np.float32)


def channel_moments(split: Split) -> tuple[Float32, Float32]:
    """Mean and standard deviation of each channel, each float32 [C], in one pass.

    >>> split = mb.data.ArraySplit(np.array([[[[0, 4]]], [[[0, 4]]]], np.uint8), np.array([0, 1]))
    >>> mb.data.channel_moments(split)
    (array([2.], dtype=float32), array([2.], dtype=float32))
    """
    channels, *places = split.shape  # [C, H, W], sequences [C, L], or features [C]
    count = len(split) * math.prod(places)
    others = (0, *range(2, len(places) + 2))
    total, squares = np.zeros(channels), np.zeros(channels)
    shift = np.zeros(channels)  # floats are summed about the first block's mean: squares do not cancel
    for number, block in enumerate(_blocks(split)):
        if block.dtype == np.uint8:
            total += block.sum(axis=others, dtype=np.uint64)
            squares += np.multiply(block, block, dtype=np.uint16).sum(axis=others, dtype=np.uint64)
        else:
            if number == 0:
                shift = block.mean(axis=others, dtype=np.float64)
            moved = block - shift.reshape(-1, *(1 for _ in places))
            total += moved.sum(axis=others)
            squares += np.square(moved).sum(axis=others)
    mean = total / count
    variance = np.maximum(squares / count - mean * mean, 0)
    return (mean + shift).astype(np.float32), np.sqrt(variance).astype(np.float32)


def mean_channels(split: Split) -> Float32:
    """The mean of each channel, float32 [C]."""
    return channel_moments(split)[0]


def std_channels(split: Split) -> Float32:
    """The standard deviation of each channel, float32 [C]."""
    return channel_moments(split)[1]


def describe(dataset: Dataset) -> dict[str, Any]:
    """What a data set holds, ready for JSON; mean and std are of the training images, per channel.

    `labels` counts images of each class, of masks pixels, and is None where targets are numbers. Inputs by name have no
    common mean.
    They cover all images that are in memory, and at most 10,000 (drawn with seed 0) of those in folders;
    `mean_of` says how many.
    """
    train = dataset.train
    if not isinstance(train, ArraySplit) and len(train) > DESCRIBED:
        train = subsample(train, DESCRIBED)
    several = inputs_of(train) is not None
    mean, std = ((), ()) if several else channel_moments(train)
    halves = {"train": dataset.train, "test": dataset.test}
    return {
        "name": dataset.name,
        "images": {half: len(split) for half, split in halves.items()},
        "shape": list(dataset.shape),
        "dtype": str(train.read(np.zeros(1, np.intp)).dtype),
        "classes": list(dataset.classes),
        "labels": None
        if dataset.task == REGRESSION
        else {half: _count(split, len(dataset.classes)) for half, split in halves.items()},
        "mean": [round(float(value), 4) for value in mean],
        "std": [round(float(value), 4) for value in std],
        "mean_of": len(train),
        "notes": list(dataset.notes),
    }


def _count(split: Split, classes: int) -> list[int]:
    """How many labels there are of each class; pixels of a mask that are ignored are of none."""
    counts = np.bincount(np.ravel(split.labels), minlength=classes)
    return [int(count) for count in counts[:classes]]


def _blocks(split: Split) -> Iterator[Array]:
    """All images, in order, in small blocks; a folder is decoded by a few threads, a few blocks ahead."""
    if len(split) == 0:
        raise DataError("a split that has no images has no mean")
    if isinstance(split, ArraySplit):
        for start in range(0, len(split), _BLOCK):
            yield split.images[start : start + _BLOCK]
        return
    threads = min(16, os.cpu_count() or 1)
    stride = _BLOCK * threads
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(split), stride):
            indices = np.arange(start, min(start + stride, len(split)))
            yield from pool.map(split.read, (indices[i : i + _BLOCK] for i in range(0, len(indices), _BLOCK)))
