"""The one check of a model file: after it, kernels may dereference everything without looking.

Contents are checked in chunks, so that the check itself takes no memory to speak of.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.container import Container
from membound.store.formats import FAR, Encoded, csr_types, matrix_shape
from membound.store.graph import Graph, Shape
from membound.store.header import Header, parse_header, resolve_shapes
from membound.store.model import StoredModel
from membound.store.rules import is_name, refuse, show
from membound.store.shapes import infer_shapes

Array = npt.NDArray[Any]
MEAN_IMAGE = "membound.mean_image"
ROWS = "rows"  # the suffix of csr's row pointers; the other suffixes are the names of the formats
SUFFIXES = ("bitmask", "indexed", "csr", "delta", ROWS)
CHUNK = 1 << 18
_FLOATS = (np.dtype("<f4"), np.dtype("<f2"))
_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


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
        if found.keys() not in _COMPLETE:  # rule 13
            have = ", ".join(sorted(suffix or "values" for suffix in found))
            refuse(
                13,
                f"tensor {show(name)} has {have}: values, with the arrays of at most one format, are allowed",
            )
    return parts


_COMPLETE = [{""}, {"", "bitmask"}, {"", "indexed"}, {"", "delta"}, {"", "csr", ROWS}]


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
    values = parts[""]
    format = next((suffix for suffix in parts if suffix not in ("", ROWS)), "dense")
    index, pointers = parts.get(format), parts.get(ROWS)
    rows, columns = matrix_shape(shape)
    count = len(values) if values.ndim == 1 else -1
    lengths = {"bitmask": -(-rows * columns // 8), "indexed": count, "csr": count, "delta": count}
    types = {"bitmask": "u1", "indexed": "<u4", "csr": csr_types(columns, count)[0], "delta": "u1"}
    if values.dtype not in _FLOATS:  # rule 28
        refuse(28, f"tensor {show(name)} has values of type {values.dtype}: F32 and F16 are allowed")
    if index is not None and (count < 0 or not _is_array(index, types[format], lengths[format])):  # rule 28
        refuse(28, f"tensor {show(name)} has a {format} array of a type or length that does not fit")
    if pointers is not None and not _is_array(pointers, csr_types(columns, count)[1], rows + 1):  # rule 28
        refuse(28, f"tensor {show(name)} has row pointers of a type or length that does not fit")
    return Encoded(shape, format, values.reshape(-1), index, pointers)


def _is_array(array: Array, dtype: npt.DTypeLike, length: int) -> bool:
    return array.dtype == np.dtype(dtype) and array.shape == (length,)


# What is in the arrays.


def _check_contents(name: str, tensor: Encoded) -> None:
    what = f"tensor {show(name)}"
    values, index, size = tensor.values, tensor.index, tensor.size
    for begin in range(0, len(values), CHUNK):
        if not _all_finite(values[begin : begin + CHUNK]):  # rule 36
            refuse(36, f"{what} has a value that is not finite")
    if index is None:
        return
    if tensor.format == "delta":
        _check_delta(what, values, index, size)
        return
    for begin in range(0, len(values), CHUNK):
        if not values[begin : begin + CHUNK].all():  # rule 35
            refuse(35, f"{what} stores a zero, which its format {tensor.format} leaves out")
    if tensor.format == "bitmask":
        _check_bitmask(what, len(values), index, size)
    elif tensor.format == "indexed":
        _check_indexed(what, index, size)
    elif tensor.pointers is not None:
        _check_pointers(what, tensor.pointers, len(values))
        _check_columns(what, index, tensor.pointers, tensor.columns)


def _all_finite(values: Array) -> bool:
    if values.dtype == np.float16:  # by its bits: numpy is slow with halves
        return not ((values.view(np.uint16) & 0x7C00) == 0x7C00).any()
    return bool(np.isfinite(values).all())


def _overlapping(length: int) -> Iterator[slice]:
    """Chunks that share an element with the next one, so that every pair of neighbours is in one of them."""
    for begin in range(0, length - 1, CHUNK):
        yield slice(begin, min(begin + CHUNK + 1, length))


def _check_bitmask(what: str, count: int, index: Array, size: int) -> None:
    bits = sum(int(_BITS[index[begin : begin + CHUNK]].sum()) for begin in range(0, len(index), CHUNK))
    spare = int(index[-1]) >> (size % 8) if size % 8 else 0
    if bits != count or spare:  # rule 30
        refuse(
            30,
            f"{what} has {count} values, {bits} bits set, and {'some' if spare else 'none'} beyond its end",
        )


def _check_indexed(what: str, index: Array, size: int) -> None:
    rising = all((index[part][1:] > index[part][:-1]).all() for part in _overlapping(len(index)))
    if not rising or (len(index) and int(index[-1]) >= size):  # rule 31
        refuse(31, f"{what} has positions that do not rise, or go beyond its {size} elements")


def _check_pointers(what: str, pointers: Array, count: int) -> None:
    rising = all((pointers[part][1:] >= pointers[part][:-1]).all() for part in _overlapping(len(pointers)))
    if not rising or int(pointers[0]) != 0 or int(pointers[-1]) != count:  # rule 32
        refuse(32, f"{what} has row pointers that do not rise from 0 to its {count} values")


def _check_columns(what: str, index: Array, pointers: Array, columns: int) -> None:
    if len(index) == 1 and int(index[0]) >= columns:  # rule 33
        refuse(33, f"{what} has a column beyond its {columns}")
    kind = pointers.dtype.type
    for part in _overlapping(len(index)):
        chunk = index[part]
        rising = chunk[1:] > chunk[:-1]
        first, last = np.searchsorted(pointers, (kind(part.start), kind(part.stop - 1)), side="right")
        rising[pointers[first:last].astype(np.int64) - (part.start + 1)] = True  # where another row starts
        if int(chunk.max()) >= columns or not rising.all():  # rule 33
            refuse(33, f"{what} has columns that do not rise within a row, or go beyond its {columns}")


def _check_delta(what: str, values: Array, index: Array, size: int) -> None:
    end = 0
    for begin in range(0, len(values), CHUNK):
        gaps, chunk = index[begin : begin + CHUNK], values[begin : begin + CHUNK]
        end += int(gaps.sum(dtype=np.int64)) + len(gaps)
        fillers = np.flatnonzero(chunk == 0)
        if (gaps[fillers] != FAR - 1).any() or np.signbit(chunk[fillers]).any():  # rule 34
            refuse(34, f"{what} has a zero that fills no distance of {FAR}")
    if end > size or (len(values) and not values[-1]):  # rule 34
        refuse(34, f"{what} has positions that go beyond its {size} elements, or end with a filler")
