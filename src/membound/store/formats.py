"""How one tensor is stored: dense, or its nonzeros and where they are.

The layouts of positions are in `layouts.py`, the types of values in `values.py`; any goes with any. A tensor is a
matrix with a row for each index of its first axis; with one axis or none it is a single row. Zeros are not stored,
except by dense, which keeps every bit; -0.0 counts as a zero.

Values of few bits are codes into a palette, times a scale for each row where there are scales. A file of such tensors
packs each layer (packed.py), and may use the layout rice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.bits import chunks, pack, packed_bytes
from membound.store.graph import Shape
from membound.store.layouts import DELTA, DENSE, LAYOUTS, RICE, Layout, Matrix, layout
from membound.store.palette import Coded, Palette
from membound.store.quantize import LINEAR_FROM, is_exact, make_palette, quantize
from membound.store.values import ValueType, type_of, value_type

Array = npt.NDArray[Any]
Prefer = Literal["bytes", "speed"]
FAST = ("dense", "csr")  # the formats that are chosen for speed


@dataclass(frozen=True, eq=False)
class Encoded:
    """A tensor as it is stored, and as the kernels compute on it.

    >>> encode(np.array([[0, 5, 0], [7, 0, 9]], np.float32), "csr")
    Encoded((2, 3), csr, 3 values of f32, 24 bytes)
    """

    shape: Shape
    format: str
    values: Array  # 1-d; dense: all elements, else the nonzeros in row-major order (delta: and the fillers' zeros)
    arrays: tuple[Array, ...] = ()  # those of its layout
    type_name: str = ""  # of the values; "" for what their array is
    count: int = -1  # of the values; -1 for as many as their array has elements
    palette: Palette | None = None  # what codes stand for; None if the values are no codes
    scales: Array | None = None  # of rows, f32 or f16
    parameter: int = 0  # of its layout

    def __post_init__(self) -> None:
        if not self.type_name:
            found = type_of(self.values)
            assert found is not None  # as it was made, or validated
            object.__setattr__(self, "type_name", found.name)
        if self.count < 0:
            object.__setattr__(self, "count", len(self.values))

    @property
    def matrix(self) -> Matrix:
        return Matrix(*matrix_shape(self.shape), self.count, self.parameter)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def value_type(self) -> ValueType:
        return value_type(self.type_name)

    @property
    def numbers(self) -> Array | Coded:
        """The values as numbers, without scales; of codes, to be taken in slices."""
        if self.palette is None:
            return self.values
        return Coded(self.values, self.value_type.bits, self.count, self.palette.entries)

    @property
    def nonzeros(self) -> int:
        return sum(int(np.count_nonzero(self.numbers[part])) for part in chunks(self.count))

    @property
    def nbytes(self) -> int:
        parts = (self.values, *self.arrays, self.palette, self.scales)
        return sum(part.nbytes for part in parts if part is not None)

    def __repr__(self) -> str:
        kind = f"{self.count} values of {self.type_name}"
        return f"Encoded({self.shape}, {self.format}, {kind}, {self.nbytes} bytes)"


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a tensor as a matrix.

    >>> matrix_shape((20, 3, 5, 5)), matrix_shape((20,)), matrix_shape(())
    ((20, 75), (1, 20), (1, 1))
    """
    return (1, math.prod(shape)) if len(shape) < 2 else (shape[0], math.prod(shape[1:]))


def scale_rows(array: Array, scales: Array) -> npt.NDArray[np.float32]:
    """Each row times its scale.

    >>> scale_rows(np.ones((2, 3), np.float32), np.array([2, 3], np.float16)).tolist()
    [[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
    """
    rows, columns = matrix_shape(tuple(array.shape))
    if scales.shape != (rows,):
        raise ModelError(f"there are scales of shape {scales.shape} for {rows} rows: one a row is needed")
    by_row = np.asarray(array, np.float32).reshape(rows, columns) * scales.astype(np.float32)[:, None]
    return by_row.reshape(array.shape)


