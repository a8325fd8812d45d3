"""save(): a trained torch module as a model file."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from membound.capture.capture import capture
from membound.data.preprocess import Preprocess
from membound.errors import ModelError
from membound.store.file import write
from membound.store.formats import Prefer
from membound.store.model import StoredModel

SUFFIX = ".safetensors"


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    example_input: Tensor | NDArray[Any],
    *,
    values: str = "f32",
    prefer: Prefer = "bytes",
    preprocess: Preprocess | None = None,
    classes: Sequence[str] | None = None,
) -> StoredModel:
    """Write `model` as a file that `load` runs without torch; what was stored comes back.

    `example_input` is a batch of any size, float32. `values` is f32 or f16; `prefer` says what formats are chosen
    for: fewest bytes, or speed. `preprocess` and the names of `classes` travel with the network.

    >>> import tempfile, torch
    >>> import membound as mb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = save(nn.Linear(3, 2), f"{folder}/net.safetensors", torch.zeros(1, 3), classes=["cat", "dog"])
    ...     mb.load(f"{folder}/net.safetensors").classes
    ['cat', 'dog']
    """
    if Path(path).suffix != SUFFIX:
        raise ModelError(
            f"{os.fspath(path)}: a model file is a safetensors file: let its name end in {SUFFIX}"
        )
    if preprocess is not None and not isinstance(preprocess, Preprocess):
        kind = type(preprocess).__name__
        raise ModelError(f"preprocess is a {kind}: give a membound.data.Preprocess, or leave it out")
    if isinstance(classes, str):
        raise ModelError(f"classes is the text {classes!r}: give a list of names")
    captured = capture(model, example_input)
    if preprocess is not None:
        captured = replace(captured, preprocess=preprocess.to_json(), mean_image=preprocess.mean_image)
    if classes is not None:
        captured = replace(captured, classes=[str(name) for name in classes])
    return write(path, captured, values, prefer)
