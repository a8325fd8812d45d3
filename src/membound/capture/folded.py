"""Windows of an image that torch has folded into the batch, [batch * windows, ...], as local attention does.

A convolution takes them as one image in which they lie below each other, with zeros between them. What treats every
channel by itself takes them as channels.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from membound.capture.call import FIRST, Call, Value
from membound.capture.windows import all_axes, as_pair, padding

PER_CHANNEL = (
    "max_pool1d", "max_pool2d", "max_pool2d_with_indices", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "upsample_nearest1d",
    "upsample_nearest2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "pixel_shuffle",
)  # fmt: skip
CONVOLUTIONS = ("conv1d", "conv2d", "convolution")


def takes_folded(call: Call) -> bool:
    """Whether this operation on windows that are folded into the batch, and on nothing else, can be converted."""
    values = [value for value in call.args.values() if isinstance(value, Value)]
    folded = len(values) == 1 and values[0].place.fold > 1 and values[0].place == call.place
    return (
        folded
        and values[0].place.at == 0
        and (call.op in PER_CHANNEL or (call.op in CONVOLUTIONS and not call.get("transposed", False)))
    )


def convert_folded(call: Call, conversion: Callable[[Call], Any]) -> Any:
    return _convolution(call) if call.op in CONVOLUTIONS else _as_channels(call, conversion)


def _as_channels(call: Call, conversion: Callable[[Call], Any]) -> Any:
    """All channels of all windows at once."""
    name, value = next((name, value) for name, value in call.args.items() if isinstance(value, Value))
    joined = (value.shape[0] * value.shape[1], *value.shape[2:])
    image = replace(call.reshape(value, joined), place=FIRST)
    shape = (call.shape[0] * call.shape[1], *call.shape[2:])
    found = conversion(replace(call, args={**call.args, name: image}, shape=shape, place=FIRST))
    if isinstance(found, list):
        return [call.reshape(found[0], call.shape)]
    return call.reshape(found, call.shape)


def _convolution(call: Call) -> Value:
    """Each window gets a multiple of the stride in rows, its padding included: then all of them keep in step."""
    weight, value = call.constant("weight"), call.value("input")
    axes = weight.dim() - 2
    if axes not in (1, 2) or len(value.shape) != axes + 2:
        call.fail(
            f"convolutions of windows have 1 or 2 axes, not {axes}, on inputs of shape {value.shape[1:]}"
        )
    windows, channels = value.shape[:2]
    height, width = as_pair(value.shape[2:], 1)
    outputs, (rows, columns) = weight.shape[0], as_pair(call.shape[2:], 1)
    kernel = as_pair(weight.shape[2:], 1)
    dilation, stride = (as_pair(all_axes(call.get(name, 1), axes), 1) for name in ("dilation", "stride"))
    top, left, bottom, right = padding(call, axes, kernel, dilation)
    apart = -(-(height + top + bottom) // stride[0]) * stride[0]  # from one window to the next
    reach = dilation[0] * (kernel[0] - 1) + 1
    turned = call.emit(
        "permute",
        call.reshape(value, (windows, channels, height, width)),
        out=(channels, windows, height, width),
        axes=(1, 0, 2, 3),
    )
    if apart > height:
        turned = call.emit(
            "pad",
            turned,
            out=(channels, windows, apart, width),
            pad=((0, 0), (0, 0), (top, apart - height - top), (0, 0)),
        )
    named = {"w": call.tensor(weight, call.within("weight"), (outputs, weight.shape[1], *kernel))}
    if call.get("bias") is not None:
        named["b"] = call.tensor(call.constant("bias"), call.within("bias"))
    each = apart // stride[0]
    out = call.emit(
        "conv",
        call.reshape(turned, (channels, windows * apart, width)),
        out=(outputs, windows * each, columns),
        named=named,
        stride=stride,
        pad=(0, left, max(reach - stride[0], 0), right),
        dilation=dilation,
        groups=call.get("groups", 1),
    )
    out = call.reshape(out, (outputs, windows, each, columns))
    if rows < each:
        shape = (outputs, windows, rows, columns)
        out = call.emit("slice", out, out=shape, axis=2, start=0, stop=rows, step=1)
    back = call.emit("permute", out, out=(windows, outputs, rows, columns), axes=(1, 0, 2, 3))
    return call.reshape(back, call.shape)