def encode(array: Array, format: str, values: str = "f32", scales: Array | None = None) -> Encoded:
    """The tensor, its rows times `scales`, in this format: exact for f32; rounded to nearest for f16, where what rounds
    to 0 is a zero; for p1 to p8 exact if there are few enough values, else quantized (quantize.py).

    >>> half = encode(np.array([1, 1e-9, -2], np.float32), "indexed", "f16")
    >>> half.arrays[0].tolist(), half.values.tolist()
    ([0, 2], [1.0, -2.0])
    >>> encode(np.array([[0, 5, 0], [7, 0, 5]], np.float32), "rice", "p1")
    Encoded((2, 3), rice, 3 values of p1, 6 bytes)
    """
    chosen, kind, shape = layout(format), value_type(values), tuple(array.shape)
    if kind.coded:
        return _encode_codes(array, chosen, kind, scales)
    if scales is not None:
        array = scale_rows(array, scales)
    if chosen is DENSE:
        return Encoded(shape, format, _stored(array, kind))
    flat, found = _nonzeros(array, kind)
    parts = chosen.encode(found, flat[found], Matrix(*matrix_shape(shape), len(found)))
    return Encoded(shape, format, parts.values, parts.arrays, parameter=parts.parameter)


def _encode_codes(array: Array, chosen: Layout, kind: ValueType, scales: Array | None) -> Encoded:
    shape = tuple(array.shape)
    rows, columns = matrix_shape(shape)
    if scales is not None and scales.shape != (rows,):
        raise ModelError(f"there are scales of shape {scales.shape} for {rows} rows: one a row is needed")
    matrix = np.asarray(array, np.float32).reshape(rows, columns)
    found = np.flatnonzero(matrix)
    zeros = matrix.size > len(found) if chosen is DENSE else chosen.entries_at(found) > len(found)
    u, kept, palette = quantize(matrix, kind, None if scales is None else scales.astype(np.float32), zeros)
    flat = u.reshape(-1)
    found = np.arange(flat.size) if chosen is DENSE else np.flatnonzero(flat)
    parts = chosen.encode(found, flat[found], Matrix(rows, columns, len(found)))
    if palette is None:
        palette = make_palette(np.unique(parts.values), kind)
    codes = np.searchsorted(palette.entries, parts.values)
    return Encoded(
        shape,
        chosen.name,
        pack(codes, kind.bits),
        parts.arrays,
        kind.name,
        len(codes),
        palette,
        kept,
        parts.parameter,
    )


def decode(encoded: Encoded) -> npt.NDArray[np.float32]:
    """The tensor as a dense float32 array, scales multiplied in.

    >>> decode(encode(np.array([[0, 5, 0], [7, 0, 9]], np.float32), "delta")).tolist()
    [[0.0, 5.0, 0.0], [7.0, 0.0, 9.0]]
    """
    numbers = encoded.numbers
    values = numbers.all() if isinstance(numbers, Coded) else numbers
    if encoded.format == DENSE.name:
        out = values.astype(np.float32)
    else:
        out = np.zeros(encoded.size, np.float32)
        out[positions(encoded)] = values
    out = out.reshape(encoded.shape)
    return out if encoded.scales is None else scale_rows(out, encoded.scales)


def positions(encoded: Encoded) -> npt.NDArray[Any]:
    """The flat position of each stored value, fillers included."""
    return layout(encoded.format).positions(encoded.arrays, encoded.matrix)


def choices(values: str = "f32", packed: bool = False) -> tuple[Layout, ...]:
    """The layouts that are chosen of by themselves, in order of preference where two take as many bytes.

    Rice is only in files of packed layers; a filler of delta would take a place in a palette.
    """
    coded = value_type(values).coded
    unwanted = (DELTA,) if coded else () if packed else (RICE,)
    return tuple(each for each in LAYOUTS.values() if each not in unwanted)


def exact_bytes(array: Array, values: str = "f32", packed: bool = False) -> dict[str, int]:
    """The bytes of this tensor in each format that is chosen of by itself, without encoding it.

    Of few bits they are the most that they can be: with a full palette, scales of f16, and no nonzero that becomes one
    of the palette's zeros. Where a 0 would take the place of another value, dense is counted with a bit more a value.

    >>> exact_bytes(np.eye(100, dtype=np.float32))
    {'dense': 40000, 'csr': 802, 'bitmask': 1650, 'delta': 500, 'indexed': 800}
    >>> exact_bytes(np.eye(100, dtype=np.float32), "p1")
    {'dense': 1454, 'csr': 619, 'bitmask': 1467, 'indexed': 617, 'rice': 317}
    """
    kind, shape = value_type(values), matrix_shape(tuple(array.shape))
    flat, found = _nonzeros(array, kind)
    beside = _palette_bytes(kind, shape[0], len(found))
    sizes = {}
    for each in choices(values, packed):
        entries = flat.size if each is DENSE else each.entries_at(found)
        index = each.index_bytes_at(found, Matrix(*shape, entries))
        sizes[each.name] = int(index + kind.nbytes(entries) + beside)
    if _needs_sparse(array, kind):
        sizes[DENSE.name] = int(packed_bytes(flat.size, kind.bits + 1) + beside)
    return sizes


