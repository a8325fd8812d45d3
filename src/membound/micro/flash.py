"""A weight of integers in few bytes: for each nonzero its distance from the one before, and a code."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_K = (
    8  # low bits of a distance: with a code and 8 bits before them, four bytes hold them wherever they begin
)
Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Packed:
    """As membound_micro.h has it; if not `sparse` every element has a code, without a palette a code is value + 128."""

    stream: Bytes
    palette: npt.NDArray[np.int8] | None
    count: int
    bits: int
    k: int
    sparse: bool

    @property
    def nbytes(self) -> int:
        return self.stream.nbytes + (0 if self.palette is None else self.palette.nbytes)


def pack_weight(matrix: npt.NDArray[Any]) -> tuple[Packed, Packed]:
    """Both forms of int8 in rows and columns, each in its fewest bytes: nonzeros with positions, and all elements.

    >>> [packed.nbytes for packed in pack_weight(np.array([[0, 0, 3, 0], [0, 0, 0, 3]]))]
    [3, 3]
    """
    flat = matrix.reshape(-1).astype(np.int64)
    found = np.flatnonzero(flat)
    gaps = np.diff(found, prepend=-1) - 1
    sizes = [int((gaps >> k).sum()) + len(gaps) * (1 + k) for k in range(MOST_K + 1)]
    return _entries(flat[found], gaps, int(np.argmin(sizes))), _entries(flat, None, 0)


def size_of(packed: Packed) -> int:
    return packed.nbytes


def _entries(values: Int, gaps: Int | None, k: int) -> Packed:
    """A code for each value behind its distance; without a palette where that is less."""
    levels = np.unique(values)
    bits = max(1, int(len(levels) - 1).bit_length()) if len(levels) else 1
    plain = Packed(_stream(values + 128, 8, gaps, k), None, len(values), 8, k, gaps is not None)
    if bits == 8:
        return plain
    codes = np.searchsorted(levels, values)
    stream = _stream(codes, bits, gaps, k)
    short = Packed(stream, levels.astype(np.int8), len(values), bits, k, gaps is not None)
    return min(short, plain, key=size_of)


def _stream(codes: Int, bits: int, gaps: Int | None, k: int) -> Bytes:
    """Bits, the lowest of each byte first."""
    high = np.zeros_like(codes) if gaps is None else (gaps >> k) + 1  # bits before the low ones
    size = high + k + bits
    begin = np.cumsum(size) - size
    out = np.zeros(int(size.sum()), bool)
    if gaps is not None:
        out[begin + high - 1] = True
        for bit in range(k):
            out[begin + high + bit] = gaps >> bit & 1
    for bit in range(bits):
        out[begin + high + k + bit] = codes >> bit & 1
    return np.packbits(out, bitorder="little")
