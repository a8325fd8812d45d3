"""The layouts of positions: how a stored tensor says where its values are. One record each.

For n elements in r rows of c columns with t nonzeros, beside the values themselves:

    dense    0                    every element has a value
    bitmask  ceil(n / 8)          a bit for each element, the least significant first
    indexed  4 t                  the flat position of each nonzero
    csr      p (r + 1) + q t      its column, and where each row starts; p = 2 up to 65535 nonzeros, else 4;
                                  q = 2 up to 65536 columns, else 4
    delta    t'                   the distance from the one before, less 1; t' = t + the fillers of longer distances
    rice     t (k + 1) / 8 + ...  the same distances in about their entropy: k bits each as they are, and above them one
                                  bit for each 2^k and one to end it; k is chosen for fewest bytes

Counts and sizes are numbers or arrays of numbers alike: a search weighs many at once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.bits import CHUNK, count_ones, pack, packed_bytes, spare_bits, unpack, unpack_all
from membound.store.palette import Coded
from membound.store.rules import refuse

Array = npt.NDArray[Any]
Numbers = Array | Coded
FAR = 256  # the longest distance of one delta entry: a filler is one of that distance, with the value 0
MOST_LOW_BITS = 15  # of rice


class Matrix(NamedTuple):
    """A tensor as a matrix: rows and columns, how many values are stored of it, and the parameter of its layout."""

    rows: Any
    columns: Any
    entries: Any
    parameter: int = 0


@dataclass(frozen=True)
class Index:
    """An array beside the values: the suffix of its name, the bytes of an element, and how many it has.

    A length of -1 depends on where the nonzeros are: files say it.
    """

    suffix: str
    width: Callable[[Matrix], Any]
    length: Callable[[Matrix], Any]

    def dtype(self, matrix: Matrix) -> np.dtype[Any]:
        return np.dtype(f"<u{int(self.width(matrix))}")


class Parts(NamedTuple):
    """What a layout makes of a tensor's nonzeros: their values, its arrays, and its parameter, where it has one."""

    values: Array
    arrays: tuple[Array, ...]
    parameter: int = 0


@dataclass(frozen=True)
class Layout:
    """Where values are.

    - `arrays`: what lies in the file beside the values.
    - `entries(size, nonzeros)`: how many values are stored, as it is expected of nonzeros at random places;
      `entries_at(positions)` of these nonzeros.
    - `encode(positions, values, matrix)`: the nonzeros as stored.
    - `positions(arrays, matrix)`: the flat position of each value.
    - `check(what, values, arrays, matrix)` refuses arrays that a kernel must not follow; of `values` it takes slices.
    - `expected(matrix)` and `measured(positions, matrix)`: the bytes of its arrays where they do not follow from the
      matrix, for nonzeros at random places and for these.
    - `code` stands for it in packed layers; `packed` ones are in no others, as their arrays need its parameter.
    """

    name: str
    code: int
    arrays: tuple[Index, ...]
    encode: Callable[[Array, Array, Matrix], Parts]
    positions: Callable[[tuple[Array, ...], Matrix], Array]
    check: Callable[[str, Numbers, tuple[Array, ...], Matrix], None]
    entries: Callable[[Any, Any], Any] = lambda size, nonzeros: nonzeros
    entries_at: Callable[[Array], int] = len
    expected: Callable[[Matrix], Any] | None = None
    measured: Callable[[Array, Matrix], int] | None = None
    packed: bool = False

    def index_bytes(self, matrix: Matrix) -> Any:
        """The bytes of its arrays, as they are expected of nonzeros at random places."""
        if self.expected is not None:
            return self.expected(matrix)
        return sum(each.width(matrix) * each.length(matrix) for each in self.arrays)

    def index_bytes_at(self, found: Array, matrix: Matrix) -> int:
        """The bytes of its arrays for nonzeros at these places."""
        return int(self.index_bytes(matrix) if self.measured is None else self.measured(found, matrix))


def _entries(matrix: Matrix) -> Any:
    return matrix.entries


