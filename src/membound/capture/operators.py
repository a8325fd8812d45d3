"""From aten's operators to the graph's: one small function each, and the table of them."""

import math
from collections.abc import Callable

from membound.capture import arithmetic, attention, shaping, volumes, whole
from membound.capture.arithmetic import activation, binary
from membound.capture.call import Call, Value
from membound.capture.norms import (
    batch_norm,
    deviation,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
    variance,
    vector_norm,
)
from membound.capture.transposed import transposed_convolution
from membound.capture.windows import (
    adaptive_average,
    adaptive_max,
    average_pool,
    convolution,
    max_pool,
    resize,
)

Result = Value | list[Value]


def identity(call: Call) -> Value:
    return call.value("self" if "self" in call.args else "input")


def dropout(call: Call) -> Value:
    if call.get("train", False):
        call.fail("it stays on in eval mode; call it with training=self.training")
    return identity(call)


def linear(call: Call) -> Value:
    named = {"w": call.tensor(call.constant("weight"), call.within("weight"))}
    if call.get("bias") is not None:
        named["b"] = call.tensor(call.constant("bias"), call.within("bias"))
    if len(call.constant("weight").shape) != 2:
        call.fail("its weight is not a matrix")
    return call.emit("linear", call.value("input"), named=named)


def mean(call: Call) -> Value:
    if not call.get("dim"):
        call.fail("it averages over the batch; name the axes, as in x.mean((2, 3))")
    dims = call["dim"] if isinstance(call["dim"], (list, tuple)) else [call["dim"]]
    axes = tuple(sorted(call.axis(dim) for dim in dims))
    return call.emit("mean", call.value("self"), axes=axes, keep=bool(call.get("keepdim")))


def total(call: Call) -> Value:
    if call.value("self").whole:
        return whole.add_up(call)
    out = mean(call)
    count = math.prod(call.value("self").shape) // math.prod(out.shape)
    return call.emit("mul", out, value=float(count))


def most(call: Call) -> Value:
    if not call.get("dim"):
        call.fail("it is the largest of the batch; name the axes, as in x.amax((2, 3))")
    axes = tuple(sorted(call.axis(dim) for dim in call["dim"]))
    return call.emit("max", call.value("self"), axes=axes, keep=bool(call.get("keepdim")))


def most_of_all(call: Call) -> Value | list[Value]:
    """aten.max: of two values, or along an axis, where the second result, the place of it, is none of ours."""
    if "other" in call.args:
        return binary("maximum")(call)
    if "dim" not in call.args:
        call.fail("it is the largest of the batch; name the axes, as in x.amax((2, 3))")
    axes = (call.axis(call["dim"]),)
    return [call.emit("max", call.value("self"), axes=axes, keep=bool(call.get("keepdim")))]


def least(call: Call) -> Value:
    """The smallest is the largest of what is negated, negated."""
    if not call.get("dim"):
        call.fail("it is the smallest of the batch; name the axes, as in x.amin((2, 3))")
    dims = call["dim"] if isinstance(call["dim"], (list, tuple)) else [call["dim"]]
    axes = tuple(sorted(call.axis(dim) for dim in dims))
    value = call.value("self")
    below = call.emit("mul", value, out=value.shape, value=-1.0)
    return call.emit("mul", call.emit("max", below, axes=axes, keep=bool(call.get("keepdim"))), value=-1.0)


def least_of_all(call: Call) -> Value | list[Value]:
    """aten.min: of two values, or along an axis."""
    return binary("minimum")(call) if "other" in call.args else [least(call)]


def softmax(*, log: bool) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        return call.emit("softmax", call.value("self"), axis=call.axis(call["dim"]), log=log)

    return convert


def any_convolution(call: Call) -> Value:
    """aten.convolution, which torch makes of all others where it takes a network apart."""
    volume = call.constant("weight").dim() == 5
    if call.get("transposed", False):
        return volumes.transposed_convolution(call) if volume else transposed_convolution(call)
    return volumes.convolution(call) if volume else convolution(call)


