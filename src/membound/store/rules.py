"""What every check of a model file shares: how it refuses, and what counts as a number."""

import math
from typing import Any, NoReturn

from membound.errors import ModelError

# Versions: every tensor in arrays of its own; layers may be packed; all of those, and the description, in one array.
PLAIN, PACKED, COMPACT = 1, 2, 3
MAX_ELEMENTS = 2**31 - 1  # of a value, a padded value or a tensor
MAX_TOTAL = 2**33  # elements of all values together
MAX_AXES = 8
MAX_WINDOW = 16384  # kernels, strides, pads, dilations
MAX_NODES = 100_000
MAX_TENSORS = 100_000
MAX_PORTS = 1000  # inputs, or outputs
MAX_NAME = 300  # characters
MAX_HEADER = 2**24  # bytes
MAX_NUMBER = 3.4028234663852886e38  # the largest float32


# Rules of docs/FORMAT.md that are checked in several places.
RULE_INPUTS, RULE_ATTRIBUTES, RULE_ROLES, RULE_SHAPES, RULE_LIMITS = 22, 23, 24, 25, 26
RULE_PORTS = 51


def refuse(rule: int, message: str) -> NoReturn:
    """Raise the error of a file that breaks this rule of docs/FORMAT.md."""
    error = ModelError(message)
    error.rule = rule
    raise error


def show(value: Any) -> str:
    """A value for a message: in one line, and not too long.

    >>> show("a\\nb"), show(10**90)
    ("'a\\\\nb'", '1000000000000000000000000000000000000000000000000000000000000000000000000000...')
    """
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:76] + "..."


def is_int(value: object, low: int, high: int) -> bool:
    """Whether this is a whole number within the bounds; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object) -> bool:
    """Whether this is a number that is finite as a float32."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -MAX_NUMBER <= value <= MAX_NUMBER  # also false for NaN


def is_shape(value: object, low: int = 1) -> bool:
    """Whether this is a list of up to 8 sizes from `low` up whose product is not too large."""
    return (
        isinstance(value, list | tuple)
        and len(value) <= MAX_AXES
        and all(is_int(size, low, MAX_ELEMENTS) for size in value)
        and math.prod(value) <= MAX_ELEMENTS
    )


def is_name(value: object) -> bool:
    """Whether this can name a tensor or a class: printable characters, not too many."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()