def _bytes(number: int) -> Callable[[Matrix], int]:
    return lambda matrix: number


def _check_nonzero(what: str, layout: str, values: Numbers) -> None:
    for begin in range(0, len(values), CHUNK):
        if not values[begin : begin + CHUNK].all():  # rule 35
            refuse(35, f"{what} stores a zero, which its format {layout} leaves out")


def _overlapping(length: int) -> Iterator[slice]:
    """Chunks that share an element with the next one, so that every pair of neighbours is in one of them."""
    for begin in range(0, length - 1, CHUNK):
        yield slice(begin, min(begin + CHUNK + 1, length))


# Dense.

DENSE = Layout(
    "dense",
    0,
    (),
    encode=lambda found, values, matrix: Parts(values, ()),  # of all elements
    positions=lambda arrays, matrix: np.arange(matrix.rows * matrix.columns),
    check=lambda what, values, arrays, matrix: None,
    entries=lambda size, nonzeros: size + 0 * nonzeros,
)


# Bitmask.


def _to_bits(found: Array, values: Array, matrix: Matrix) -> Parts:
    there = np.zeros(matrix.rows * matrix.columns, bool)
    there[found] = True
    return Parts(values, (np.packbits(there, bitorder="little"),))


def _from_bits(arrays: tuple[Array, ...], matrix: Matrix) -> Array:
    return np.flatnonzero(np.unpackbits(arrays[0], count=matrix.rows * matrix.columns, bitorder="little"))


def _check_bits(what: str, values: Numbers, arrays: tuple[Array, ...], matrix: Matrix) -> None:
    _check_nonzero(what, "bitmask", values)
    (index,), size = arrays, matrix.rows * matrix.columns
    bits, spare = count_ones(index), spare_bits(index, size)
    if bits != len(values) or spare:  # rule 30
        beyond = "some" if spare else "none"
        refuse(30, f"{what} has {len(values)} values, {bits} bits set, and {beyond} beyond its end")


