"""A network of sequences [channels, time] with time along the height, so that the runtime streams rows: steps of time.

A graph has a 1-d convolution as one over an image of height 1, with reshapes around it. Each such [channels, 1, time],
and each [channels, time], is read as [channels, time, 1]. Only windows are turned: numbers of inputs and weights lie in
the same order, and the reshapes between both forms change nothing.
"""

from dataclasses import replace
from typing import Any

from membound.store.graph import Node, Shape
from membound.store.model import StoredModel
from membound.store.operators import attributes

# Operators that say something of axes.
WITH_AXES = ("conv", "maxpool", "avgpool", "adaptive", "mean", "pad", "reshape")
PAIRS = ("kernel", "stride", "dilation", "over", "size")  # attributes of height and width


def along_height(model: StoredModel) -> StoredModel:
    """The same network over [channels, time, 1]; any other is left as it is.

    Numbers of values stay as they are. What of it the runtime does not have is refused as in any network.
    """
    if len(model.shapes[0]) != 2 or not all(map(_is_over_time, model.shapes)):
        return model
    kernels = {node.tensors["w"] for node in model.graph.nodes if node.op == "conv"}
    if any(model.tensors[name].shape[2] != 1 for name in kernels):
        return model
    tensors = {
        name: replace(stored, shape=_turned(stored.shape)) if name in kernels else stored
        for name, stored in model.tensors.items()
    }
    nodes = tuple(
        _turned_node(node, len(model.shapes[node.inputs[0]])) if node.op in WITH_AXES else node
        for node in model.graph.nodes
    )
    shapes = [_upright(shape) for shape in model.shapes]
    graph = replace(model.graph, input_shape=shapes[0], nodes=nodes)
    return replace(model, graph=graph, tensors=tensors, shapes=shapes)


def _is_over_time(shape: Shape) -> bool:
    return len(shape) < 3 or (len(shape) == 3 and shape[1] == 1)


def _upright(shape: Shape) -> Shape:
    """
    >>> _upright((8, 1, 31)), _upright((8, 31)), _upright((8,))
    ((8, 31, 1), (8, 31, 1), (8,))
    """
    return shape if len(shape) < 2 else (shape[0], shape[-1], 1)


def _turned(sizes: Shape) -> Shape:
    """Height and width, which come last, exchanged."""
    return (*sizes[:-2], sizes[-1], sizes[-2])


def _turned_node(node: Node, axes: int) -> Node:
    """A node whose input has so many axes."""
    a: dict[str, Any] = attributes(node)
    a |= {name: _turned(a[name]) for name in PAIRS if name in a}
    if node.op == "reshape":
        a["shape"] = _upright(a["shape"])
    elif node.op == "mean" and axes == 2 and a["axes"] == (1,):
        a["axes"] = (1, 2)
    elif node.op == "pad" and axes > 1:
        a["pad"] = (a["pad"][0], a["pad"][-1], (0, 0) if axes == 2 else a["pad"][1])
    elif node.op not in ("pad", "mean") and "pad" in a:
        top, left, bottom, right = a["pad"]
        a["pad"] = (left, top, right, bottom)
    return replace(node, attributes=a)
