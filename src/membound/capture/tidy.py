"""Fewer nodes that compute the same: norms go into weights, activations into their producers, reshapes together."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from membound.capture.draft import BINARY, Array, Draft
from membound.store.graph import Node, Shape
from membound.store.operators import OPERATORS


def tidy_(draft: Draft) -> None:
    """Apply every rule until none applies; what the output does not depend on is dropped."""
    changed = True
    while changed:
        draft.drop_dead()
        applied = [_apply_(draft, number) for number in list(draft.nodes)]
        changed = any(applied)
    draft.drop_dead()


def _apply_(draft: Draft, number: int) -> bool:
    if number not in draft.nodes or not draft.nodes[number].inputs:
        return False
    return any(rule(draft, number) for rule in (_drop_identity_, _merge_, _lower_, _gate_, _fold_, _fuse_))


def _drop_identity_(draft: Draft, number: int) -> bool:
    """A node whose value is its input."""
    node = draft.nodes[number]
    if (
        len(node.inputs) != 1
        or draft.shapes[number] != draft.shapes[node.inputs[0]]
        or "act" in node.attributes
    ):
        return False
    axes = tuple(range(len(draft.shapes[number])))
    same = (
        node.op in ("reshape", "slice", "concat", "pad", "upsample")
        or (node.op == "permute" and tuple(node.attributes["axes"]) == axes)
        or (node.op in ("add", "mul") and node.attributes.get("value") == (0 if node.op == "add" else 1))
    )
    if same:
        draft.redirect(number, node.inputs[0])
    return same


def _merge_(draft: Draft, number: int) -> bool:
    """A reshape of a reshape, a permutation of a permutation."""
    node = draft.nodes[number]
    behind = draft.nodes.get(node.inputs[0])
    if behind is None or behind.op != node.op or node.op not in ("reshape", "permute"):
        return False
    attributes = dict(node.attributes)
    if node.op == "permute":
        attributes["axes"] = tuple(behind.attributes["axes"][axis] for axis in node.attributes["axes"])
    draft.nodes[number] = replace(node, inputs=behind.inputs, attributes=attributes)
    return True


def _lower_(draft: Draft, number: int) -> bool:
    """Element by element first and the reshape after it, so that the two sides of either can meet."""
    node = draft.nodes[number]
    if node.op != "act" and not (node.op in BINARY and "c" not in node.tensors):
        return False
    behind = [draft.nodes.get(value) for value in node.inputs]
    users = draft.users()
    last = max(node.inputs)
    if any(found is None or found.op != "reshape" for found in behind) or set(users[last]) != {number}:
        return False
    sources = tuple(found.inputs[0] for found in behind if found is not None)
    shapes = {draft.shapes[source] for source in sources}
    if len(shapes) != 1 or any(draft.shapes[value] != draft.shapes[number] for value in node.inputs):
        return False
    draft.nodes[last], draft.shapes[last] = replace(node, inputs=sources), shapes.pop()
    shape = draft.shapes[number]
    draft.nodes[number] = Node("reshape", (last,), {"shape": shape})
    return True


def _gate_(draft: Draft, number: int) -> bool:
    """x sigmoid(x) written out is SiLU: one pass instead of two, which can then go into the layer before it."""
    node = draft.nodes[number]
    if node.op != "mul" or len(node.inputs) != 2 or "act" in node.attributes:
        return False
    for value, gate in (node.inputs, node.inputs[::-1]):
        found = draft.nodes.get(gate)
        if found is None or found.op != "act" or found.inputs != (value,):
            continue
        if list(found.attributes["act"]) == ["sigmoid"]:
            draft.nodes[number] = Node("act", (value,), {"act": ["silu"]})
            return True
    return False


def _fuse_(draft: Draft, number: int) -> bool:
    """An activation into the node before it, where nothing else reads that."""
    node = draft.nodes[number]
    producer = draft.nodes.get(node.inputs[0])
    if node.op != "act" or producer is None:
        return False
    if "act" not in OPERATORS[producer.op].attributes or "act" in producer.attributes:
        return False
    if draft.users()[node.inputs[0]] != [number]:
        return False
    attributes = {**producer.attributes, "act": node.attributes["act"]}
    draft.nodes[node.inputs[0]] = replace(producer, attributes=attributes)
    draft.redirect(number, node.inputs[0])
    return True


def _fold_(draft: Draft, number: int) -> bool:
    """A product or sum with one constant a channel into the layer before it: w' = s w, b' = s b + t."""
    node = draft.nodes[number]
    layer = draft.nodes.get(node.inputs[0])
    if (
        layer is None
        or layer.op not in ("conv", "linear")
        or "act" in layer.attributes
        or len(node.inputs) != 1
    ):
        return False
    constants = _scale_and_shift(draft, number, 0 if layer.op == "conv" else -1)
    uses = draft.uses()
    alone = all(uses[name] == 1 for name in layer.tensors.values())
    if constants is None or not alone or draft.users()[node.inputs[0]] != [number]:
        return False
    scale, shift = constants
    bias = draft.tensors[layer.tensors["b"]] if "b" in layer.tensors else np.zeros(len(scale))
    with np.errstate(over="ignore"):
        biased = (bias * scale + shift).astype(np.float32)
    if not (np.isfinite(biased).all() and _scale_(draft, layer.tensors["w"], scale)):
        return False
    name = layer.tensors.get("b") or draft.bias_name(layer.tensors["w"])
    draft.tensors[name] = biased
    attributes = dict(layer.attributes)
    if "act" in node.attributes:
        attributes["act"] = node.attributes["act"]
    tensors = {**layer.tensors, "b": name}
    draft.nodes[node.inputs[0]] = replace(layer, attributes=attributes, tensors=tensors)
    draft.redirect(number, node.inputs[0])
    return True


def _scale_(draft: Draft, name: str, scale: Any) -> bool:
    """Multiply the rows of a weight by these float64 numbers, unless that is not finite.

    One number for all rows goes into the weight, which has as few different values as before; others stay apart.
    """
    if (scale == 1).all():
        return True
    weight, before = draft.tensors[name], draft.scales.get(name)
    matrix = weight.reshape(len(weight), -1)
    with np.errstate(all="ignore"):
        scales = (scale if before is None else before * scale).astype(np.float32)
        sound = np.isfinite(scales).all() and scales[scale != 0].all()
        if (scale == scale[0]).all() or not sound:
            matrix, scales = (matrix * scale[:, None]).astype(np.float32), before
        else:  # a scale of 0 has to be the weight's, so that the row is seen to be empty
            gone = scales == 0
            matrix = np.where(gone[:, None], matrix * scales[:, None], matrix)
            scales = np.where(gone, np.float32(1), scales)
        if not np.isfinite(matrix if scales is None else matrix * scales[:, None]).all():
            return False
    draft.tensors[name] = matrix.reshape(weight.shape)
    if scales is not None:
        draft.scales[name] = scales
    return True


def _scale_and_shift(draft: Draft, number: int, axis: int) -> tuple[Any, Any] | None:
    """The node as s x + t with one s and one t for each index along `axis`, or nothing."""
    node, shape = draft.nodes[number], draft.shapes[number]
    if node.op not in ("add", "sub", "mul", "div") or draft.shapes[node.inputs[0]] != shape:
        return None
    channels = shape[axis]
    if "c" in node.tensors:
        found = per_channel(draft.tensors[node.tensors["c"]], shape, axis)
        if found is None:
            return None
        constant = found.astype(np.float64)
    else:
        constant = np.full(channels, float(node.attributes["value"]))
    ones, zeros = np.ones(channels), np.zeros(channels)
    swap = bool(node.attributes.get("swap"))
    if node.op == "add":
        return ones, constant
    if node.op == "sub":
        return (-ones, constant) if swap else (ones, -constant)
    if node.op == "mul":
        return constant, zeros
    return None if swap or not constant.all() else (1 / constant, zeros)


def per_channel(constant: Array, shape: Shape, axis: int) -> Array | None:
    """A constant operand as one number for each index along `axis`, or nothing if it varies along others.

    >>> per_channel(np.ones((3, 1, 1), np.float32), (3, 8, 8), 0)
    array([1., 1., 1.], dtype=float32)
    """
    if math.prod(constant.shape) not in (1, constant.shape[axis]):
        return None
    return np.broadcast_to(constant.reshape(-1), (shape[axis],))
