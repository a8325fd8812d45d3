"""Norms: by running statistics, or by those of an image's elements, of a group of channels, of a vector."""

import math

import torch

from membound.capture.call import Call, Value


def batch_norm(call: Call) -> list[Value]:
    """(x - mean) / sqrt(var + eps) * weight + bias, as one product and one sum for each channel."""
    if call.get("training", False) or call.get("running_mean") is None:
        call.fail(
            "it normalizes by the batch; only running statistics are supported (track_running_stats=True)"
        )
    value = call.value("input")
    var = call.constant("running_var").double()
    scale = call.get("weight", torch.ones_like(var)).double() / torch.sqrt(var + call["eps"])
    shift = call.get("bias", torch.zeros_like(var)).double() - call.constant("running_mean").double() * scale
    # As images, so that the norm of a sequence folds into the convolution before it.
    as_image = len(value.shape) == 2 and value.place.fold == 1
    shape = (value.shape[0], 1, value.shape[1]) if as_image else value.shape
    axis = 0 if as_image else call.axis(1, value)
    out = call.reshape(value, shape)
    for op, constant, name in (("mul", scale, "weight"), ("add", shift, "bias")):
        out = _each_channel(call, op, out, constant, name, axis)
    return [call.reshape(out, value.shape)]


def _each_channel(
    call: Call, op: str, value: Value, constant: torch.Tensor, name: str, axis: int = 0
) -> Value:
    shape = [1] * len(value.shape)
    shape[axis] = -1
    tensor = call.tensor(constant.reshape(shape), call.within(name))
    return call.emit(op, value, out=value.shape, named={"c": tensor})


def layer_norm(call: Call) -> Value:
    named = {
        role: call.tensor(call.constant(name), call.within(name))
        for role, name in (("w", "weight"), ("b", "bias"))
        if call.get(name) is not None
    }
    return call.emit(
        "layernorm", call.value("input"), named=named, last=len(call["normalized_shape"]), eps=call["eps"]
    )


def group_norm(call: Call) -> Value:
    return _grouped(call, call["num_groups"])


def instance_norm(call: Call) -> Value:
    """A group for each channel; by running statistics it is a batch norm."""
    if not call.get("use_input_stats", True):
        return batch_norm(call)[0]
    return _grouped(call, call.value("input").shape[0])


def _grouped(call: Call, groups: int) -> Value:
    """A layer norm over each group of channels, then one factor and one number for each channel."""
    value = call.value("input")
    size = math.prod(value.shape) // groups
    out = call.emit(
        "layernorm", call.reshape(value, (groups, size)), out=(groups, size), last=1, eps=call["eps"]
    )
    out = call.reshape(out, value.shape)
    for op, name in (("mul", "weight"), ("add", "bias")):
        if call.get(name) is not None:
            out = _each_channel(call, op, out, call.constant(name), name)
    return out


def rms_norm(call: Call) -> Value:
    """x / sqrt(mean x^2 + eps) * weight, over the last axes."""
    value = call.value("input")
    count = len(call["normalized_shape"])
    axes = tuple(range(len(value.shape) - count, len(value.shape)))
    if value.place.at >= value.rank - count:
        call.fail("it works along the batch")
    shape = (*value.shape[:-count], *(1 for _ in axes))
    square = call.emit("mul", value, value, out=value.shape)
    average = call.emit("mean", square, out=shape, axes=axes, keep=True)
    eps = float(call.get("eps", torch.finfo(torch.float32).eps))
    root = call.emit("act", call.emit("add", average, out=shape, value=eps), out=shape, act=["sqrt"])
    out = call.emit("div", value, root, out=value.shape)
    if call.get("weight") is None:
        return out
    weight = call.tensor(
        call.constant("weight"), call.within("weight"), (*(1 for _ in shape[:-count]), *value.shape[-count:])
    )
    return call.emit("mul", out, out=value.shape, named={"c": weight})


def variance(call: Call) -> Value:
    """aten.var: the mean of (x - mean)^2, times n / (n - correction)."""
    if not call.get("dim"):
        call.fail("it is over the batch; name the axes, as in x.var((2, 3))")
    dims = call["dim"] if isinstance(call["dim"], list | tuple) else [call["dim"]]
    value = call.value("self")
    axes = tuple(sorted(call.axis(dim) for dim in dims))
    count = math.prod(value.shape[axis] for axis in axes)
    correction = call.get("correction", int(call.get("unbiased", True)))
    if count <= correction:
        call.fail(f"it divides by {count - correction}: there are {count} elements")
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    average = call.emit("mean", value, out=shape, axes=axes, keep=True)
    off = call.emit("sub", value, average, out=value.shape)
    square = call.emit("mul", off, off, out=value.shape)
    out = call.emit("mean", square, axes=axes, keep=bool(call.get("keepdim")))
    if correction == 0:
        return out
    return call.emit("mul", call.emit("mul", out, value=float(count)), value=1 / (count - correction))


def deviation(call: Call) -> Value:
    return call.emit("act", variance(call), act=["sqrt"])


def vector_norm(call: Call) -> Value:
    """sqrt(sum x^2), or sum |x|, over the axes."""
    order = call.get("ord", 2)
    if order not in (1, 2) or not call.get("dim"):
        call.fail(
            f"its order is {order}, over {call.get('dim') or 'all axes'}; 1 and 2 over named axes are supported"
        )
    dims = call["dim"] if isinstance(call["dim"], list | tuple) else [call["dim"]]
    axes = tuple(sorted(call.axis(dim) for dim in dims))
    value = call.value("self")
    if order == 2:
        each = call.emit("mul", value, value, out=value.shape)
    else:
        each = call.emit("act", value, out=value.shape, act=["leaky", -1.0])
    average = call.emit("mean", each, axes=axes, keep=bool(call.get("keepdim")))
    count = math.prod(value.shape[axis] for axis in axes)
    total = call.emit("mul", average, value=float(count))
    return call.emit("act", total, act=["sqrt"]) if order == 2 else total
