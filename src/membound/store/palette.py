"""Values of few bits: a code for each, and a palette that says what codes stand for.

f32, f16   a table of numbers
i8         a table of int8, and a step that all are multiplied by
linear     no table: code c of b bits stands for (c - 2^(b-1)) * step
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.bits import unpack, unpack_all

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
KINDS: dict[str, np.dtype[Any]] = {  # of the table as it is stored
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "i8": np.dtype("i1"),
    "linear": np.dtype("i1"),
}
STEPPED = ("i8", "linear")


@dataclass(frozen=True, eq=False)
class Palette:
    """What codes stand for: `table[code]`, times `step` where the kind has one.

    >>> Palette("f16", np.array([-1.5, 2], np.float16)).entries.tolist(), linear(2, 0.5).entries.tolist()
    ([-1.5, 2.0], [-1.0, -0.5, 0.0, 0.5])
    """

    kind: str
    table: Array
    step: float = 1.0  # a float32; 1 where the kind has none

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ModelError(f"there is no kind of palette {self.kind!r}: the kinds are {', '.join(KINDS)}")

    @cached_property
    def entries(self) -> Float32:
        """The number that each code stands for."""
        found: Float32 = self.table.astype(np.float32)
        return found * np.float32(self.step) if self.kind in STEPPED else found

    @property
    def nbytes(self) -> int:
        """Its bytes in a file."""
        table = 0 if self.kind == "linear" else self.table.nbytes
        return table + (4 if self.kind in STEPPED else 0)


def linear(bits: int, step: float) -> Palette:
    """The palette without a table for codes of so many bits."""
    half = 1 << (bits - 1)
    return Palette("linear", np.arange(-half, half).astype(np.int8), float(np.float32(step)))


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes as the numbers that they stand for, a slice at a time: what an array of the numbers would give."""

    codes: Array
    bits: int
    count: int
    entries: Float32

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> Float32:
        begin, end, _ = part.indices(self.count)
        first = begin - begin % 8
        return self.entries[unpack(self.codes, self.bits, first, end)[begin - first :]]

    def all(self) -> Float32:
        """All of them at once."""
        return self.entries[unpack_all(self.codes, self.bits, self.count)]
