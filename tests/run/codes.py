"""Weights of few bits as the compiled core takes them: written bit by bit, apart from the library's encoders."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound import _core

LAYOUTS = tuple(_core.layouts())
TYPES = tuple(_core.value_types())
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Coded:
    """A stored weight, and what it means in float64."""

    matrix: Any
    meaning: npt.NDArray[np.float64]
    file_bytes: int


def coded(
    weight: npt.NDArray[np.floating[Any]],
    layout: str,
    values: str,
    seed: int = 0,
    *,
    scaled: bool = False,
    entries: int | None = None,
    k: int | None = None,
) -> Coded:
    """The weight (its zeros stay) in a layout and a type of values, of codes with a random palette."""
    rng = np.random.default_rng(seed)
    flat = np.asarray(weight, np.float32).reshape(len(weight), -1)
    rows, columns = flat.shape
    places = np.arange(flat.size) if layout == "dense" else np.flatnonzero(flat)
    scales = (rng.random(rows) + 0.5).astype(np.float32) if scaled else None
    palette = None
    if values in ("f32", "f16"):
        numbers = flat.reshape(-1)[places].astype(values.replace("f", "float"))
        meant = numbers.astype(np.float64)
        fill = numbers.dtype.type(0)
    else:
        bits = int(values[1:])
        palette = rng.standard_normal(entries or 2**bits).astype(np.float32)
        palette[0] = 0 if layout == "delta" else palette[0]  # what fillers are
        numbers = rng.integers(0, len(palette), len(places)).astype(np.uint8)
        meant = palette[numbers].astype(np.float64)
        fill = np.uint8(0)
    parameter = 0
    if layout == "rice":
        parameter = best_k(places) if k is None else k
    arrays, numbers = index(layout, places, numbers, fill, rows, columns, parameter)
    stored = numbers if palette is None else packed(numbers, int(values[1:]))
    matrix = _core.Matrix(
        layout=layout,
        values_type=values,
        rows=rows,
        columns=columns,
        entries=len(numbers),
        values=stored,
        arrays=arrays,
        palette=palette,
        scales=scales,
        parameter=parameter,
    )
    meaning = np.zeros(flat.size)
    meaning[places] = meant
    meaning = meaning.reshape(rows, columns)
    if scales is not None:
        meaning *= scales[:, None].astype(np.float64)
    return Coded(matrix, meaning.reshape(np.shape(weight)), sum(a.nbytes for a in (stored, *arrays)))


def packed(numbers: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """Numbers of so many bits one after another, the lowest bit first."""
    each = np.asarray(numbers, np.uint32)[:, None] >> np.arange(bits, dtype=np.uint32) & 1
    return np.packbits(each.reshape(-1).astype(np.uint8), bitorder="little")


def best_k(places: npt.NDArray[Any]) -> int:
    gaps = np.diff(places, prepend=-1) - 1
    return min(range(16), key=lambda k: len(gaps) * (k + 1) + int((gaps >> k).sum()))


def index(
    layout: str,
    places: npt.NDArray[Any],
    numbers: npt.NDArray[Any],
    fill: Any,
    rows: int,
    columns: int,
    k: int = 0,
) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any]]:
    """The arrays of a layout, and the values with the fillers that it needs."""
    if layout == "dense":
        return [], numbers
    if layout == "bitmask":
        bits = np.zeros(rows * columns, np.uint8)
        bits[places] = 1
        return [np.packbits(bits, bitorder="little")], numbers
    if layout == "indexed":
        return [places.astype(np.uint32)], numbers
    if layout == "csr":
        starts = np.searchsorted(places, np.arange(rows + 1) * columns)
        wide = np.uint16 if columns <= 65536 else np.uint32
        short = np.uint16 if len(places) <= 65535 else np.uint32
        return [(places % columns).astype(wide), starts.astype(short)], numbers
    gaps = np.diff(places, prepend=-1) - 1
    if layout == "delta":
        ends = np.cumsum(gaps // 256 + 1) - 1  # where entries are, between fillers
        found = np.full(ends[-1] + 1 if len(ends) else 0, 255, np.uint8)
        every = np.full(len(found), fill)
        found[ends], every[ends] = gaps % 256, numbers
        return [found], every
    assert layout == "rice"
    high = gaps >> k
    ones = np.cumsum(high + 1) - 1
    bits = np.zeros(int(ones[-1]) + 1 if len(ones) else 0, np.uint8)
    bits[ones] = 1
    return [np.packbits(bits, bitorder="little"), packed(gaps & (2**k - 1), k)], numbers


def conv_plan(coded: Coded, shape, bias, pad=0, stride=1, groups=1, act="none") -> Any:
    """The plan of a convolution of one image of this shape."""
    out, _, high, wide = coded.meaning.shape
    sizes = [
        (size + 2 * pad - kernel) // stride + 1 for size, kernel in zip(shape[1:], (high, wide), strict=True)
    ]
    return _core.OpPlan(
        op="conv",
        inputs=[0],
        input_shapes=[list(shape)],
        output_shape=[out, *sizes],
        activation=act,
        activation_numbers=[],
        numbers={"window": [high, wide, stride, stride, pad, pad, 1, 1], "groups": [groups]},
        weight=coded.matrix,
        tables={"b": bias},
    ), (out, *sizes)


def linear_plan(coded: Coded, bias, act="none") -> Any:
    rows, columns = coded.meaning.shape
    return _core.OpPlan(
        op="linear",
        inputs=[0],
        input_shapes=[[columns]],
        output_shape=[rows],
        activation=act,
        activation_numbers=[],
        numbers={},
        weight=coded.matrix,
        tables={"b": bias},
    ), (rows,)


def run(plan, shape, x, isa, threads=1, max_batch=None) -> Floats:
    """What the core makes of a batch, with one operator."""
    made, out = plan
    network = _core.Network([made], list(shape), [1], max_batch or len(x), threads, 1, isa)
    y = np.full((len(x), *out), np.nan, np.float32)
    network.run([np.ascontiguousarray(x)], [y], len(x))
    return y
