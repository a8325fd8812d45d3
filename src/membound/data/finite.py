"""Numbers that cannot be trained on: NaN and infinities, found and said where they are."""

from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import DataError


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """A DataError that says how many values of `array` are not finite, and where the first one is.

    >>> check_finite("x", np.array([[0.0, 1.0], [2.0, np.nan]]))
    Traceback (most recent call last):
    ...
    membound.errors.DataError: x holds values that are not finite in float32 (NaN or infinite): 1 of 4, the first in \
example 1; replace them, or leave these examples out
    """
    # Both ends of the range carry NaN and infinities along, and need no memory for a mask.
    if array.dtype.kind != "f" or array.size == 0 or np.isfinite([array.min(), array.max()]).all():
        return
    wrong = ~np.isfinite(array)
    first = int(np.argwhere(wrong)[0][0])
    raise DataError(
        f"{name} holds values that are not finite in float32 (NaN or infinite): {int(wrong.sum()):,} of "
        f"{array.size:,}, the first in example {first}; replace them, or leave these examples out"
    )
