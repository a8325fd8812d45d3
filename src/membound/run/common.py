"""What the two engines have in common: the compiled core, memory, and how a file says that images are prepared."""

import ctypes
import sys
from typing import Any

from membound.data import Preprocess
from membound.errors import ModelError
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


def preprocess_of(model: StoredModel) -> Preprocess | None:
    """What turns images into what the network takes, where the file says it."""
    if model.preprocess is None:
        return None
    image = model.mean_image
    return Preprocess.from_json(model.preprocess, None if image is None else decode(image))


def stated_preprocess(model: StoredModel) -> Preprocess:
    """The same; a file that does not say it is refused."""
    found = preprocess_of(model)
    if found is None:
        raise ModelError(
            "this file does not say how images are prepared: save it with preprocess=..., or prepare them yourself"
        )
    return found
