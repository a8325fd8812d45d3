"""Windows over volumes, [channels, depth, height, width], made of those over images.

A convolution is one over images for each depth of its output, all with the same weight: the layers that its window
reaches are channels side by side.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from membound.capture.call import Call, Value
from membound.store.graph import Shape


@dataclass(frozen=True)
class _Window:
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def convolution(call: Call) -> Value:
    """aten.conv3d."""
    weight, value = call.constant("weight"), call.value("input")
    stride, dilation = _three(call.get("stride", 1)), _three(call.get("dilation", 1))
    found = call.get("padding", 0)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if found == "same":
        pads = [(size // 2, size - size // 2) for size in reach]
    else:
        pads = [(size, size) for size in _three(0 if found == "valid" else found)]
    named = (
        {"b": call.tensor(call.constant("bias"), call.within("bias"))} if call.get("bias") is not None else {}
    )
    return _convolve(call, value, weight, pads, _Window(stride, dilation, call.get("groups", 1)), named)


def transposed_convolution(call: Call) -> Value:
    """aten.conv_transpose3d: a convolution of the input with zeros between its elements, by the mirrored weight."""
    weight, value, groups = call.constant("weight"), call.value("input"), call.get("groups", 1)
    stride, dilation = _three(call.get("stride", 1)), _three(call.get("dilation", 1))
    pad, more = _three(call.get("padding", 0)), _three(call.get("output_padding", 0))
    value = _spread(call, value, stride)
    edges = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], pad, strict=True)]
    pads = [(edge, edge + extra) for edge, extra in zip(edges, more, strict=True)]
    inputs, each = weight.shape[:2]
    turned = weight.reshape(groups, inputs // groups, each, *weight.shape[2:]).transpose(1, 2).flip(3, 4, 5)
    turned = turned.reshape(groups * each, inputs // groups, *weight.shape[2:]).contiguous()
    named = (
        {"b": call.tensor(call.constant("bias"), call.within("bias"))} if call.get("bias") is not None else {}
    )
    return _convolve(call, value, turned, pads, _Window((1, 1, 1), dilation, groups), named)


def _spread(call: Call, value: Value, stride: tuple[int, ...]) -> Value:
    """Zeros between the elements, but none behind the last."""
    if max(stride) == 1:
        return value
    channels, *sizes = value.shape
    apart = call.reshape(value, (channels, *(size for each in sizes for size in (each, 1))))
    pad = ((0, 0), *(pair for step in stride for pair in ((0, 0), (0, step - 1))))
    shape = (channels, *(size for each, step in zip(sizes, stride, strict=True) for size in (each, step)))
    padded = call.emit("pad", apart, out=shape, pad=pad)
    out = call.reshape(padded, (channels, *(n * step for n, step in zip(sizes, stride, strict=True))))
    return _padded(call, out, [(0, 1 - step) for step in stride])


def _padded(call: Call, value: Value, pads: list[tuple[int, int]]) -> Value:
    """With so many zeros around it, or fewer elements where that is negative."""
    for axis, (before, after) in enumerate(pads, 1):
        start, stop = max(-before, 0), value.shape[axis] + min(after, 0)
        if (start, stop) != (0, value.shape[axis]):
            shape = _with(value.shape, axis, stop - start)
            value = call.emit("slice", value, out=shape, axis=axis, start=start, stop=stop, step=1)
    zeros = ((0, 0), *((max(before, 0), max(after, 0)) for before, after in pads))
    if any(map(any, zeros)):
        shape = tuple(size + sum(pair) for size, pair in zip(value.shape, zeros, strict=True))
        value = call.emit("pad", value, out=shape, pad=zeros)
    return value


def _convolve(
    call: Call,
    value: Value,
    weight: Tensor,
    pads: list[tuple[int, int]],
    window: _Window,
    named: dict[str, str],
) -> Value:
    value = _padded(call, value, [*pads[:1], (0, 0), (0, 0)])
    around = (pads[1][0], pads[2][0], pads[1][1], pads[2][1])
    if min(around) < 0:
        value = _padded(call, value, [(0, 0), *pads[1:]])
        around = (0, 0, 0, 0)
    outputs, kernel = weight.shape[0], tuple(weight.shape[2:])
    if kernel[1:] == (1, 1) and window.stride[1:] == (1, 1) and not any(around):
        return _along_depth(call, value, weight, window, named)
    image = (outputs, weight.shape[1] * kernel[0], *kernel[1:])
    named = {"w": call.tensor(weight, call.within("weight"), image)} | named
    channels, _, height, width = value.shape
    layers, reach = [], window.dilation[0] * (kernel[0] - 1) + 1
    for depth in range(call.shape[1]):
        start = depth * window.stride[0]
        part = value
        if reach < value.shape[1] or window.dilation[0] > 1:
            part = call.emit(
                "slice",
                value,
                out=(channels, kernel[0], height, width),
                axis=1,
                start=start,
                stop=start + reach,
                step=window.dilation[0],
            )
        part = call.reshape(part, (channels * kernel[0], height, width))
        shape = (outputs, *call.shape[2:])
        out = call.emit(
            "conv",
            part,
            out=shape,
            named=named,
            stride=window.stride[1:],
            pad=around,
            dilation=window.dilation[1:],
            groups=window.groups,
        )
        layers.append(call.reshape(out, (outputs, 1, *shape[1:])))
    return layers[0] if len(layers) == 1 else call.emit("concat", *layers, axis=1)


def _along_depth(call: Call, value: Value, weight: Tensor, window: _Window, named: dict[str, str]) -> Value:
    """A kernel of one pixel: the image is a line, beside its depth."""
    channels, depth, height, width = value.shape
    image = (*weight.shape[:2], weight.shape[2], 1)
    out = call.emit(
        "conv",
        call.reshape(value, (channels, depth, height * width)),
        out=(call.shape[0], call.shape[1], height * width),
        named={"w": call.tensor(weight, call.within("weight"), image)} | named,
        stride=(window.stride[0], 1),
        dilation=(window.dilation[0], 1),
        groups=window.groups,
    )
    return call.reshape(out, call.shape)


def pool(kind: str) -> Callable[[Call], Value]:
    """Pools over volumes whose windows lie side by side: the mean or the largest of each."""

    def convert(call: Call) -> Value:
        value, sizes = call.value("self"), call.shape[1:]
        kernel = tuple(n // out for n, out in zip(value.shape[1:], sizes, strict=True))
        if "kernel_size" in call.args:
            kernel = _three(call["kernel_size"])
            stride = _three(call.get("stride") or kernel)
            plain = (
                stride == kernel
                and not any(_three(call.get("padding", 0)))
                and not call.get("ceil_mode", False)
            )
            if not plain or max(_three(call.get("dilation", 1))) > 1:
                call.fail(
                    "windows over volumes must lie side by side, without padding, dilation or ceil_mode"
                )
            if call.get("divisor_override") is not None:
                call.fail("its divisor_override is not supported; multiply what it gives instead")
        elif any(n % out for n, out in zip(value.shape[1:], sizes, strict=True)):
            call.fail(f"{value.shape[1:]} is not divided evenly into {sizes}; choose sizes that are")
        used = [n * size for n, size in zip(sizes, kernel, strict=True)]
        value = _padded(call, value, [(0, n - size) for n, size in zip(used, value.shape[1:], strict=True)])
        apart = (value.shape[0], *(size for pair in zip(sizes, kernel, strict=True) for size in pair))
        return call.emit(kind, call.reshape(value, apart), axes=(2, 4, 6))

    return convert


def with_indices(call: Call) -> list[Value]:
    return [pool("max")(replace(call, op="max_pool3d"))]


def _three(found: int | list[int] | tuple[int, ...]) -> tuple[int, ...]:
    sizes = (found,) if isinstance(found, int) else tuple(found)
    return sizes * 3 if len(sizes) == 1 else sizes


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])
