"""GELU written out, as BERT and ONNX files have it: x (1 + erf(x / sqrt(2))) / 2. The runtime has it as one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn


def join_gelu_(outputs: Sequence[fx.Node], weights: Mapping[str, Tensor]) -> tuple[fx.Node, ...]:
    """Let one operator take the place of each GELU that is written out; its pieces are then needed by nobody.

    What is returned are the outputs, of which some may be such a GELU.
    """
    graph, now = outputs[0].graph, tuple(outputs)
    for node in list(graph.nodes):
        if _name(node) == "erf" and (found := _find(node, weights)) is not None:
            x, last = found
            with graph.inserting_after(last):
                joined = graph.call_function(torch.ops.aten.gelu.default, (x,))
            joined.meta = dict(last.meta)
            last.replace_all_uses_with(joined)
            now = tuple(joined if each is last else each for each in now)
    return now


def _find(erf: fx.Node, weights: Mapping[str, Tensor]) -> tuple[fx.Node, fx.Node] | None:
    """What it is of, and the node that has the result."""
    scaled = _product(erf.args[0], weights)
    if scaled is None or not math.isclose(scaled[1], math.sqrt(0.5), rel_tol=1e-6):
        return None
    x, above = scaled[0], _only_user(erf)
    if above is None or not _adds_one(above, erf, weights):
        return None
    # What is left to come, in any order: x and a half.
    node, halved, has_x = above, False, False
    while (user := _only_user(node)) is not None and _name(user) in ("mul", "div"):
        number, other = _product(user, weights), _other(user, node)
        if number is not None and number[0] is node and number[1] == 0.5 and not halved:
            halved = True
        elif _name(user) == "mul" and other is x and not has_x:
            has_x = True
        elif _name(user) == "mul" and not halved and not has_x and _product(other, weights) == (x, 0.5):
            halved = has_x = True
        else:
            return None
        node = user
        if halved and has_x:
            return x, node
    return None


def _name(node: Any) -> str:
    return str(getattr(node.target, "_opname", "")) if isinstance(node, fx.Node) else ""


def _number(argument: Any, weights: Mapping[str, Tensor]) -> float | None:
    if isinstance(argument, int | float):
        return float(argument)
    known = weights.get(argument.name) if isinstance(argument, fx.Node) else None
    if (
        known is None or known.numel() != 1 or isinstance(known, nn.Parameter)
    ):  # which may become another number
        return None
    return float(known)


def _product(node: Any, weights: Mapping[str, Tensor]) -> tuple[fx.Node, float] | None:
    """A value and the number that it is multiplied by, or divided by the inverse of."""
    if _name(node) not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
        return None
    left, right = node.args
    number = _number(right, weights)
    if number is not None and isinstance(left, fx.Node):
        if _name(node) == "mul":
            return left, number
        return (left, 1 / number) if number != 0 else None
    number = _number(left, weights)
    return (
        (right, number)
        if _name(node) == "mul" and number is not None and isinstance(right, fx.Node)
        else None
    )


def _adds_one(node: fx.Node, erf: fx.Node, weights: Mapping[str, Tensor]) -> bool:
    if _name(node) != "add" or len(node.args) != 2 or node.kwargs:
        return False
    return _number(_other(node, erf), weights) == 1.0


def _other(node: fx.Node, one: fx.Node) -> Any:
    """The argument that is not this one."""
    left, right = node.args
    return right if left is one else left


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
