"""Values taken apart, put together and laid out anew."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from membound.capture.arithmetic import combine
from membound.capture.call import Call, Value
from membound.store.graph import Shape
from membound.store.rules import MAX_WINDOW


def concat(call: Call) -> Value:
    parts = _joined(call)
    axis = call.axis(call.get("dim", 0), parts[0])
    return parts[0] if len(parts) == 1 else call.emit("concat", *parts, axis=axis)


def stack(call: Call) -> Value:
    out = Value(-1, call.shape, call.place)
    axis = call.axis(call.get("dim", 0), out)
    shape = (*call.shape[:axis], 1, *call.shape[axis + 1 :])
    if not all(isinstance(part, Value) for part in call["tensors"]):
        call.fail("only values computed from the input are stacked, no constants")
    return call.emit("concat", *(call.reshape(part, shape) for part in call["tensors"]), axis=axis)


def _joined(call: Call) -> list[Value]:
    """What is concatenated, constants as values; empty tensors are left out, as torch does."""
    parts = []
    for part in call["tensors"]:
        if isinstance(part, Tensor) and part.shape == (0,):
            continue
        found = part if isinstance(part, Value) else call.constant_value(part)
        if found.shape != (0,):
            parts.append(replace(found, place=call.place))
    return parts


def reshape(call: Call) -> Value:
    return call.reshape(call.value("self" if "self" in call.args else "input"), call.shape)


def permute(call: Call) -> Value:
    return _permuted(call, [dim % call.value("self").rank for dim in call["dims"]])


def transpose(call: Call) -> Value:
    """aten.transpose, and t of a matrix."""
    dims = list(range(call.value("self").rank))
    first, second = call.get("dim0", 0) % len(dims), call.get("dim1", 1) % len(dims)
    dims[first], dims[second] = second, first
    return _permuted(call, dims)


def _permuted(call: Call, dims: list[int]) -> Value:
    place = call.value("self").place
    axes = tuple(place.axis(dim) for dim in dims if dim != place.at or place.fold > 1)
    return call.emit("permute", call.value("self"), axes=axes)


def repeat(call: Call) -> Value:
    """aten.repeat: the whole axis, as often as it says."""
    out = call.value("self")
    times = list(call["repeats"])
    if out.place.at or len(times) != out.rank or times[0] != 1:
        call.fail("it repeats the batch, or gives more axes")
    if 0 in times:
        call.fail("it gives nothing")
    for axis, count in enumerate(times[1:]):
        if count > 1:
            shape = (*out.shape[:axis], out.shape[axis] * count, *out.shape[axis + 1 :])
            out = call.emit("concat", *[out] * count, out=shape, axis=axis)
    return out


def roll(call: Call) -> Value:
    """What leaves at the end comes in at the front."""
    if not call.get("dims"):
        call.fail("it rolls all elements as one; name the axes")
    out = call.value("self")
    for shift, dim in zip(call["shifts"], call["dims"], strict=True):
        axis = call.axis(dim)
        size = out.shape[axis]
        cut = -shift % size
        if cut:
            parts = (_slice(call, out, axis, cut, size), _slice(call, out, axis, 0, cut))
            out = call.emit("concat", *parts, axis=axis)
    return out


def flip(call: Call) -> Value:
    out = call.value("self")
    for dim in call["dims"]:
        axis = call.axis(dim)
        indices = tuple(reversed(range(out.shape[axis])))
        out = call.emit("gather", out, out=out.shape, axis=axis, indices=indices)
    return out


def index_select(call: Call) -> Value:
    return _gathered(call, call.axis(call["dim"]), call.constant("index"))


def index(call: Call) -> Value:
    """x[:, [2, 0]]: constants along one axis; a table of them gives as many axes as it has."""
    given = [(dim, each) for dim, each in enumerate(call["indices"]) if each is not None]
    if len(given) != 1 or not isinstance(given[0][1], Tensor):
        call.fail("only one list of constant indices is supported")
    dim, indices = given[0]
    if indices.dtype == torch.bool:
        if indices.dim() != 1:
            call.fail("a mask along several axes is not supported; flatten them first")
        indices = indices.nonzero()
    axis, source = call.axis(dim), call.value("self").shape
    flat = (*source[:axis], indices.numel(), *source[axis + 1 :])
    return call.reshape(_gathered(replace(call, shape=flat), axis, indices.flatten()), call.shape)


def _gathered(call: Call, axis: int, indices: Tensor) -> Value:
    """In parts, where there are more indices than one gather may have."""
    value = call.value("self")
    parts = []
    for some in torch.split(indices, MAX_WINDOW):
        shape = (*value.shape[:axis], len(some), *value.shape[axis + 1 :])
        places = tuple(int(i) % value.shape[axis] for i in some)
        parts.append(call.emit("gather", value, out=shape, axis=axis, indices=places))
    return parts[0] if len(parts) == 1 else call.emit("concat", *parts, axis=axis)


def _around(call: Call, pairs: list[tuple[int, int]], mode: str) -> Value:
    """Padding by what is there: mirrored, the edge, or the other side."""
    out = call.value("self")
    for axis, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            size = out.shape[axis]
            if min(before, after) < 0:
                call.fail(f"negative padding in mode {mode!r} is not supported")
            how: Any = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
            places = np.pad(np.arange(size), (before, after), how)
            shape = (*out.shape[:axis], len(places), *out.shape[axis + 1 :])
            out = call.emit("gather", out, out=shape, axis=axis, indices=tuple(places.tolist()))
    return out


def pad(call: Call) -> Value:
    """Pads in torch's order, the last axis first; what is negative is cut off."""
    mode = call.get("mode", "constant")
    if mode not in ("constant", "reflect", "replicate", "circular"):
        call.fail(
            f"padding in mode {mode!r} is not supported; constants, reflect, replicate and circular are"
        )
    out = call.value("self")
    pairs = list(zip(call["pad"][::2], call["pad"][1::2], strict=True))
    pairs += [(0, 0)] * (len(out.shape) + 1 - len(pairs))
    pairs.reverse()
    if pairs[0] != (0, 0):
        call.fail("it pads the batch")
    if mode != "constant":
        return _around(call, pairs[1:], mode)
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
    if start == 0 and (end is None or end >= 2**31) and step == 1:
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