BITMASK = Layout(
    "bitmask",
    1,
    (Index("bitmask", _bytes(1), lambda matrix: -(-matrix.rows * matrix.columns // 8)),),
    _to_bits,
    _from_bits,
    _check_bits,
)


# Indexed.


def _to_flat(found: Array, values: Array, matrix: Matrix) -> Parts:
    size = matrix.rows * matrix.columns
    if size > 2**32:
        raise ModelError(f"{size} elements are too many for the format indexed, which counts to {2**32}")
    return Parts(values, (found.astype("<u4"),))


def _check_flat(what: str, values: Numbers, arrays: tuple[Array, ...], matrix: Matrix) -> None:
    _check_nonzero(what, "indexed", values)
    (index,), size = arrays, matrix.rows * matrix.columns
    rising = all((index[part][1:] > index[part][:-1]).all() for part in _overlapping(len(index)))
    if not rising or (len(index) and int(index[-1]) >= size):  # rule 31
        refuse(31, f"{what} has positions that do not rise, or go beyond its {size} elements")


INDEXED = Layout(
    "indexed",
    2,
    (Index("indexed", _bytes(4), _entries),),
    _to_flat,
    lambda arrays, matrix: arrays[0],
    _check_flat,
)


# Csr.


def _to_columns(found: Array, values: Array, matrix: Matrix) -> Parts:
    rows, columns = matrix.rows, matrix.columns
    starts = np.searchsorted(found, np.arange(rows + 1, dtype=np.int64) * columns)
    index = found % columns if columns else found
    return Parts(
        values, (index.astype(CSR.arrays[0].dtype(matrix)), starts.astype(CSR.arrays[1].dtype(matrix)))
    )


def _from_columns(arrays: tuple[Array, ...], matrix: Matrix) -> Array:
    index, starts = arrays[0], arrays[1].astype(np.int64)
    firsts: Array = np.repeat(np.arange(matrix.rows) * matrix.columns, starts[1:] - starts[:-1])
    return firsts + index


def _check_columns(what: str, values: Numbers, arrays: tuple[Array, ...], matrix: Matrix) -> None:
    _check_nonzero(what, "csr", values)
    (index, pointers), columns = arrays, matrix.columns
    rising = all((pointers[part][1:] >= pointers[part][:-1]).all() for part in _overlapping(len(pointers)))
    if not rising or int(pointers[0]) != 0 or int(pointers[-1]) != len(values):  # rule 32
        refuse(32, f"{what} has row pointers that do not rise from 0 to its {len(values)} values")
    if len(index) == 1 and int(index[0]) >= columns:  # rule 33
        refuse(33, f"{what} has a column beyond its {columns}")
    kind = pointers.dtype.type
    for part in _overlapping(len(index)):
        chunk = index[part]
        up = chunk[1:] > chunk[:-1]
        first, last = np.searchsorted(pointers, (kind(part.start), kind(part.stop - 1)), side="right")
        up[pointers[first:last].astype(np.int64) - (part.start + 1)] = True  # where another row starts
        if int(chunk.max()) >= columns or not up.all():  # rule 33
            refuse(33, f"{what} has columns that do not rise within a row, or go beyond its {columns}")


CSR = Layout(
    "csr",
    3,
    (
        Index("csr", lambda matrix: np.where(matrix.columns <= 65536, 2, 4), _entries),
        Index("rows", lambda matrix: np.where(matrix.entries <= 65535, 2, 4), lambda matrix: matrix.rows + 1),
    ),
    _to_columns,
    _from_columns,
    _check_columns,
)


# Delta.


def _fillers(found: Array) -> Array:
    """How many fillers come before each nonzero."""
    return (np.diff(found, prepend=-1) - 1) // FAR


def _expected_entries(size: Any, nonzeros: Any) -> Any:
    """A distance at density p is over 256 k with probability q^k, q = (1 - p)^256: q / (1 - q) fillers each."""
    with np.errstate(divide="ignore", invalid="ignore"):
        far = (1 - nonzeros / np.maximum(size, 1)) ** FAR
        fillers = np.where(far < 1, np.rint(nonzeros * far / (1 - far)), size // FAR)
    return nonzeros + np.where(nonzeros > 0, fillers, 0)


def _to_gaps(found: Array, values: Array, matrix: Matrix) -> Parts:
    fillers = _fillers(found)
    places = np.arange(len(found)) + np.cumsum(fillers)
    total = len(found) + int(fillers.sum())
    out, gaps = np.zeros(total, values.dtype), np.full(total, FAR - 1, np.uint8)
    out[places] = values
    gaps[places] = (np.diff(found, prepend=-1) - 1) % FAR
    return Parts(out, (gaps,))


def _check_gaps(what: str, values: Numbers, arrays: tuple[Array, ...], matrix: Matrix) -> None:
    (index,), size, end = arrays, matrix.rows * matrix.columns, 0
    for begin in range(0, len(values), CHUNK):
        gaps, chunk = index[begin : begin + CHUNK], values[begin : begin + CHUNK]
        end += int(gaps.sum(dtype=np.int64)) + len(gaps)
        fillers = np.flatnonzero(chunk == 0)
        if (gaps[fillers] != FAR - 1).any() or np.signbit(chunk[fillers]).any():  # rule 34
            refuse(34, f"{what} has a zero that fills no distance of {FAR}")
    if end > size or not values[-1:].all():  # rule 34
        refuse(34, f"{what} has positions that go beyond its {size} elements, or end with a filler")


DELTA = Layout(
    "delta",
    4,
    (Index("delta", _bytes(1), _entries),),
    _to_gaps,
    lambda arrays, matrix: np.cumsum(arrays[0].astype(np.int64) + 1) - 1,
    _check_gaps,
    entries=_expected_entries,
    entries_at=lambda found: len(found) + int(_fillers(found).sum()),
)


# Rice.


def _gaps(found: Array) -> Array:
    return np.diff(found, prepend=-1) - 1


def _rice_bytes(gaps: Array, low: int) -> int:
    ones = len(gaps)
    return int(packed_bytes(ones + int((gaps >> low).sum()), 1) + packed_bytes(ones, low))


def _best_low(gaps: Array) -> tuple[int, int]:
    """The parameter of fewest bytes, the smallest of those, and the bytes."""
    sizes = [_rice_bytes(gaps, low) for low in range(MOST_LOW_BITS + 1)]
    return sizes.index(min(sizes)), min(sizes)


def _expected_rice(matrix: Matrix) -> Any:
    """A distance at density p is over 2^k j with probability q^j, q = (1 - p)^(2^k): 1 + q / (1 - q) high bits each.

    Between and around t nonzeros at random places there are t + 1 distances: p = (t + 1) / (n + 1).
    """
    entries = np.asarray(matrix.entries, np.float64)
    beyond = 1 - (entries + 1) / (np.asarray(matrix.rows * matrix.columns, np.float64) + 1)
    best: Any = np.inf
    for low in range(MOST_LOW_BITS + 1):
        high = np.ceil(entries / (1 - beyond) / 8)
        best = np.minimum(best, high + np.ceil(entries * low / 8))
        beyond = beyond * beyond
    return best.astype(np.int64)


def _to_rice(found: Array, values: Array, matrix: Matrix) -> Parts:
    gaps = _gaps(found)
    low, _ = _best_low(gaps)
    ends = np.arange(len(gaps)) + np.cumsum(gaps >> low)
    high = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, bool)
    high[ends] = True
    return Parts(values, (np.packbits(high, bitorder="little"), pack(gaps & ((1 << low) - 1), low)), low)


def _from_rice(arrays: tuple[Array, ...], matrix: Matrix) -> Array:
    """The i-th set bit of `high` is behind as many zeros as the high parts of all distances up to i add up to."""
    (high, low), count, bits = arrays, matrix.entries, matrix.parameter
    places = np.arange(count)
    above = np.flatnonzero(np.unpackbits(high, bitorder="little")) - places
    below = np.cumsum(unpack_all(low, bits, count), dtype=np.int64)
    return (above << bits) + below + places


def _check_rice(what: str, values: Numbers, arrays: tuple[Array, ...], matrix: Matrix) -> None:
    _check_nonzero(what, "rice", values)
    (high, low), count, bits = arrays, matrix.entries, matrix.parameter
    size, ones = matrix.rows * matrix.columns, count_ones(high)
    if ones != count or (len(high) and not high[-1]):  # rule 37
        refuse(37, f"{what} has {count} values and {ones} bits set, or none in its last byte")
    if spare_bits(low, count * bits):  # rule 38
        refuse(38, f"{what} has bits set beyond the end of its {count} low parts")
    zeros = 8 * (len(high) - 1) + int(high[-1]).bit_length() - count if len(high) else 0
    last = (zeros << bits) + count - 1
    for begin in range(0, count, CHUNK):
        last += int(unpack(low, bits, begin, min(begin + CHUNK, count)).sum(dtype=np.int64))
    if last >= size:  # rule 39
        refuse(39, f"{what} has positions that go beyond its {size} elements")


RICE = Layout(
    "rice",
    5,
    (
        Index("high", _bytes(1), lambda matrix: -1),
        Index("low", _bytes(1), lambda matrix: packed_bytes(matrix.entries, matrix.parameter)),
    ),
    _to_rice,
    _from_rice,
    _check_rice,
    expected=_expected_rice,
    measured=lambda found, matrix: _best_low(_gaps(found))[1],
    packed=True,
)

# In order of preference where two take as many bytes: the faster one to compute on first.
LAYOUTS: Mapping[str, Layout] = {each.name: each for each in (DENSE, CSR, BITMASK, DELTA, INDEXED, RICE)}


def layout(name: str) -> Layout:
    """The layout of this name."""
    found = LAYOUTS.get(name)
    if found is None:
        raise ModelError(f"there is no storage format {name!r}: the formats are {', '.join(LAYOUTS)}")
    return found
