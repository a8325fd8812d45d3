"""The model file: written whole or not at all, checked before anything in it is used."""

import contextlib
import mmap as _mmap
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError, say_absent
from membound.store.choice import Values, float_type, places, value_types
from membound.store.compact import NAME, TEXT, join, layer_names
from membound.store.container import Container, layout, parse
from membound.store.exact import AUTO
from membound.store.formats import Encoded, Prefer, best_format, encode, scale_rows
from membound.store.graph import Shape
from membound.store.header import Header, format_header, load_fields
from membound.store.layouts import LAYOUTS
from membound.store.model import Model, StoredModel
from membound.store.packed import Layer, pack_layer
from membound.store.quantize import is_rough
from membound.store.rules import COMPACT, PACKED, PLAIN
from membound.store.shapes import infer_shapes
from membound.store.short import short_bias, short_scales
from membound.store.validate import MEAN_IMAGE, validate
from membound.store.values import F32, value_type
from membound.store.whole import write_whole

Array = npt.NDArray[Any]
MAP_FROM = 1 << 20  # bytes: smaller files are read into memory
ADVISED = ("again", "upgrade", "not a model file")  # words of errors that say themselves what to do


def read(path: str | os.PathLike[str], mmap: bool | None = None) -> StoredModel:
    """The network in a file, checked; a ModelError with the path says what is wrong.

    With `mmap` the arrays are read-only views onto the mapped file, shared between processes: the file must not be
    shortened or changed while the network lives. None maps files from 1 MiB up.
    """
    with _named(path):
        try:
            buffer, mapped = _open(path, mmap)
        except ValueError as error:  # a path that cannot be one, a file that was shortened meanwhile
            raise ModelError(f"cannot be read: {error}") from None
        return _check(buffer, mapped)


def _open(path: str | os.PathLike[str], mmap: bool | None) -> tuple[npt.NDArray[np.uint8], bool]:
    """The bytes of a file, mapped or read."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ModelError("this is a folder: give a .safetensors file")
    if not stat.S_ISREG(mode):  # opening a pipe would wait
        raise ModelError("this is not a file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > 0 and (size >= MAP_FROM if mmap is None else mmap):
            return np.frombuffer(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ), np.uint8), True
        buffer = np.fromfile(file, np.uint8)
    buffer.flags.writeable = False
    return buffer, False


def read_bytes(data: bytes | bytearray | memoryview, name: str = "model") -> StoredModel:
    """The network in these bytes, checked; `name` stands for the path in errors."""
    with _named(name):
        buffer = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        if buffer.ctypes.data % 4:  # the widest element
            buffer = buffer.copy()
        buffer.flags.writeable = False
        return _check(buffer, False)


def _check(buffer: npt.NDArray[np.uint8], mapped: bool) -> StoredModel:
    return replace(validate(parse(buffer)), mapped=mapped, content=(buffer,))


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of reading, with the path and the rule."""
    try:
        yield
    except ModelError as error:
        rule = f" (rule {error.rule} of docs/FORMAT.md)" if error.rule else ""
        known = not rule or any(words in str(error) for words in ADVISED)
        advice = "" if known else "; the file may be damaged: fetch or write it again"
        named = ModelError(f"{os.fspath(path)}: {error}{advice}{rule}")
        named.rule = error.rule
        raise named from None
    except FileNotFoundError:
        raise ModelError(say_absent(Path(path))) from None
    except OSError as error:
        raise ModelError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise ModelError(f"{os.fspath(path)}: cannot be read: there is not enough memory") from None


def write(
    path: str | os.PathLike[str], model: Model, values: Values = "f32", prefer: Prefer = "bytes"
) -> StoredModel:
    """Store a network; `values` is f32, f16, p1 to p8, auto, or a type for each tensor by name (`value_types` says what
    that is for all of them), `prefer` fewest bytes or speed. What was stored comes back.

    The file appears whole or not at all: it is written under another name in the same folder, then renamed.
    """
    parts, stored = assemble(model, encode_tensors(model, values, prefer), values)
    write_whole(Path(path), parts)
    return stored


def to_bytes(model: Model, values: Values = "f32", prefer: Prefer = "bytes") -> bytes:
    """The bytes of the file that `write` writes."""
    return b"".join(assemble(model, encode_tensors(model, values, prefer), values)[0])


def file_size(model: Model, values: Values = "f32", prefer: Prefer = "bytes") -> int:
    """How many bytes the file that `write` writes has."""
    return assemble(model, encode_tensors(model, values, prefer), values)[1].file_bytes


def dense_size(model: StoredModel) -> int:
    """How many bytes the same network takes as a plain file, in float32, with the shapes that it was trained in."""
    shapes = {name: model.original_shapes.get(name, tensor.shape) for name, tensor in model.tensors.items()}
    text = format_header(
        Header(
            model.graph, {name: (shape,) for name, shape in shapes.items()}, model.preprocess, model.classes
        ),
        set(),
        set(),
    )
    arrays: dict[str, Array] = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    if model.mean_image is not None:
        arrays[MEAN_IMAGE] = np.broadcast_to(np.float32(0), model.mean_image.shape)
    header, ordered = layout(arrays, text)
    return len(header) + sum(array.nbytes for array in ordered)


