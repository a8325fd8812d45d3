"""Values taken apart, put together and laid out anew."""

from typing import Any

from membound.capture.call import Call, Value
from membound.store.graph import Shape


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
