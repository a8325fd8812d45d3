"""A stored network as operations on integers: every number that the device computes with, not where it lies."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError, Uncalibrated
from membound.micro.arithmetic import (
    HIGH,
    LIMIT,
    LOW,
    Quantization,
    Rescale,
    before,
    bounds,
    multipliers,
    sum_multipliers,
    table,
)
from membound.micro.layers import Image, Layer, Layers, Window, find_layers, quantized_values
from membound.micro.over_time import along_height
from membound.store.bits import unpack_all
from membound.store.formats import Encoded, decode, matrix_shape, positions
from membound.store.model import StoredModel

Int8 = npt.NDArray[np.int8]
INPUT_SHIFT = 16
MOST_CHANNELS, MOST_SIDE = 65_000, 16_384


@dataclass(frozen=True)
class Sum:
    """y = floor((left a + right b + constant) / 2^shift), within low and high."""

    left: int
    right: int
    constant: int
    shift: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Pool:
    """A window, what comes out of it, and for means how sums become int8: by the count of elements, if `each`."""

    window: Window
    size: tuple[int, int]
    mean: bool = False
    each: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """One operation: kind is conv, sum, pool, mean (a pool that adds row by row) or table.

    `size` is what it computes row by row, before `then_sum` or `then_pool`; inputs and output are numbers of values.
    For people, `act` is its activation, and `linear` says that its convolution is a linear layer.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    output: int
    first: int
    channels: int
    size: tuple[int, int]
    window: Window
    groups: int = 1
    weight: Int8 | None = None  # [out, in / groups, height, width]
    bias: npt.NDArray[np.int64] | None = None
    lift: int | None = None  # biases are 16 bits times 2^lift; None: 32 bits
    rescale: Rescale | None = None
    sum: Sum | None = None
    pool: Pool | None = None
    act: str = ""
    linear: bool = False

    @property
    def then(self) -> str:
        if self.kind != "conv":
            return "store"
        return "sum" if self.sum is not None else "pool" if self.pool is not None else "store"


@dataclass(frozen=True, eq=False)
class IntegerNet:
    """The whole of it. `input` has a multiplier and a constant for each channel: q = floor((pixel m + c) / 2^16)."""

    ops: list[Op]
    images: list[Image]  # of each value, the input's first
    quantizations: list[Quantization]
    output: int
    input: list[tuple[int, int]]
    takes_pixels: bool
    dropped: str


def make_integers(
    model: StoredModel, activations: Mapping[int, tuple[float, int]] | None = None
) -> IntegerNet:
    """The network in integers; scales of values are the file's own, or those that are given."""
    model = along_height(model)
    found = find_layers(model)
    for channels, height, width in found.images.values():
        if channels > MOST_CHANNELS or max(height, width) > MOST_SIDE:
            raise ModelError(
                f"a value of {channels} x {height} x {width} is too large for a microcontroller: at most "
                f"{MOST_CHANNELS} channels and {MOST_SIDE} a side are allowed"
            )
    given = model.activations if activations is None else activations
    if not quantized_values(found) <= set(given):
        raise Uncalibrated(
            "the network is not calibrated for a microcontroller, it does not say how its values are rounded to int8: "
            "net = mb.export_c(file, folder, images=x) calibrates it on some hundred training examples x"
        )
    found_scales = {value: _checked(value, *given[value]) for value in quantized_values(found)}
    scales = share_scales(found, found_scales)
    order = {0: 0}
    for layer in found.layers:
        order.setdefault(layer.output, len(order))
    ops = [_integer(model, found, layer, scales, order) for layer in found.layers]
    pixels = model.preprocess is not None and (
        model.preprocess.get("takes", "uint8" if model.preprocess else "float32") == "uint8"
    )
    return IntegerNet(
        ops,
        [found.images[value] for value in order],
        [scales[value] for value in order],
        order[found.output],
        _input(model, found.images[0][0], scales[0], pixels),
        pixels,
        found.dropped,
    )


