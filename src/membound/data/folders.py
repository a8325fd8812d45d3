"""Folders of class folders of images as a data set: what is in them, and how it is split."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from membound.data.augment import are_photos
from membound.data.packed import pack
from membound.data.pictures import FolderSplit, Size, default_size, image_extensions
from membound.data.splits import Dataset, Split, validation_split
from membound.errors import DataError

TEST_NAMES = ("test", "val", "valid", "validation")


def load_folder(
    root: Path,
    size: Size | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    skip_corrupt: bool = False,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """The data set in `root`/{train,test}/CLASS/* (or val, valid, validation for test), or in `root`/CLASS/*.

    The second kind is split by `seed`, stratified: `test_fraction` of the images become the test split.
    Files are ordered by name, class folders searched to any depth, hidden files ignored. The default `size`
    is the longest of the images' shorter sides (by a sample of 1000), at most 256.
    With a `cache` folder images are decoded once, into a file there that is mapped from then on.
    """
    halves, notes = _find_halves(root)
    listings = [_list_classes(half) for half in halves]
    classes = _agree(halves, [listing.classes for listing in listings])
    if others := [name for listing in listings for name in listing.others]:
        shown = ", ".join(os.path.relpath(name, root) for name in others[:3]) + (
            ", ..." if others[3:] else ""
        )
        notes.append(f"files left out because they are not images: {len(others)} ({shown})")
    if size is None:
        size = default_size([path for listing in listings for path in listing.paths])
    found = [FolderSplit(tuple(listing.paths), np.array(listing.labels), size) for listing in listings]
    splits = [_prepare(split, cache, skip_corrupt) for split in found]
    if dropped := sum(map(len, found)) - sum(map(len, splits)):
        for split, half in zip(splits, halves, strict=True):
            _check_classes(split, half, classes)
        notes.append(f"images left out because they cannot be decoded: {dropped}")
    if len(splits) == 2:
        return Dataset(root.name, splits[0], splits[1], classes, tuple(notes), are_photos(classes))
    if not 0 < test_fraction < 1:
        raise DataError(f"a test fraction of {test_fraction} is not allowed: take one between 0 and 1")
    if round(test_fraction * len(splits[0])) < 1:
        raise DataError(
            f"{root} has {len(splits[0])} images, too few to draw a test split of {test_fraction:g} from: add images, "
            "or lay them out as train/CLASS/ and test/CLASS/"
        )
    train, test = validation_split(splits[0], float(test_fraction), seed)
    notes.append(f"the test split was drawn from the images: a fraction of {test_fraction:g}, seed {seed}")
    return Dataset(root.name, train, test, classes, tuple(notes), are_photos(classes))


@dataclass
class _Listing:
    classes: tuple[str, ...]
    paths: list[str]
    labels: list[int]
    others: list[str]  # files that are not images


def _find_halves(root: Path) -> tuple[list[Path], list[str]]:
    """[train, test], or [root] where the class folders are in `root` itself; and notes."""
    folders = {folder.name.lower(): folder for folder in _subfolders(root)}
    if "train" not in folders or not _subfolders(folders["train"]):
        return [root], []
    tests = [folders[name] for name in TEST_NAMES if name in folders and _subfolders(folders[name])]
    if tests:
        unused = [f"{folder.name}/ was not used: {tests[0].name}/ is the test split" for folder in tests[1:]]
        return [folders["train"], tests[0]], unused
    if len(folders) == 1:
        raise DataError(
            f"{root} has {folders['train'].name}/ but no {', '.join(TEST_NAMES)} folder of class folders "
            f"beside it: add one, or give {folders['train']} itself to have a test split drawn from it"
        )
    return [root], []


def _list_classes(folder: Path) -> _Listing:
    classes = _subfolders(folder)
    if not classes:
        raise DataError(f"{folder} has no class folders: images must lie in {folder}/CLASS/")
    extensions = image_extensions()
    barrier = {_identity(place) for place in (folder, *classes)}
    listing = _Listing(tuple(place.name for place in classes), [], [], [])
    empty = []
    for label, place in enumerate(classes):
        before = len(listing.paths)
        for path in _walk(place, set(barrier)):
            is_image = os.path.splitext(path)[1].lower() in extensions and os.path.isfile(path)
            (listing.paths if is_image else listing.others).append(path)
        listing.labels += [label] * (len(listing.paths) - before)
        if len(listing.paths) == before:
            empty.append(place.name)
    if not listing.paths:
        found = "1 class folder, but no images in it"
        if len(classes) > 1:
            found = f"{len(classes)} class folders, but no images in them"
        raise DataError(f"{folder} has {found}")
    if empty:
        named = ", ".join(map(repr, empty))
        raise DataError(f"{folder} has class folders without images: {named}: fill or remove them")
    if len(classes) == 1:
        half = " (is train/ missing beside it?)" if classes[0].name in TEST_NAMES else ""
        raise DataError(
            f"{folder} has one class folder only ({classes[0].name}{half}): there must be two or more"
        )
    return listing


def _agree(halves: list[Path], classes: list[tuple[str, ...]]) -> tuple[str, ...]:
    if len(classes) == 2 and classes[0] != classes[1]:
        odd = [
            f"{', '.join(sorted(set(mine) - set(other)))} only in {half.name}/"
            for half, mine, other in zip(halves, classes, classes[::-1], strict=True)
            if set(mine) - set(other)
        ]
        raise DataError(f"{halves[0].parent}: the splits have different classes: {'; '.join(odd)}")
    return classes[0]


def _prepare(split: FolderSplit, cache: str | os.PathLike[str] | None, skip_corrupt: bool) -> Split:
    """Decoded into a cache, or without what cannot be decoded, or as it is."""
    if cache is not None:
        return pack(split, cache, skip_corrupt)[0]
    return split.decodable() if skip_corrupt else split


def _check_classes(good: Split, half: Path, classes: tuple[str, ...]) -> None:
    if missing := set(range(len(classes))) - set(good.labels.tolist()):
        names = ", ".join(classes[label] for label in sorted(missing))
        raise DataError(f"{half}: no image of these classes can be decoded: {names}")


def _subfolders(folder: Path) -> list[Path]:
    try:
        places = [
            Path(entry.path)
            for entry in os.scandir(folder)
            if os.path.isdir(entry.path) and entry.name[0] != "."
        ]
    except OSError as error:
        raise DataError(f"{folder} cannot be listed ({error.strerror})") from error
    return sorted(places, key=lambda place: place.name)


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[str]:
    """All files under `folder` but hidden ones, sorted; links are followed, no folder is entered twice."""
    for place, subfolders, files in os.walk(folder, followlinks=True):
        kept = []
        for name in sorted(subfolders):
            if name[0] != "." and (identity := _identity(os.path.join(place, name))) not in seen:
                seen.add(identity)
                kept.append(name)
        subfolders[:] = kept
        yield from (os.path.join(place, name) for name in sorted(files) if name[0] != ".")
