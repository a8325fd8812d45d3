"""The types that values are stored in: one record each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError

Array = npt.NDArray[Any]
INFINITE = 0x7C00  # the bits of a half that is infinite, but for its sign


@dataclass(frozen=True)
class ValueType:
    """How values lie in a file; `encode` takes float32 in one axis, and may give a view of it."""

    name: str
    bits: int
    dtype: np.dtype[Any]  # of the array that holds them
    encode: Callable[[npt.NDArray[np.float32]], Array]
    is_zero: Callable[[Array], npt.NDArray[np.bool_]]
    all_finite: Callable[[Array], bool]

    def nbytes(self, entries: Any) -> Any:
        """The bytes of so many values; a number, or an array of numbers."""
        return -(-entries * self.bits // 8)


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

VALUE_TYPES: Mapping[str, ValueType] = {each.name: each for each in (F32, F16)}


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
    """The type of stored values; None if there is no such."""
    return next((each for each in VALUE_TYPES.values() if each.dtype == values.dtype), None)
