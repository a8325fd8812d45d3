"""What a model file holds, as facts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from membound.errors import ModelError
from membound.notebook import html_block, html_table, show_shape
from membound.run.net import EVERY, Net, known_isas
from membound.store.formats import Encoded
from membound.store.graph import Shape
from membound.store.model import StoredModel
from membound.store.sizes import total_bytes


class Inspection(dict[str, Any]):
    """What a model file holds: a plain dictionary, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        arena = "" if self["arena_bytes"] is None else f"; working memory {self['arena_bytes']:,} at batch 1"
        return html_block(
            f"{self['file_bytes']:,} bytes: {self['nonzeros']:,} of {self['parameters']:,} parameters are not zero",
            show_layers(self["layers"]),
            note=f"{self['dense_bytes']:,} bytes dense, {self['ratio']:.1f} times the file{arena}",
        )


def show_layers(layers: Sequence[Mapping[str, Any]]) -> str:
    """The layers of an inspection as a table for notebooks."""
    rows = [
        [
            layer["name"], show_shape(layer["shape"]), layer["format"], f"{layer['nonzeros']:,}",
            f"{layer['nonzeros'] / max(layer['original_size'], 1):.2%}", f"{layer['bytes']:,}",
        ]
        for layer in layers
    ]  # fmt: skip
    return html_table(["layer", "shape", "format", "nonzeros", "kept", "bytes"], rows, words=3)


def inspect(model: StoredModel) -> Inspection:
    """Layers and totals of a stored network.

    `dense_bytes` is float32 for every element of the shapes before dead channels were left out; `paper` counts the
    same in the formats of the paper's appendix: all dense, all indexed, and the smallest for each tensor.
    """
    original = {name: model.original_shapes.get(name, tensor.shape) for name, tensor in model.tensors.items()}
    layers = list_layers(model)
    counted = {layer["name"]: (original[layer["name"]], layer["nonzeros"]) for layer in layers}
    dense = total_bytes(counted, "dense")
    image = model.mean_image
    facts = {
        "file_bytes": model.file_bytes,
        "header_bytes": model.header_bytes,
        "weight_bytes": sum(layer["bytes"] for layer in layers),
        "mean_image_bytes": 0 if image is None else image.nbytes,
        "dense_bytes": dense,
        "ratio": dense / model.file_bytes,
        **_memory(model),
        "parameters": sum(layer["original_size"] for layer in layers),
        **count_nonzeros(model),
        "paper": {f"{name}_bytes": total_bytes(counted, name) for name in ("dense", "indexed", "best")},
        "input_shape": list(model.shapes[0]),
        "output_shape": list(model.shapes[model.graph.output]),
        "operators": len(model.graph.nodes),
        "preprocess": model.preprocess,
        "classes": model.classes,
        "layers": layers,
    }
    return Inspection(facts)


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


def _memory(model: StoredModel) -> dict[str, Any]:
    """What one image takes on one thread: `memory_bytes` in all, by instruction set, and the largest arena.

    Both are None where the compiled core is missing.
    """
    try:
        net = Net(model, threads=1, isa="scalar")  # which every machine has, whatever MEMBOUND_ISA says
    except ModelError:
        return {"arena_bytes": None, "memory_bytes": None}
    totals = {isa: net.memory(isa).total for isa in known_isas()}
    return {"arena_bytes": net.memory(EVERY).arena, "memory_bytes": totals}
