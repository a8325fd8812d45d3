"""From weights that were trained to a model file: the network, its preprocessing and its classes in one."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import nn

from membound.capture.save import save
from membound.data import Dataset
from membound.errors import ModelError
from membound.store.formats import Prefer
from membound.store.graph import Shape
from membound.store.model import StoredModel
from membound.train.preprocessing import preprocess_for
from membound.train.weights import load_weights_

CHECKPOINT = "checkpoint.safetensors"


def trained_with(weights: Path) -> dict[str, Any]:
    """What a file of weights says about its training: `seed`, `shape` of the images, `classes`; all may be absent."""
    path = weights / CHECKPOINT if weights.is_dir() else weights
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("membound", "{}"))
    except (SafetensorError, OSError, ValueError):
        return {}  # of another kind, or damaged: loading it says what is wrong
    if isinstance(about, dict) and isinstance(about.get("description"), dict):
        about = about["description"]  # of a run's checkpoint
    if not isinstance(about, dict):
        return {}
    return {key: about[key] for key, check in _SAID.items() if key in about and check(about[key])}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: object, check: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(check, value))


_SAID: dict[str, Callable[[object], bool]] = {
    "seed": _is_count,
    "shape": lambda value: _is_list(value, _is_count),
    "classes": lambda value: _is_list(value, lambda name: isinstance(name, str)),
}


def store_trained(
    model: nn.Module,
    weights: Path,
    out: str | os.PathLike[str],
    *,
    names: Mapping[str, str] | None = None,
    shape: Shape | None = None,
    dataset: Dataset | None = None,
    mean: str | None = None,
    values: str = "f32",
    prefer: Prefer = "bytes",
) -> StoredModel:
    """Load `weights` into `model` and save it with how its images are prepared and what its classes are called.

    What the weights do not say is taken from `dataset`: the shape of images, their mean, the classes.
    """
    about = trained_with(weights)
    preprocess = load_weights_(model, weights, names)
    if dataset is not None and (preprocess is None or mean is not None):
        preprocess = preprocess_for(model, dataset.train, mean)
    classes = about.get("classes") or (list(dataset.classes) if dataset is not None else None)
    if shape is None:
        shape = _input_shape(model, about, dataset)
        if preprocess is not None and preprocess.crop is not None and len(shape) == 3:
            shape = (shape[0], preprocess.crop, preprocess.crop)
    example = np.zeros((1, *shape), np.float32)
    return save(model, out, example, values=values, prefer=prefer, preprocess=preprocess, classes=classes)


def _input_shape(model: nn.Module, about: Mapping[str, Any], dataset: Dataset | None) -> Shape:
    for found in (about.get("shape"), getattr(model, "input_shape", None)):
        if isinstance(found, list | tuple) and all(isinstance(size, int) for size in found):
            return tuple(found)
    if dataset is not None:
        return tuple(dataset.shape)
    raise ModelError(
        "neither the network nor its weights say what shape an input has: add --data, or --shape as in --shape 3,32,32"
    )
