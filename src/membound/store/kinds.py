"""What the attributes of operators may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from membound.store.graph import ACTIVATIONS
from membound.store.rules import MAX_AXES, MAX_ELEMENTS, MAX_WINDOW, is_int, is_number, is_shape


@dataclass(frozen=True)
class Kind:
    """A check, and what passes it in words that follow 'it must be'."""

    allows: Callable[[Any], bool]
    text: str


def whole(low: int, high: int = MAX_ELEMENTS) -> Kind:
    return Kind(lambda value: is_int(value, low, high), f"a whole number from {low} to {high}")


def wholes(length: int, low: int, high: int = MAX_WINDOW) -> Kind:
    def allows(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == length and all(is_int(v, low, high) for v in value)

    return Kind(allows, f"a list of {length} whole numbers from {low} to {high}")


def one_of(*words: str) -> Kind:
    return Kind(lambda value: isinstance(value, str) and value in words, " or ".join(map(repr, words)))


def _is_list(value: Any, allows: Callable[[Any], bool]) -> bool:
    return isinstance(value, tuple) and len(value) <= MAX_AXES and all(map(allows, value))


def _is_activation(value: Any) -> bool:
    if not isinstance(value, tuple) or not value or not isinstance(value[0], str):
        return False
    return ACTIVATIONS.get(value[0]) == len(value) - 1 and all(map(is_number, value[1:]))


def _is_count(value: Any) -> bool:
    return value in ("all", "valid") if isinstance(value, str) else is_number(value) and value != 0


NUMBER = Kind(is_number, "a finite float32 number")
POSITIVE = Kind(lambda value: is_number(value) and value > 0, "a finite float32 number above 0")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
AXIS = whole(0, MAX_AXES - 1)
AXES = Kind(lambda value: _is_list(value, AXIS.allows), f"a list of axes from 0 to {MAX_AXES - 1}")
SIZES = Kind(is_shape, f"a list of up to {MAX_AXES} sizes from 1 up")
WINDOW = wholes(2, 1)  # (height, width) of a kernel, a stride, a dilation, a factor
SIDES = wholes(4, 0)  # (top, left, bottom, right)
INDICES = Kind(
    lambda value: (
        isinstance(value, tuple)
        and 1 <= len(value) <= MAX_WINDOW
        and all(is_int(v, 0, MAX_ELEMENTS) for v in value)
    ),
    f"a list of 1 to {MAX_WINDOW} indices from 0 up",
)
SCALES = Kind(
    lambda value: isinstance(value, tuple) and len(value) == 2 and all(is_number(v) and v > 0 for v in value),
    "a list of 2 finite float32 numbers above 0",
)
PADS = Kind(
    lambda value: _is_list(value, wholes(2, 0).allows),
    f"a list of pairs of whole numbers from 0 to {MAX_WINDOW}",
)
COUNT = Kind(_is_count, "'all', 'valid' or a number other than 0")
ACTIVATION = Kind(
    _is_activation,
    "a list of an activation and its numbers: "
    + ", ".join(name + (f" ({count})" if count else "") for name, count in ACTIVATIONS.items()),
)
