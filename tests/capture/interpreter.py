"""The graph run by torch's functions, from its documentation alone: what capture and the runtime are held to."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from membound.store.graph import Graph, Node

ACTIVATIONS = {
    "relu": F.relu,
    "leaky": F.leaky_relu,
    "clip": torch.clamp,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "elu": F.elu,
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, threshold=100),
    "sqrt": torch.sqrt,
}
ARITHMETIC = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def interpret(
    graph: Graph, tensors: Mapping[str, np.ndarray], x: Tensor, scales: Mapping[str, np.ndarray] = {}
) -> Tensor:
    """The network's output for a batch, in the type of `x`; `scales` are those of rows that are kept apart."""
    weights = {name: torch.from_numpy(array.copy()).to(x.dtype) for name, array in tensors.items()}
    for name, numbers in scales.items():
        weights[name] = torch.einsum("r...,r->r...", weights[name], torch.from_numpy(numbers).to(x.dtype))
    assert tuple(x.shape[1:]) == tuple(graph.input_shape)
    values = [x]
    for node in graph.nodes:
        named = {role: weights[name] for role, name in node.tensors.items()}
        inputs = [values[number] for number in node.inputs]
        out = globals()[f"_{node.op}"](node, named, *(inputs or [x]))
        if "act" in node.attributes:
            out = _activated(out, node.attributes["act"])
        values.append(out)
    return values[graph.output]


def _activated(x: Tensor, act: list[Any]) -> Tensor:
    return ACTIVATIONS[act[0]](x, *act[1:])


def _padded(x: Tensor, pad: tuple[int, int, int, int], value: float) -> Tensor:
    top, left, bottom, right = pad
    return F.pad(x, (left, right, top, bottom), value=value)


def _conv(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    x = _padded(x, a.get("pad", (0, 0, 0, 0)), 0.0)
    stride, dilation = tuple(a.get("stride", (1, 1))), tuple(a.get("dilation", (1, 1)))
    return F.conv2d(x, named["w"], named.get("b"), stride, 0, dilation, a.get("groups", 1))


def _linear(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return F.linear(x, named["w"], named.get("b"))


def _maxpool(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    x = _padded(x, a.get("pad", (0, 0, 0, 0)), -torch.inf)
    stride = tuple(a.get("stride", a["kernel"]))
    return F.max_pool2d(x, tuple(a["kernel"]), stride, 0, tuple(a.get("dilation", (1, 1))))


def _avgpool(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    kernel, stride = tuple(a["kernel"]), tuple(a.get("stride", a["kernel"]))
    pad, over, count = a.get("pad", (0, 0, 0, 0)), a.get("over", (0, 0)), a.get("count", "all")
    inside = torch.ones_like(x[:1, :1])
    counted = _padded(_padded(inside, pad, 1.0 if count == "all" else 0.0), (0, 0, *over), 0.0)
    summed = F.avg_pool2d(
        _padded(_padded(x, pad, 0.0), (0, 0, *over), 0.0), kernel, stride, divisor_override=1
    )
    if isinstance(count, str):
        return summed / F.avg_pool2d(counted, kernel, stride, divisor_override=1)
    return summed / count


def _adaptive(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    pool = F.adaptive_avg_pool2d if node.attributes["kind"] == "avg" else F.adaptive_max_pool2d
    return pool(x, tuple(node.attributes["size"]))


def _upsample(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    """Not by F.interpolate, which rounds in float32 and is uneven by factors such as 41."""
    down, right = node.attributes["factor"]
    return x.repeat_interleave(down, 2).repeat_interleave(right, 3)


def _layernorm(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    return F.layer_norm(x, x.shape[-a.get("last", 1) :], named.get("w"), named.get("b"), a.get("eps", 1e-5))


def _lrn(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    out = torch.empty_like(x)
    for channel in range(x.shape[1]):
        first, last = max(channel - a["size"] // 2, 0), channel + (a["size"] - 1) // 2
        squares = (x[:, first : last + 1] ** 2).sum(1)
        out[:, channel] = x[:, channel] / (a["k"] + a["alpha"] / a["size"] * squares) ** a["beta"]
    return out


def _act(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x


def _binary(node: Node, named: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    left, *rest = inputs
    right: Any = rest[0] if rest else named["c"][None] if "c" in named else node.attributes["value"]
    if isinstance(right, Tensor):
        assert right.dim() == left.dim()
    if node.op in ("maximum", "minimum"):
        right = torch.as_tensor(right, dtype=left.dtype)
    if node.attributes.get("swap"):
        left, right = torch.as_tensor(right, dtype=left.dtype), left
    return ARITHMETIC[node.op](left, right)


_add = _sub = _mul = _div = _maximum = _minimum = _binary


def _concat(node: Node, named: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    return torch.cat(inputs, node.attributes["axis"] + 1)


def _reshape(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x.reshape(len(x), *node.attributes["shape"])


def _permute(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x.permute(0, *(axis + 1 for axis in node.attributes["axes"]))


def _slice(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    index = torch.arange(a["start"], a["stop"], a.get("step", 1))
    return x.index_select(a["axis"] + 1, index)


def _mean(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x.mean(tuple(axis + 1 for axis in node.attributes["axes"]), node.attributes.get("keep", False))


def _softmax(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    function = F.log_softmax if node.attributes.get("log") else F.softmax
    return function(x, node.attributes["axis"] + 1)


def _pad(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    pads = [size for pair in reversed(node.attributes["pad"]) for size in pair]
    return F.pad(x, pads, value=node.attributes.get("value", 0))


def _max(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x.amax(tuple(axis + 1 for axis in node.attributes["axes"]), node.attributes.get("keep", False))


def _gather(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return x.index_select(node.attributes["axis"] + 1, torch.tensor(node.attributes["indices"]))


def _resize(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    a = node.attributes
    mode = {"nearest": "nearest", "exact": "nearest-exact", "linear": "bilinear", "cubic": "bicubic"}[
        a["kind"]
    ]
    corners = a.get("corners", False) if mode.startswith("bi") else None
    if a.get("scale") is None:
        return F.interpolate(x, tuple(a["size"]), mode=mode, align_corners=corners)
    out = F.interpolate(x, scale_factor=tuple(a["scale"]), mode=mode, align_corners=corners)
    assert tuple(out.shape[2:]) == tuple(a["size"])
    return out


def _matmul(node: Node, named: dict[str, Tensor], left: Tensor, right: Tensor) -> Tensor:
    scale = node.attributes.get("scale", 1)
    return left @ (right.transpose(-1, -2) if node.attributes.get("transpose") else right) * scale


def _embedding(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return F.embedding(x.long(), named["w"])


def _constant(node: Node, named: dict[str, Tensor], x: Tensor) -> Tensor:
    return named["c"].expand(len(x), *named["c"].shape)
