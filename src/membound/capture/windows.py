"""Convolutions, pools and upsampling: what torch means by padding, rounding up and dividing, in numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from membound.capture.call import Call, Value
from membound.store.graph import Shape

Pair = tuple[int, int]


def convolution(call: Call) -> Value:
    """aten.conv1d and conv2d; one over sequences is one over images of height 1."""
    weight, bias = call.constant("weight"), call.get("bias")
    axes = weight.dim() - 2
    value = call.value("input")
    if axes not in (1, 2) or len(value.shape) != axes + 1:
        call.fail(f"convolutions have 1 or 2 axes, on inputs of 2 or 3, not {axes} on {len(value.shape)}")
    kernel, dilation = as_pair(weight.shape[2:], 1), as_pair(all_axes(call.get("dilation", 1), axes), 1)
    image = (weight.shape[0], weight.shape[1], *kernel)
    named = {"w": call.tensor(weight, call.within("weight"), image)}
    if bias is not None:
        named["b"] = call.tensor(call.constant("bias"), call.within("bias"))
    out = call.emit(
        "conv",
        _image(call, value),
        out=_image_shape(call.shape),
        named=named,
        stride=as_pair(all_axes(call.get("stride", 1), axes), 1),
        pad=padding(call, axes, kernel, dilation),
        dilation=dilation,
        groups=call.get("groups", 1),
    )
    return call.reshape(out, call.shape)


def padding(call: Call, axes: int, kernel: Pair, dilation: Pair) -> tuple[int, int, int, int]:
    found = call.get("padding", 0)
    if found == "valid":
        found = 0
    if found == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        before = [size // 2 for size in total]
        return before[0], before[1], total[0] - before[0], total[1] - before[1]
    top, left = as_pair(all_axes(found, axes), 0)
    return top, left, top, left


def max_pool(call: Call) -> Value:
    """aten.max_pool1d and 2d; what rounding up adds at the end becomes padding, which is minus infinity."""
    kernel, stride, pad = _window(call)
    value = call.value("self")
    axes = len(value.shape) - 1
    dilation = as_pair(all_axes(call.get("dilation", 1), axes), 1)
    over = _over(_image_shape(value.shape), _image_shape(call.shape), kernel, stride, pad, dilation)
    out = call.emit(
        "maxpool",
        _image(call, value),
        out=_image_shape(call.shape),
        kernel=kernel,
        stride=None if stride == kernel else stride,
        pad=(*pad, pad[0] + over[0], pad[1] + over[1]),
        dilation=dilation,
    )
    return call.reshape(out, call.shape)


def average_pool(call: Call) -> Value:
    """aten.avg_pool1d and 2d; what rounding up adds at the end is never counted."""
    kernel, stride, pad = _window(call)
    value = call.value("self")
    over = _over(_image_shape(value.shape), _image_shape(call.shape), kernel, stride, pad, (1, 1))
    image, out = _image_shape(value.shape)[1:], _image_shape(call.shape)[1:]
    covered = all(size <= side for size, side in zip(image, kernel, strict=True))
    if out == (1, 1) and covered and not any(pad) and call.get("divisor_override") is None and any(over):
        return _adaptive(call, "avg")  # one window, which reaches beyond all of the image
    counted = "all" if call.get("count_include_pad", True) else "valid"
    pooled = call.emit(
        "avgpool",
        _image(call, value),
        out=_image_shape(call.shape),
        kernel=kernel,
        stride=None if stride == kernel else stride,
        pad=(*pad, *pad),
        over=over,
        count=call.get("divisor_override", counted),
    )
    return call.reshape(pooled, call.shape)


def adaptive_average(call: Call) -> Value:
    return _adaptive(call, "avg")


def adaptive_max(call: Call) -> Value:
    return _adaptive(call, "max")


def _adaptive(call: Call, kind: str) -> Value:
    shape = _image_shape(call.shape)
    out = call.emit("adaptive", _image(call, call.value("self")), out=shape, kind=kind, size=shape[1:])
    return call.reshape(out, call.shape)


def resize(kind: str) -> Callable[[Call], Value]:
    """aten.upsample_*: by whole factors each pixel is repeated, else it is the general case."""

    def convert(call: Call) -> Value:
        value = call.value("input" if "input" in call.args else "self")
        image, shape = _image_shape(value.shape), _image_shape(call.shape)
        given = call.get("scale_factors") or [
            call[name] for name in ("scales_h", "scales_w", "scales") if name in call.args
        ]
        scales = [None] * (2 - len(given)) + [None if scale is None else float(scale) for scale in given]
        factor = _whole_factor(image, shape, scales, 0.5 if kind == "exact" else 0)
        if kind in ("nearest", "exact") and factor is not None:
            out = call.emit("upsample", _image(call, value), out=shape, factor=factor)
            return call.reshape(out, call.shape)
        corners = bool(call.get("align_corners", False))
        out = call.emit(
            "resize",
            _image(call, value),
            out=shape,
            kind=kind,
            size=shape[1:],
            corners=corners,
            scale=None if corners else _told(image, shape, scales),
        )
        return call.reshape(out, call.shape)

    return convert


def _whole_factor(image: Shape, shape: Shape, scales: list[float | None], shift: float) -> Pair | None:
    """By how much each pixel is repeated, if torch does so evenly."""
    factor = []
    for size, out, scale in zip(image[1:], shape[1:], scales, strict=True):
        # The shape alone does not tell: 2.05 takes 8 to 16, too, but repeats other pixels.
        if out % size or scale not in (None, out // size) or not _is_even(size, out // size, shift):
            return None
        factor.append(out // size)
    return factor[0], factor[1]


def _told(image: Shape, shape: Shape, scales: list[float | None]) -> tuple[float, float] | None:
    """The factors, where they are others than those of the sizes."""
    found = [
        out / size if scale is None else scale
        for size, out, scale in zip(image[1:], shape[1:], scales, strict=True)
    ]
    same = all(f == out / size for f, size, out in zip(found, image[1:], shape[1:], strict=True))
    return None if same else (found[0], found[1])


def _is_even(size: int, factor: int, shift: float) -> bool:
    """Whether torch repeats each pixel as often: it takes number floor((i + shift) (1 / factor)), in float32.

    >>> _is_even(2, 40, 0), _is_even(2, 41, 0), _is_even(2, 41, 0.5)
    (True, False, True)
    """
    pixels, scale = np.arange(size), np.float32(1 / factor)
    ends = (pixels * factor, pixels * factor + factor - 1)  # what lies between them is rounded as they are
    return all(
        (np.floor((end.astype(np.float32) + np.float32(shift)) * scale) == pixels).all() for end in ends
    )


def _window(call: Call) -> tuple[Pair, Pair, Pair]:
    axes = len(call.value("self").shape) - 1
    kernel = as_pair(all_axes(call["kernel_size"], axes), 1)
    stride = as_pair(all_axes(call.get("stride") or call["kernel_size"], axes), 1)
    return kernel, stride, as_pair(all_axes(call.get("padding", 0), axes), 0)


def _over(size: Shape, out: Shape, kernel: Pair, stride: Pair, pad: Pair, dilation: Pair) -> Pair:
    """How far the last window reaches beyond the padded image, in both directions."""
    reach = [
        (o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(out[1:], stride, dilation, kernel, strict=True)
    ]
    down, right = (max(r - n - 2 * p, 0) for r, n, p in zip(reach, size[1:], pad, strict=True))
    return down, right


def all_axes(found: int | list[int] | tuple[int, ...], axes: int) -> tuple[int, ...]:
    sizes = (found,) if isinstance(found, int) else tuple(found)
    return sizes * axes if len(sizes) == 1 else sizes


def as_pair(sizes: Any, height: int) -> Pair:
    """Sizes in two directions; a sequence has `height` in the first."""
    first, *rest = (int(size) for size in sizes)
    return (first, rest[0]) if rest else (height, first)


def _image(call: Call, value: Value) -> Value:
    return call.reshape(value, _image_shape(value.shape))


def _image_shape(shape: Shape) -> Shape:
    return shape if len(shape) == 3 else (shape[0], 1, shape[1])
