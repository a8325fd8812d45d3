"""How one tensor is stored: dense, or its nonzeros and where they are.

The layouts of positions are in `layouts.py`, the types of values in `values.py`; any goes with any. A tensor is a
matrix with a row for each index of its first axis; with one axis or none it is a single row. Zeros are not stored,
except by dense, which keeps every bit; -0.0 counts as a zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.graph import Shape
from membound.store.layouts import DENSE, LAYOUTS, Matrix, layout
from membound.store.values import ValueType, type_of, value_type

Array = npt.NDArray[Any]
Prefer = Literal["bytes", "speed"]


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

    @property
    def matrix(self) -> Matrix:
        return Matrix(*matrix_shape(self.shape), len(self.values))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def value_type(self) -> ValueType:
        found = type_of(self.values)
        assert found is not None  # as it was made, or validated
        return found

    @property
    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.values))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.values, *self.arrays))

    def __repr__(self) -> str:
        kind = f"{len(self.values)} values of {self.value_type.name}"
        return f"Encoded({self.shape}, {self.format}, {kind}, {self.nbytes} bytes)"


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a tensor as a matrix.

    >>> matrix_shape((20, 3, 5, 5)), matrix_shape((20,)), matrix_shape(())
    ((20, 75), (1, 20), (1, 1))
    """
    return (1, math.prod(shape)) if len(shape) < 2 else (shape[0], math.prod(shape[1:]))


def encode(array: Array, format: str, values: str = "f32") -> Encoded:
    """The tensor in this format: exact for f32; rounded to nearest for f16, where what rounds to 0 is a zero.

    >>> half = encode(np.array([1, 1e-9, -2], np.float32), "indexed", "f16")
    >>> half.arrays[0].tolist(), half.values.tolist()
    ([0, 2], [1.0, -2.0])
    """
    chosen, kind, shape = layout(format), value_type(values), tuple(array.shape)
    if chosen is DENSE:
        return Encoded(shape, format, _stored(array, kind))
    flat, found = _nonzeros(array, kind)
    return Encoded(
        shape, format, *chosen.encode(found, flat[found], Matrix(*matrix_shape(shape), len(found)))
    )


def decode(encoded: Encoded) -> npt.NDArray[np.float32]:
    """The tensor as a dense float32 array.

    >>> decode(encode(np.array([[0, 5, 0], [7, 0, 9]], np.float32), "delta")).tolist()
    [[0.0, 5.0, 0.0], [7.0, 0.0, 9.0]]
    """
    if not encoded.arrays:
        return encoded.values.astype(np.float32).reshape(encoded.shape)
    out = np.zeros(encoded.size, np.float32)
    out[positions(encoded)] = encoded.values
    return out.reshape(encoded.shape)


def positions(encoded: Encoded) -> npt.NDArray[Any]:
    """The flat position of each stored value, fillers included."""
    return layout(encoded.format).positions(encoded.arrays, encoded.matrix)


def exact_bytes(array: Array, values: str = "f32") -> dict[str, int]:
    """The bytes of this tensor in each format, without encoding it.

    >>> exact_bytes(np.eye(100, dtype=np.float32))
    {'dense': 40000, 'csr': 802, 'bitmask': 1650, 'delta': 500, 'indexed': 800}
    """
    kind = value_type(values)
    flat, found = _nonzeros(array, kind)
    sizes = {}
    for name, each in LAYOUTS.items():
        entries = flat.size if each is DENSE else each.entries_at(found)
        matrix = Matrix(*matrix_shape(tuple(array.shape)), entries)
        sizes[name] = int(each.index_bytes(matrix) + kind.nbytes(entries))
    return sizes


def expected_bytes(rows: Any, columns: Any, nonzeros: Any, values: str = "f32") -> dict[str, Any]:
    """The bytes in each format, as they are expected of nonzeros at random places; numbers or arrays of numbers."""
    kind, sizes = value_type(values), {}
    for name, each in LAYOUTS.items():
        entries = each.entries(rows * columns, nonzeros)
        sizes[name] = each.index_bytes(Matrix(rows, columns, entries)) + kind.nbytes(entries)
    return sizes


def best_format(
    shape: Shape,
    array: Array,
    values: str = "f32",
    prefer: Prefer = "bytes",
    overhead: Mapping[str, int] | None = None,
) -> str:
    """The format of fewest bytes, or by the rules of thumb of `fast_format`; `overhead` adds bytes to formats.

    >>> best_format((100, 100), np.eye(100)), best_format((100, 100), np.eye(100), prefer="speed")
    ('delta', 'csr')
    """
    array = array.reshape(shape)
    if prefer == "speed":
        return fast_format(shape, len(_nonzeros(array, value_type(values))[1]))
    if prefer != "bytes":
        raise ModelError(f"there is no preference {prefer!r}: take 'bytes' or 'speed'")
    sizes = exact_bytes(array, values)
    extra = overhead or {}
    return min(LAYOUTS, key=lambda name: sizes[name] + extra.get(name, 0))


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
