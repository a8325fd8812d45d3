"""Data sets in .npz files: x_train, y_train, x_test, y_test; or, of several inputs, x_train.NAME and so on."""

from pathlib import Path
from typing import Any

import numpy as np

from membound.data.examples import (
    IGNORED,
    NUMBERS_OF,
    REGRESSION,
    SEGMENTATION,
    UNSEEN,
    ExampleSplit,
    check_masks,
    is_one_hot,
    note_unseen,
)
from membound.data.finite import check_finite
from membound.data.numbering import CLASSES_KEY, UNUSED, named_classes, note_from_one, note_unused
from membound.data.several import Inputs, SeveralSplit
from membound.data.splits import Array, ArraySplit, Dataset, as_labels
from membound.errors import DataError

END_BYTES = 22 + 65535  # of the last record, and of the longest comment
KEYS = ("x_train", "y_train", "x_test", "y_test")
LAYOUTS = ("NHW", "NCHW", "NHWC")
FEATURES = ("NF", "NCL")  # features without a place, and those along one axis, such as time
NO_IMAGES = (
    "features are [n, F], sequences [n, channels, time, 1] with the layout NCHW, or [n, channels, time] with "
    "NCL"
)
_CHANNELS = (1, 3, 4)  # the channel counts that tell NCHW from NHWC
_MOST_CLASSES = 100_000
_FEW_VALUES = 100  # that floats have where they may be labels
READ_AS = "x is read as "  # how a note begins that says what its shape was taken for
TARGETS_ARE = "y_train is "  # and one that says what its type was taken for


def load_npz(path: Path, layout: str | None = None) -> Dataset:
    """The data set in an .npz file of images (uint8 or float) or features (float), and their targets.

    Integer labels are classes, which count from 0 to the largest one; a class may have no images (a gap in the
    labels). An array `classes` of strings may name them. Integers of two or more dimensions are masks, and
    floating-point numbers are for regression. For a network of several inputs, x_train.NAME and x_test.NAME are those
    of the input that it calls NAME: floating point as prepared, or whole numbers.
    """
    x_train, y_train, x_test, y_test, names = _read(path)
    if is_one_hot(y_train):
        raise DataError(
            f"{path}: y_train is {y_train.dtype} {list(y_train.shape)}, {NUMBERS_OF.format('save')}"
        )
    if isinstance(x_train, dict) or isinstance(x_test, dict):
        return _several(path, x_train, y_train, x_test, y_test, names)
    if layout is not None and layout not in (*LAYOUTS, *FEATURES):
        raise DataError(f"layout {layout!r} is not known: allowed are {', '.join((*LAYOUTS, *FEATURES))}")
    if x_train.ndim != x_test.ndim:
        raise DataError(
            f"{path}: x_train has shape {list(x_train.shape)}, x_test {list(x_test.shape)}: they must be alike"
        )
    notes = describe_reading(x_train, layout)
    if y_train.dtype.kind == "f" or (y_train.ndim >= 2 and y_train.shape[1:] != (1,)):
        notes += _describe_targets(y_train)
        return _beyond_classes(path, (x_train, y_train, x_test, y_test), layout, notes, names)
    kind: Any = ExampleSplit if _are_features(x_train, layout) else ArraySplit
    train, test = (
        kind(
            _images(path, name, x, layout),
            _labels(path, name.replace("x_", "y_"), y, len(x)),
            reading=_say_reading(name, x, layout),
        )
        for name, x, y in (("x_train", x_train, y_train), ("x_test", x_test, y_test))
    )
    if train.images.dtype != test.images.dtype or train.shape != test.shape:
        if train.images.dtype == test.images.dtype:
            raise DataError(
                f"{path}: x_train has examples of {list(train.shape)}, x_test of {list(test.shape)}: they must be alike"
            )
        raise DataError(
            f"{path}: x_train is {x_train.dtype} but x_test is {x_test.dtype}: both must be uint8 (0 to 255) or both "
            "floating point, on the same scale"
        )
    return _of_classes(path, train, test, names, notes)


def _of_classes(path: Path, train: Any, test: Any, names: Any, notes: tuple[str, ...] = ()) -> Dataset:
    count = int(max(train.labels.max(), test.labels.max())) + 1
    if count > _MOST_CLASSES:
        raise DataError(f"{path}: labels go up to {count - 1}: number the classes from 0 without wide gaps")
    if (train.labels == train.labels[0]).all():
        raise DataError(
            f"{path}: y_train holds one class only ({train.labels[0]}): there must be two or more"
        )
    classes, confirm = _names(path, names, count)
    notes += note_from_one(train.labels)
    if confirm:
        notes += note_unused([train.labels, test.labels])
    return Dataset(path.stem, train, test, classes, notes, confirm=confirm)