CONVERSIONS: dict[str, Callable[[Call], Result]] = {
    "conv1d": convolution,
    "conv2d": convolution,
    "convolution": any_convolution,
    "conv3d": volumes.convolution,
    "conv_transpose3d": volumes.transposed_convolution,
    "max_pool3d": volumes.pool("max"),
    "max_pool3d_with_indices": volumes.with_indices,
    "avg_pool3d": volumes.pool("mean"),
    "adaptive_avg_pool3d": volumes.pool("mean"),
    "linear": linear,
    "matmul": attention.product,
    "mm": attention.product,
    "bmm": attention.product,
    "addmm": attention.product,
    "baddbmm": attention.added_product,
    "scaled_dot_product_attention": attention.attend,
    "batch_norm": lambda call: batch_norm(call)[0],
    "_native_batch_norm_legit_no_training": batch_norm,
    "layer_norm": layer_norm,
    "native_layer_norm": lambda call: [layer_norm(call)],
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "rms_norm": rms_norm,
    "linalg_vector_norm": vector_norm,
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
    **{
        f"{name}{axes}d": resize(kind)
        for axes, name, kind in (
            *((axes, "upsample_nearest", "nearest") for axes in (1, 2)),
            *((axes, "_upsample_nearest_exact", "exact") for axes in (1, 2)),
            (1, "upsample_linear", "linear"),
            (2, "upsample_bilinear", "linear"),
            (2, "upsample_bicubic", "cubic"),
        )
    },
    "conv_transpose1d": transposed_convolution,
    "conv_transpose2d": transposed_convolution,
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
    "celu": arithmetic.celu,
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
    "maximum": binary("maximum"),
    "minimum": binary("minimum"),
    "mish": activation("mish"),
    "sqrt": activation("sqrt"),
    "rsqrt": arithmetic.reciprocal_root,
    "exp": arithmetic.exponential,
    "softplus": arithmetic.softplus,
    "log_sigmoid": arithmetic.log_sigmoid,
    "softsign": arithmetic.softsign,
    "abs": arithmetic.absolute,
    "glu": arithmetic.gated,
    "addcmul": arithmetic.add_product,
    "addcdiv": arithmetic.add_quotient,
    "lerp": arithmetic.between,
    "masked_fill": whole.masked_fill,
    "where": whole.where,
    "embedding": whole.embedding,
    "cumsum": whole.cumulate,
    **{name: whole.compare(name) for name in ("eq", "ne", "gt", "ge", "lt", "le")},
    **dict.fromkeys(("logical_not", "bitwise_not"), whole.logical_not),
    **dict.fromkeys(("logical_and", "bitwise_and"), whole.logical("and")),
    **dict.fromkeys(("logical_or", "bitwise_or"), whole.logical("or")),
    "neg": arithmetic.negate,
    "square": arithmetic.square,
    "pow": arithmetic.power,
    "reciprocal": arithmetic.reciprocal,
    "cat": shaping.concat,
    "stack": shaping.stack,
    "mean": mean,
    "sum": total,
    "amax": most,
    "max": most_of_all,
    "amin": least,
    "min": least_of_all,
    "var": variance,
    "var_mean": lambda call: [variance(call), mean(call)],
    "std": deviation,
    "std_mean": lambda call: [deviation(call), mean(call)],
    "softmax": softmax(log=False),
    "_softmax": softmax(log=False),
    "log_softmax": softmax(log=True),
    "_log_softmax": softmax(log=True),
    "pad": shaping.pad,
    "constant_pad_nd": shaping.pad,
    "permute": shaping.permute,
    "roll": shaping.roll,
    "flip": shaping.flip,
    "repeat": shaping.repeat,
    "index_select": shaping.index_select,
    "index": shaping.index,
    "select_scatter": shaping.select_scatter,
    "slice_scatter": shaping.slice_scatter,
    "copy": shaping.copied,
    "transpose": shaping.transpose,
    "t": shaping.transpose,
    "slice": shaping.slice_,
    "narrow": shaping.narrow,
    "select": shaping.select,
    "unbind": shaping.unbind,
    "split": shaping.split,
    "split_with_sizes": shaping.split,
    "chunk": shaping.split,
    **dict.fromkeys(("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"), shaping.split),
    "tril": shaping.triangle,
    "triu": shaping.triangle,
    "pixel_shuffle": shaping.pixel_shuffle,
    "pixel_unshuffle": shaping.pixel_unshuffle,
    "channel_shuffle": shaping.channel_shuffle,
    "native_channel_shuffle": shaping.channel_shuffle,
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"), shaping.reshape
    ),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias"), identity),
    **dict.fromkeys(("to", "_to_copy", "type_as"), whole.converted),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), dropout),
}
