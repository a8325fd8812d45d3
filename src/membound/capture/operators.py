"""From aten's operators to the graph's: one small function each, and the table of them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from membound.capture.call import Call, Value
from membound.capture.windows import adaptive_average, adaptive_max, average_pool, convolution, max_pool
from membound.store.graph import Shape

Result = Value | list[Value]

LARGEST = float(np.finfo(np.float32).max)  # for clips that are open on one side


def identity(call: Call) -> Value:
    return call.value("self" if "self" in call.args else "input")


def linear(call: Call) -> Value:
    named = {"w": call.tensor(call.constant("weight"), call.within("weight"))}
    if call.get("bias") is not None:
        named["b"] = call.tensor(call.constant("bias"), call.within("bias"))
    if len(call.constant("weight").shape) != 2:
        call.fail("its weight is not a matrix")
    return call.emit("linear", call.value("input"), named=named)


def batch_norm(call: Call) -> list[Value]:
    """(x - mean) / sqrt(var + eps) * weight + bias, as one product and one sum for each channel."""
    if call.get("training", False) or call.get("running_mean") is None:
        call.fail("it normalises by the batch; only running statistics are supported")
    value = call.value("input")
    var = call.constant("running_var").double()
    scale = call.get("weight", torch.ones_like(var)).double() / torch.sqrt(var + call["eps"])
    shift = call.get("bias", torch.zeros_like(var)).double() - call.constant("running_mean").double() * scale
    # As images, so that the norm of a sequence folds into the convolution before it.
    shape = value.shape if len(value.shape) != 2 else (value.shape[0], 1, value.shape[1])
    channels = (-1, *(1 for _ in shape[1:]))
    out = call.reshape(value, shape)
    for op, constant, name in (("mul", scale, "weight"), ("add", shift, "bias")):
        tensor = call.tensor(constant.reshape(channels), call.within(name))
        out = call.emit(op, out, out=shape, named={"c": tensor})
    return [call.reshape(out, value.shape)]


def activation(*act: Any, **arguments: str) -> Callable[[Call], Value]:
    """A function that emits `act`, followed by the call's arguments of those names, as numbers."""

    def convert(call: Call) -> Value:
        return _act(call, call.value("self"), *act, *(float(call[name]) for name in arguments.values()))

    return convert


def _act(call: Call, value: Value, *act: Any) -> Value:
    return call.emit("act", value, out=value.shape, act=list(act))


def gelu(call: Call) -> Value:
    return _act(call, call.value("self"), "gelu_tanh" if call.get("approximate") == "tanh" else "gelu")


def elu(call: Call) -> Value:
    """scale * (x if x > 0 else alpha (exp(input_scale x) - 1))."""
    if call.get("input_scale", 1) != 1:
        call.fail(f"its input_scale is {call['input_scale']}; only 1 is supported")
    out = _act(call, call.value("self"), "elu", float(call.get("alpha", 1)))
    scale = float(call.get("scale", 1))
    return out if scale == 1 else call.emit("mul", out, value=scale)


def selu(call: Call) -> Value:
    out = _act(call, call.value("self"), "elu", 1.6732632423543772848170429916717)
    return call.emit("mul", out, value=1.0507009873554804934193349852946)


def prelu(call: Call) -> Value:
    slope = call.constant("weight")
    if slope.numel() != 1:
        call.fail("one slope for each channel is not supported; one slope for all is")
    return _act(call, call.value("self"), "leaky", float(slope))


def clamp(call: Call) -> Value:
    low, high = (_bound(call, name) for name in ("min", "max"))
    value = call.value("self")
    if low is None and high is None:
        return value
    if low == 0 and high is None:
        return _act(call, value, "relu")
    return _act(call, value, "clip", -LARGEST if low is None else low, LARGEST if high is None else high)


def _bound(call: Call, name: str) -> float | None:
    """A bound of a clamp: absent, infinite (the same) or a number."""
    bound = call.get(name, call.get(f"{name}_val"))
    if isinstance(bound, Tensor) and bound.numel() == 1:
        bound = bound.item()
    if bound is None or bound in (-math.inf, math.inf):
        return None
    if not isinstance(bound, (int, float)):
        call.fail(f"its {name} is a tensor; only numbers are supported")
    return float(bound)


def binary(op: str, *, swap: bool = False) -> Callable[[Call], Value]:
    """Arithmetic on two values, or on a value and a number or constant; `alpha` multiplies the second."""

    def convert(call: Call) -> Value:
        if call.get("rounding_mode") is not None:
            call.fail("division that rounds is not supported")
        left, right = call["self"], call["other"]
        alpha = call.get("alpha", 1)
        left, right = (_scaled(call, left, alpha), right) if swap else (left, _scaled(call, right, alpha))
        return arithmetic(call, op, right if swap else left, left if swap else right)

    return convert


def _scaled(call: Call, operand: Any, alpha: float) -> Any:
    if alpha == 1:
        return operand
    if isinstance(operand, Value):
        return call.emit("mul", operand, out=operand.shape, value=float(alpha))
    return operand * alpha