def _names(path: Path, names: Any, count: int) -> tuple[tuple[str, ...], str]:
    """The names of `count` classes, and how to name them where nobody did."""
    if names is not None:
        return named_classes(str(path), names, count), ""
    return tuple(map(str, range(count))), "name all classes in an array of strings, classes, in the file"


def _several(path: Path, x_train: Any, y_train: Array, x_test: Any, y_test: Array, names: Any) -> Dataset:
    """Inputs by name, and classes or numbers."""
    if not (isinstance(x_train, dict) and isinstance(x_test, dict)):
        raise DataError(f"{path}: one half has x, the other has inputs by name: they must be alike")
    inputs, halves = Inputs.of(x_train), []
    numbers = y_train.dtype.kind == "f"
    for name, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        rows = inputs.pack(x, f"{path}: x_{name}")
        labels = y.astype(np.float32) if numbers else _labels(path, f"y_{name}", y, len(rows))
        if len(rows) != len(labels):
            raise DataError(
                f"{path}: x_{name} has {len(rows)} examples and y_{name} {len(y)}: there must be one each"
            )
        check_finite(f"{path}: y_{name}", labels)
        halves.append(SeveralSplit(rows, labels, inputs))
    if not numbers:
        return _of_classes(path, halves[0], halves[1], names)
    outputs = tuple(f"output {number}" for number in range(max(y_train[0].size, 1)))
    notes = _describe_targets(y_train)
    return Dataset(path.stem, halves[0], halves[1], outputs, task=REGRESSION, notes=notes)


def _describe_targets(y: Array) -> tuple[str, ...]:
    """A note on floats that look like labels: few whole numbers, each of several examples.

    >>> _describe_targets(np.repeat(np.float32([0, 1, 2]), 10))
    ('y_train is float32, so this is regression; if its 3 whole values are classes, save y as integers',)
    >>> _describe_targets(np.float32([0, 0.5, 1, 1])), _describe_targets(np.arange(100.0))
    ((), ())
    """
    if y.dtype.kind != "f" or not len(y) or y[0].size != 1 or not (y == np.rint(y)).all():
        return ()
    count = len(np.unique(y))
    if not 2 <= count <= min(_FEW_VALUES, len(y) // 4):
        return ()
    said = f"if its {count} whole values are classes, save y as integers"
    return (f"{TARGETS_ARE}{y.dtype}, so this is regression; {said}",)


def _say_alike(y_train: Array, name: str, y: Array) -> str:
    """What makes targets alike that differ in type: whole numbers are classes wherever one half has integers.

    >>> whole = np.arange(4)
    >>> _say_alike(whole / 1.0, "test", whole), _say_alike(whole, "test", whole / 1.0)
    ('; for classes, save y_train.astype(np.int64)', '; for classes, save y_test.astype(np.int64)')
    >>> _say_alike(whole / 3, "test", whole)
    '; to predict numbers, save y_test.astype(np.float32)'
    """
    if {y_train.dtype.kind, y.dtype.kind} not in ({"f", "i"}, {"f", "u"}):
        return ""
    half, floats, other = ("train", y_train, name) if y_train.dtype.kind == "f" else (name, y, "train")
    if (floats == np.rint(floats)).all():
        return f"; for classes, save y_{half}.astype(np.int64)"
    return f"; to predict numbers, save y_{other}.astype(np.float32)"


def _are_features(x: Array, layout: str | None) -> bool:
    """Whether examples are no images: by their layout, or because they have one dimension."""
    return layout in FEATURES or (layout is None and x.ndim == 2)


def _beyond_classes(
    path: Path, arrays: tuple[Array, ...], layout: str | None, notes: tuple[str, ...], named: Any
) -> Dataset:
    """Masks of class numbers, or numbers."""
    x_train, y_train, x_test, y_test = arrays
    numbers = y_train.dtype.kind == "f"
    halves = []
    for name, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y):
            raise DataError(
                f"{path}: x_{name} has {len(x)} examples and y_{name} {len(y)}: there must be one each"
            )
        if y.dtype.kind not in ("f" if numbers else "iu") or y.shape[1:] != y_train.shape[1:]:
            raise DataError(
                f"{path}: y_{name} is {y.dtype} {list(y.shape)} and y_train {y_train.dtype} {list(y_train.shape)}: "
                f"they must be alike{_say_alike(y_train, name, y)}"
            )
        images = _images(path, f"x_{name}", x, layout)
        check_finite(f"{path}: y_{name}", y)
        if not numbers and (y.shape[1:] != images.shape[2:] or y.min() < 0 or y.max() > IGNORED):
            raise DataError(
                f"{path}: y_{name} is {list(y.shape)} with values from {y.min()} to {y.max()}: masks are class numbers "
                f"[n, H, W] of 0 to 254, as large as the images, and {IGNORED} where a pixel is ignored"
            )
        targets = y.astype(np.float32 if numbers else np.uint8)
        halves.append(ExampleSplit(images, targets, reading=_say_reading(f"x_{name}", x, layout)))
    if numbers:
        names = tuple(f"output {number}" for number in range(max(y_train[0].size, 1)))
        return Dataset(path.stem, halves[0], halves[1], names, notes, task=REGRESSION)
    highest = max(int(half.labels[half.labels != IGNORED].max(initial=0)) for half in halves)
    classes, confirm = _names(path, named, highest + 1)
    check_masks(str(path), *(half.labels for half in halves))
    notes += note_unseen(halves[0].labels, classes)
    return Dataset(path.stem, halves[0], halves[1], classes, notes, task=SEGMENTATION, confirm=confirm)


