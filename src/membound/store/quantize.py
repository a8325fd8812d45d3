"""A tensor in few values: exactly, where it has few already, or the nearest that there are.

A tensor is stored as scales[row] * u[row, column], where u takes up to 2^b values. Where it has more, and b is 7 or 8,
u are whole numbers and the scale of a row is the largest magnitude of it over 2^(b-1) - 1. Where b is less, rows are
divided by their root mean square, k-means finds values for all of them together, and the scale of each row is the one
of least squares. Nothing is random: the same tensor gives the same values.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.palette import KINDS, Palette, linear
from membound.store.short import as_short
from membound.store.values import ValueType

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
LINEAR_FROM = 7  # bits from which on steps of one size are fine enough
_ROUNDS = 200
_SAMPLE = 4096


class Quantized(NamedTuple):
    """A matrix as scales times u; `palette` where it does not follow from the values of u."""

    u: Float32
    scales: Array | None
    palette: Palette | None = None


def quantize(matrix: Float32, kind: ValueType, scales: Float32 | None, with_zero: bool) -> Quantized:
    """The matrix (times `scales`, one a row) in as many values as `kind` has; one of them is 0 if `with_zero`."""
    if not np.isfinite(matrix).all() or (scales is not None and not np.isfinite(scales).all()):
        raise ModelError(f"a value is not finite, which {kind.name} cannot store")
    if scales is not None:
        matrix = np.where(scales[:, None] == 0, np.float32(0), matrix)
        power = _power_beyond_half(matrix)
        matrix, scales = matrix / power, scales * power
    if is_exact(matrix, kind, with_zero):
        return Quantized(matrix + np.float32(0), None if scales is None else narrow(scales))  # +: -0 to 0
    product = matrix if scales is None else matrix * scales[:, None]
    return _to_steps(product, kind) if kind.bits >= LINEAR_FROM else _to_means(product, kind, with_zero)


def is_rough(kind: ValueType) -> bool:
    """Whether weights have so few bits that scales and biases beside them need no more than 8."""
    return kind.bits < LINEAR_FROM


def is_exact(array: Array, kind: ValueType, with_zero: bool) -> bool:
    """Whether few enough different values are in an array that all of them can be kept.

    Of 7 or 8 bits a table of values that hardly recur would take more than it saves: they must be exact in f16, or
    recur.
    """
    nonzeros = array[array != 0]
    room = kind.levels - with_zero
    if len(np.unique(nonzeros[:_SAMPLE])) > room or len(found := np.unique(nonzeros)) > room:
        return False
    return kind.bits < LINEAR_FROM or 2 * len(found) <= len(nonzeros) or _fits_half(found)


def _to_steps(matrix: Float32, kind: ValueType) -> Quantized:
    most = (1 << (kind.bits - 1)) - 1
    scales = narrow(np.abs(matrix).max(axis=1, initial=0) / np.float32(most))
    steps = scales.astype(np.float32)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(steps > 0, np.rint(matrix / steps), np.float32(0))
    return Quantized(np.clip(u, -most, most) + np.float32(0), scales, linear(kind.bits, 1.0))


def _to_means(matrix: Float32, kind: ValueType, with_zero: bool) -> Quantized:
    there = matrix != 0
    sizes = np.sqrt(_products(matrix, matrix) / np.maximum(there.sum(axis=1), 1))
    sizes = np.maximum(sizes, np.finfo(np.float32).tiny).astype(np.float32)
    level = (matrix / sizes[:, None])[there]
    u = np.zeros_like(matrix)
    u[there] = _nearest(level, means(level, kind.levels - with_zero)) + np.float32(0)
    squares = _products(u, u)
    fitted = _products(matrix, u) / np.where(squares > 0, squares, 1.0)
    return Quantized(u, narrow(np.where(squares > 0, fitted, 0.0)))


def _products(one: Float32, other: Float32) -> Array:
    """Of each row with the other's; in float64, as squares of float32 may be out of its range."""
    found: Array = np.einsum("ij,ij->i", one, other, dtype=np.float64)
    return found


def means(values: Array, count: int) -> Float32:
    """Up to so many numbers, exact in f16 and rising, that are near to the values: k-means.

    It starts from where many levels would lie best, as close to each other as the cube root of the density says.

    >>> means(np.array([1, 1.5, 2, 9, 9.5, 10]), 2).tolist()
    [1.5, 9.5]
    """
    ranked = np.sort(values.astype(np.float64))
    if not len(ranked):
        return np.zeros(0, np.float32)
    sums = np.concatenate([[0.0], np.cumsum(ranked)])
    density, edges = np.histogram(ranked, 1024)
    shares = np.concatenate([[0.0], np.cumsum(np.cbrt(density))])
    found = np.unique(np.interp((np.arange(count) + 0.5) / count * shares[-1], shares, edges))
    for _ in range(_ROUNDS):
        ends = np.searchsorted(ranked, (found[1:] + found[:-1]) / 2)
        starts, stops = np.concatenate([[0], ends]), np.concatenate([ends, [len(ranked)]])
        kept = stops > starts
        before, found = found, (sums[stops[kept]] - sums[starts[kept]]) / (stops - starts)[kept]
        if len(before) == len(found) and np.allclose(before, found, rtol=1e-6, atol=0):
            break
    return np.unique(found.astype(np.float16)).astype(np.float32)


def _nearest(values: Array, entries: Float32) -> Float32:
    if not len(entries):
        return np.zeros(values.shape, np.float32)
    return entries[np.searchsorted((entries[1:] + entries[:-1]) / 2, values)]


def make_palette(used: Float32, kind: ValueType) -> Palette:
    """The smallest palette that has exactly these values, which rise, among its entries."""
    stepped = _stepped(used, kind)
    if stepped is not None:
        return stepped
    if _fits_half(used):
        return Palette("f16", used.astype(KINDS["f16"]))
    return Palette("f32", used.astype(KINDS["f32"]))


def _stepped(used: Float32, kind: ValueType) -> Palette | None:
    """The palette of whole numbers times a step, if there is one and it is smaller than a table of f16."""
    nonzeros = np.abs(used[used != 0])
    if not len(nonzeros):
        return None
    half = 1 << (kind.bits - 1)
    for part in range(1, 9):
        step = nonzeros.min() / np.float32(part)
        whole = np.rint(used / step) if step > 0 else used
        if whole.min() < -128 or whole.max() > 127 or not np.array_equal(whole * step, used):
            continue
        if whole.min() >= -half and whole.max() < half:
            return linear(kind.bits, float(step))
        if len(used) + 4 < 2 * len(used):
            return Palette("i8", whole.astype(KINDS["i8"]), float(step))
    return None


def _fits_half(values: Float32) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float16).astype(np.float32), values))


def _power_beyond_half(matrix: Float32) -> np.float32:
    """The power of two that values of f16 are multiplied by, for the largest of these; 1 where none is needed.

    A weight in front of a batch norm may be of any size: the scales make up for it.
    """
    _, exponent = np.frexp(np.abs(matrix).max(initial=0))
    return np.float32(2.0 ** max(int(exponent) - 16, 0))


def narrow(numbers: Array) -> Array:
    """Numbers as f16, or as f32 where f16 would not give them to within its usual precision, or 8 bits have them."""
    wide = numbers.astype("<f4")
    if as_short(wide) is not None:
        return wide
    with np.errstate(over="ignore", invalid="ignore"):
        half = wide.astype("<f2")
        near = np.abs(half.astype(np.float32) - wide) <= np.abs(wide) * np.float32(2**-10)
    return half if near.all() else wide