def _checked(value: int, scale: float, zero: int) -> Quantization:
    if not LOW <= zero <= HIGH:
        raise ModelError(
            f"value {value} has the zero point {zero}: a microcontroller's numbers are int8, from {LOW} to {HIGH}; "
            "calibrate the file again"
        )
    return Quantization(scale, zero)


def share_scales(found: Layers, scales: dict[int, Quantization]) -> dict[int, Quantization]:
    """Both sides of a max pool have one scale; values before an activation have what its output asks for."""
    scales = dict(scales)
    uses = Counter(value for layer in found.layers for value in layer.inputs)
    pools = [layer for layer in found.layers if layer.kind == "max"]
    fixed = {0} | {value for value, count in uses.items() if count > 1}
    for layer in pools:
        if layer.inputs[0] in fixed:
            scales[layer.output] = scales[layer.inputs[0]]
            fixed.add(layer.output)
    for layer in reversed(pools):
        if layer.inputs[0] not in fixed:
            scales[layer.inputs[0]] = scales[layer.output]
    for layer in found.layers:
        if layer.inputs[0] < 0:
            assert layer.act is not None
            scales[layer.inputs[0]] = before(layer.act, scales[layer.output])
    return scales


def _input(model: StoredModel, channels: int, to: Quantization, pixels: bool) -> list[tuple[int, int]]:
    """From bytes to q: pixels are prepared as the file says, other bytes are q + 128."""
    if not pixels:
        return [(2**INPUT_SHIFT, -128 * 2**INPUT_SHIFT)] * channels
    if model.mean_image is not None:
        raise ModelError(
            "this network subtracts a mean image, too large for a microcontroller: train it again with a mean for each "
            "channel (mean='channel')"
        )
    said = model.preprocess or {}
    mean = np.broadcast_to(np.asarray(said.get("mean", 0.0), np.float64), channels)
    std = np.broadcast_to(np.asarray(said.get("std", 1.0), np.float64), channels)
    with np.errstate(all="ignore"):
        each = float(said.get("scale", 1.0)) / std / to.scale * 2**INPUT_SHIFT
        m = np.rint(each)
        c = np.rint(to.zero * 2**INPUT_SHIFT - mean * each) + 2 ** (INPUT_SHIFT - 1)
    if not (255 * np.abs(m) + np.abs(c)).max() < LIMIT:
        raise ModelError("the scale of the input is too small for its pixels: calibrate the file again")
    return [(int(a), int(b)) for a, b in zip(m, c, strict=True)]


def _integer(
    model: StoredModel,
    found: Layers,
    layer: Layer,
    scales: dict[int, Quantization],
    order: Mapping[int, int],
) -> Op:
    try:
        return _MAKERS[layer.kind](model, found, layer, scales, order)
    except ModelError as error:
        raise ModelError(f"{layer.name}: {error}") from None


def _op(kind: str, found: Layers, layer: Layer, order: Mapping[int, int], **more: Any) -> Op:
    channels, height, width = found.images[layer.inputs[0]]
    given = {"window": Window((1, 1), (1, 1)), "channels": channels, "size": (height, width), **more}
    inputs = tuple(order[value] for value in layer.inputs)
    act = layer.act[0] if layer.act else ""
    return Op(
        kind, layer.name, inputs, order[layer.output], layer.first, act=act, linear=layer.linear, **given
    )


