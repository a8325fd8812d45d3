"""Which pixels a resized image is made of: for each output along an axis, places and their weights."""

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Weights = NDArray[np.float64]


def taps(size: int, out: int, kind: str, corners: bool, scale: float | None) -> tuple[Places, Weights]:
    """Places and weights, [tap][output]; `scale` is the factor where the sizes do not say it.

    >>> taps(2, 4, "linear", False, None)[1].tolist()
    [[1.0, 0.75, 0.25, 0.75], [0.0, 0.25, 0.75, 0.25]]
    """
    if kind == "linear" and size == out:  # whatever the scale, as torch has it
        return np.stack([np.arange(out)] * 2), np.stack([np.ones(out), np.zeros(out)])
    step = size / out if scale is None else 1 / scale
    number = np.arange(out)
    if kind in ("nearest", "exact"):
        return _nearest(size, out, kind, step), np.ones((1, out))
    if corners:
        where = number * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        where = (number + 0.5) * step - 0.5
    if kind == "linear":
        where = np.maximum(where, 0.0)
        first = np.minimum(np.floor(where).astype(np.int64), size - 1)
        part = np.clip(where - first, 0.0, 1.0)
        return np.stack([first, np.minimum(first + 1, size - 1)]), np.stack([1 - part, part])
    first = np.floor(where).astype(np.int64)
    part = where - first
    places = np.clip(first + np.arange(-1, 3)[:, None], 0, size - 1)
    return places, np.stack([_far(part + 1), _near(part), _near(1 - part), _far(2 - part)])


def _nearest(size: int, out: int, kind: str, step: float) -> Places:
    """floor(i step), or floor((i + 1/2) step), rounded to float32 on the way."""
    number, small = np.arange(out, dtype=np.float32), np.float32(step)
    if kind == "nearest" and out in (size, 2 * size):
        return (np.arange(out) * size // out)[None]
    shift = np.float32(0.5 if kind == "exact" else 0)
    places: Places = np.floor((number + shift) * small).astype(np.int64)
    return np.minimum(places, size - 1)[None]


_A = -0.75  # of the cubic kernel


def _near(x: Weights) -> Weights:
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _far(x: Weights) -> Weights:
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
