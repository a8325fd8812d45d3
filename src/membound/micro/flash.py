"""A weight of integers in few bytes: a code for each nonzero, and the distance of each from the one before."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.bits import pack

MOST_K = 8  # low bits of a distance: three bytes hold them and a code wherever they begin
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Packed:
    """As membound_micro.h has it; without `high` every element has a code, without a palette a code is value + 128."""

    codes: Bytes
    high: Bytes | None
    palette: npt.NDArray[np.int8] | None
    count: int
    bits: int
    k: int

    @property
    def nbytes(self) -> int:
        parts = (self.codes, self.high, self.palette)
        return sum(part.nbytes for part in parts if part is not None)


def pack_weight(matrix: npt.NDArray[Any]) -> Packed:
    """The form of fewest bytes for int8 in rows and columns.

    >>> pack_weight(np.array([[0, 0, 3, 0], [0, 0, 0, 3]])).nbytes
    3
    """
    flat = matrix.reshape(-1).astype(np.int64)
    found = np.flatnonzero(flat)
    gaps = np.diff(found, prepend=-1) - 1
    sizes = [int((gaps >> k).sum()) + len(gaps) * (1 + k) for k in range(MOST_K + 1)]
    k = int(np.argmin(sizes))
    ends = np.arange(len(gaps)) + np.cumsum(gaps >> k)
    high = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, bool)
    high[ends] = True
    sparse = _entries(flat[found], gaps & ((1 << k) - 1), k, np.packbits(high, bitorder="little"))
    dense = _entries(flat, np.zeros_like(flat), 0, None)
    return min(sparse, dense, key=lambda each: each.nbytes)


def _entries(values: npt.NDArray[Any], low: npt.NDArray[Any], k: int, high: Bytes | None) -> Packed:
    """A code for each value, and above it the low bits of its distance; without a palette where that is less."""
    levels = np.unique(values)
    bits = max(1, int(len(levels) - 1).bit_length()) if len(levels) else 1
    plain = Packed(pack(values + 128 | low << 8, 8 + k), high, None, len(values), 8, k)
    if bits == 8:
        return plain
    codes = np.searchsorted(levels, values)
    short = Packed(pack(codes | low << bits, bits + k), high, levels.astype(np.int8), len(values), bits, k)
    return min(short, plain, key=lambda each: each.nbytes)
