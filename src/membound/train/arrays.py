"""Arrays, tensors and pictures as numpy arrays that can be trained on; anything malformed is said in one line."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from membound.data.examples import NUMBERS_OF, is_one_hot
from membound.data.finite import check_finite
from membound.data.splits import as_labels, refuse_texts
from membound.errors import DataError, MemboundError, a_kind

Array = npt.NDArray[Any]


def as_array(value: Any, name: str) -> Array:
    """A tensor, picture or anything like an array as an array; floating point of every kind is float32."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu().resolve_conj().resolve_neg()
            array: Array = (value.float() if value.is_floating_point() else value).numpy()
        else:
            array = np.asarray(_pixels(value, name) if _is_picture(value) else value)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                array = array.astype(np.float32, copy=False)
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"{name} is {a_kind(value)} that is not an array ({reason_of(error)})") from error
    return array


def as_inputs(array: Array, name: str) -> Array:
    if array.dtype not in (np.uint8, np.float32):
        advice = {
            "O": "; rows of different lengths make no array",
            "c": "; give real and imaginary parts as channels",
            "i": f'; convert it, as {name}.astype("float32") does',
        }.get(array.dtype.kind, "")
        raise DataError(f"{name} is {array.dtype}: it must be uint8 or floating point{advice}")
    check_finite(name, array)
    return array


def as_targets(y: Array) -> Array:
    """Class numbers as int64 [n], other targets as float32 or int64 [n, ...]."""
    if y.ndim == 0:
        raise DataError("y is a single number: give one target for each example")
    refuse_texts(y)
    if y.dtype.kind not in "iuf":
        raise DataError(f"y is {y.dtype}: it must be class numbers (integers), or floats for another task")
    if y.dtype.kind == "f":
        check_finite("y", y)
        return y.astype(np.float32, copy=False)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        return as_labels(y, len(y))
    if is_one_hot(y):
        raise DataError(
            f"y is {y.dtype} {list(y.shape)}, {NUMBERS_OF.format('give')} (or floats, to a loss of your own)"
        )
    return y.astype(np.int64, copy=False)


def _is_picture(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # a picture is there only where Pillow was imported
    return pillow is not None and isinstance(value, pillow.Image)


def _pixels(picture: Any, name: str) -> Array:
    """A picture as uint8 [C, H, W]: one channel for gray, three for everything else; transparency is dropped."""
    if picture.mode in ("1", "L", "LA"):
        return np.asarray(picture.convert("L"))[None]
    if picture.mode == "P":
        picture = picture.convert("RGBA")  # a palette may hold transparency
    if picture.mode not in ("RGB", "RGBA", "CMYK", "YCbCr", "HSV"):
        raise DataError(f"{name} is a picture of mode {picture.mode}: convert it to L or RGB, or to an array")
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def reason_of(error: Exception) -> str:
    message = str(error).strip()
    return f"{type(error).__name__}: {message.splitlines()[0]}" if message else type(error).__name__
