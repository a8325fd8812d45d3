"""What the two engines have in common: the compiled core, memory, and how a file says that images are prepared."""

import ctypes
import sys
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from membound.data import Preprocess
from membound.data.preprocess import refuse_last
from membound.errors import DataError, ModelError
from membound.store.formats import decode
from membound.store.model import StoredModel


def compiled_core() -> Any:
    """The extension module, or one line that says what to do without it."""
    try:
        from membound import _core
    except ImportError as error:
        raise ModelError(
            f"running a network needs membound's compiled core, which cannot be loaded ({error}): reinstall membound"
        ) from None
    return _core


def give_back() -> None:
    """Return freed memory to the system, where the C library would keep it for later (glibc).

    Not beside torch: its heap of gigabytes takes seconds to go through, and a few megabytes are nothing to it.
    """
    if sys.platform == "linux" and "torch" not in sys.modules:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def narrowed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """float64, which numpy makes unless told otherwise, as float32; other types as they are.

    >>> narrowed(np.zeros(2)).dtype.name, narrowed(np.zeros(2, np.int64)).dtype.name
    ('float32', 'int64')
    """
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
        return array.astype(np.float32)


def preprocess_of(model: StoredModel) -> Preprocess | None:
    """What turns images into what the network takes, where the file says it."""
    if model.preprocess is None:
        return None
    image = model.mean_image
    return Preprocess.from_json(model.preprocess, None if image is None else decode(image))


@dataclass(frozen=True, eq=False)
class NetPreprocess(Preprocess):
    """That of a network, which takes examples of one `shape`."""

    shape: tuple[int, ...] = ()

    def _check(self, shape: tuple[int, ...]) -> None:
        taken = f"[n, {', '.join(map(str, self.shape))}]"
        if (axis := self._missing_axis(shape)) is not None:
            raise DataError(f"the input has the shape {list(shape)}, and this network takes {taken}: {axis}")
        if len(shape) == len(self.shape) + 1 and shape[1] != self.shape[0]:
            if (
                self.crop is not None or (shape[-1], *shape[1:-1]) == self.shape
            ):  # else a frame of another size
                refuse_last(shape, self.shape[0])
            if shape[-1] == self.shape[0]:
                self._refuse_shape(shape, taken)
            raise DataError(
                f"the input has {shape[1]} channel{'' if shape[1] == 1 else 's'}, and this network takes "
                f"{self.shape[0]}: give {taken}"
            )
        if self.crop is not None or len(shape) == len(self.shape) + 1:
            super()._check(shape)
        right = self.shape if self.crop is None else (self.shape[0], *shape[2:])  # a crop's size is checked
        if shape[1:] != right:
            self._refuse_shape(shape, taken)

    def _refuse_shape(self, shape: tuple[int, ...], taken: str) -> NoReturn:
        pictures = len(self.shape) == 3 and self.takes == "uint8"
        frame = "; for a picture, use net.preprocess(net.read(frame))" if pictures else ""
        raise DataError(
            f"the input has the shape {list(shape)}: this network takes {taken}: give that{frame}"
        )

    def _missing_axis(self, shape: tuple[int, ...]) -> str | None:
        """What adds the axis of the batch, or of the one channel, where that is all that is missing."""
        if self.crop is not None:
            return None
        if shape == self.shape:
            return "add an axis in front, x[None]"
        if len(self.shape) == 3 and self.shape[0] == 1:
            if shape == self.shape[1:]:
                return "add two axes in front, x[None, None]"
            if len(shape) == 3 and shape[1:] == self.shape[1:]:
                return "add the axis of the one channel, x[:, None]"
        return None


def stated_preprocess(model: StoredModel) -> Preprocess:
    """The same, which refuses examples of another shape; a file that does not say it is refused."""
    found = preprocess_of(model)
    if found is None:
        raise ModelError(
            "this file does not say how images are prepared: save it with preprocess=..., or prepare them yourself"
        )
    return NetPreprocess.measured(
        **{each.name: getattr(found, each.name) for each in fields(found)}, shape=tuple(model.shapes[0])
    )