def arithmetic(call: Call, op: str, left: Any, right: Any) -> Value:
    """Emit left op right, where at least one is a value; constants are broadcast as torch does."""
    if isinstance(left, Value) and isinstance(right, Value):
        if len(left.shape) != len(right.shape):
            call.fail("its operands differ in their number of axes, so that one's batch meets other axes")
        return call.emit(op, left, right)
    swap = isinstance(right, Value) and op in ("sub", "div")
    value, other = (left, right) if isinstance(left, Value) else (right, left)
    if isinstance(other, Tensor) and other.numel() == 1 and len(call.shape) == len(value.shape):
        other = other.item()
    if not isinstance(other, Tensor):
        if not math.isfinite(other):
            call.fail(f"its operand is {other}")
        return call.emit(op, value, value=float(other), swap=swap)
    rank = len(value.shape)
    shape = (1,) * (rank + 1 - other.dim()) + tuple(other.shape)
    if len(shape) != rank + 1 or shape[0] != 1:
        call.fail(f"a constant of shape {tuple(other.shape)} meets the batch")
    return call.emit(op, value, named={"c": call.tensor(other, shape=shape[1:])}, swap=swap)


def negate(call: Call) -> Value:
    return call.emit("mul", call.value("self"), value=-1.0)


def square(call: Call) -> Value:
    return call.emit("mul", call.value("self"), call.value("self"))


def power(call: Call) -> Value:
    if call["exponent"] != 2:
        call.fail("only squares are supported")
    return square(call)


def reciprocal(call: Call) -> Value:
    return call.emit("div", call.value("self"), value=1.0, swap=True)


def concat(call: Call) -> Value:
    parts = call["tensors"]
    if not all(isinstance(part, Value) for part in parts):
        call.fail("only values computed from the input are concatenated, no constants")
    parts = [part for part in parts if part.shape != (0,)]
    axis = call.axis(call.get("dim", 0), len(parts[0].shape))
    return parts[0] if len(parts) == 1 else call.emit("concat", *parts, axis=axis)


def stack(call: Call) -> Value:
    parts = call["tensors"]
    if not all(isinstance(part, Value) for part in parts):
        call.fail("only values computed from the input are stacked, no constants")
    axis = call.axis(call.get("dim", 0), len(call.shape))
    shape = (*call.shape[:axis], 1, *call.shape[axis + 1 :])
    return call.emit("concat", *(call.reshape(part, shape) for part in parts), axis=axis)


def reshape(call: Call) -> Value:
    return call.reshape(call.value("self" if "self" in call.args else "input"), call.shape)


def permute(call: Call) -> Value:
    return _permuted(call, [dim % (len(call.shape) + 1) for dim in call["dims"]])


def transpose(call: Call) -> Value:
    dims = list(range(len(call.shape) + 1))
    first, second = call["dim0"] % len(dims), call["dim1"] % len(dims)
    dims[first], dims[second] = second, first
    return _permuted(call, dims)


def _permuted(call: Call, dims: list[int]) -> Value:
    if dims[0] != 0:
        call.fail("it moves the batch")
    return call.emit("permute", call.value("self"), axes=tuple(dim - 1 for dim in dims[1:]))


def mean(call: Call) -> Value:
    if not call.get("dim"):
        call.fail("it averages over the batch; name the axes, as in x.mean((2, 3))")
    dims = call["dim"] if isinstance(call["dim"], (list, tuple)) else [call["dim"]]
    axes = tuple(sorted(call.axis(dim) for dim in dims))
    return call.emit("mean", call.value("self"), axes=axes, keep=bool(call.get("keepdim")))


def total(call: Call) -> Value:
    out = mean(call)
    count = math.prod(call.value("self").shape) // math.prod(out.shape)
    return call.emit("mul", out, value=float(count))


def softmax(*, log: bool) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        return call.emit("softmax", call.value("self"), axis=call.axis(call["dim"]), log=log)

    return convert


def pad(call: Call) -> Value:
    """Pads in torch's order, the last axis first; what is negative is cut off."""
    if call.get("mode", "constant") != "constant":
        call.fail(f"padding in mode {call['mode']!r} is not supported; zeros and other constants are")
    out = call.value("self")
    pairs = list(zip(call["pad"][::2], call["pad"][1::2], strict=True))
    pairs += [(0, 0)] * (len(out.shape) + 1 - len(pairs))
    pairs.reverse()
    if pairs[0] != (0, 0):
        call.fail("it pads the batch")
    for axis, (before, after) in enumerate(pairs[1:]):
        if before < 0 or after < 0:
            size = out.shape[axis]
            out = _slice(call, out, axis, max(-before, 0), size - max(-after, 0))
    pads = tuple((max(before, 0), max(after, 0)) for before, after in pairs[1:])
    if not any(map(any, pads)):
        return out
    return call.emit("pad", out, pad=pads, value=float(call.get("value", 0)))


