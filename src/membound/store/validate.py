"""The one check of a model file: after it, kernels may dereference everything without looking.

Contents are checked in chunks, so that the check itself takes no memory to speak of.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.bits import CHUNK, chunks, spare_bits, unpack
from membound.store.compact import NAME, layer_names, split_layers, split_text
from membound.store.container import Container
from membound.store.formats import Encoded, matrix_shape
from membound.store.graph import Graph, Shape
from membound.store.header import Header, load_fields, load_version, read_header, resolve_shapes
from membound.store.layouts import LAYOUTS, Matrix
from membound.store.model import StoredModel
from membound.store.packed import Layer, unpack_layer
from membound.store.palette import Palette
from membound.store.rules import COMPACT, PACKED, is_name, refuse, show
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
    fields, arrays, joined, more = _open(container)
    layers = {name: unpack_layer(name, array, may_be_short=True) for name, array in joined.items()}
    layers |= _layers(arrays) if fields["v"] >= PACKED else {}
    parts = _group({name: array for name, array in arrays.items() if name not in layers})
    packed = _packed_tensors(layers, parts)
    header = _with_shapes_of(layers, read_header(fields, [*parts, *packed]))
    plain = {name: found[""].shape for name, found in parts.items() if len(found) == 1}
    plain |= {name: tensor.shape for name, tensor in packed.items()}
    stored, original = resolve_shapes(header, plain)
    _check_shapes(header, parts, plain, stored)
    encoded = {name: _assemble(name, found, stored[name]) for name, found in parts.items()} | packed
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
        container.header_bytes + more,
        container.file_bytes,
        activations=header.activations,
    )


def _open(container: Container) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array], int]:
    """The description, the arrays that stand alone, those of joined layers, and the bytes of a joined description."""
    version = load_version(container.text)
    if version["v"] != COMPACT:
        return load_fields(container.text), container.arrays, {}, 0
    arrays = dict(container.arrays)
    if len(version) > 1 or NAME not in arrays:  # rule 52
        refuse(
            52,
            f"a file of version {COMPACT} has its description in the array {NAME!r}, and nothing else but v",
        )
    whole = arrays.pop(NAME)
    text, rest = split_text(whole)
    fields = load_fields(text)
    if fields["v"] != COMPACT:  # rule 14
        refuse(14, f"the version is {fields['v']} within a file of version {COMPACT}")
    joined = split_layers(rest, layer_names(fields["n"], arrays))
    if joined.keys() & arrays.keys():  # rule 46
        refuse(46, f"layer {show(min(joined.keys() & arrays.keys()))} is there more than once")
    return fields, arrays, joined, len(whole) - len(rest)


def _layers(arrays: dict[str, Array]) -> dict[str, Layer]:
    """The packed layers: arrays of bytes that no format has."""
    return {
        name: unpack_layer(name, array)
        for name, array in arrays.items()
        if array.dtype == np.uint8 and array.ndim == 1 and ":" not in name
    }


def _packed_tensors(layers: dict[str, Layer], others: Iterable[str]) -> dict[str, Encoded]:
    found: dict[str, Encoded] = {}
    taken = set(others)
    for name, layer in layers.items():
        tensors = layer.tensors(name)
        for full in tensors:
            if not is_name(full):  # rule 12
                refuse(12, f"tensor {show(full)} has no allowed name: printable, up to 300 characters")
            if full in taken or full in found:  # rule 46
                refuse(46, f"tensor {show(full)} is there more than once: in a packed layer, and beside it")
        found |= tensors
    return found


def _with_shapes_of(layers: dict[str, Layer], header: Header) -> Header:
    """The header, with the shapes that packed layers say themselves."""
    shapes = dict(header.shapes)
    for name, layer in layers.items():
        weight = next(iter(layer.tensors(name)))
        if weight in shapes:  # rule 46
            refuse(46, f"tensor {show(weight)} is packed, which says its shape, and is said to have one")
        shapes[weight] = (layer.weight.shape, *([layer.original] if layer.original else []))
    return replace(header, shapes=shapes)


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
        allowed = " and ".join(name.upper() for name, each in VALUE_TYPES.items() if not each.coded)
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
    if tensor.palette is not None:
        _check_codes(what, tensor, tensor.palette)
    else:
        for begin in range(0, len(values), CHUNK):
            if not kind.all_finite(values[begin : begin + CHUNK]):  # rule 36
                refuse(36, f"{what} has a value that is not finite")
    LAYOUTS[tensor.format].check(what, tensor.numbers, tensor.arrays, tensor.matrix)


def _check_codes(what: str, tensor: Encoded, palette: Palette) -> None:
    """After it, every code stands for a number."""
    bits, scales = tensor.value_type.bits, tensor.scales
    with np.errstate(over="ignore", invalid="ignore"):
        entries = palette.entries
    finite = np.isfinite(entries).all() and 0 < palette.step < np.inf
    if not finite or np.signbit(entries[entries == 0]).any():  # rule 48
        refuse(48, f"{what} has a palette with an entry or a step that is not finite, or -0, or a step of 0")
    if scales is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            largest = np.abs(scales).max(initial=0).astype(np.float32) * np.abs(entries).max(initial=0)
        if not np.isfinite(scales).all() or not np.isfinite(largest):  # rule 36
            refuse(36, f"{what} has a scale, or a value times a scale, that is not finite")
    if spare_bits(tensor.values, tensor.count * bits):  # rule 47
        refuse(47, f"{what} has bits set beyond the end of its {tensor.count} codes")
    if len(entries) == tensor.value_type.levels:
        return
    for part in chunks(tensor.count):
        if int(unpack(tensor.values, bits, part.start, part.stop).max()) >= len(entries):  # rule 47
            refuse(47, f"{what} has a code beyond the {len(entries)} entries of its palette")