def encode_tensors(model: Model, values: Values = "f32", prefer: Prefer = "bytes") -> dict[str, Encoded]:
    """Every tensor in its best format; what a format adds to the header counts.

    Scales and biases beside weights of few bits are rounded to 8, unless `values` says what type a bias has, or is
    'auto', which rounds nothing.
    """
    infer_shapes(model.graph, {name: tuple(array.shape) for name, array in model.tensors.items()})
    types = value_types(model, values)
    coded = [name for name, kind in types.items() if value_type(kind).coded]
    packed = dict(places(model.graph, types, coded, types)) if coded or model.activations else {}
    biases = {place.bias for place in packed.values()}
    said = types if values == AUTO else values if isinstance(values, Mapping) else {}
    short = {place.bias for name, place in packed.items() if is_rough(value_type(types[name]))} - said.keys()
    found = {}
    for name, array in model.tensors.items():
        try:
            shape, kind, scales = tuple(array.shape), types[name], model.scales.get(name)
            if scales is not None and not value_type(kind).coded:
                array, scales = scale_rows(array, scales), None
            if name in biases:
                format = "dense"
                if name in short and (rounded := short_bias(array)) is not None:
                    array, kind = rounded, F32.name
            elif name in packed:
                format = best_format(shape, array, kind, prefer, packed=True)
            else:
                format = best_format(shape, array, kind, prefer, _overhead(name, shape))
            found[name] = encode(array, format, kind, scales)
            kept = found[name].scales
            if scales is not None and values == AUTO:
                found[name] = replace(found[name], scales=scales.astype("<f4"))
            elif kept is not None and is_rough(value_type(kind)):
                found[name] = replace(found[name], scales=short_scales(kept))
        except ModelError as error:
            raise ModelError(f"tensor {name!r}: {error}") from None
    return found


def _overhead(name: str, shape: Shape) -> dict[str, int]:
    """About how many bytes of header a sparse format takes beyond dense: an entry each array, and the shape."""
    entry = len(name) + 70
    said = len(name) + len(str(shape)) if len(shape) > 1 else 0
    return {layout.name: len(layout.arrays) * entry + said for layout in LAYOUTS.values() if layout.arrays}


def assemble(
    model: Model, tensors: dict[str, Encoded], values: Values = "f32", *, compact: bool = True
) -> tuple[list[bytes | memoryview], StoredModel]:
    """The parts of a file with these tensors, in order, and the network as stored, checked as a reader would.

    It has packed layers if a tensor cannot be stored otherwise, or activations have scales. Unless it is `compact`,
    each of them has an array of its own, as in version 2 of the format.
    """
    layers = _layers(model, tensors)
    packed = {full for name, layer in layers.items() for full in layer.tensors(name)}
    arrays: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if name in packed:
            continue
        arrays[name] = tensor.values
        if not tensor.arrays:
            arrays[name] = tensor.values.reshape(tensor.shape)
        for index, array in zip(LAYOUTS[tensor.format].arrays, tensor.arrays, strict=True):
            arrays[f"{name}:{index.suffix}"] = array
    if model.mean_image is not None:
        image = encode(model.mean_image, "dense", float_type(values))
        arrays[MEAN_IMAGE] = image.values.reshape(model.mean_image.shape)
    compact = compact and NAME not in tensors and NAME not in layers
    version = (COMPACT if compact else PACKED) if layers or model.activations else PLAIN
    text = _describe(model, tensors, layers, version)
    if version == COMPACT:
        alone = {*arrays, *(name for name, layer in layers.items() if layer.own_name)}
        joined = layer_names(load_fields(text)["n"], alone)
        parts = {name: pack_layer(layers.pop(name), shorten=True) for name in joined}
        arrays[NAME], text = join(text, parts), TEXT
    arrays |= {name: pack_layer(layer) for name, layer in layers.items()}
    header, ordered = layout(arrays, text, {NAME, *layers})
    total = len(header) + sum(array.nbytes for array in ordered)
    stored = validate(Container(arrays, text, len(header), total))
    content = (np.frombuffer(header, np.uint8), *(array.reshape(-1).view(np.uint8) for array in ordered))
    return [header, *(array.data for array in content[1:])], replace(stored, content=content)


def _layers(model: Model, tensors: dict[str, Encoded]) -> dict[str, Layer]:
    """The layers that are packed, by the names of their arrays."""
    few = [name for name, each in tensors.items() if each.palette is not None or LAYOUTS[each.format].packed]
    if not few and not model.activations:
        return {}
    plain = {name for name, each in tensors.items() if each.format == "dense" and len(each.shape) == 1}
    found = {}
    for name, (array, bias) in places(model.graph, tensors, few, plain):
        weight, original = tensors[name], model.original_shapes.get(name)
        original = None if original is None or tuple(original) == weight.shape else tuple(original)
        inside = tensors[bias] if bias is not None and tensors[bias].shape == weight.shape[:1] else None
        found[array] = Layer(weight, inside, original, array == name)
    return found


def _describe(model: Model, tensors: dict[str, Encoded], layers: dict[str, Layer], version: int) -> str:
    shapes: dict[str, tuple[Shape, ...]] = {}
    for name, tensor in tensors.items():
        original = tuple(model.original_shapes.get(name, tensor.shape))
        shapes[name] = (tensor.shape,) if original == tensor.shape else (tensor.shape, original)
    header = Header(model.graph, shapes, model.preprocess, model.classes, version, model.activations)
    sparse = {name for name, tensor in tensors.items() if tensor.arrays}
    return format_header(header, sparse, {next(iter(layer.tensors(name))) for name, layer in layers.items()})
