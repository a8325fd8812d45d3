"""From the name of a data set, a folder or a file to the data set."""

import difflib
import os
from pathlib import Path

from membound.data import fetch
from membound.data.folders import load_folder
from membound.data.masks import is_segmentation, load_masks
from membound.data.named import NAMED
from membound.data.npz import load_npz
from membound.data.pictures import Size
from membound.data.splits import Dataset
from membound.errors import DataError, check_path_like
from membound.signatures import known_keywords

_ALLOWED = (
    f"allowed are {', '.join(NAMED)}, a folder of class folders or of images/ and masks/, "
    "or an .npz file with x_train, y_train, x_test, y_test"
)


@known_keywords
def load(
    source: str | os.PathLike[str],
    *,
    layout: str | None = None,
    size: Size | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    skip_corrupt: bool = False,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """The data set that `source` names: "mnist", "cifar10", a folder, or an .npz file.

    A folder has class folders, or `images/` and `masks/` (segmentation). The arrays of an .npz are classes, masks
    [n, H, W], or numbers, if y_train is floating point (regression); x may have any shape.

    A folder or file that is not found as given is looked for on the search path (MEMBOUND_DATA first).
    `layout` is for .npz files; `size` (the side of squares, or (height, width)), `test_fraction`, `seed`,
    `skip_corrupt` and `cache` (a folder, in which images are kept decoded) are for folders.

    >>> digits = mb.data.load("mnist")
    >>> digits.train.labels[:8].tolist(), digits.classes[:3]
    ([5, 0, 4, 1, 9, 2, 1, 3], ('0', '1', '2'))
    """
    if not isinstance(source, str | os.PathLike):
        check_path_like(source, "source", DataError)
    name = os.fspath(source)
    path = None if name in NAMED else _resolve(name)
    is_folder = path is not None and path.is_dir()
    if layout is not None and (path is None or is_folder):
        raise DataError(f"layout is for .npz files, and {name} is not one: leave it out")
    if (size is not None or skip_corrupt or cache is not None) and not is_folder:
        raise DataError(
            f"size, skip_corrupt and cache are for folders of images, and {name} is not one: leave them out"
        )
    if path is None:
        return NAMED[name].load()
    if is_folder and is_segmentation(path):
        if skip_corrupt or cache is not None:
            raise DataError(
                f"skip_corrupt and cache are for folders of classes, and {name} has masks: leave them out",
                about=("skip_corrupt", "cache"),
            )
        return load_masks(path.resolve(), size, test_fraction, seed)
    if is_folder:
        return load_folder(path.resolve(), size, test_fraction, seed, skip_corrupt, cache)
    return load_npz(path, layout)


def available(source: str | os.PathLike[str]) -> bool:
    """Whether `load(source)` finds its files without a download.

    >>> mb.data.available("mnist"), mb.data.available("no such set")
    (True, False)
    """
    name = os.fspath(source)
    if name in NAMED:
        return NAMED[name].find() is not None
    try:
        _resolve(name)
    except DataError:
        return False
    return True


def sample(source: str | os.PathLike[str]) -> Dataset | None:
    """One black image each of a set that `load` would download now; None where nothing is downloaded.

    >>> sample("mnist") is None
    True
    """
    name = os.fspath(source)
    return None if name not in NAMED or NAMED[name].find() is not None else NAMED[name].sample(name)


def check_there(source: str) -> None:
    """Refuse a name that is no data set, and a path where nothing is; nothing is read or downloaded.

    >>> check_there("mnist")
    >>> check_there("nothing.npz")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    membound.errors.DataError: there is no file nothing.npz: check the path; allowed are mnist, cifar10, a folder ...
    """
    if source not in NAMED:
        _resolve(source)


def has_own_size(source: str) -> bool:
    """Whether images come at a size of their own; those of a folder are read at any.

    >>> has_own_size("mnist"), has_own_size("mine.npz"), has_own_size("photos")
    (True, True, False)
    """
    return source in NAMED or source.lower().endswith(".npz")


def _resolve(name: str) -> Path:
    """The folder or .npz file that `name` is, as given or on the search path."""
    given = Path(name).expanduser()
    for path in (given, *(root / given for root in fetch.search_path())):
        if name and (path.is_dir() or (path.is_file() and path.suffix.lower() == ".npz")):
            return path
    if given.is_file():
        raise DataError(f"{name} is not a data set: {_ALLOWED}")
    lost = (
        f"there is no file {name}: check the path; "
        if given.suffix.lower() == ".npz"
        else f"no data set {name!r}: "
    )
    known = [*NAMED, *_neighbours(given)]
    close = difflib.get_close_matches(name.lower(), known, n=1) or difflib.get_close_matches(name, known, n=1)
    raise DataError(f"{lost}{_ALLOWED}" + (f"; did you mean {close[0]}?" if close else ""))


def _neighbours(path: Path) -> list[str]:
    """Folders and .npz files beside where `path` would be."""
    try:
        entries = [entry for entry in os.scandir(path.parent) if entry.name[0] != "."]
    except OSError:
        return []
    return [str(path.parent / e.name) for e in entries if e.is_dir() or e.name.lower().endswith(".npz")]
