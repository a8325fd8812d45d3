"""Few bits without training: each layer's values are chosen by what they do to its outputs on some real inputs.

The network runs node by node, as it was and as it will be stored, side by side. Where it comes to a layer, it knows
what the layer will be given: it rounds the weight by that (rounding.py), and puts into the bias by how much the outputs
are off on average: b' = b + E[w x] - E[w' x'], where x' is what the layers before it, rounded already, make of the
same inputs. No labels are needed.
"""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from membound.capture.rounding import WIDEST, round_weight
from membound.capture.torch_graph import step
from membound.errors import ModelError, a_kind
from membound.store.choice import Values, value_types
from membound.store.formats import Prefer, best_format, decode, encode, scale_rows
from membound.store.graph import Node, Shape
from membound.store.model import Model
from membound.store.operators import attributes
from membound.store.quantize import is_exact, is_rough
from membound.store.shapes import infer_shapes
from membound.store.short import short_scales
from membound.store.values import value_type

MOST = 512  # inputs: more do not help
ROOM = 2**28  # bytes of the largest value of all inputs together
SAMPLES = (
    8192  # places of its input that a layer's moments are taken from, or twice as many as it has columns
)
CHUNK = 16  # inputs whose windows are laid out at once

Float32 = NDArray[np.float32]


