"""Masks of networks that give scores for each pixel: which class each pixel is, as pictures."""

import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from membound.data.pictures import encode_mask
from membound.errors import DataError, ModelError
from membound.store.whole import write_whole

Mask = npt.NDArray[np.uint8]
MOST = 256  # classes: a pixel of a mask is a byte


def gives_masks(shape: Sequence[int]) -> bool:
    """Whether outputs of this shape, without the batch, are scores of classes for each pixel.

    >>> gives_masks((3, 64, 64)), gives_masks((10,)), gives_masks((1, 64, 64))
    (True, False, False)
    """
    return len(shape) == 3 and 2 <= shape[0] <= MOST


def to_masks(scores: npt.NDArray[np.float32]) -> Mask:
    """The class of each pixel, [batch, H, W], that of the largest score."""
    found: Mask = scores.argmax(1).astype(np.uint8)
    return found


def shares(mask: Mask, classes: Sequence[str] | None) -> list[tuple[str, float]]:
    """The classes in a mask with their part of its pixels, the largest first.

    >>> shares(np.array([[0, 2], [2, 2]], np.uint8), ["sky", "sea", "sand"])
    [('sand', 0.75), ('sky', 0.25)]
    """
    counts = np.bincount(mask.ravel())
    named = [
        (classes[number] if classes and number < len(classes) else str(number), count / mask.size)
        for number, count in enumerate(counts.tolist())
        if count
    ]
    return sorted(named, key=lambda each: -each[1])


def mask_names(pictures: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """What each mask is called in a folder of masks: as its picture is in the folder that it was found in."""
    found: dict[Path, Path] = {}
    for picture in pictures:
        root = next((folder for folder in folders if folder in picture.parents), picture.parent)
        name = picture.relative_to(root).with_suffix(".png")
        if name in found:
            raise DataError(
                f"the masks of {found[name]} and {picture} would both be {name}: run them one by one"
            )
        found[name] = picture
    return list(found)


def write_masks(folder: Path, names: Sequence[Path], masks: Iterable[Mask]) -> None:
    """A new folder of PNG files, whole or not at all."""
    aside = folder.absolute().with_name(f".membound-{secrets.token_hex(8)}.part")
    try:
        aside.mkdir()
        for name, mask in zip(names, masks, strict=True):
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(aside / name, [encode_mask(mask)], folder / name)
        aside.rename(folder)
    except OSError as error:
        raise ModelError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_mask(out: Path, shape: Sequence[int]) -> NoReturn:
    """Say why there is none."""
    raise DataError(
        f"{out}: this network gives {list(shape)} for an image, which is not a mask: a mask needs scores of 2 to "
        f"{MOST} classes for each pixel, [classes, height, width]; let the name of its output end in .npy",
        about="out",
    )