def _conv(
    model: StoredModel, found: Layers, layer: Layer, scales: dict[int, Quantization], order: Mapping[int, int]
) -> Op:
    assert layer.window is not None
    assert layer.weight is not None
    given = scales[layer.inputs[0]]
    out = scales[layer.between if layer.plus is not None else layer.output]
    pre, low_high = out, bounds(layer.act, out)
    translated = None
    if low_high is None:
        assert layer.act is not None
        pre = before(layer.act, out)
        translated = table(layer.act, pre, out)
    stored = model.tensors[layer.weight]
    whole, steps = integer_weight(stored)
    bias = (
        np.zeros(len(whole)) if layer.bias is None else decode(model.tensors[layer.bias]).astype(np.float64)
    )
    unit = given.scale * steps
    # A row of weights so small that its bias, as a multiple of them, is beyond int32 is its bias.
    least = np.abs(bias) / 2.0 ** (29 - multipliers(unit / pre.scale)[2])
    nothing = np.abs(unit) <= least
    whole = np.where(nothing.reshape(-1, *[1] * (whole.ndim - 1)), np.int8(0), whole)
    unit = np.where(nothing, np.maximum(least, pre.scale / 2**12), unit)
    sums = whole.reshape(len(whole), -1).astype(np.int64)
    folded = np.rint(np.clip(bias / unit, -LIMIT, LIMIT)).astype(np.int64) - given.zero * sums.sum(1)
    m, shift, up = multipliers(unit / pre.scale)
    folded, lift = _shorten(folded, float((pre.scale / np.abs(unit)).min()))
    if (m == m[0]).all() and (shift == shift[0]).all():
        m, shift = m[:1], shift[:1]
    most = (np.abs(folded) + 128 * np.abs(sums).sum(1)).max() * 2**up
    if most >= LIMIT:
        raise ModelError(
            f"its sums may be as large as {most:,}, beyond 32 bits: calibrate it on other examples"
        )
    low, high = low_high or (LOW, HIGH)
    rescale = Rescale(m, shift, up, pre.zero, low, high, translated)
    channels, height, width = found.images[layer.inputs[0]]
    if whole.ndim == 2:
        whole = whole.reshape(len(whole), channels, height, width)
    size = layer.window.size(height, width)
    return _op(
        "conv", found, layer, order, window=layer.window, channels=len(whole), size=size, groups=layer.groups,
        weight=whole, bias=folded, lift=lift, rescale=rescale,
        sum=None if layer.plus is None else _sum_numbers(layer.plus, [out, scales[layer.inputs[1]]], scales),
        pool=None if layer.pool is None else Pool(layer.pool, layer.pool.size(*size)),
    )  # fmt: skip


def _shorten(bias: npt.NDArray[np.int64], step: float) -> tuple[npt.NDArray[np.int64], int | None]:
    """Biases as 16 bits times 2^lift, where that is at most an eighth of `step`: the sum that is 1 in an output."""
    for lift in range(17):
        short = (bias + (1 << lift >> 1)) >> lift
        if np.abs(short).max(initial=0) < 2**15:
            return (short << lift, lift) if lift == 0 or 8 * 2**lift <= step else (bias, None)
    return bias, None


def integer_weight(stored: Encoded) -> tuple[Int8, npt.NDArray[np.float64]]:
    """int8 numbers, and for each row what they are multiples of.

    A palette keeps its entries apart: they are rounded to a step that all share, which is exact for linear ones.
    Others are rounded row by row.
    """
    rows, columns = matrix_shape(stored.shape)
    if stored.palette is None:
        matrix = decode(stored).astype(np.float64).reshape(rows, columns)
        steps = np.abs(matrix).max(1, initial=0) / HIGH
        whole = np.rint(matrix / np.where(steps == 0, 1, steps)[:, None])
        return whole.astype(np.int8).reshape(stored.shape), steps
    codes = unpack_all(stored.values, stored.value_type.bits, stored.count)
    entries = stored.palette.entries.astype(np.float64)
    if stored.palette.kind in ("i8", "linear"):
        levels, step = stored.palette.table.astype(np.int64), float(stored.palette.step)
    else:
        counts = np.bincount(codes, minlength=len(entries))[: len(entries)]
        levels, step = _round_palette(entries, counts)
    flat = np.zeros(rows * columns, np.int8)
    if stored.count:
        flat[positions(stored)] = levels[codes]
    scales = np.ones(rows) if stored.scales is None else stored.scales.astype(np.float64)
    return flat.reshape(stored.shape), step * scales