def inputs_for(model: Model) -> int:
    """How many inputs to calibrate with: some hundred, or as many as there is room for all their values at once."""
    shapes = infer_shapes(model.graph, {name: array.shape for name, array in model.tensors.items()})
    return max(CHUNK, min(MOST, ROOM // (4 * max(int(np.prod(shape)) for shape in shapes))))


def calibrate(model: Model, values: Values, inputs: Tensor | NDArray[Any], prefer: Prefer = "bytes") -> Model:
    """The network with weights and biases for these types of values, chosen on `inputs`, prepared as for the network.

    What comes back has few enough different values in each weight, its row scales apart, that writing it with the same
    `values` and `prefer` stores it exactly. Weights that have few values already stay as they are, and so do types
    that are no codes.

    >>> from membound.capture import capture
    >>> net = torch.nn.Linear(30, 2)
    >>> model = calibrate(capture(net, torch.zeros(1, 30)), {"weight": "p2"}, torch.randn(100, 30))
    >>> len(np.unique(model.tensors["weight"]))
    4
    """
    if len(model.graph.taken) > 1 or any(each.whole for each in model.graph.inputs):
        raise ModelError(
            "calibrate is for networks of one float32 input: leave it out, and weights are rounded by themselves",
            about="calibrate",
        )
    if not isinstance(inputs, Tensor | np.ndarray):
        raise ModelError(
            f"calibrate is {a_kind(inputs)}: give a batch of inputs, a tensor or an array",
            about="calibrate",
        )
    examples = torch.as_tensor(inputs).detach().to("cpu", torch.float32)
    if tuple(examples.shape[1:]) != tuple(model.graph.input_shape) or not len(examples):
        raise ModelError(
            f"inputs to calibrate with have shape {tuple(examples.shape)}: give "
            f"(batch, {', '.join(map(str, model.graph.input_shape))}), prepared as the network takes them",
            about="calibrate",
        )
    if not bool(examples.isfinite().all()):
        raise ModelError(
            "inputs to calibrate with are not all finite: leave out NaN and infinity", about="calibrate"
        )
    with torch.no_grad():
        return _Calibration(model, values, prefer).run(examples)


class _Calibration:
    """A network as it was, `whole`, and as it is becoming."""

    def __init__(self, model: Model, values: Values, prefer: Prefer) -> None:
        self.model, self.prefer = model, prefer
        self.types = value_types(model, values)
        self.whole = model.scaled().tensors
        self.tensors, self.scales = dict(model.tensors), dict(model.scales)
        self.now = dict(self.whole)  # what it computes with
        self.original_shapes = dict(model.original_shapes)
        self.uses = Counter(name for node in model.graph.nodes for name in node.tensors.values())

    def run(self, inputs: Tensor) -> Model:
        graph = self.model.graph
        last = {value: number for number, node in enumerate(graph.nodes, 1) for value in node.inputs}
        before, after = {0: inputs}, {0: inputs}
        nodes = []
        for number, node in enumerate(graph.nodes, 1):
            kind = value_type(self.types[node.tensors["w"]]) if "w" in node.tensors else None
            before[number] = self._compute(node, self.whole, before)
            if node.op in ("conv", "linear") and kind is not None and kind.coded:
                node = self._layer(node, before, after)
            after[number] = self._compute(node, self.now, after)
            nodes.append(node)
            for value in [value for value in before if last.get(value, 0) <= number and value != number]:
                del before[value], after[value]
        return replace(
            self.model,
            graph=replace(graph, nodes=tuple(nodes)),
            tensors=self.tensors,
            scales=self.scales,
            original_shapes=self.original_shapes,
        )

    def _compute(self, node: Node, tensors: dict[str, Float32], found: dict[int, Tensor]) -> Tensor:
        weights = {role: torch.from_numpy(tensors[name]) for role, name in node.tensors.items()}
        return step(node, weights)(*(found[value] for value in node.inputs))

    def _layer(self, node: Node, before: dict[int, Tensor], after: dict[int, Tensor]) -> Node:
        """Round the weight of a layer and correct its bias; the node, which may have got one."""
        name = node.tensors["w"]
        array, kind = self.tensors[name], value_type(self.types[name])
        format = best_format(array.shape, array, kind.name, self.prefer, packed=True)
        with_zero = format == "dense" and not array.all()
        if name in self.scales and is_rough(kind):
            self.scales[name] = short_scales(self.scales[name]).astype(np.float32)
        if self.uses[name] > 1 or is_exact(array, kind, with_zero):
            self.now[name] = decode(encode(array, format, kind.name, self.scales.get(name)))
        else:
            moments = _moments(node, after[node.inputs[0]], array.shape)
            self.tensors[name], scales = round_weight(self.whole[name], kind, moments, with_zero)
            self.scales[name] = short_scales(scales) if is_rough(kind) else scales
            self.now[name] = scale_rows(self.tensors[name], self.scales[name])
        bare = replace(
            node, attributes={key: value for key, value in node.attributes.items() if key != "act"}
        )
        off = self._compute(bare, self.whole, before) - self._compute(bare, self.now, after)
        return self._correct(node, _mean(off, 1 if node.op == "conv" else off.dim() - 1))

    def _correct(self, node: Node, off: Float32) -> Node:
        """Add to a layer's bias what its outputs lack on average."""
        weight, name = node.tensors["w"], node.tensors.get("b")
        if self.uses[weight] > 1 or (name is not None and self.uses[name] > 1) or not off.any():
            return node
        if name is None:
            name = self._new_name(weight)
            if weight in self.original_shapes:
                self.original_shapes[name] = self.original_shapes[weight][:1]
            self.tensors[name] = np.zeros(len(off), np.float32)
        self.tensors[name] = self.now[name] = self.tensors[name] + off
        return replace(node, tensors={**node.tensors, "b": name})

    def _new_name(self, weight: str) -> str:
        stem, dot, last = weight.rpartition(".")
        name = f"{stem}{dot}bias" if last == "weight" else f"{weight}.bias"
        while name in self.tensors:
            name += "_"
        return name


def _mean(array: Tensor, axis: int) -> Float32:
    """The mean for each index along an axis, in float64, as there may be many numbers; float32."""
    found = array.double().mean([each for each in range(array.dim()) if each != axis])
    return np.asarray(found.numpy(), np.float32)


def _moments(node: Node, x: Tensor, shape: Shape) -> Tensor:
    """The mean of x x' over the windows x that a layer reads, for each of its groups; of wide ones, its diagonal."""
    groups = attributes(node).get("groups", 1)
    columns = math.prod(shape[1:])
    wanted = max(SAMPLES, 2 * columns) * CHUNK // max(len(x), CHUNK)  # of each chunk
    total, count = None, 0
    for begin in range(0, len(x), CHUNK):
        windows = _windows(node, x[begin : begin + CHUNK], shape)
        some = windows[_scattered(len(windows), max(wanted, 1), begin)]
        rows = some.reshape(len(some), groups, columns).transpose(0, 1)
        found = rows.transpose(1, 2) @ rows if columns <= WIDEST else (rows**2).sum(1)
        total, count = found if total is None else total + found, count + rows.shape[1]
    assert total is not None
    mean = total / count
    return mean if bool(mean.isfinite().all()) else torch.ones(groups, columns)


def _scattered(count: int, wanted: int, seed: int) -> Tensor:
    """Which windows to read, at random: evenly spaced ones may all lie in one column of an image, such as its edge.

    >>> sorted(_scattered(5, 8, seed=0).tolist()), len(set(_scattered(100, 8, seed=0).tolist()))
    ([0, 1, 2, 3, 4], 8)
    """
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:wanted]


def _windows(node: Node, x: Tensor, shape: Shape) -> Tensor:
    """What a layer reads for each of its outputs: [output, channel and place in the window]."""
    if node.op == "linear":
        return x.reshape(-1, shape[1])
    a = attributes(node)
    top, left, bottom, right = a["pad"]
    found = F.unfold(F.pad(x, (left, right, top, bottom)), shape[2:], a["dilation"], 0, a["stride"])
    return found.transpose(1, 2).reshape(-1, found.shape[1])
