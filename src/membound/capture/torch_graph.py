"""The nodes of a graph as torch's own operations, with dense weights."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from membound.capture.activations import ACTIVATIONS
from membound.errors import ModelError
from membound.store.graph import Node
from membound.store.operators import attributes
from membound.store.resampling import taps

Step = Callable[..., Tensor]

_ARITHMETIC = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def step(node: Node, weights: dict[str, Tensor]) -> Step:
    """What computes a node's value from its inputs; `weights` are those of its roles."""
    a = attributes(node)
    plain = MAKERS[node.op](node.op, a, weights)
    if not a.get("act") or node.op == "act":
        return plain
    name, *numbers = a["act"]
    activation = ACTIVATIONS[name]
    return lambda *inputs: activation(plain(*inputs), *numbers)


def _padding(pad: tuple[int, ...]) -> tuple[Callable[[Tensor, float], Tensor], tuple[int, int]]:
    """What pads an input, and what is left for the operation itself: all of it where both sides are alike."""
    top, left, bottom, right = pad
    if (top, left) == (bottom, right):
        return lambda x, value: x, (top, left)
    return lambda x, value: F.pad(x, (left, right, top, bottom), value=value), (0, 0)


def _conv(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    padded, inside = _padding(a["pad"])
    weight, bias = w["w"], w.get("b")
    return lambda x: F.conv2d(padded(x, 0.0), weight, bias, a["stride"], inside, a["dilation"], a["groups"])


def _linear(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    weight, bias = w["w"], w.get("b")
    return lambda x: F.linear(x, weight, bias)


def _max_pool(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    padded, inside = _padding(a["pad"])
    if any(2 * inside[i] > a["kernel"][i] for i in (0, 1)):  # more than torch's own padding allows
        pad = a["pad"]
        padded, inside = (lambda x, value: F.pad(x, (pad[1], pad[3], pad[0], pad[2]), value=value)), (0, 0)
    return lambda x: F.max_pool2d(padded(x, -torch.inf), a["kernel"], a["stride"], inside, a["dilation"])


def _average_pool(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    kernel, stride, count, over = a["kernel"], a["stride"], a["count"], a["over"]
    top, left, bottom, right = a["pad"]
    symmetric = (top, left) == (bottom, right) and over == (0, 0)
    if symmetric and isinstance(count, str) and 2 * top <= kernel[0] and 2 * left <= kernel[1]:
        return lambda x: F.avg_pool2d(x, kernel, stride, (top, left), count_include_pad=count == "all")
    whole = (left, right + over[1], top, bottom + over[0])

    def summed(x: Tensor) -> Tensor:
        return F.avg_pool2d(F.pad(x, whole), kernel, stride, divisor_override=1)

    def pooled(x: Tensor) -> Tensor:
        if not isinstance(count, str):
            divided: Tensor = summed(x) / count
            return divided
        counted = torch.ones_like(x[:1, :1])
        if count == "all":
            counted = F.pad(counted, (left, right, top, bottom), value=1.0)
            counted = F.pad(counted, (0, over[1], 0, over[0]))
            return summed(x) / F.avg_pool2d(counted, kernel, stride, divisor_override=1)
        return summed(x) / summed(counted)

    return pooled


def _adaptive(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    pool: Any = F.adaptive_avg_pool2d if a["kind"] == "avg" else F.adaptive_max_pool2d
    return lambda x: pool(x, a["size"])


def _upsample(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    # Plain "nearest" is rounded wrongly by factors such as 41.
    return lambda x: F.interpolate(x, scale_factor=a["factor"], mode="nearest-exact")


def _lrn(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    def normalised(x: Tensor) -> Tensor:
        wide = x if x.dim() > 2 else x[..., None]
        return F.local_response_norm(wide, a["size"], a["alpha"], a["beta"], a["k"]).reshape(x.shape)

    return normalised


def _layer_norm(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    return lambda x: F.layer_norm(x, x.shape[-a["last"] :], w.get("w"), w.get("b"), a["eps"])


def _act(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    name, *numbers = a["act"]
    return lambda x: ACTIVATIONS[name](x, *numbers)


def _binary(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    function: Any = _ARITHMETIC[op]
    if "c" not in w and a["value"] is None:
        return lambda left, right: function(left, right)
    constant = w["c"][None] if "c" in w else torch.tensor(a["value"], dtype=torch.float32)
    return (lambda x: function(constant, x)) if a["swap"] else (lambda x: function(x, constant))


def _concat(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    def joined(*inputs: Tensor) -> Tensor:
        batch = max(map(len, inputs))  # a constant is a batch of one
        return torch.cat([x.expand(batch, *x.shape[1:]) for x in inputs], a["axis"] + 1)

    return joined


def _reshape(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    return lambda x: x.reshape(len(x), *a["shape"])


def _permute(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    axes = (0, *(axis + 1 for axis in a["axes"]))
    return lambda x: x.permute(axes)


def _slice(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    index = (*[slice(None)] * (a["axis"] + 1), slice(a["start"], a["stop"], a["step"]))
    return lambda x: x[index]


def _mean(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    axes = tuple(axis + 1 for axis in a["axes"])
    return lambda x: x.mean(axes, a["keep"])


def _softmax(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    function = F.log_softmax if a["log"] else F.softmax
    return lambda x: function(x, a["axis"] + 1)


def _pad(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    pads = [size for pair in reversed(a["pad"]) for size in pair]
    return lambda x: F.pad(x, pads, value=a["value"])


def _constant(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    """As a batch of one: what it meets broadcasts it, but for a concatenation."""
    return lambda: w["c"][None]


def _input(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    raise ModelError("an input is given, not computed")


def _embedding(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    return lambda x: F.embedding(x.long(), w["w"])


def _max(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    axes = tuple(axis + 1 for axis in a["axes"])
    return lambda x: x.amax(axes, a["keep"])


def _gather(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    indices = torch.tensor(a["indices"])
    return lambda x: x.index_select(a["axis"] + 1, indices)


def _resize(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    """Not by F.interpolate, which takes a size or a scale, but not both."""
    scales = a["scale"] or (None, None)

    def along(x: Tensor, axis: int) -> Tensor:
        places, weights = taps(x.shape[axis], a["size"][axis - 2], a["kind"], a["corners"], scales[axis - 2])
        shape = [1] * x.dim()
        shape[axis] = -1
        parts = [
            x.index_select(axis, torch.from_numpy(at)) * torch.from_numpy(with_).to(x.dtype).view(shape)
            for at, with_ in zip(places, weights, strict=True)
        ]
        return torch.stack(parts).sum(0)

    return lambda x: along(along(x, 3), 2)


def _matmul(op: str, a: dict[str, Any], w: dict[str, Tensor]) -> Step:
    def product(left: Tensor, right: Tensor) -> Tensor:
        out: Tensor = a["scale"] * left @ (right.mT if a["transpose"] else right)
        return out

    return product


MAKERS: dict[str, Callable[[str, dict[str, Any], dict[str, Tensor]], Step]] = {
    "conv": _conv,
    "linear": _linear,
    "maxpool": _max_pool,
    "avgpool": _average_pool,
    "adaptive": _adaptive,
    "upsample": _upsample,
    "lrn": _lrn,
    "layernorm": _layer_norm,
    "act": _act,
    "add": _binary,
    "sub": _binary,
    "mul": _binary,
    "div": _binary,
    "maximum": _binary,
    "minimum": _binary,
    "concat": _concat,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "mean": _mean,
    "softmax": _softmax,
    "pad": _pad,
    "max": _max,
    "gather": _gather,
    "resize": _resize,
    "matmul": _matmul,
    "constant": _constant,
    "input": _input,
    "embedding": _embedding,
}