def channels_first(x: Array, layout: str | None) -> Array:
    """Images in a known layout, or one that their shape tells beyond doubt, as [n, C, H, W].

    NCHW and NHWC are told apart where exactly one of the two places holds 1, 3 or 4 channels.

    >>> channels_first(np.zeros((5, 28, 28)), None).shape, channels_first(np.zeros((5, 8, 9, 3)), None).shape
    ((5, 1, 28, 28), (5, 3, 8, 9))
    """
    if layout is None and x.ndim == 4:
        first, last = x.shape[1] in _CHANNELS, x.shape[3] in _CHANNELS
        if first == last:
            raise DataError(
                f"shape {list(x.shape)} may be NCHW (C = {x.shape[1]}) or NHWC (C = {x.shape[3]}): say which with "
                "layout=, NCHW or NHWC",
                about="layout",
            )
        layout = _likely_layout(x)
    if x.ndim not in (3, 4) or (layout or "NHW") not in (("NHW",) if x.ndim == 3 else ("NCHW", "NHWC")):
        raise DataError(
            f"shape {list(x.shape)} is not {layout or 'a batch of images'}: "
            "allowed are 3 dimensions (NHW) or 4 (NCHW, NHWC)"
            + (
                "; of sequences [n, channels, time], save x[..., None]"
                if x.ndim == 3
                else f"; {NO_IMAGES}"
                if x.ndim not in (3, 4)
                else ""
            )
        )
    if x.ndim == 3:
        return x[:, None]
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if layout == "NHWC" else x


def _likely_layout(x: Array) -> str:
    return "NCHW" if x.shape[1] in _CHANNELS else "NHWC"


def describe_reading(x: Array, layout: str | None) -> tuple[str, ...]:
    """A note where floats of one channel may as well be sequences of many: nothing fails, and nothing is learned.

    >>> describe_reading(np.zeros((5, 10, 49, 1)), None)
    ('x is read as height x width x channels = 10 x 49 x 1; if that is wrong, give layout NCHW',)
    >>> describe_reading(np.zeros((5, 3, 64)), None)[0]
    'x is read as images of one channel, 3 x 64; if x is [n, channels, time], save x[..., None] and give layout NCHW, \
or for Conv1d give layout NCL'
    >>> describe_reading(np.zeros((5, 10, 49, 1)), "NCHW"), describe_reading(np.zeros((5, 1, 28, 28)), None)
    ((), ())
    """
    if layout is not None or x.ndim not in (3, 4) or x.dtype.kind != "f":
        return ()
    if x.ndim == 3:
        _, high, wide = x.shape
        of_time = "if x is [n, channels, time], save x[..., None] and give layout NCHW, or for Conv1d give layout NCL"
        return (f"{READ_AS}images of one channel, {high} x {wide}; {of_time}",) if high != wide else ()
    _, first, middle, last = x.shape
    if last == 1:
        names, other = "height x width x channels", "NCHW"
    elif first == 1 and middle != last:
        names, other = "channels x height x width", "NHWC"
    else:
        return ()
    sizes = f"{first} x {middle} x {last}"
    return (f"{READ_AS}{names} = {sizes}; if that is wrong, give layout {other}",)


def reading_notes(data: object) -> list[str]:
    """What a data set's notes say of that, of targets that look like labels, and of classes that are not there."""
    kinds = (READ_AS, TARGETS_ARE, UNSEEN, UNUSED)
    return [note for note in getattr(data, "notes", ()) if str(note).startswith(kinds)]


