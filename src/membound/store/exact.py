"""The fewest bits that hold a weight exactly: what `values="auto"` stores."""

from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.formats import Encoded, Prefer, best_format, decode, encode
from membound.store.values import CODES, F32

AUTO = "auto"  # each weight in the fewest bits that hold it exactly, all else in f32
_SAMPLE = 4096
_PREFERENCES: tuple[Prefer, ...] = ("bytes", "speed")


def exact_type(array: npt.NDArray[Any]) -> str:
    """The type of fewest bytes that has every value of a weight as it is: codes, or f32. -0.0 counts as 0.

    >>> exact_type(np.array([[0.1, 0, 0.2, 0.1] * 40], np.float32))
    'p1'
    >>> exact_type(np.linspace(0, 1, 999, dtype=np.float32))
    'f32'
    """
    nonzeros = array[array != 0]
    most = CODES[-1].levels
    if len(np.unique(nonzeros[:_SAMPLE])) > most or len(found := np.unique(nonzeros)) > most:
        return F32.name
    if not np.isfinite(found).all():
        return F32.name
    least = _encode(array, F32.name, "bytes").nbytes
    chosen = F32.name
    enough = [kind for kind in CODES if kind.levels >= len(found)]
    for kind in enough[:2]:  # with one bit more, a code is left for 0
        tried = {prefer: _encode(array, kind.name, prefer) for prefer in _PREFERENCES}
        if all(_is_same(each, array) for each in tried.values()) and tried["bytes"].nbytes < least:
            chosen, least = kind.name, tried["bytes"].nbytes
    return chosen


def _encode(array: npt.NDArray[Any], values: str, prefer: Prefer) -> Encoded:
    format = best_format(tuple(array.shape), array, values, prefer, packed=True)
    return encode(array, format, values)


def _is_same(encoded: Encoded, array: npt.NDArray[Any]) -> bool:
    return encoded.scales is None and np.array_equal(decode(encoded), array)
