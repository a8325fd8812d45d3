"""A folder of images and masks as a data set for segmentation: each pixel has a class."""

import os
from pathlib import Path

import numpy as np

from membound.data.examples import IGNORED, SEGMENTATION, ExampleSplit, check_masks, note_unseen
from membound.data.pictures import (
    Size,
    checked_size,
    decode_mask,
    decode_sized,
    default_size,
    image_extensions,
    map_files,
    sides,
)
from membound.data.splits import Array, Dataset, validation_split
from membound.errors import DataError

TEST_NAMES = ("test", "val", "valid", "validation")
IMAGES, MASKS, NAMES = "images", "masks", "classes.txt"
MOST_BYTES = 4 * 1024**3  # of images and masks, which are held in memory


def is_segmentation(root: Path) -> bool:
    """Whether a folder has images and masks, by itself or in its train folder."""
    return any((place / IMAGES).is_dir() and (place / MASKS).is_dir() for place in (root, root / "train"))


def load_masks(root: Path, size: Size | None = None, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """The data set in `root`/{train,test}/{images,masks}/, or in `root`/{images,masks}/, which is split by `seed`.

    A mask has the name of its image (another ending is fine) and holds class numbers, gray or by a palette; 255 is
    ignored. `classes.txt` in `root`, if there is one, names the classes, a line each.
    """
    halves = [root]
    if not (root / IMAGES).is_dir():
        tests = [root / name for name in TEST_NAMES if (root / name / IMAGES).is_dir()]
        if not tests:
            raise DataError(f"{root} has train/ but no test/ with {IMAGES}/ and {MASKS}/ beside it: add one")
        halves = [root / "train", tests[0]]
    listings = [_pairs(half) for half in halves]
    if size is None:
        size = default_size([str(image) for pairs in listings for image, _ in pairs])
    size = checked_size(size)
    height, width = sides(size)
    if 4 * height * width * sum(map(len, listings)) > MOST_BYTES:
        raise DataError(
            f"{root}: {sum(map(len, listings)):,} images and masks of {height} x {width} take more than "
            f"{MOST_BYTES // 1024**3} GiB: read them at a smaller size",
            about="size",
        )
    splits = [_read(pairs, size) for pairs in listings]
    classes = _classes(root, splits)
    check_masks(str(root), *(split.labels for split in splits))
    notes: tuple[str, ...] = ()
    if len(splits) == 1:
        train, test = validation_split(splits[0], float(test_fraction), seed, stratified=False)
        notes = (f"the test split was drawn from the images: a fraction of {test_fraction:g}, seed {seed}",)
    else:
        train, test = splits
    notes = (*notes, *note_unseen(train.labels, classes))
    confirm = "" if (root / NAMES).is_file() else f"list all classes in {NAMES}"
    return Dataset(root.name, train, test, classes, notes, task=SEGMENTATION, confirm=confirm)


def _pairs(half: Path) -> list[tuple[str, str]]:
    """Each image and its mask, by name."""
    known = image_extensions()
    found = []
    for kind in (IMAGES, MASKS):
        folder = half / kind
        if not folder.is_dir():
            raise DataError(f"{half} has no folder {kind}: a data set of masks has {IMAGES}/ and {MASKS}/")
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() in known)
        found.append({file.stem: os.fspath(file) for file in files})
    images, masks = found
    if not images:
        raise DataError(f"{half / IMAGES} has no images")
    if alone := sorted(images.keys() ^ masks.keys()):
        where = IMAGES if alone[0] in images else MASKS
        raise DataError(
            f"{half}: {alone[0]} is in {where}/ alone ({len(alone)} such): each image needs a mask of its name"
        )
    return [(images[name], masks[name]) for name in sorted(images)]


def _read(pairs: list[tuple[str, str]], size: Size) -> ExampleSplit:
    images, masks = zip(*map_files(lambda pair: _read_pair(pair[0], pair[1], size), pairs), strict=True)
    return ExampleSplit(np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2)), np.stack(masks))


def _read_pair(image: str, mask: str, size: Size) -> tuple[Array, Array]:
    pixels, sides_in_file = decode_sized(image, size)
    return pixels, decode_mask(mask, size, sides_in_file)


def _classes(root: Path, splits: list[ExampleSplit]) -> tuple[str, ...]:
    highest = max(int(split.labels[split.labels != IGNORED].max(initial=0)) for split in splits)
    if not (root / NAMES).is_file():
        return tuple(map(str, range(highest + 1)))
    names = tuple(
        line.strip() for line in (root / NAMES).read_text(encoding="utf-8").splitlines() if line.strip()
    )
    if len(names) <= highest:
        raise DataError(f"{root / NAMES} names {len(names)} classes, and masks have numbers up to {highest}")
    return names