def select_scatter(call: Call) -> Value:
    """y[:, 2] = x, as torch.export writes it: y with x in place of one of its slices."""
    axis = call.axis(call["dim"], Value(-1, call.shape, call.place))
    start = call["index"] % call.shape[axis]
    return _written(call, axis, start, start + 1)


def slice_scatter(call: Call) -> Value:
    """y[:, 2:4] = x; all of the batch is written to at once."""
    whole = call.get("start", 0) == 0 and (call.get("end") is None or call["end"] >= 2**31)
    if call.get("dim", 0) == call.place.at and whole and call.get("step", 1) == 1:
        return _as_value(call, "src", call.shape)
    axis = call.axis(call.get("dim", 0), Value(-1, call.shape, call.place))
    start, stop, step = slice(call.get("start"), call.get("end"), call.get("step", 1)).indices(
        call.shape[axis]
    )
    if step != 1:
        call.fail("it writes every other element; write whole ranges, or use torch.cat or torch.where")
    return _written(call, axis, start, max(start, stop))


def _written(call: Call, axis: int, start: int, stop: int) -> Value:
    """A value with another one in its place from `start` to `stop`."""
    size = call.shape[axis]
    parts = []
    if (start, stop) != (0, size):
        old = _as_value(call, "self", call.shape)
        edges = ((0, start), (stop, size))
        parts = [_slice(call, old, axis, *edge) if edge[0] < edge[1] else None for edge in edges]
    new = _as_value(call, "src", (*call.shape[:axis], stop - start, *call.shape[axis + 1 :]))
    joined = [part for part in (*parts[:1], new, *parts[1:]) if part is not None and 0 not in part.shape]
    return joined[0] if len(joined) == 1 else call.emit("concat", *joined, axis=axis)


def _as_value(call: Call, name: str, shape: Shape) -> Value:
    """An argument, of a value or of a constant, in the shape that it is needed in."""
    found = call[name]
    value = found if isinstance(found, Value) else replace(call, shape=shape).constant_value(found)
    return call.reshape(value, shape)


def copied(call: Call) -> Value:
    """aten.copy: what is written over all of a value."""
    found = call["src"]
    if not isinstance(found, Value) or found.shape != call.shape:
        call.fail("what is written has another shape than where it goes; expand it first")
    return found


def _image(call: Call) -> tuple[int, int, int]:
    shape = call.value("self").shape
    if len(shape) != 3:
        call.fail(f"its input has {len(shape)} axes without the batch; images have 3")
    return shape[0], shape[1], shape[2]


def pixel_shuffle(call: Call) -> Value:
    scale = call["upscale_factor"]
    channels, height, width = _image(call)
    apart = call.reshape(call.value("self"), (channels // scale**2, scale, scale, height, width))
    moved = (channels // scale**2, height, scale, width, scale)
    return call.reshape(call.emit("permute", apart, out=moved, axes=(0, 3, 1, 4, 2)), call.shape)


def pixel_unshuffle(call: Call) -> Value:
    scale = call["downscale_factor"]
    channels, height, width = _image(call)
    apart = (channels, height // scale, scale, width // scale, scale)
    moved = (channels, scale, scale, height // scale, width // scale)
    out = call.emit("permute", call.reshape(call.value("self"), apart), out=moved, axes=(0, 2, 4, 1, 3))
    return call.reshape(out, call.shape)


def triangle(call: Call) -> Value:
    """aten.tril and triu: 0 above or below a diagonal of the last two axes."""
    value = call.value("self")
    if value.place.at >= value.rank - 2:
        call.fail("the batch is one of the axes of its matrix")
    ones = getattr(torch, call.op)(torch.ones(value.shape[-2:]), call.get("diagonal", 0))
    return combine(call, "mul", value, ones)


def channel_shuffle(call: Call) -> Value:
    groups = call["groups"]
    channels, *rest = call.value("self").shape
    apart = call.reshape(call.value("self"), (groups, channels // groups, *rest))
    moved = (channels // groups, groups, *rest)
    axes = (1, 0, *range(2, len(moved)))
    return call.reshape(call.emit("permute", apart, out=moved, axes=axes), call.shape)
