"""The layers of a model file: their shapes, nonzeros, formats and bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from membound.notebook import html_table, show_shape
from membound.store.formats import Encoded
from membound.store.graph import Shape
from membound.store.model import StoredModel


def list_layers(model: StoredModel) -> list[dict[str, Any]]:
    """Every tensor: its shapes, nonzeros, format and bytes."""
    return [
        _layer(name, tensor, model.original_shapes.get(name, tensor.shape))
        for name, tensor in model.tensors.items()
    ]


def _layer(name: str, tensor: Encoded, original: Shape) -> dict[str, Any]:
    nonzeros, size = tensor.nonzeros, int(np.prod(original, dtype=np.int64))
    return {
        "name": name,
        "shape": list(tensor.shape),
        "original_shape": list(original),
        "size": tensor.size,
        "original_size": size,
        "nonzeros": nonzeros,
        "density": nonzeros / tensor.size,
        "format": tensor.format,
        "values": tensor.value_type.name,
        "bytes": tensor.nbytes,
    }


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
            layer["name"], show_shape(layer["shape"]), layer["format"], f"{layer['nonzeros']:,}",
            f"{layer['nonzeros'] / max(layer['original_size'], 1):.2%}", f"{layer['bytes']:,}",
        ]
        for layer in layers
    ]  # fmt: skip
    return html_table(["layer", "shape", "format", "nonzeros", "kept", "bytes"], rows, words=3)
