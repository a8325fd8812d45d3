"""What can go wrong for a user: each message says what was found, what is allowed and what to do."""

import os
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

CLOSE = 0.76  # how much like a name another is that may be meant


class MemboundError(Exception):
    """The base of every error that membound raises on purpose; commands print it in one line.

    A message speaks to a Python caller. `about` names the parameters that it is about, so that a command can add its
    own names for them.

    >>> mb.MemboundError("steps=0: a whole number from 1 is needed", about="steps").about
    ('steps',)
    """

    def __init__(self, message: object = "", *, about: str | Iterable[str] = ()) -> None:
        super().__init__(message)
        self.about = (about,) if isinstance(about, str) else tuple(about)


class RuleError(MemboundError):
    """A regularization rule that cannot be applied to this model and optimizer."""


class DataError(MemboundError):
    """A data set that is missing, malformed or not understood."""


class WeightsError(MemboundError):
    """A file of weights that is malformed or does not fit the network."""


class TrainingError(MemboundError):
    """Training that cannot go on: a non-finite loss or weight, a run directory that does not match."""


class Diverged(TrainingError):
    """Training whose loss or weights are no longer finite, or whose loss has exploded."""


class ModelError(MemboundError):
    """A network that cannot be captured, stored or run; `rule` is the rule of docs/FORMAT.md that a file breaks."""

    rule: int | None = None


class Uncalibrated(ModelError):
    """A network that does not say how a microcontroller rounds its values."""


def install(extra: str) -> str:
    """How to get what an extra brings; membound is installed from a checkout.

    >>> install("onnx")
    "in a checkout of membound, pip install '.[onnx]'"
    """
    return f"in a checkout of membound, pip install '.[{extra}]'"


MOST_SHOWN = 60  # characters of a value in a message


def shown(value: object) -> str:
    """A value that a caller gave, for one line of a message: a file's content would fill the screen.

    >>> shown("net"), shown(bytes(20_464))
    ("'net'", 'bytes (20,464 of them)')
    >>> shown(list(range(100)))
    '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1... (list)'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{type(value).__name__} ({len(value):,} of them)"
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({type(value).__name__})"


def a_kind(value: object) -> str:
    """The type of a value that a caller gave, with its article.

    >>> a_kind(3), a_kind([]), a_kind(None)
    ('an int', 'a list', 'None')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def check_path_like(path: object, name: str, kind: type[MemboundError] = ModelError) -> None:
    """Refuse what cannot be a path at all.

    >>> check_path_like(3, "folder")
    Traceback (most recent call last):
    membound.errors.ModelError: folder=3: a path is needed, as text or a pathlib.Path
    >>> check_path_like(bytes(20_464), "path")
    Traceback (most recent call last):
    membound.errors.ModelError: path is bytes (20,464 of them): a path is needed, as text or a pathlib.Path
    """
    if isinstance(path, str | os.PathLike) and (text := os.fspath(path)) and "\0" not in str(text):
        return
    given = shown(path)
    said = f"{name} is {given}" if isinstance(path, bytes | bytearray | memoryview) else f"{name}={given}"
    raise kind(f"{said}: a path is needed, as text or a pathlib.Path", about=name)


def say_absent(path: Path, suffix: str = "") -> str:
    """That there is no such file, and the one beside it that may be meant: of its name, where all end in `suffix`.

    >>> say_absent(Path("there/is/none.npy"))
    'there is no file there/is/none.npy'
    """
    try:
        beside = sorted(name for name in os.listdir(path.parent) if name.endswith(suffix))
    except OSError:
        beside = []
    same = [name for name in beside if suffix and Path(name).stem == path.stem]
    near = same or get_close_matches(path.name, beside, 1, cutoff=CLOSE)
    return f"there is no file {path}" + (f": did you mean {path.with_name(near[0])}?" if near else "")


def say_no_folder(folder: Path) -> str:
    """Why nothing can be written into what should be a folder.

    >>> say_no_folder(Path("there/is/none"))
    'there is no folder there/is/none: create it with mkdir -p there/is/none'
    """
    if folder.is_file():
        return f"{folder} is a file, not a folder"
    return f"there is no folder {folder}: create it with mkdir -p {shlex.quote(str(folder))}"
