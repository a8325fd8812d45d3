"""Scales and biases in 8 bits: a signed byte each, times one step for all of them.

A step has 8 significant bits, so that it is the upper half of a float32, and a byte times it is exact. Numbers that
were rounded so are therefore found again, and stored again, as they are.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
STEP, CODE = np.dtype("<u2"), np.dtype("i1")
MOST = 127
_TINY = 1e-30  # smaller numbers are left as they are: their step would have fewer bits


class Short(NamedTuple):
    """Numbers as codes times a step; `step` is an array of one element, its upper half."""

    step: Array
    codes: Array


def expand(step: Array, codes: Array) -> npt.NDArray[np.float32]:
    """The numbers.

    >>> expand(np.array([0x3F00], STEP), np.array([1, -127], CODE)).tolist()
    [0.5, -63.5]
    """
    whole: Array = step.astype("<u4") << 16
    numbers: npt.NDArray[np.float32] = codes.astype(np.float32) * whole.view("<f4")[0]
    return numbers


def as_short(numbers: Array) -> Short | None:
    """These numbers as codes and step, if that is exactly what they are."""
    wide = numbers.astype("<f4")
    most = np.abs(wide).max(initial=0)
    if not np.isfinite(most) or most < _TINY:
        return None
    for code in (MOST, MOST - 1):  # of the largest; `shorten` makes no other
        step = np.array([most / np.float32(code)], "<f4")
        upper = (step.view("<u4") >> 16).astype(STEP)
        codes = np.rint(wide / step)
        if np.array_equal(expand(upper, codes), wide):
            return Short(upper, codes.astype(CODE))
    return None


def shorten(numbers: Array) -> npt.NDArray[np.float32]:
    """The nearest numbers that 8 bits have, or these where they are too small for that, or not finite.

    >>> shorten(np.array([1, 0.5, -0.001], np.float32)).tolist()
    [0.999755859375, 0.4998779296875, 0.0]
    """
    wide = numbers.astype("<f4")
    most = np.abs(wide).max(initial=0)
    if not np.isfinite(most) or most < _TINY or as_short(wide) is not None:
        return wide
    step = np.array([most / np.float32(MOST)], "<f4").view("<u4")
    upper = ((step + np.uint32(0xFFFF)) >> 16).astype(STEP)  # up, so that no code is larger than MOST
    return expand(upper, np.rint(wide / expand(upper, np.ones(1))) + np.float32(0))  # +: -0 to 0


def short_scales(scales: Array) -> Array:
    """Scales of rows in 8 bits, unless that would move one of them by more than a 25th."""
    rounded = shorten(scales)
    near = np.abs(rounded - scales.astype(np.float32)) <= np.abs(scales) * np.float32(0.04)
    return rounded if near.all() else scales


def short_bias(bias: Array) -> npt.NDArray[np.float32] | None:
    """Biases in 8 bits, unless a few large ones would leave too little to the others."""
    rounded, wide = shorten(bias), bias.astype(np.float32)
    usual = np.median(np.abs(wide[wide != 0])) if wide.any() else 0.0
    near = np.abs(rounded - wide).max(initial=0) <= 0.1 * usual
    return rounded if near and as_short(rounded) is not None else None
