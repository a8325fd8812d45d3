"""How one tensor is stored: dense, or its nonzeros and where they are.

For n elements in r rows with t nonzeros and v bytes a value (4 for f32, 2 for f16):

    dense    n v                  every element
    bitmask  ceil(n / 8) + t v    a bit for each element, the least significant first
    indexed  t (4 + v)            the flat position of each nonzero
    csr      p (r + 1) + t (c + v)  its column, and where each row starts; p = 2 up to 65535 nonzeros, else 4;
                                  c = 2 up to 65536 columns, else 4
    delta    t' (1 + v)           the distance from the one before, less 1; t' = t + the fillers of longer distances

A tensor is a matrix with a row for each index of its first axis; with one axis or none it is a single row. Zeros
are not stored, except by dense, which keeps every bit; -0.0 counts as a zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.graph import Shape

Array = npt.NDArray[Any]
Prefer = Literal["bytes", "speed"]

# In order of preference where two take as many bytes: the faster one to compute on first.
FORMATS = ("dense", "csr", "bitmask", "delta", "indexed")
VALUE_TYPES: Mapping[str, npt.DTypeLike] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2")}
FAR = 256  # the longest distance of one delta entry: a filler is one of that distance, with the value 0
INFINITE = 0x7C00  # the bits of a half that is infinite, but for its sign
NARROW_COLUMNS, NARROW_COUNT = 65536, 65535  # up to which csr's columns and row pointers are 16-bit


@dataclass(frozen=True, eq=False)
class Encoded:
    """A tensor as it is stored, and as the kernels compute on it.

    >>> encode(np.array([[0, 5, 0], [7, 0, 9]], np.float32), "csr")
    Encoded((2, 3), csr, 3 values of float32, 24 bytes)
    """

    shape: Shape
    format: str
    values: Array  # 1-d; dense: all elements, else the nonzeros in row-major order (delta: and the fillers' zeros)
    index: Array | None = (
        None  # uint8 bits, uint32 positions, uint16 or uint32 columns, uint8 distances less 1
    )
    pointers: Array | None = None  # csr: uint16 or uint32 [rows + 1]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        return matrix_shape(self.shape)[0]

    @property
    def columns(self) -> int:
        return matrix_shape(self.shape)[1]

    @property
    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.values))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.values, self.index, self.pointers) if array is not None)

    def __repr__(self) -> str:
        kind = f"{len(self.values)} values of {self.values.dtype}"
        return f"Encoded({self.shape}, {self.format}, {kind}, {self.nbytes} bytes)"


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a tensor as a matrix.

    >>> matrix_shape((20, 3, 5, 5)), matrix_shape((20,)), matrix_shape(())
    ((20, 75), (1, 20), (1, 1))
    """
    return (1, math.prod(shape)) if len(shape) < 2 else (shape[0], math.prod(shape[1:]))


def encode(array: Array, format: str, value_type: str = "f32") -> Encoded:
    """The tensor in this format: exact for f32; rounded to nearest for f16, where what rounds to 0 is a zero.

    >>> half = encode(np.array([1, 1e-9, -2], np.float32), "indexed", "f16")
    >>> half.index.tolist(), half.values.tolist()
    ([0, 2], [1.0, -2.0])
    """
    flat = _as_values(array, value_type)
    shape = tuple(array.shape)
    if format == "dense":
        return Encoded(shape, format, flat)
    there = _is_nonzero(flat)
    found = np.flatnonzero(there)
    values = flat[found]
    if format == "bitmask":
        return Encoded(shape, format, values, np.packbits(there, bitorder="little"))
    if format == "indexed":
        if flat.size > 2**32:
            raise ModelError(
                f"{flat.size} elements are too many for the format indexed, which counts to {2**32}"
            )
        return Encoded(shape, format, values, found.astype("<u4"))
    if format == "csr":
        rows, columns = matrix_shape(shape)
        pointers = np.searchsorted(found, np.arange(rows + 1, dtype=np.int64) * columns)
        index = found % columns if columns else found
        kinds = csr_types(columns, len(found))
        return Encoded(shape, format, values, index.astype(kinds[0]), pointers.astype(kinds[1]))
    if format == "delta":
        return Encoded(shape, format, *_delta(found, values))
    raise ModelError(f"there is no storage format {format!r}: the formats are {', '.join(FORMATS)}")


def csr_types(columns: int, nonzeros: int) -> tuple[npt.DTypeLike, npt.DTypeLike]:
    """The types of csr's columns and of its row pointers."""
    return ("<u2" if columns <= NARROW_COLUMNS else "<u4"), ("<u2" if nonzeros <= NARROW_COUNT else "<u4")


def decode(encoded: Encoded) -> npt.NDArray[np.float32]:
    """The tensor as a dense float32 array.

    >>> decode(encode(np.array([[0, 5, 0], [7, 0, 9]], np.float32), "delta")).tolist()
    [[0.0, 5.0, 0.0], [7.0, 0.0, 9.0]]
    """
    if encoded.format == "dense":
        return encoded.values.astype(np.float32).reshape(encoded.shape)
    out = np.zeros(encoded.size, np.float32)
    out[positions(encoded)] = encoded.values
    return out.reshape(encoded.shape)


