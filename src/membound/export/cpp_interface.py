"""What a program relies on of a network that is compiled in, and so a file needs that takes its place."""

import zlib
from collections.abc import Sequence

from membound.data import Preprocess
from membound.data.pictures import sides
from membound.run.common import preprocess_of
from membound.run.pictures import picture_size
from membound.run.ports import Port, inputs_of, outputs_of
from membound.store.model import StoredModel

# Of files for apps, as kFileFormat of app.h: raise both when what they hold, or what that means, changes.
FILE_FORMAT = 1


def describe_interface(model: StoredModel) -> str:
    """What a program relies on, in words: shapes, the size of images, and which classes there are."""
    inputs, outputs = inputs_of(model.graph, model.shapes), outputs_of(model.graph, model.shapes)
    how, sizes = (
        preprocess_of(model),
        [" and ".join(_shape(port) for port in each) for each in (inputs, outputs)],
    )
    said = f"inputs {sizes[0]}, outputs {sizes[1]}"
    if how is not None and len(model.shapes[0]) == 3:
        crop = "" if how.crop is None else " or more"
        side = image_size(model, how)
        said += f", images of {side[0]} x {side[1]}{crop} in {number_of(how).removesuffix('_t')}"
    elif how is not None:
        said += f", numbers in {number_of(how).removesuffix('_t')}"
    if model.classes is not None:
        names = zlib.crc32("\n".join(model.classes).encode())
        said += f", {len(model.classes)} classes ({names:08x})"
    return said


def _shape(port: Port) -> str:
    whole = " of whole numbers" if port.whole else ""
    return "x".join(map(str, port.shape)) + whole


def image_size(model: StoredModel, how: Preprocess) -> Sequence[int]:
    """Height and width of the images that the network was trained on, before a crop."""
    if how.mean_image is not None:
        return how.mean_image.shape[1:]
    size = picture_size(model, model.shapes[0])
    return model.shapes[0][1:] if size is None else sides(size)


def number_of(how: Preprocess | None) -> str:
    """The type in C of the numbers that are prepared."""
    return "float" if how is not None and how.takes == "float32" else "uint8_t"
