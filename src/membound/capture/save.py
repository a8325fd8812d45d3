"""save(): a trained torch module as a model file."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from membound.capture.calibrate import calibrate as round_by_inputs
from membound.capture.capture import capture
from membound.capture.examples import Example
from membound.data.preprocess import Preprocess
from membound.errors import ModelError, a_kind, say_no_folder
from membound.modules import FITTED, broken
from membound.signatures import known_keywords
from membound.store.choice import Values, value_types
from membound.store.exact import AUTO
from membound.store.file import write
from membound.store.formats import Prefer
from membound.store.model import Model, StoredModel
from membound.store.shapes import infer_shapes
from membound.store.values import F32

SUFFIX = ".safetensors"


@known_keywords
def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    example_input: Example,
    *,
    values: Values = AUTO,
    prefer: Prefer = "bytes",
    calibrate: Tensor | NDArray[Any] | None = None,
    preprocess: Preprocess | None = None,
    classes: Sequence[str] | None = None,
) -> StoredModel:
    """Write `model` as a file that `load` runs without torch; what was stored comes back.

    - `example_input`: a float32 batch of any size; its values do not matter. For several inputs a tuple of batches, or
      a dict by their names in `forward`; integers, such as indices of an embedding, must be some that it allows.
    - `values`: 'auto' rounds nothing: a weight with few different values, as training with `mb.palette` leaves it, is
      stored in as few bits as hold it exactly, all else in float32. 'f32' stores all in float32; 'f16' in half the
      bytes; 'p8' to 'p1' in so many bits, of which a weight then has up to 2^bits different values. Or give a type
      for each tensor by name, as {"fc1.weight": "p4"}; the rest is 'f16'. With p8 to p1 a weight of few enough values
      is stored exactly, others are rounded; with 'p4' and the like the first layer and depthwise convolutions have 8
      bits.
    - `prefer`: what formats are chosen for: the fewest 'bytes', or 'speed'.
    - `calibrate`: a batch of some hundred real inputs: float32, prepared as for the network, or with `preprocess` the
      uint8 images that it prepares. Weights of few bits are then rounded by what that does to the outputs of their
      layers, and biases corrected; labels are not needed.
    - `preprocess` and the names of `classes` travel with the network.

    Channels that cannot matter are left out, exactly: those that no later layer uses and those that are constant. So
    a file may have fewer nonzeros than `reg.report()` says.

    A network whose weights exceed the bounds that `attach` gave it, or the network that it is a copy of, is written as
    it is, with a warning.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = mb.save(nn.Linear(3, 2), f"{folder}/net.safetensors", torch.zeros(1, 3), classes=["cat", "dog"])
    ...     mb.load(f"{folder}/net.safetensors").classes
    ['cat', 'dog']
    """
    check_path(path)
    check_kinds(preprocess, classes)
    if isinstance(model, nn.Module):
        _warn_of_broken_bounds(model)
    captured = with_facts(capture(model, example_input), preprocess, classes, exactly=True)
    value_types(captured, values)  # refused before the work begins
    if calibrate is not None:
        calibrate = _prepared(calibrate, preprocess)
        rounded = F32.name if values == AUTO else values  # 'auto' leaves nothing to round
        captured = round_by_inputs(captured, rounded, calibrate, prefer)
    stored = write(path, captured, values, prefer)
    if values == AUTO:
        _warn_of_fitted(model, stored.file_bytes)
    return stored


def _prepared(inputs: Tensor | NDArray[Any], preprocess: Preprocess | None) -> Tensor | NDArray[Any]:
    """Inputs to calibrate with, as the network takes them: pixels become floats by its own preprocessing."""
    if not isinstance(inputs, Tensor | np.ndarray):
        return inputs  # refused where it is used
    whole = (
        not (inputs.is_floating_point() or inputs.is_complex())
        if isinstance(inputs, Tensor)
        else inputs.dtype.kind in "biu"
    )
    if not whole:
        return inputs
    if preprocess is None:
        kind = str(inputs.dtype).removeprefix("torch.")
        raise ModelError(
            f"calibrate is {kind}, and the network takes float32: give the images prepared as for the network, or also "
            "preprocess=mb.data.Preprocess(scale=1 / 255, mean=..., std=...), which prepares them",
            about="calibrate",
        )
    return preprocess(np.asarray(inputs.detach().cpu() if isinstance(inputs, Tensor) else inputs))


def _warn_of_fitted(model: nn.Module, taken: int) -> None:
    """A fit chose how its values are stored, which its result knows and the module does not."""
    allowed = model.__dict__.get(FITTED)
    if allowed is not None and taken > allowed:
        warnings.warn(
            f"this file has {taken:,} bytes, and that of the fit has {allowed:,}: write it with fitted.save(path), "
            "which knows how many bits each layer got, how inputs are prepared and what classes are called; mb.save "
            "is for networks that you trained yourself",
            stacklevel=4,  # who called save, which known_keywords wraps
        )


def _warn_of_broken_bounds(model: nn.Module) -> None:
    found = list(broken(model))
    if not found:
        return
    name, nonzeros, allowed = found[0]
    others = len(found) - 1
    more = (
        f", and {others} more {'layer exceeds its' if others == 1 else 'layers exceed their'} bound"
        if others
        else ""
    )
    warnings.warn(
        f"'{name}' has {nonzeros:,} nonzeros, its bound is {allowed:,}{more}: the file is larger than it should be; "
        "call reg.finish() before save(), or save inside `with reg.projected():`; for an average or a copy of the "
        "weights call reg.project_(model)",
        stacklevel=4,  # who called save, which known_keywords wraps
    )


def check_path(path: Any) -> None:
    """Refuse what cannot be the path of a model file."""
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"the path is {a_kind(path)}: call save(model, path, example_input)")
    if Path(path).suffix != SUFFIX:
        raise ModelError(
            f"{os.fspath(path)}: a model file is a safetensors file: let its name end in {SUFFIX}"
        )
    if not (folder := Path(path).parent).is_dir():
        raise ModelError(f"{os.fspath(path)}: {say_no_folder(folder)}")


def check_kinds(preprocess: Any, classes: Any) -> None:
    """Refuse what is no preprocessing or no names of classes, before anything is captured."""
    if preprocess is not None and not isinstance(preprocess, Preprocess):
        raise ModelError(
            f"preprocess is {a_kind(preprocess)}: give a membound.data.Preprocess, or leave it out"
        )
    if isinstance(classes, str) or not (classes is None or isinstance(classes, Sequence)):
        raise ModelError(f"classes is {classes!r}: give a list of names")


def with_facts(
    captured: Model, preprocess: Preprocess | None, classes: Sequence[str] | None, *, exactly: bool = False
) -> Model:
    """The network together with how its images are prepared and what its classes are called.

    A network trained on data of fewer classes than it has outputs has names for the first; `exactly` refuses it.
    """
    _check_facts(captured, preprocess, classes, exactly)
    if preprocess is not None:
        captured = replace(captured, preprocess=preprocess.to_json(), mean_image=preprocess.mean_image)
    if classes is not None:
        captured = replace(captured, classes=[str(name) for name in classes])
    return captured


def _check_facts(
    model: Model, preprocess: Preprocess | None, classes: Sequence[str] | None, exactly: bool
) -> None:
    """What travels with a network must fit it."""
    shapes = infer_shapes(model.graph, {name: tensor.shape for name, tensor in model.tensors.items()})
    scores = shapes[model.graph.output]
    if classes is not None:
        if len(set(classes)) != len(classes) or not classes:
            raise ModelError(
                f"classes has {len(classes)} names, {len(set(classes))} of them different: give each its own"
            )
        if len(scores) == 1 and (len(classes) > scores[0] or (exactly and len(classes) < scores[0])):
            raise ModelError(
                f"classes has {len(classes)} names for {scores[0]} outputs of the network: give as many",
                about="classes",
            )
    sides = model.graph.input_shape[1:]
    if preprocess is not None and preprocess.crop is not None and sides != (preprocess.crop, preprocess.crop):
        raise ModelError(
            f"preprocess crops images to {preprocess.crop} pixels a side, the network takes {model.graph.input_shape}"
        )
