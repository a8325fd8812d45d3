"""Pictures, in files or in memory, as the images that a network was trained on."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from membound.data.pictures import REMEDY, CorruptImageError, Size, checked_size, convert, decode, sides
from membound.data.preprocess import taken_by
from membound.errors import DataError
from membound.run.ports import CHAIN
from membound.store.model import StoredModel
from membound.units import name_examples

if TYPE_CHECKING:
    from PIL.Image import Image

# The side that pictures are read at over that of the crop which is taken of them: AlexNet's.
BEFORE_CROP = 256 / 227
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def read_pictures(
    model: StoredModel,
    shape: Sequence[int],
    pictures: "Sequence[str | os.PathLike[str] | Image | npt.NDArray[np.uint8]]",
) -> npt.NDArray[np.uint8]:
    """Pictures as uint8 [N, C, H, W]: resized to cover the network's size, then the centre; gray if it is.

    `shape` is that of the network's input, without the batch.
    """
    if not pictures:
        raise DataError("there is no picture to read: name one or more files, or give frames")
    size = picture_size(model, shape)
    if size is None:
        raise DataError(f"this network takes {list(shape)}, not pictures: give it an array in a .npy file")
    found: npt.NDArray[Any] = np.empty((len(pictures), *sides(size), 3), np.uint8)
    with warnings.catch_warnings():
        # Pillow's, about what it could read all the same, or says as an error
        warnings.simplefilter("ignore")
        for number, picture in enumerate(pictures):
            if isinstance(picture, str | os.PathLike):
                found[number] = _read_file(Path(picture), size)
            else:
                found[number] = convert(picture, size)
    if shape[0] == 1:
        found = np.rint(found @ LUMA)[..., None].astype(np.uint8)
    return np.ascontiguousarray(found.transpose(0, 3, 1, 2))


def _read_file(path: Path, size: Size) -> npt.NDArray[np.uint8]:
    if path.is_dir():
        raise DataError(
            f"{path} is a folder: give the paths of its pictures, such as *Path(...).glob('*.png')"
        )
    if not path.is_file():
        raise DataError(f"there is no picture at {path}")
    try:
        return decode(path, size)
    except CorruptImageError as error:
        raise DataError(str(error).removesuffix(f": {REMEDY}")) from None


def advice_for(model: StoredModel, shape: Sequence[int], found: Sequence[int]) -> str:
    """What to add where an input has another shape than the network's, and is a frame that was not resized.

    `found` is a batch, NCHW or NHWC, or one frame, [H, W] or [H, W, C].
    """
    if not model.preprocess or taken_by(model.preprocess) != "uint8" or picture_size(model, shape) is None:
        return ""
    frame = len(found) == 2 or (len(found) == 3 and found[2] in (1, 3, 4))
    batch = len(found) == 4 and shape[0] in (found[1], found[3])
    return f"; for a frame of any size: {CHAIN}" if frame or batch else ""


def takes_pictures(model: StoredModel) -> bool:
    """Whether `read` gives what `preprocess` takes."""
    is_one = len(model.graph.taken) == 1
    pixels = model.preprocess is not None and taken_by(model.preprocess) == "uint8"
    return is_one and pixels and picture_size(model, model.shapes[0]) is not None


def picture_size(model: StoredModel, shape: Sequence[int]) -> Size | None:
    """The size of the images that the network was trained on, before a crop; None if it takes no images."""
    if model.mean_image is not None:
        return checked_size(model.mean_image.shape[1:])
    crop = (model.preprocess or {}).get("crop")
    if crop is not None:
        return round(int(crop) * BEFORE_CROP)
    is_image = len(shape) == 3 and shape[0] in (1, 3) and name_examples(shape) == "images"
    return checked_size(tuple(shape[1:])) if is_image else None
