"""A folder of images decoded once into one file that is mapped: reading decodes nothing, and copies what is read.

    DIGEST.images.npy   uint8 [n, 3, size, size]
    DIGEST.json         which files could not be decoded; it is written last

The digest is of the files' names, sizes and times of change, and of the size in pixels: when any of them changes,
another file is made.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from membound.data.pictures import REMEDY, CorruptImageError, FolderSplit, Size, decode
from membound.data.splits import Labels, Rows, as_indices
from membound.errors import DataError

BLOCK = 256  # images that one task decodes
FEW = 2000  # images that are decoded by threads: processes take seconds to start
FORMAT = "membound images 1"


@dataclass(frozen=True, eq=False)
class PackedSplit:
    """Images in a packed file, or some of them; threads and processes may read at the same time."""

    path: str  # of the images
    rows: npt.NDArray[np.int64]  # of the file, in order
    labels: Labels
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"PackedSplit({len(self):,} images, {' x '.join(map(str, self.shape))})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_mapped"}

    @cached_property
    def _mapped(self) -> npt.NDArray[np.uint8]:
        try:
            mapped: npt.NDArray[np.uint8] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.path} cannot be read ({error}): delete it, and it will be made anew"
            ) from error
        return mapped

    def read(self, indices: Rows) -> npt.NDArray[np.uint8]:
        """The chosen images, copied out of the file."""
        chosen: npt.NDArray[np.uint8] = self._mapped[self.rows[as_indices(indices, len(self))]]
        return chosen

    def take(self, indices: Rows) -> "PackedSplit":
        """The split of the chosen images; nothing is read."""
        chosen = as_indices(indices, len(self))
        return PackedSplit(self.path, self.rows[chosen], self.labels[chosen], self.shape)


def pack(
    split: FolderSplit, folder: str | os.PathLike[str], skip_corrupt: bool = False
) -> tuple[PackedSplit, int]:
    """The split as a packed file in `folder`, made if it is not there yet; and how many images were left out.

    An image that cannot be decoded is an error with its name, unless they are to be skipped.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{place} cannot be a cache folder: {error.strerror or error}: choose another"
        ) from error
    base = place / _digest(split)
    about = _read_about(base)
    if about is None:
        about = _make(split, base)
    bad = np.array(about["bad"], np.int64)
    if len(bad) and not skip_corrupt:
        decode(split.paths[bad[0]])  # says what is wrong with it
        raise CorruptImageError(f"{split.paths[bad[0]]} could not be decoded: {REMEDY}", about="skip_corrupt")
    rows = np.setdiff1d(np.arange(len(split)), bad)
    return PackedSplit(f"{base}.images.npy", rows, split.labels[rows], split.shape), len(bad)


def _digest(split: FolderSplit) -> str:
    total = hashlib.sha256(f"{FORMAT} {split.size}".encode())
    for path, label in zip(split.paths, split.labels, strict=True):
        status = os.stat(path)
        total.update(
            f"{path} {status.st_size} {status.st_mtime_ns} {label}\n".encode(errors="surrogateescape")
        )
    return total.hexdigest()[:24]


def _read_about(base: Path) -> dict[str, list[int]] | None:
    """What a finished packing says of itself; None if there is none."""
    try:
        about = json.loads(Path(f"{base}.json").read_text())
        shape = np.load(f"{base}.images.npy", mmap_mode="r", allow_pickle=False).shape
    except Exception:  # absent or damaged, which makes numpy raise almost anything: it is made anew
        return None
    if not isinstance(about, dict) or about.get("format") != FORMAT or list(shape) != about.get("shape"):
        return None
    bad = about.get("bad")
    if not isinstance(bad, list) or not all(type(index) is int and 0 <= index < shape[0] for index in bad):
        return None
    found: dict[str, list[int]] = about
    return found


def _make(split: FolderSplit, base: Path) -> dict[str, list[int]]:
    """Decode all images into a file that is not there until it is whole."""
    shape = (len(split), *split.shape)
    with _unfinished(Path(f"{base}.images.npy")) as partly:
        np.lib.format.open_memmap(partly, mode="w+", dtype=np.uint8, shape=shape).flush()
        _reserve(partly)
        with _pool(len(split)) as pool:
            tasks = [
                pool.submit(_decode_block, str(partly), begin, split.paths[begin : begin + BLOCK], split.size)
                for begin in range(0, len(split), BLOCK)
            ]
            bad = [index for task in tasks for index in task.result()]
    about = {"format": FORMAT, "shape": list(shape), "bad": bad, "bad_files": [split.paths[i] for i in bad]}
    with _unfinished(Path(f"{base}.json")) as partly:
        partly.write_text(json.dumps(about))
    return {"bad": bad}


def _reserve(path: Path) -> None:
    """Take the room on the disk now: a full one is an OSError here; later, at mapped pages, a signal that kills."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def _pool(images: int) -> Executor:
    workers = os.cpu_count() or 1
    if images <= FEW:
        return ThreadPoolExecutor(workers)
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _decode_block(path: str, begin: int, paths: Sequence[str], size: Size) -> list[int]:
    """Decode images into their places of the file, from `begin` on; those that could not be."""
    images, bad = np.load(path, mmap_mode="r+", allow_pickle=False), []
    for index, each in enumerate(paths, begin):
        try:
            images[index] = decode(each, size).transpose(2, 0, 1)
        except DataError:
            bad.append(index)
    images.flush()
    return bad


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A name for what is being written, which becomes `path` when all of it is there."""
    partly = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partly
        os.replace(partly, path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}: choose another cache folder"
        ) from error
    finally:
        partly.unlink(missing_ok=True)
