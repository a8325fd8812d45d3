"""Whole numbers of few bits, one behind the other: number i of b bits is at bits i b to (i + 1) b, the lowest first.

Bit j is bit j mod 8 (the least significant first) of byte j div 8.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
CHUNK = (
    1 << 18
)  # elements that are looked at together: a multiple of 8, so that each chunk starts with a byte
_ONES = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def packed_bytes(count: Any, bits: Any) -> Any:
    """The bytes of so many numbers; a number, or an array of numbers."""
    return -(-count * bits // 8)


def pack(numbers: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Numbers below 2^bits in as few bytes as there are; spare bits of the last one are 0.

    >>> pack(np.array([1, 2, 3]), 3).tolist(), pack(np.array([5, 6]), 8).tolist()
    ([209, 0], [5, 6])
    """
    if bits == 8:
        return numbers.astype(np.uint8)
    parts = []
    for part in chunks(len(numbers)):
        wide = numbers[part].astype("<u2" if bits > 8 else np.uint8)[:, None].view(np.uint8)
        parts.append(
            np.packbits(np.unpackbits(wide, axis=1, count=bits, bitorder="little"), bitorder="little")
        )
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def unpack(packed: Array, bits: int, begin: int, end: int) -> Array:
    """Numbers `begin` (a multiple of 8) to `end` of those that were packed, each of up to 16 bits.

    >>> unpack(pack(np.arange(8), 3), 3, 0, 8).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    if bits == 8:
        return packed[begin:end]
    count, first = end - begin, begin * bits // 8
    if bits == 0:
        return np.zeros(count, np.uint8)
    single = np.unpackbits(packed[first:], count=count * bits, bitorder="little").reshape(count, bits)
    found = np.packbits(single, axis=1, bitorder="little")
    return found.reshape(-1) if bits <= 8 else found.view("<u2").reshape(-1)


def unpack_all(packed: Array, bits: int, count: int) -> Array:
    """All of so many numbers that were packed."""
    parts = [unpack(packed, bits, part.start, part.stop) for part in chunks(count)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def spare_bits(packed: Array, used: int) -> int:
    """What the last byte has beyond the bits that are used; 0 if it is as it must be."""
    return int(packed[-1]) >> (used % 8) if used % 8 and len(packed) else 0


def count_ones(packed: Array) -> int:
    """How many bits are set."""
    return sum(int(_ONES[packed[part]].sum()) for part in chunks(len(packed)))


def chunks(length: int) -> Iterator[slice]:
    """Slices that go over so many elements."""
    for begin in range(0, length, CHUNK):
        yield slice(begin, min(begin + CHUNK, length))