def _read(path: Path) -> list[Any]:
    try:
        with open(path, "rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not an .npz file: write one with np.savez")
            named = {key: _named(file.files, key) for key in KEYS if key.startswith("x_")}
            if missing := [key for key in KEYS if key not in file.files and not named.get(key)]:
                raise DataError(
                    f"{path} lacks {', '.join(missing)}: it has {', '.join(file.files) or 'nothing'}; save arrays of "
                    "these names with np.savez"
                )
            arrays: list[Any] = [
                {name: file[f"{key}.{name}"] for name in named[key]} if named.get(key) else file[key]
                for key in KEYS
            ]
            arrays.append(file[CLASSES_KEY] if CLASSES_KEY in file.files else None)
    except DataError:
        raise
    except Exception as error:  # a damaged file makes numpy and zipfile raise almost anything
        if _is_cut_short(path):
            raise DataError(f"{path} is cut short: its end is missing; copy or write it again") from error
        if isinstance(error, ValueError) and "pickled" in str(error) and not _ends_as_zip(path):
            raise DataError(f"{path} is not an .npz file: write one with np.savez") from error
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(
            f"{path} cannot be read ({reason}): it must be an .npz of plain arrays, without pickled objects"
        ) from error
    for key, given in zip((*KEYS, CLASSES_KEY), arrays, strict=True):
        each = given.values() if isinstance(given, dict) else [] if given is None else [given]
        if not all(isinstance(array, np.ndarray) for array in each):  # numpy hands out the bytes of others
            raise DataError(f"{path}: {key} is not an array: write the file with np.savez")
    return arrays


def _is_cut_short(path: Path) -> bool:
    """Whether it begins as an .npz does, with a member, and has no list of members at its end."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"PK\x03\x04" and not _ends_as_zip(path)
    except OSError:
        return False


def _ends_as_zip(path: Path) -> bool:
    """Whether the record that ends a list of members is where it belongs: behind it there is only a comment."""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - END_BYTES))
        return b"PK\x05\x06" in stream.read()


def _named(files: list[str], key: str) -> list[str]:
    """The inputs whose arrays are there: x_train.NAME, in the order of the file."""
    return [name.removeprefix(f"{key}.") for name in files if name.startswith(f"{key}.")]


def _images(path: Path, name: str, x: Array, layout: str | None) -> Array:
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(
            f"{path}: {name} is {x.dtype}: images must be uint8 (0 to 255) or floating point; save other whole "
            "numbers, such as samples of sound, as x.astype('float32')"
        )
    if x.size == 0:
        raise DataError(f"{path}: {name} has shape {list(x.shape)}: there are no images in it")
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        check_finite(f"{path}: {name}", x)
    if _are_features(x, layout):
        if x.dtype == np.uint8 or x.ndim != (3 if layout == "NCL" else 2):
            of_bytes = "; uint8 is for images, [n, H, W], [n, C, H, W] or [n, H, W, C]"
            longer = layout == "NCL" and x.ndim == 4 and x.shape[3] == 1
            raise DataError(
                f"{path}: {name} is {x.dtype} {list(x.shape)}: features are floating point [n, F], or [n, C, L] with "
                f"the layout NCL{of_bytes if x.dtype == np.uint8 else '; save x[..., 0]' if longer else ''}",
                about="layout",
            )
        return x
    try:
        return channels_first(x, layout)
    except DataError as error:
        raise DataError(f"{path}: {name}: {error}", about=error.about) from None


def _say_reading(name: str, x: Array, layout: str | None) -> str:
    """How an array was read, where its layout may be another one.

    >>> _say_reading("x_train", np.zeros((5, 6, 50, 1)), None), _say_reading("x_train", np.zeros((5, 6, 50)), None)
    ('x_train is [5, 6, 50, 1], read as NHWC', 'x_train is [5, 6, 50], read as images of one channel')
    >>> _say_reading("x_train", np.zeros((5, 6, 50)), "NCL"), _say_reading("x_train", np.zeros((5, 6)), None)
    ('x_train is [5, 6, 50], read as NCL', 'x_train is [5, 6], read as features')
    """
    if _are_features(x, layout):
        read_as = "NCL" if layout == "NCL" else "features"
    else:
        read_as = "images of one channel" if x.ndim == 3 else layout or _likely_layout(x)
    return f"{name} is {list(x.shape)}, read as {read_as}"


def _labels(path: Path, name: str, y: Array, length: int) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    try:
        return as_labels(y, length)
    except DataError as error:
        raise DataError(f"{path}: {name}: {error}") from None
