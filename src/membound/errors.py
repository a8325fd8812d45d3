"""What can go wrong for a user: each message says what was found, what is allowed and what to do."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path


class MemboundError(Exception):
    """The base of every error that membound raises on purpose; commands print it in one line.

    A message speaks to a Python caller. `about` names the parameters that it is about, so that a command can add its
    own names for them.

    >>> MemboundError("steps=0: a whole number from 1 is needed", about="steps").about
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


def check_path_like(path: object, name: str) -> None:
    """Refuse what cannot be a path at all.

    >>> check_path_like(3, "folder")
    Traceback (most recent call last):
    membound.errors.ModelError: folder=3: a path is needed, as text or a pathlib.Path
    """
    if not isinstance(path, str | os.PathLike) or not (text := os.fspath(path)) or "\0" in str(text):
        raise ModelError(f"{name}={path!r}: a path is needed, as text or a pathlib.Path", about=name)


def say_no_folder(folder: Path) -> str:
    """Why nothing can be written into what should be a folder.

    >>> say_no_folder(Path("there/is/none"))
    'there is no folder there/is/none: create it with mkdir -p there/is/none'
    """
    if folder.is_file():
        return f"{folder} is a file, not a folder"
    return f"there is no folder {folder}: create it with mkdir -p {shlex.quote(str(folder))}"
