"""A model file written anew: in other formats, or with values of another type."""

from dataclasses import replace
from pathlib import Path

from membound.data.pictures import Size
from membound.errors import ModelError
from membound.run.evaluation import image_size, open_for_evaluation
from membound.run.files import holds_plain_weights
from membound.store.choice import value_types
from membound.store.exact import AUTO
from membound.store.file import read, write
from membound.store.formats import Prefer, decode
from membound.store.model import Model, StoredModel
from membound.store.values import F32

SUFFIX = ".safetensors"


def is_model_file(source: str) -> bool:
    """Whether a network is named by a model file, which has its weights."""
    path = Path(source)
    return path.suffix == SUFFIX and path.is_file() and not holds_plain_weights(path)


def same_values(stored: StoredModel) -> tuple[Model, dict[str, str]]:
    """The network with its values and the scales of rows apart, and the type of each tensor: nothing is rounded."""
    scales = {name: each.scales for name, each in stored.tensors.items() if each.scales is not None}
    tensors = {name: decode(replace(each, scales=None)) for name, each in stored.tensors.items()}
    types = {name: each.type_name for name, each in stored.tensors.items()}
    return replace(stored.decode(), tensors=tensors, scales=scales), types


def reencode(source: Path, target: Path, values: str | None, prefer: Prefer) -> StoredModel:
    """Write a model file with values of this type, those that it has if none is given, in formats chosen anew.

    'auto' leaves values as they are, too, and stores weights of few values in as few bits as hold them.
    """
    if target.exists() and target.samefile(source):
        raise ModelError(f"{target} is the file that is read: choose another name", about="out")
    stored = read(source)
    if values in (None, AUTO):
        model, types = same_values(stored)
        if values == AUTO:
            fewer = value_types(replace(model, scales={}), AUTO)
            types |= {
                name: kind for name, kind in fewer.items() if name not in model.scales and kind != F32.name
            }
        return write(target, model, types, prefer)
    return write(target, stored.decode(), values, prefer)


def size_for(source: Path, data: str) -> Size | None:
    """The size that images of a folder are read at for the network of a file."""
    return image_size(open_for_evaluation(source), data)