def _round_palette(entries: npt.NDArray[np.float64], counts: npt.NDArray[Any]) -> tuple[Any, float]:
    """The entries as int8, and the step of the least squared error that allows it."""
    most = np.abs(entries).max(initial=0)
    if most == 0:
        return np.zeros(len(entries), np.int64), 1.0
    steps = most / np.arange(HIGH, HIGH / 2, -0.25)
    whole = np.rint(entries / steps[:, None])
    errors = ((whole * steps[:, None] - entries) ** 2 * counts).sum(1)
    best = int(np.argmin(errors))
    return whole[best].astype(np.int64), float(steps[best])


def _sum_numbers(layer: Layer, given: list[Quantization], scales: dict[int, Quantization]) -> Sum:
    out = scales[layer.output]
    real = [factor * each.scale / out.scale for factor, each in zip(layer.factors, given, strict=True)]
    zero = out.zero + layer.offset / out.scale
    whole, constant, shift = sum_multipliers(real, zero, [each.zero for each in given])
    low, high = bounds(layer.act, out) or (LOW, HIGH)
    return Sum(whole[0], whole[1] if len(whole) == 2 else 0, constant, shift, low, high)


def _sum(
    model: StoredModel, found: Layers, layer: Layer, scales: dict[int, Quantization], order: Mapping[int, int]
) -> Op:
    numbers = _sum_numbers(layer, [scales[value] for value in layer.inputs], scales)
    return _op("sum", found, layer, order, sum=numbers)


def _act(
    model: StoredModel, found: Layers, layer: Layer, scales: dict[int, Quantization], order: Mapping[int, int]
) -> Op:
    assert layer.act is not None
    given, out = scales[layer.inputs[0]], scales[layer.output]
    made = Rescale(
        np.ones(1, np.int16), np.ones(1, np.uint8), 0, out.zero, table=table(layer.act, given, out)
    )
    return _op("table", found, layer, order, rescale=made)


def _pool(
    model: StoredModel, found: Layers, layer: Layer, scales: dict[int, Quantization], order: Mapping[int, int]
) -> Op:
    window = layer.window
    assert window is not None
    _, height, width = found.images[layer.inputs[0]]
    size = window.size(height, width)
    if layer.kind == "max":
        return _op("pool", found, layer, order, window=window, size=size, pool=Pool(window, size))
    given, out = scales[layer.inputs[0]], scales[layer.output]
    counts = _counts(window, size, height, width)
    each = window.divisor is None and len(np.unique(counts)) > 1
    divisors = np.arange(1, window.kernel[0] * window.kernel[1] + 1) if each else np.unique(counts)[:1]
    real = (
        given.scale / out.scale / (divisors.astype(np.float64) if window.divisor is None else window.divisor)
    )
    m, shift, up = multipliers(np.atleast_1d(real))
    if window.kernel[0] * window.kernel[1] * 255 * 2**up >= LIMIT:
        raise ModelError("its sums may be beyond 32 bits: calibrate it on other examples")
    rescale = Rescale(m, shift, up, out.zero)
    apart = window.kernel[0] <= window.stride[0] or size[0] == 1
    adds = apart and 4 * size[1] + width < min(window.kernel[0], height) * width
    pool = Pool(window, size, True, each)
    return _op(
        "mean" if adds else "pool", found, layer, order, pool=pool, rescale=rescale,
        window=Window((1, 1), (1, 1)) if adds else window, size=(height, width) if adds else size,
    )  # fmt: skip


def _counts(window: Window, size: tuple[int, int], height: int, width: int) -> npt.NDArray[np.int64]:
    """The elements of each window that its sum is divided by."""
    sides = []
    for i, side in enumerate((height, width)):
        low, high = mean_range(window, i, side)
        begin = np.arange(size[i]) * window.stride[i] - window.pad[i]
        sides.append(np.minimum(begin + window.kernel[i], high) - np.maximum(begin, low))
    found: npt.NDArray[np.int64] = np.multiply.outer(*sides)
    return found


def mean_range(window: Window, axis: int, side: int) -> tuple[int, int]:
    """From where to where elements count: the image, or the image with its padding."""
    return (0, side) if window.valid else (-window.pad[axis], side + window.pad[2 + axis])


_MAKERS = {"conv": _conv, "sum": _sum, "max": _pool, "mean": _pool, "act": _act}
