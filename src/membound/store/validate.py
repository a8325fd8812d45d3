"""The one check of a model file: after it, kernels may dereference everything without looking.

Contents are checked in chunks, so that the check itself takes no memory to speak of.
"""

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from membound.store.bits import CHUNK
from membound.store.container import Container
from membound.store.formats import Encoded, matrix_shape
from membound.store.graph import Graph, Shape
from membound.store.header import Header, parse_header, resolve_shapes
from membound.store.layouts import LAYOUTS, Matrix
from membound.store.model import StoredModel
from membound.store.rules import is_name, refuse, show
from membound.store.shapes import infer_shapes
from membound.store.values import VALUE_TYPES, type_of

Array = npt.NDArray[Any]
MEAN_IMAGE = "membound.mean_image"
_LAYOUT_OF = {  # by the suffixes of a tensor's arrays; that of the values is empty
    frozenset(["", *(index.suffix for index in layout.arrays)]): layout
    for layout in LAYOUTS.values()
    if not layout.packed
}
SUFFIXES = tuple(index.suffix for layout in _LAYOUT_OF.values() for index in layout.arrays)


def validate(container: Container) -> StoredModel:
    """The network in this container, checked: structure, graph and the contents of every array."""
    parts = _group(container.arrays)
    header = parse_header(container.text, parts)
    plain = {name: found[""].shape for name, found in parts.items() if len(found) == 1}
    stored, original = resolve_shapes(header, plain)
    _check_shapes(header, parts, plain, stored)
    encoded = {name: _assemble(name, found, stored[name]) for name, found in parts.items()}
    mean_image = _mean_image(header, encoded.pop(MEAN_IMAGE, None))
    shapes = infer_shapes(header.graph, {name: tensor.shape for name, tensor in encoded.items()})
    _check_used(header.graph, encoded)
    for name, tensor in encoded.items():
        _check_contents(name, tensor)
    if mean_image is not None:
        _check_contents(MEAN_IMAGE, mean_image)
    return StoredModel(
        header.graph,
        encoded,
        shapes,
        original,
        header.preprocess,
        header.classes,
        mean_image,
        container.header_bytes,
        container.file_bytes,
    )


def _group(arrays: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """The arrays of each tensor, by suffix: "" for the values."""
    parts: dict[str, dict[str, Array]] = {}
    for full, array in arrays.items():
        name, colon, suffix = full.partition(":")
        if not is_name(name) or (colon and suffix not in SUFFIXES):  # rule 12
            refuse(
                12, f"tensor {show(full)} has no allowed name: printable, with a colon only before {SUFFIXES}"
            )
        parts.setdefault(name, {})[suffix] = array
    for name, found in parts.items():
        if frozenset(found) not in _LAYOUT_OF:  # rule 13
            have = ", ".join(sorted(suffix or "values" for suffix in found))
            refuse(
                13,
                f"tensor {show(name)} has {have}: values, with the arrays of at most one format, are allowed",
            )
    return parts


def _check_shapes(
    header: Header, names: Iterable[str], plain: dict[str, Shape], stored: dict[str, Shape]
) -> None:
    for name, shapes in header.shapes.items():
        if plain.get(name, shapes[0]) != shapes[0]:  # rule 18
            refuse(
                18,
                f"tensor {show(name)} has the shape {show(plain[name])}, and is said to have {show(shapes[0])}",
            )
    for name in names:
        if name not in stored:  # rule 29
            refuse(29, f"tensor {show(name)} is not dense and lacks its shape")


def _check_used(graph: Graph, encoded: dict[str, Encoded]) -> None:
    used = {name for node in graph.nodes for name in node.tensors.values()}
    extra = encoded.keys() - used
    if extra:  # rule 27
        refuse(27, f"tensor {show(min(extra))} is there, but no node uses it")


def _mean_image(header: Header, image: Encoded | None) -> Encoded | None:
    said = (header.preprocess or {}).get("mean") == "image"
    if said != (image is not None):  # rule 21
        refuse(
            21,
            f"the preprocessing {'has' if said else 'has no'} mean image, the tensors {'have none' if said else 'do'}",
        )
    if image is not None:
        channels = header.graph.input_shape[:1]
        if (
            image.format != "dense" or len(image.shape) != 3 or image.shape[:1] != channels or not image.size
        ):  # rule 21
            refuse(
                21,
                f"the mean image has the shape {show(image.shape)}: [channels, height, width], dense, is allowed",
            )
    return image


def _assemble(name: str, parts: dict[str, Array], shape: Shape) -> Encoded:
    """The tensor of these arrays; their types and lengths are checked, not yet what is in them."""
    values, layout = parts[""], _LAYOUT_OF[frozenset(parts)]
    if type_of(values) is None:  # rule 28
        allowed = " and ".join(name.upper() for name in VALUE_TYPES)
        refuse(28, f"tensor {show(name)} has values of type {values.dtype}: {allowed} are allowed")
    matrix = Matrix(*matrix_shape(shape), len(values) if values.ndim == 1 else -1)
    for index in layout.arrays:
        array = parts[index.suffix]
        fits = array.dtype == index.dtype(matrix) and array.shape == (int(index.length(matrix)),)
        if matrix.entries < 0 or not fits:  # rule 28
            refuse(
                28, f"tensor {show(name)} has a {index.suffix} array of a type or length that does not fit"
            )
    return Encoded(
        shape, layout.name, values.reshape(-1), tuple(parts[each.suffix] for each in layout.arrays)
    )


def _check_contents(name: str, tensor: Encoded) -> None:
    what, values, kind = f"tensor {show(name)}", tensor.values, tensor.value_type
    for begin in range(0, len(values), CHUNK):
        if not kind.all_finite(values[begin : begin + CHUNK]):  # rule 36
            refuse(36, f"{what} has a value that is not finite")
    LAYOUTS[tensor.format].check(what, values, tensor.arrays, tensor.matrix)