def expected_bytes(
    rows: Any, columns: Any, nonzeros: Any, values: str = "f32", packed: bool = False
) -> dict[str, Any]:
    """The same as they are expected of nonzeros at random places; numbers or arrays of numbers."""
    kind, sizes = value_type(values), {}
    for each in choices(values, packed):
        entries = each.entries(rows * columns, nonzeros)
        index = each.index_bytes(Matrix(rows, columns, entries))
        sizes[each.name] = index + kind.nbytes(entries) + _palette_bytes(kind, rows, nonzeros)
    if kind.bits < LINEAR_FROM:
        wider = packed_bytes(rows * columns, kind.bits + 1) - kind.nbytes(rows * columns)
        sizes[DENSE.name] = sizes[DENSE.name] + np.where(nonzeros < rows * columns, wider, 0)
    return sizes


def _palette_bytes(kind: ValueType, rows: Any, nonzeros: Any) -> Any:
    """What values of few bits take beside their codes: an f16 for each in the palette, or its step; a scale a row."""
    if not kind.coded:
        return 0
    return (4 if kind.bits >= LINEAR_FROM else 2 * np.minimum(kind.levels, nonzeros)) + 2 * rows


def best_format(
    shape: Shape,
    array: Array,
    values: str = "f32",
    prefer: Prefer = "bytes",
    overhead: Mapping[str, int] | None = None,
    packed: bool = False,
) -> str:
    """The format of fewest bytes, or by the rules of thumb of `fast_format`; `overhead` adds bytes to formats.

    >>> best_format((100, 100), np.eye(100)), best_format((100, 100), np.eye(100), prefer="speed")
    ('delta', 'csr')
    """
    array, kind = array.reshape(shape), value_type(values)
    if prefer == "speed":
        fast = fast_format(shape, len(_nonzeros(array, kind)[1]))
        return "csr" if fast == DENSE.name and _needs_sparse(array, kind, enough=16) else fast
    if prefer != "bytes":
        raise ModelError(f"there is no preference {prefer!r}: take 'bytes' or 'speed'")
    sizes = exact_bytes(array, values, packed)
    if _needs_sparse(array, kind):
        del sizes[DENSE.name]
    extra = overhead or {}
    return min(sizes, key=lambda name: sizes[name] + extra.get(name, 0))


def _needs_sparse(array: Array, kind: ValueType, enough: int = 128) -> bool:
    """Whether a 0 in the palette would take the place of another value, so that a format without zeros is better.

    Where values are not exact anyway, one of `enough` is not missed.
    """
    if not kind.coded or array.all() or is_exact(array, kind, True):
        return False
    return kind.levels < enough or is_exact(array, kind, False)


def fast_format(shape: Shape, nonzeros: int) -> str:
    """Rules of thumb for speed: dense if tiny, a vector, or at least 40 % nonzero (where dense kernels win); else csr.

    >>> fast_format((500, 800), 20_000), fast_format((500, 800), 200_000), fast_format((500,), 3)
    ('csr', 'dense', 'dense')
    """
    size = math.prod(shape)
    if len(shape) < 2 or size <= 1024 or nonzeros >= 0.4 * size:
        return "dense"
    return "csr"


def _stored(array: Array, kind: ValueType) -> Array:
    """The elements in row-major order as they are stored; it may be a view."""
    return kind.encode(np.asarray(array, np.float32).reshape(-1))


def _nonzeros(array: Array, kind: ValueType) -> tuple[Array, Array]:
    """The elements, and where those are that are not zero."""
    flat = _stored(array, kind)
    return flat, np.flatnonzero(~kind.is_zero(flat))
