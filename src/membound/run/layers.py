"""The layers of a model file: their shapes, nonzeros, formats and bytes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.notebook import html_table, show_shape
from membound.store.bits import chunks, unpack
from membound.store.formats import Encoded
from membound.store.graph import Shape
from membound.store.model import StoredModel
from membound.store.short import as_short


def list_layers(model: StoredModel) -> list[dict[str, Any]]:
    """Every tensor: the operator that has it, its shapes, nonzeros, format and bytes."""
    operators = {name: node.op for node in reversed(model.graph.nodes) for name in node.tensors.values()}
    return [
        _layer(name, tensor, model.original_shapes.get(name, tensor.shape), operators.get(name))
        for name, tensor in model.tensors.items()
    ]


def _layer(name: str, tensor: Encoded, original: Shape, operator: str | None) -> dict[str, Any]:
    nonzeros, size = tensor.nonzeros, int(np.prod(original, dtype=np.int64))
    scales, values = _stored_bytes(tensor.scales), tensor.values.nbytes
    short = tensor.format == "dense" and len(tensor.shape) == 1 and _stored_bytes(tensor.values) < values
    values = _stored_bytes(tensor.values) if short else values
    positions = sum(array.nbytes for array in tensor.arrays)
    palette = 0 if tensor.palette is None else tensor.palette.nbytes
    return {
        "name": name,
        "operator": operator,
        "shape": list(tensor.shape),
        "original_shape": list(original),
        "size": tensor.size,
        "original_size": size,
        "nonzeros": nonzeros,
        "density": nonzeros / tensor.size,
        "kept": nonzeros / max(size, 1),
        "format": tensor.format,
        "values": "i8" if short else tensor.value_type.name,
        "distinct": count_distinct(tensor),
        "bytes": values + positions + scales + palette,
        "value_bytes": values,
        "position_bytes": positions,
        "position_entropy_bytes": position_entropy(tensor.size, nonzeros),
        "scale_bytes": scales,
        "palette_bytes": palette,
    }


def _stored_bytes(numbers: npt.NDArray[Any] | None) -> int:
    """Of scales or biases: in a file those of 8 bits are a byte each, and a step; here they are float32."""
    if numbers is None:
        return 0
    found = as_short(numbers) if numbers.dtype == np.float32 else None
    return numbers.nbytes if found is None else found.codes.nbytes + found.step.nbytes


def count_distinct(tensor: Encoded) -> int | None:
    """How many different values a tensor of few bits has, zero and the scales of rows aside; of others None."""
    if tensor.palette is None:
        return None
    used = np.zeros(tensor.value_type.levels, bool)
    for part in chunks(tensor.count):
        used[unpack(tensor.values, tensor.value_type.bits, part.start, part.stop)] = True
    entries = tensor.palette.entries
    return int(np.count_nonzero(entries[used[: len(entries)]]))


def position_entropy(size: int, nonzeros: int) -> float:
    """The bytes that say where so many nonzeros are, on average of all the places there could be: n H(t / n) / 8.

    >>> position_entropy(1000, 500), round(position_entropy(1000, 100), 1), position_entropy(10, 0)
    (125.0, 58.6, 0.0)
    """
    shares = [share for share in (nonzeros / size, 1 - nonzeros / size) if share > 0] if size else []
    return -size * sum(share * math.log2(share) for share in shares) / 8 + 0.0


def count_nonzeros(model: StoredModel) -> dict[str, int]:
    """`nonzeros` of every tensor, and `weight_nonzeros` of those that are no biases."""
    biases = {node.tensors["b"] for node in model.graph.nodes if "b" in node.tensors}
    counts = {name: tensor.nonzeros for name, tensor in model.tensors.items()}
    return {
        "nonzeros": sum(counts.values()),
        "weight_nonzeros": sum(count for name, count in counts.items() if name not in biases),
    }


def show_layers(layers: Sequence[Mapping[str, Any]]) -> str:
    """The layers as a table for notebooks."""
    rows = [
        [
            layer["name"], show_shape(layer["shape"]), layer["format"], show_values(layer), f"{layer['nonzeros']:,}",
            f"{layer['nonzeros'] / max(layer['original_size'], 1):.2%}", f"{layer['bytes']:,}",
        ]
        for layer in layers
    ]  # fmt: skip
    return html_table(["layer", "shape", "format", "values", "nonzeros", "kept", "bytes"], rows, words=4)


def show_values(layer: Mapping[str, Any]) -> str:
    """The type of a layer's values, and how many different ones it has, where they are few.

    >>> show_values({"values": "p4", "distinct": 15}), show_values({"values": "f16", "distinct": None})
    ('p4, 15 values', 'f16')
    """
    kind, distinct = layer.get("values") or "", layer.get("distinct")
    return str(kind) if distinct is None else f"{kind}, {distinct:,} values"
