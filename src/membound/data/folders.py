"""Folders of class folders of images: decoded on demand, one size for all."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from membound.data.splits import Array, Dataset, Labels, Split, as_indices, as_labels, validation_split
from membound.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

TEST_NAMES = ("test", "val", "valid", "validation")
LARGEST_DEFAULT = 256
THIN = 16  # times as long as wide: of longer pictures only the middle is looked at
REMEDY = "repair or remove it, or leave out all such files with --skip-corrupt"
_SAMPLED = 1000  # images whose headers decide the default size
_NOT_PICTURES = {
    "BUFR",
    "EPS",
    "GRIB",
    "HDF5",
    "MPEG",
    "WMF",
}  # what Pillow lists but cannot decode by itself


class CorruptImageError(DataError):
    """An image that cannot be decoded."""


@dataclass(frozen=True, eq=False)
class FolderSplit:
    """Images in files, decoded when read: RGB uint8, the shorter side resized to `size`, then centre-cropped.

    Grayscale, palette, CMYK and 16-bit images (the high byte) become RGB; transparency is dropped, EXIF
    orientation honoured, an animation gives its first frame. Threads may read at the same time.
    """

    paths: tuple[str, ...]
    labels: Labels
    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", as_labels(np.asarray(self.labels), len(self.paths)))
        if isinstance(self.size, bool) or not isinstance(self.size, int | np.integer) or self.size < 1:
            raise DataError(f"size {self.size!r} is not allowed: take a number of pixels from 1 up")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image as it is read."""
        return 3, self.size, self.size

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"FolderSplit({len(self):,} images, 3 x {self.size} x {self.size})"

    def read(self, indices: Array) -> npt.NDArray[np.uint8]:
        """The chosen images, [n, 3, size, size]; one that cannot be decoded is a DataError with its name."""
        chosen = as_indices(indices, len(self))
        images = np.empty((len(chosen), *self.shape), np.uint8)
        for image, index in zip(images, chosen, strict=True):
            image[:] = decode(self.paths[index], self.size).transpose(2, 0, 1)
        return images

    def take(self, indices: Array) -> "FolderSplit":
        """The split of the chosen files; nothing is decoded."""
        chosen = as_indices(indices, len(self))
        return FolderSplit(tuple(self.paths[index] for index in chosen), self.labels[chosen], self.size)

    def decodable(self) -> "FolderSplit":
        """The images that can be decoded, found by decoding all of them."""
        good = _map(_can_decode, self.paths)
        return self.take(np.flatnonzero(good))


def decode(path: str | Path, size: int | None = None) -> npt.NDArray[np.uint8]:
    """One image as RGB uint8 [H, W, 3], resized and cropped to `size` x `size` where it is given."""
    pillow, ops = _pillow()
    try:
        with pillow.open(path) as image:
            ops.exif_transpose(image, in_place=True)
            rgb = _to_rgb(image, pillow)
            return np.asarray(rgb if size is None else _fit(rgb, size, pillow), np.uint8)
    except Exception as error:  # a corrupt file makes Pillow raise almost anything
        reason = str(error) or type(error).__name__
        raise CorruptImageError(f"{path} cannot be decoded as an image ({reason}): {REMEDY}") from error


def load_folder(
    root: Path,
    size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    skip_corrupt: bool = False,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """The data set in `root`/{train,test}/CLASS/* (or val, valid, validation for test), or in `root`/CLASS/*.

    The second kind is split by `seed`, stratified: `test_fraction` of the images become the test split.
    Files are ordered by name, class folders searched to any depth, hidden files ignored. The default `size`
    is the shorter side of the images where all have the same (by a sample of 1000), at most 256; else 256.
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
        size = _default_size([path for listing in listings for path in listing.paths])
    found = [FolderSplit(tuple(listing.paths), np.array(listing.labels), size) for listing in listings]
    splits = [_prepare(split, cache, skip_corrupt) for split in found]
    if dropped := sum(map(len, found)) - sum(map(len, splits)):
        for split, half in zip(splits, halves, strict=True):
            _check_classes(split, half, classes)
        notes.append(f"images left out because they cannot be decoded: {dropped}")
    if len(splits) == 2:
        return Dataset(root.name, splits[0], splits[1], classes, tuple(notes))
    if not 0 < test_fraction < 1:
        raise DataError(f"a test fraction of {test_fraction} is not allowed: take one between 0 and 1")
    train, test = validation_split(splits[0], float(test_fraction), seed)
    notes.append(f"the test split was drawn from the images: a fraction of {test_fraction:g}, seed {seed}")
    return Dataset(root.name, train, test, classes, tuple(notes))


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
        raise DataError(f"{folder} has {len(classes)} class folders but no images in them")
    if empty:
        raise DataError(f"{folder} has class folders without images: {', '.join(empty)}: fill or remove them")
    if len(classes) == 1:
        raise DataError(f"{folder} has one class folder only ({classes[0].name}): there must be two or more")
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
        from membound.data.packed import pack

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


def image_extensions() -> set[str]:
    """How the names of pictures end, with the dot: those that Pillow reads."""
    pillow, _ = _pillow()
    readable = pillow.registered_extensions()
    return {ext for ext, kind in readable.items() if kind in pillow.OPEN and kind not in _NOT_PICTURES}


def _default_size(paths: list[str]) -> int:
    """The shorter side that all of a sample of the images share, at most LARGEST_DEFAULT; else that."""
    sides = set(_map(_shorter_side, paths[:: -(-len(paths) // _SAMPLED)])) - {0}
    return min(LARGEST_DEFAULT, sides.pop()) if len(sides) == 1 else LARGEST_DEFAULT


def _shorter_side(path: str) -> int:
    pillow, _ = _pillow()
    try:
        with pillow.open(path) as image:
            return int(min(image.size))
    except Exception:  # said with the file's name when it is decoded
        return 0


def _can_decode(path: str) -> bool:
    try:
        decode(path)
    except DataError:
        return False
    return True


def _map(function: Callable[[str], Any], paths: tuple[str, ...] | list[str]) -> list[Any]:
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, paths))


def _to_rgb(image: "Image", pillow: Any) -> "Image":
    if image.mode == "F":
        raise ValueError("floating-point pixels: save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16-bit gray, which Pillow may hold in 32 bits
        high = np.clip(np.asarray(image, np.int64) >> 8, 0, 255).astype(np.uint8)
        image = pillow.fromarray(high)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _fit(image: "Image", size: int, pillow: Any) -> "Image":
    """The shorter side made `size` (bilinear, antialiased), then the centre square."""
    width, height = image.size
    if (width, height) == (size, size):
        return image
    short = min(width, height)
    if max(width, height) > THIN * short:  # resized whole, a thin one could take any amount of memory
        left, top = (max(side - THIN * short, 0) // 2 for side in (width, height))
        image = image.crop((left, top, width - left, height - top))
        width, height = image.size
    width, height = round(width * size / short), round(height * size / short)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), pillow.Resampling.BILINEAR)
    return resized.crop((left, top, left + size, top + size))


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError("reading pictures needs Pillow: pip install 'membound[images]'") from None
    return Image, ImageOps