def positions(encoded: Encoded) -> npt.NDArray[Any]:
    """The flat position of each stored value, fillers included."""
    index = encoded.index
    if index is None:
        return np.arange(encoded.size)
    if encoded.format == "bitmask":
        return np.flatnonzero(np.unpackbits(index, count=encoded.size, bitorder="little"))
    if encoded.format == "delta":
        return np.cumsum(index.astype(np.int64) + 1) - 1
    if encoded.pointers is not None:
        pointers = encoded.pointers.astype(np.int64)
        return np.repeat(np.arange(encoded.rows) * encoded.columns, pointers[1:] - pointers[:-1]) + index
    return index


def exact_bytes(array: Array, value_type: str = "f32") -> dict[str, int]:
    """The bytes of this tensor in each format, without encoding it.

    >>> exact_bytes(np.eye(100, dtype=np.float32))
    {'dense': 40000, 'csr': 802, 'bitmask': 1650, 'delta': 500, 'indexed': 800}
    """
    flat = _as_values(array, value_type)
    found = np.flatnonzero(_is_nonzero(flat))
    sizes = count_bytes(tuple(array.shape), len(found), flat.itemsize)
    entries = len(found) + int(_fillers(found).sum())
    return {name: entries * (1 + flat.itemsize) if name == "delta" else sizes[name] for name in FORMATS}


def count_bytes(shape: Shape, nonzeros: int, value_bytes: int = 4) -> dict[str, int]:
    """The bytes in each format that follow from the count alone: all but delta's, which depend on the positions."""
    rows, columns = matrix_shape(shape)
    index, pointers = (np.dtype(kind).itemsize for kind in csr_types(columns, nonzeros))
    return {
        "dense": rows * columns * value_bytes,
        "csr": pointers * (rows + 1) + nonzeros * (index + value_bytes),
        "bitmask": -(-rows * columns // 8) + nonzeros * value_bytes,
        "indexed": nonzeros * (4 + value_bytes),
    }


def best_format(
    shape: Shape,
    array: Array,
    value_type: str = "f32",
    prefer: Prefer = "bytes",
    overhead: Mapping[str, int] | None = None,
) -> str:
    """The format of fewest bytes, or by the rules of thumb of `fast_format`; `overhead` adds bytes to formats.

    >>> best_format((100, 100), np.eye(100)), best_format((100, 100), np.eye(100), prefer="speed")
    ('delta', 'csr')
    """
    array = array.reshape(shape)
    if prefer == "speed":
        return fast_format(shape, int(np.count_nonzero(_as_values(array, value_type))))
    if prefer != "bytes":
        raise ModelError(f"there is no preference {prefer!r}: take 'bytes' or 'speed'")
    sizes = exact_bytes(array, value_type)
    extra = overhead or {}
    return min(FORMATS, key=lambda name: sizes[name] + extra.get(name, 0))


def fast_format(shape: Shape, nonzeros: int) -> str:
    """Rules of thumb for speed: dense if tiny, a vector, or at least 40 % nonzero (where dense kernels win); else csr.

    >>> fast_format((500, 800), 20_000), fast_format((500, 800), 200_000), fast_format((500,), 3)
    ('csr', 'dense', 'dense')
    """
    size = math.prod(shape)
    if len(shape) < 2 or size <= 1024 or nonzeros >= 0.4 * size:
        return "dense"
    return "csr"


def _as_values(array: Array, value_type: str) -> Array:
    """The elements in row-major order in the type they are stored in: read-only use, it may be a view."""
    kind = VALUE_TYPES.get(value_type)
    if kind is None:
        raise ModelError(f"there is no value type {value_type!r}: the types are {', '.join(VALUE_TYPES)}")
    flat = np.asarray(array, np.float32).reshape(-1)
    if value_type == "f32":
        return flat
    with np.errstate(over="ignore", under="ignore"):
        narrow = flat.astype(kind)
    infinite = _magnitude_bits(narrow) == INFINITE
    if infinite.any() and (lost := infinite & np.isfinite(flat)).any():
        raise ModelError(
            f"the value {flat[lost][0]:g} does not fit f16, which ends at 65504: store the values as f32"
        )
    return narrow


def _is_nonzero(flat: Array) -> npt.NDArray[np.bool_]:
    # Numpy compares and searches halves several times slower than their bits.
    found: npt.NDArray[np.bool_] = (_magnitude_bits(flat) if flat.itemsize == 2 else flat) != 0
    return found


def _magnitude_bits(halves: Array) -> npt.NDArray[np.uint16]:
    bits: npt.NDArray[np.uint16] = halves.view(np.uint16) & np.uint16(0x7FFF)
    return bits


def _fillers(found: Array) -> Array:
    """How many fillers come before each nonzero in the format delta."""
    return (np.diff(found, prepend=-1) - 1) // FAR


def _delta(found: Array, values: Array) -> tuple[Array, Array]:
    """Values and gaps of the format delta."""
    fillers = _fillers(found)
    places = np.arange(len(found)) + np.cumsum(fillers)
    total = len(found) + int(fillers.sum())
    out, gaps = np.zeros(total, values.dtype), np.full(total, FAR - 1, np.uint8)
    out[places] = values
    gaps[places] = (np.diff(found, prepend=-1) - 1) % FAR
    return out, gaps
