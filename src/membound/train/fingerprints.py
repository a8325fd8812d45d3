"""Short descriptions that tell networks, data and updates apart: a run is resumed only with the same ones."""

import hashlib
import inspect
import re
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from membound.data import Preprocess, Split
from membound.train.batches import order_of
from membound.train.schedules import name_number
from membound.train.task import Task
from membound.train.updates import Update

IMAGES = 8  # of a split that are looked at
SAMPLE, BLOCK = (
    64,
    1024,
)  # examples that stand for those that are not in memory; and those that are taken at once


def digest(*parts: Any) -> str:
    """Of bytes and arrays.

    >>> digest(b"a", np.zeros(2)) == digest(b"a", np.zeros(2)) != digest(b"a", np.ones(2))
    True
    """
    total = hashlib.sha256()
    for part in parts:
        total.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return total.hexdigest()[:16]


def network_digest(model: nn.Module) -> str:
    """Of the architecture and the weights that it starts from: other ones make another run."""
    return digest(_architecture(model), *(weight.detach().cpu() for weight in model.parameters()))


def architecture_digest(model: nn.Module) -> str:
    """Of its layers and the shapes of their parameters, whatever weights it starts from.

    >>> one, other = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> architecture_digest(one) == architecture_digest(other) != architecture_digest(nn.Linear(2, 4))
    True
    """
    shapes = [(name, tuple(weight.shape)) for name, weight in model.named_parameters()]
    return digest(_architecture(model), repr(shapes).encode())


def _architecture(model: nn.Module) -> bytes:
    """Modules print themselves, some with addresses, which change from process to process."""
    return re.sub(r"0x[0-9a-f]+", "", str(model)).encode()


def data_digest(split: Split) -> str:
    """Of all labels and examples; of examples that are not in memory, a sample that is the same at every reading.

    Examples that a user varies at random have the digest of their labels and shape alone.
    """
    examples = getattr(split, "images", None)
    if examples is None:
        some = np.linspace(0, len(split) - 1, min(len(split), SAMPLE)).astype(np.int64)
        examples, again = split.read(some), split.read(some)
        if examples.tobytes() != again.tobytes():
            examples = examples[:0]
    blocks = (examples[begin : begin + BLOCK] for begin in range(0, len(examples), BLOCK))
    return digest(repr(list(split.shape)).encode(), split.labels, *blocks)


def describe_split(split: Split) -> list[Any]:
    """What tells data apart without reading all of it: its size, its labels and a few of its images."""
    some = np.linspace(0, len(split) - 1, min(len(split), IMAGES)).astype(np.int64)
    order = order_of(split).describe()
    return [
        len(split),
        list(split.shape),
        digest(split.labels, split.read(some)),
        *([order] if order else []),
    ]


def describe_preprocess(preprocess: Preprocess) -> dict[str, Any]:
    """How images are prepared, a mean by its digest."""
    mean = preprocess.mean
    return {**preprocess.to_json(), "mean": None if mean is None else digest(mean)}


def describe_update(update: Update) -> list[Any]:
    """An update as JSON: its schedules by what they are, those of the user's own by samples of them."""
    numbers = [name_number(each) if callable(each) else each for each in update.arguments]
    return [list(update.kinds), numbers, *([] if update.rank is None else [describe_function(update.rank)])]


def describe_rule(update: Update) -> str:
    """The same in words."""
    return update.describe() + ("" if update.rank is None else f" with rank {describe_function(update.rank)}")


def describe_task(task: Task) -> dict[str, str | None]:
    """What a task's functions are called, and what a data class among them holds: all that can be said of them."""
    functions = {"loss": task.loss, "score": task.score}
    return {name: None if value is None else _name(value) for name, value in functions.items()}


def describe_function(function: Any) -> str:
    """Its name and a digest of its source, where that can be read: values that it closes over are not in it.

    >>> describe_function(len)
    'len, source unknown'
    """
    plain = _plain(function)
    about = f"{_name(plain)}{function.args}{function.keywords}" if plain is not function else _name(plain)
    return f"{about}, source {source_digest(function) or 'unknown'}"


def source_digest(function: Any) -> str | None:
    """That of a function's source, or of a callable's class; None where it cannot be read.

    >>> source_digest(digest) == source_digest(digest) != source_digest(network_digest), source_digest(len)
    (True, None)
    """
    plain = _plain(function)
    try:
        return digest(inspect.getsource(plain if inspect.isroutine(plain) else type(plain)).encode())
    except (OSError, TypeError):
        return None


def _plain(function: Any) -> Any:
    return inspect.unwrap(function.func if isinstance(function, partial) else function)


def _name(function: Any) -> str:
    if is_dataclass(function):
        return repr(function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
