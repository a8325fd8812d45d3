"""What a model file holds, as facts."""

import os
from pathlib import Path
from typing import Any

from membound.errors import ModelError, check_path_like
from membound.micro.integers import make_integers
from membound.micro.plan import make_plan
from membound.notebook import html_block
from membound.run.files import find_model_file
from membound.run.layers import count_nonzeros, list_layers, show_layers
from membound.run.micro_net import describe_plan
from membound.run.net import EVERY, Net, known_isas
from membound.run.ports import inputs_of, outputs_of
from membound.signatures import known_keywords
from membound.store.file import dense_size, read
from membound.store.model import StoredModel
from membound.store.sizes import total_bytes
from membound.store.whole import digest_file
from membound.units import LEVELS, parse_clock, parse_level


class Inspection(dict[str, Any]):
    """What a model file holds: a plain dictionary, which notebooks show as a table.

    - `file_bytes` are all of it: `header_bytes`, `weight_bytes`, `mean_image_bytes`, and filling. `parts` has the same
      by what bytes are for: `value_bytes`, `position_bytes`, `scale_bytes`, `bias_bytes`, `palette_bytes`,
      `mean_image_bytes`, `header_bytes` and `other_bytes`; `position_entropy_bytes` is the least that positions could
      take on average. `sha256` is the digest of the file, as `sha256sum` prints it; None of a network in memory.
    - `dense_file_bytes` are those of the same network in float32, a file with its header, and `ratio` how many times
      the file that is. `dense_bytes` are the parameters alone, and `paper` has bytes in the paper's formats:
      `dense_bytes`, `indexed_bytes`, `best_bytes`.
    - `parameters`, `nonzeros` (biases too) and `weight_nonzeros`; `operators`, how many.
    - `arena_bytes`, working memory of one image, and `memory_bytes`, by instruction set; None without the compiled
      core.
    - `input_shape`, `output_shape`, `preprocess`, `classes`; `inputs` and `outputs` of a network that has several;
      `micro` of a file for a microcontroller, as `Fitted.facts["micro"]`.
    - `layers`, a record for each tensor. `fitted.facts["layers"]` has the same records:

    | key of a layer | |
    |---|---|
    | `name` | of the parameter, such as `fc1.weight` |
    | `operator` | that has it, such as `conv` or `linear` |
    | `shape`, `size` | in the file, without dead units; how many elements that is |
    | `original_shape`, `original_size` | in the network: the same where nothing was dropped |
    | `nonzeros` | values that are not zero |
    | `kept`, `density` | `nonzeros / original_size`, of what was trained; `nonzeros / size`, of the shape in the file |
    | `format`, `values`, `distinct` | how positions and values are stored; how many different values, None where many |
    | `bytes` | in the file, the sum of `value_bytes`, `position_bytes`, `scale_bytes` and `palette_bytes` |
    | `value_bytes` | in `delta` with the zeros that stand where a gap is too long for a byte: not among `nonzeros` |
    | `position_entropy_bytes` | the least that positions could take on average |
    """

    def _repr_html_(self) -> str:
        arena = "" if self["arena_bytes"] is None else f"; working memory {self['arena_bytes']:,} at batch 1"
        return html_block(
            f"{self['file_bytes']:,} bytes: {self['nonzeros']:,} of {self['parameters']:,} parameters are not zero",
            show_layers(self["layers"]),
            note=f"dense in float32: {self['dense_file_bytes']:,} bytes, {self['ratio']:.1f} times the file{arena}",
        )


