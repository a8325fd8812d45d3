"""mb.export_onnx: a model file as an ONNX model, and what its input is, which the graph alone does not say."""

import os
from dataclasses import dataclass
from pathlib import Path

from membound.data import Preprocess
from membound.errors import ModelError, check_path_like
from membound.export.onnx import to_onnx
from membound.run.common import preprocess_of
from membound.run.files import find_model_file
from membound.run.net import Net
from membound.run.ports import inputs_of
from membound.signatures import known_keywords
from membound.store.file import read
from membound.store.model import StoredModel
from membound.store.other_files import refuse_other_kinds
from membound.store.whole import write_whole


@dataclass(frozen=True)
class OnnxFile:
    """What was written: `input` says what the graph takes, and what was done to it in training."""

    path: Path
    onnx_bytes: int
    dense_onnx_bytes: int  # without `sparse`
    file_bytes: int  # of the model file
    input: str


@known_keywords
def export_onnx(
    net: Net | str | os.PathLike[str], path: str | os.PathLike[str], *, sparse: bool = False
) -> OnnxFile:
    """Write a network as an ONNX model for other runtimes, whole or not at all: dense, and with a free batch size.

    `net` is a model file or a network that `load` gave; `path` ends in .onnx. With `sparse`, a weight is a sparse
    initializer where that takes fewer bytes: the file gets smaller, but not the memory that it takes once loaded.

    The graph takes what `net(x)` takes, prepared numbers and not pixels: `preprocess` in the metadata of the model says
    how they are prepared, as JSON, and `input` of what comes back in words.
    """
    check_path_like(path, "path")
    target = Path(path)
    if target.suffix != ".onnx":
        raise ModelError(f"{target}: let the name of an ONNX model end in .onnx", about="path")
    if isinstance(net, Net):
        model = net.model
    else:
        check_path_like(net, "net")
        source = find_model_file(Path(net))
        refuse_other_kinds(source)
        model = read(source)
    parts = to_onnx(model, sparse)
    write_whole(target, parts)
    size = sum(map(len, parts))
    dense = sum(map(len, to_onnx(model))) if sparse else size
    return OnnxFile(target, size, dense, model.file_bytes, describe_inputs(model))


def describe_inputs(model: StoredModel) -> str:
    """What the graph takes, such as 'float32 [batch, 1, 28, 28], prepared: pixels times 1/255 (in its metadata)'."""
    ports = inputs_of(model.graph, model.shapes)
    said = []
    for port in ports:
        name = "" if len(ports) == 1 else f"{port.name}: "
        kind = "int64" if port.whole else "float32"
        said.append(f"{name}{kind} [{', '.join(map(str, ('batch', *port.shape)))}]")
    how = preprocess_of(model)
    prepared = None if how is None else describe_preparation(how)
    return ", ".join(said) if prepared is None else f"{', '.join(said)}, prepared: {prepared}"


def describe_preparation(how: Preprocess) -> str | None:
    """What is done to examples before the network, and where it can be read; None where nothing is.

    >>> describe_preparation(mb.data.Preprocess(scale=1 / 255))
    'pixels times 1/255 (in its metadata)'
    >>> describe_preparation(mb.data.Preprocess(mean=[124.0, 116.0, 104.0], std=[58.5, 57.0, 57.5]))
    'pixels minus mean, divided by std (in its metadata)'
    >>> describe_preparation(mb.data.Preprocess(takes="float32")) is None
    True
    """
    steps = []
    if how.mean is not None:
        steps.append("minus mean" if how.mean_image is None else "minus a mean image")
    if how.scale != 1:
        steps.append(f"times {_fraction(how.scale)}")
    if how.std is not None:
        steps.append("divided by std")
    if how.crop is not None:
        steps.append("cropped to the center")
    if not steps and how.takes != "uint8":
        return None
    what = "pixels" if how.takes == "uint8" else "training data"
    where = "in its metadata" if how.mean_image is None else "in its metadata, without the mean image"
    done = ", ".join(steps)
    return f"{what} {done} ({where})" if done else f"{what} as they are, from 0 to 255"


def _fraction(scale: float) -> str:
    """A scale as people write it.

    >>> _fraction(1 / 255), _fraction(0.00390625), _fraction(0.5), _fraction(2.0)
    ('1/255', '1/256', '0.5', '2')
    """
    whole = 1 / scale
    near = round(whole)
    return f"1/{near}" if near >= 10 and abs(whole - near) < 1e-6 * near else f"{scale:.6g}"
