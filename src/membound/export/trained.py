"""From weights that were trained to what a model file holds: the network, its preprocessing and its classes in one.

The one export that begins at a torch module: torch is imported when it is called, not with this file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from membound.data import Dataset, Preprocess
from membound.errors import ModelError
from membound.store.graph import Shape
from membound.store.model import Model

if TYPE_CHECKING:
    from torch import nn


def capture_trained(
    model: "nn.Module",
    weights: Path | None,
    *,
    names: Mapping[str, str] | None = None,
    shape: Shape | None = None,
    dataset: Dataset | None = None,
    mean: str | None = None,
) -> Model:
    """Load `weights` into `model` and capture it with how its images are prepared and what its classes are called.

    Without weights, the network has its own, as one of an ONNX file has.

    What the weights do not say is taken from `dataset`: the shape of images, their mean, the classes.
    """
    from membound.capture.capture import capture
    from membound.capture.save import with_facts
    from membound.train.preprocessing import preprocess_for
    from membound.train.weights import load_weights_, saved_facts

    about = {} if weights is None else saved_facts(weights)
    preprocess = None if weights is None else load_weights_(model, weights, names)
    if dataset is not None and (preprocess is None or mean is not None):
        preprocess = preprocess_for(model, dataset.train, mean)
    classes = about.get("classes") or (list(dataset.classes) if dataset is not None else None)
    example = getattr(model, "example_input", None) if shape is None else None  # ONNX files say all of it
    if example is None:
        if shape is None:
            shape = _input_shape(model, about, dataset)
            if preprocess is not None and preprocess.crop is not None and len(shape) == 3:
                shape = (shape[0], preprocess.crop, preprocess.crop)
        example = np.zeros((1, *shape), np.float32)
    return with_facts(capture(model, example), preprocess, classes)


def _input_shape(model: "nn.Module", about: Mapping[str, Any], dataset: Dataset | None) -> Shape:
    for found in (about.get("shape"), getattr(model, "input_shape", None)):
        if isinstance(found, list | tuple) and all(isinstance(size, int) for size in found):
            return tuple(found)
    if dataset is not None:
        return tuple(dataset.shape)
    raise ModelError(
        "neither the network nor its weights say what shape an input has: give a dataset or a shape, such as 3,32,32",
        about=("dataset", "shape"),
    )


def say_assumed(weights: Path | None, captured: Model, data: str) -> str | None:
    """Most weights come without it, and a wrong one ruins them silently; None where nothing was assumed."""
    from membound.train.preprocessing import say_measured

    if weights is not None:
        return (
            f"note: {weights} does not say how images are prepared, so the usual way is assumed, in most cases the "
            "data's mean and standard deviation; if the accuracy is below what you know, pass the mean that you "
            "trained with"
        )
    return (
        None if captured.preprocess is None else say_measured(Preprocess.from_json(captured.preprocess), data)
    )
