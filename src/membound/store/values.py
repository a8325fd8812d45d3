"""The types that values are stored in: one record each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.bits import packed_bytes

Array = npt.NDArray[Any]
INFINITE = 0x7C00  # the bits of a half that is infinite, but for its sign


@dataclass(frozen=True)
class ValueType:
    """How values lie in a file; `encode` takes float32 in one axis, and may give a view of it.

    Those of fewer than 16 bits are packed codes, which the palette of a tensor gives a meaning (palette.py). Until it
    is made (quantize.py), values are the float32 that they were.
    """

    name: str
    bits: int
    dtype: np.dtype[Any]  # of the array that holds them
    encode: Callable[[npt.NDArray[np.float32]], Array]
    is_zero: Callable[[Array], npt.NDArray[np.bool_]]
    all_finite: Callable[[Array], bool]

    @property
    def coded(self) -> bool:
        """Whether values are codes into a palette."""
        return self.bits < 16

    @property
    def levels(self) -> int:
        """How many values there can be in a tensor."""
        return 1 << self.bits

    def nbytes(self, entries: Any) -> Any:
        """The bytes of so many values; a number, or an array of numbers."""
        return packed_bytes(entries, self.bits)


def _magnitude_bits(halves: Array) -> npt.NDArray[np.uint16]:
    # Numpy compares and searches halves several times slower than their bits.
    bits: npt.NDArray[np.uint16] = halves.view(np.uint16) & np.uint16(0x7FFF)
    return bits


def _to_half(flat: npt.NDArray[np.float32]) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        narrow = flat.astype(F16.dtype)
    infinite = _magnitude_bits(narrow) == INFINITE
    if infinite.any() and (lost := infinite & np.isfinite(flat)).any():
        raise ModelError(
            f"the value {flat[lost][0]:g} does not fit f16, which ends at 65504: store the values as f32"
        )
    return narrow


def _halves_are_finite(values: Array) -> bool:
    return not ((values.view(np.uint16) & INFINITE) == INFINITE).any()


F32 = ValueType(
    "f32", 32, np.dtype("<f4"), lambda flat: flat, lambda v: v == 0, lambda v: bool(np.isfinite(v).all())
)
F16 = ValueType("f16", 16, np.dtype("<f2"), _to_half, lambda v: _magnitude_bits(v) == 0, _halves_are_finite)


def _codes(bits: int) -> ValueType:
    return ValueType(f"p{bits}", bits, np.dtype("u1"), F32.encode, F32.is_zero, F32.all_finite)


CODES = tuple(map(_codes, range(1, 9)))

VALUE_TYPES: Mapping[str, ValueType] = {each.name: each for each in (F32, F16, *CODES)}


def value_type(name: str) -> ValueType:
    """The type of this name.

    >>> value_type("f16").nbytes(3)
    6
    """
    found = VALUE_TYPES.get(name)
    if found is None:
        raise ModelError(f"there is no value type {name!r}: the types are {', '.join(VALUE_TYPES)}")
    return found


def type_of(values: Array) -> ValueType | None:
    """The type of stored values by that of their array; None if there is no such, as of codes."""
    return next((each for each in (F32, F16) if each.dtype == values.dtype), None)
