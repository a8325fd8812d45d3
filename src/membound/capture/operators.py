"""From aten's operators to the graph's: one small function each, and the table of them."""

import math
from collections.abc import Callable

import torch

from membound.capture import arithmetic, shaping
from membound.capture.arithmetic import activation, binary
from membound.capture.call import Call, Value
from membound.capture.windows import (
    adaptive_average,
    adaptive_max,
    average_pool,
    convolution,
    max_pool,
    upsample,
)

Result = Value | list[Value]


def identity(call: Call) -> Value:
    return call.value("self" if "self" in call.args else "input")


def dropout(call: Call) -> Value:
    if call.get("train", False):
        call.fail("it stays on in eval mode")
    return identity(call)


def linear(call: Call) -> Value:
    named = {"w": call.tensor(call.constant("weight"), call.within("weight"))}
    if call.get("bias") is not None:
        named["b"] = call.tensor(call.constant("bias"), call.within("bias"))
    if len(call.constant("weight").shape) != 2:
        call.fail("its weight is not a matrix")
    return call.emit("linear", call.value("input"), named=named)


def product(call: Call) -> Value:
    """aten.matmul, mm and addmm with a constant matrix on the right: a linear layer."""
    value = call.value("mat1" if "mat1" in call.args else "self")
    matrix = call.constant("mat2" if "mat2" in call.args else "other")
    scales = (call.get("alpha", 1), call.get("beta", 1))
    if matrix.dim() != 2 or scales != (1, 1):
        call.fail("only products of a value with one constant matrix are supported")
    named = {"w": call.tensor(matrix.t().contiguous(), call.within("weight"))}
    if "mat1" in call.args:
        named["b"] = call.tensor(call.constant("self").expand(matrix.shape[1]), call.within("bias"))
    return call.emit("linear", value, named=named)


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


def layer_norm(call: Call) -> Value:
    named = {
        role: call.tensor(call.constant(name), call.within(name))
        for role, name in (("w", "weight"), ("b", "bias"))
        if call.get(name) is not None
    }
    return call.emit(
        "layernorm", call.value("input"), named=named, last=len(call["normalized_shape"]), eps=call["eps"]
    )


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


CONVERSIONS: dict[str, Callable[[Call], Result]] = {
    "conv1d": convolution,
    "conv2d": convolution,
    "convolution": convolution,
    "linear": linear,
    "matmul": product,
    "mm": product,
    "addmm": product,
    "batch_norm": lambda call: batch_norm(call)[0],
    "_native_batch_norm_legit_no_training": batch_norm,
    "layer_norm": layer_norm,
    "native_layer_norm": lambda call: [layer_norm(call)],
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
    "upsample_nearest2d": upsample,
    "_upsample_nearest_exact2d": upsample,
    "relu": activation("relu"),
    "relu6": activation("clip", 0.0, 6.0),
    "leaky_relu": activation("leaky", slope="negative_slope"),
    "silu": activation("silu"),
    "gelu": arithmetic.gelu,
    "sigmoid": activation("sigmoid"),
    "tanh": activation("tanh"),
    "hardswish": activation("hardswish"),
    "hardsigmoid": activation("hardsigmoid"),
    "elu": arithmetic.elu,
    "selu": arithmetic.selu,
    "prelu": arithmetic.prelu,
    "clamp": arithmetic.clamp,
    "clamp_min": arithmetic.clamp,
    "clamp_max": arithmetic.clamp,
    "hardtanh": arithmetic.clamp,
    "add": binary("add"),
    "sub": binary("sub"),
    "rsub": binary("sub", swap=True),
    "mul": binary("mul"),
    "div": binary("div"),
    "true_divide": binary("div"),
    "neg": arithmetic.negate,
    "square": arithmetic.square,
    "pow": arithmetic.power,
    "reciprocal": arithmetic.reciprocal,
    "cat": shaping.concat,
    "stack": shaping.stack,
    "mean": mean,
    "sum": total,
    "softmax": softmax(log=False),
    "_softmax": softmax(log=False),
    "log_softmax": softmax(log=True),
    "_log_softmax": softmax(log=True),
    "pad": shaping.pad,
    "constant_pad_nd": shaping.pad,
    "permute": shaping.permute,
    "transpose": shaping.transpose,
    "slice": shaping.slice_,
    "narrow": shaping.narrow,
    "select": shaping.select,
    "unbind": shaping.unbind,
    "split": shaping.split,
    "split_with_sizes": shaping.split,
    "chunk": shaping.split,
    "pixel_shuffle": shaping.pixel_shuffle,
    "channel_shuffle": shaping.channel_shuffle,
    "native_channel_shuffle": shaping.channel_shuffle,
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"), shaping.reshape
    ),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias", "to", "_to_copy", "type_as"), identity),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), dropout),
}