@known_keywords
def inspect(
    model: StoredModel | str | os.PathLike[str],
    *,
    clock: str | float | None = None,
    compiled: str = LEVELS[0],
) -> Inspection:
    """Layers and totals of a stored network, or of a model file: a path, or hf://ORG/NAME on the Hub.

    `dense_bytes` is float32 for every element of the shapes before dead channels were left out; `paper` counts the
    same in the formats of the paper's appendix: all dense, all indexed, and the smallest for each tensor.

    A file made for a microcontroller has `micro`: flash, RAM and an estimate of the time at this `clock` ('80 MHz'
    where none is given), `compiled` with '-Os' or '-O2'.
    """
    hz, level = None if clock is None else parse_clock(clock), parse_level(compiled)
    digest = None
    if not isinstance(model, StoredModel):
        check_path_like(model, "model")
        path = find_model_file(Path(model))
        model, digest = read(path), digest_file(path)
    original = {name: model.original_shapes.get(name, tensor.shape) for name, tensor in model.tensors.items()}
    layers = list_layers(model)
    counted = {layer["name"]: (original[layer["name"]], layer["nonzeros"]) for layer in layers}
    dense = dense_size(model)
    image = model.mean_image
    facts = {
        "file_bytes": model.file_bytes,
        "sha256": digest,
        "header_bytes": model.header_bytes,
        "weight_bytes": sum(layer["bytes"] for layer in layers),
        "mean_image_bytes": 0 if image is None else image.nbytes,
        "parts": _parts(model, layers),
        "dense_file_bytes": dense,
        "dense_bytes": total_bytes(counted, "dense"),
        "ratio": dense / model.file_bytes,
        **_memory(model),
        "parameters": sum(layer["original_size"] for layer in layers),
        **count_nonzeros(model),
        "paper": {f"{name}_bytes": total_bytes(counted, name) for name in ("dense", "indexed", "best")},
        "input_shape": list(model.shapes[0]),
        "output_shape": list(model.shapes[model.graph.output]),
        **_ports(model),
        **_device(model, hz, level),
        "operators": len(model.graph.nodes),
        "preprocess": model.preprocess,
        "classes": model.classes,
        "layers": layers,
    }
    return Inspection(facts)


def _device(model: StoredModel, clock: float | None, level: str) -> dict[str, Any]:
    """What a file made for a microcontroller takes there."""
    if not model.activations:
        return {}
    try:
        return {"micro": describe_plan(make_plan(make_integers(model), level=level), clock, level)}
    except ModelError:  # what only a CPU runs, in int8
        return {}


def _ports(model: StoredModel) -> dict[str, Any]:
    """The inputs and outputs of a network that has several, or takes whole numbers."""
    graph = model.graph
    if not graph.inputs and not graph.outputs:
        return {}
    found = {"inputs": inputs_of(graph, model.shapes), "outputs": outputs_of(graph, model.shapes)}
    return {
        which: [
            {"name": port.name, "shape": list(port.shape), "type": "whole" if port.whole else "float32"}
            for port in ports
        ]
        for which, ports in found.items()
    }


def _parts(model: StoredModel, layers: list[dict[str, Any]]) -> dict[str, float]:
    """What the bytes of the file are for; together they are all of it, but for the entropy of positions.

    `other_bytes` say how packed layers are made, and fill up to what starts at multiples of 4. The entropy is what
    positions cannot take less than, on average: n H(nonzeros / n) bits of each tensor that stores them.
    """
    biases = {node.tensors["b"] for node in model.graph.nodes if "b" in node.tensors}
    found: dict[str, float] = {
        "value_bytes": sum(layer["value_bytes"] for layer in layers if layer["name"] not in biases),
        "position_bytes": sum(layer["position_bytes"] for layer in layers),
        "scale_bytes": sum(layer["scale_bytes"] for layer in layers),
        "bias_bytes": sum(layer["value_bytes"] for layer in layers if layer["name"] in biases),
        "palette_bytes": sum(layer["palette_bytes"] for layer in layers),
        "mean_image_bytes": 0 if model.mean_image is None else model.mean_image.nbytes,
        "header_bytes": model.header_bytes,
    }
    found["other_bytes"] = model.file_bytes - sum(found.values())
    found["position_entropy_bytes"] = sum(
        layer["position_entropy_bytes"] for layer in layers if layer["format"] != "dense"
    )
    return found


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