def slice_(call: Call) -> Value:
    start, end, step = call.get("start", 0), call.get("end", None), call.get("step", 1)
    if call.get("dim", 0) == 0 and start == 0 and (end is None or end >= 2**31) and step == 1:
        return call.value("self")
    axis = call.axis(call.get("dim", 0))
    size = call.value("self").shape[axis]
    start, stop, step = slice(start, end, step).indices(size)
    return _slice(call, call.value("self"), axis, start, stop, step)


def narrow(call: Call) -> Value:
    axis = call.axis(call["dim"])
    start = call["start"] % call.value("self").shape[axis]
    return _slice(call, call.value("self"), axis, start, start + call["length"])


def select(call: Call) -> Value:
    axis = call.axis(call["dim"])
    index = call["index"] % call.value("self").shape[axis]
    return call.reshape(_slice(call, call.value("self"), axis, index, index + 1), call.shape)


def unbind(call: Call) -> list[Value]:
    axis = call.axis(call.get("dim", 0))
    value = call.value("self")
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    parts = [_slice(call, value, axis, index, index + 1) for index in range(value.shape[axis])]
    return [call.reshape(part, shape) for part in parts]


def split(call: Call) -> list[Value]:
    """aten.split (of one size), split_with_sizes and chunk (into so many)."""
    axis = call.axis(call.get("dim", 0))
    value = call.value("self")
    size = value.shape[axis]
    if "chunks" in call.args:
        sizes: Any = -(-size // call["chunks"])
    else:
        sizes = call.get("split_sizes", call.get("split_size"))
    if isinstance(sizes, int):
        sizes = [min(sizes, size - start) for start in range(0, size, sizes)]
    stops = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    return [_slice(call, value, axis, stop - length, stop) for stop, length in zip(stops, sizes, strict=True)]


def _slice(call: Call, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    size = len(range(start, stop, step))
    if size < 1:
        call.fail("it selects nothing")
    if (start, size, step) == (0, value.shape[axis], 1):
        return value
    shape: Shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    return call.emit("slice", value, out=shape, axis=axis, start=start, stop=stop, step=step)


def pixel_shuffle(call: Call) -> Value:
    scale = call["upscale_factor"]
    channels, height, width = call.value("self").shape
    apart = call.reshape(call.value("self"), (channels // scale**2, scale, scale, height, width))
    moved = (channels // scale**2, height, scale, width, scale)
    return call.reshape(call.emit("permute", apart, out=moved, axes=(0, 3, 1, 4, 2)), call.shape)


def channel_shuffle(call: Call) -> Value:
    groups = call["groups"]
    channels, *rest = call.value("self").shape
    apart = call.reshape(call.value("self"), (groups, channels // groups, *rest))
    moved = (channels // groups, groups, *rest)
    axes = (1, 0, *range(2, len(moved)))
    return call.reshape(call.emit("permute", apart, out=moved, axes=axes), call.shape)


CONVERSIONS: dict[str, Callable[[Call], Result]] = {
    "conv1d": convolution,
    "conv2d": convolution,
    "convolution": convolution,
    "linear": linear,
    "batch_norm": lambda call: batch_norm(call)[0],
    "_native_batch_norm_legit_no_training": batch_norm,
    "max_pool1d": max_pool,
    "max_pool2d": max_pool,
    "max_pool2d_with_indices": lambda call: [max_pool(call)],
    "avg_pool1d": average_pool,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool1d": adaptive_average,
    "adaptive_avg_pool2d": adaptive_average,
    "_adaptive_avg_pool2d": adaptive_average,
    "adaptive_max_pool1d": lambda call: [adaptive_max(call)],
    "adaptive_max_pool2d": lambda call: [adaptive_max(call)],
    "relu": activation("relu"),
    "relu6": activation("clip", 0.0, 6.0),
    "leaky_relu": activation("leaky", slope="negative_slope"),
    "silu": activation("silu"),
    "gelu": gelu,
    "sigmoid": activation("sigmoid"),
    "tanh": activation("tanh"),
    "hardswish": activation("hardswish"),
    "hardsigmoid": activation("hardsigmoid"),
    "elu": elu,
    "selu": selu,
    "prelu": prelu,
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": clamp,
    "hardtanh": clamp,
    "add": binary("add"),
    "sub": binary("sub"),
    "rsub": binary("sub", swap=True),
    "mul": binary("mul"),
    "div": binary("div"),
    "true_divide": binary("div"),
    "neg": negate,
    "square": square,
    "pow": power,
    "reciprocal": reciprocal,
    "cat": concat,
    "stack": stack,
    "mean": mean,
    "sum": total,
    "softmax": softmax(log=False),
    "_softmax": softmax(log=False),
    "log_softmax": softmax(log=True),
    "_log_softmax": softmax(log=True),
    "pad": pad,
    "constant_pad_nd": pad,
    "permute": permute,
    "transpose": transpose,
    "slice": slice_,
    "narrow": narrow,
    "select": select,
    "unbind": unbind,
    "split": split,
    "split_with_sizes": split,
    "chunk": split,
    "pixel_shuffle": pixel_shuffle,
    "channel_shuffle": channel_shuffle,
    "native_channel_shuffle": channel_shuffle,
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"), reshape
    ),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias", "to", "_to_copy", "type_as"), identity),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), identity),
}
