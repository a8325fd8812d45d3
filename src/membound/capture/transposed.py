"""Transposed convolutions as plain ones: the outputs between two steps are channels of their own, then interleaved.

Along one axis, with stride s, kernel k and padding p, y[o] = sum over i of x[i] w[o + p - i s]. With o + p = q s + r
this is, for each r, a convolution of x with every s-th element of w from r on, mirrored.
"""

from torch import Tensor

from membound.capture.call import Call, Value


def transposed_convolution(call: Call) -> Value:
    """aten.conv_transpose1d and 2d; one over sequences is one over images of height 1."""
    weight, value = call.constant("weight"), call.value("input")
    axes = weight.dim() - 2
    if axes not in (1, 2) or len(value.shape) != axes + 1:
        call.fail(
            f"transposed convolutions have 1 or 2 axes, on inputs of 2 or 3, not {axes} on {len(value.shape)}"
        )
    stride, dilation = (_both(call.get(name, 1), axes, 1) for name in ("stride", "dilation"))
    pad, more = (_both(call.get(name, 0), axes, 0) for name in ("padding", "output_padding"))
    groups = call.get("groups", 1)
    image = value.shape if axes == 2 else (value.shape[0], 1, value.shape[1])
    kernels = weight if axes == 2 else weight[:, :, None]
    reach = []
    for axis in (0, 1):
        extent = dilation[axis] * (kernels.shape[2 + axis] - 1) + 1
        reach.append(-(-max(extent, extent + more[axis] - pad[axis]) // stride[axis]))
    named = {"w": call.tensor(_taken_apart(kernels, groups, stride, dilation, reach), call.within("weight"))}
    if call.get("bias") is not None:
        spread = call.constant("bias").repeat_interleave(stride[0] * stride[1])
        named["b"] = call.tensor(spread, call.within("bias"))
    outputs = kernels.shape[1] * groups
    height, width = (image[1 + axis] + reach[axis] - 1 for axis in (0, 1))
    edges = (reach[0] - 1, reach[1] - 1)
    out = call.emit(
        "conv",
        call.reshape(value, image),
        out=(outputs * stride[0] * stride[1], height, width),
        named=named,
        pad=(*edges, *edges),
        groups=groups,
    )
    return call.reshape(_cropped(call, _interleaved(call, out, stride), pad, axes), call.shape)


def _taken_apart(w: Tensor, groups: int, stride: list[int], dilation: list[int], reach: list[int]) -> Tensor:
    """[in, out / groups, kh, kw] as [out * sh * sw, in / groups, reach, reach], mirrored."""
    inputs, each = w.shape[:2]
    full = w.new_zeros(inputs, each, reach[0] * stride[0], reach[1] * stride[1])
    ends = [dilation[axis] * (w.shape[2 + axis] - 1) + 1 for axis in (0, 1)]
    full[:, :, : ends[0] : dilation[0], : ends[1] : dilation[1]] = w
    apart = full.reshape(groups, inputs // groups, each, reach[0], stride[0], reach[1], stride[1])
    apart = apart.permute(0, 2, 4, 6, 1, 3, 5).flip(5, 6)
    return apart.reshape(groups * each * stride[0] * stride[1], inputs // groups, *reach).contiguous()


def _interleaved(call: Call, out: Value, stride: list[int]) -> Value:
    channels, height, width = out.shape
    (down, right), count = stride, channels // (stride[0] * stride[1])
    if (down, right) == (1, 1):
        return out
    apart = call.reshape(out, (count, down, right, height, width))
    moved = call.emit("permute", apart, out=(count, height, down, width, right), axes=(0, 3, 1, 4, 2))
    return call.reshape(moved, (count, height * down, width * right))


def _cropped(call: Call, out: Value, pad: list[int], axes: int) -> Value:
    wanted = call.shape if axes == 2 else (call.shape[0], 1, call.shape[1])
    for axis in (1, 2):
        start, stop = pad[axis - 1], pad[axis - 1] + wanted[axis]
        if (start, stop) != (0, out.shape[axis]):
            shape = (*out.shape[:axis], stop - start, *out.shape[axis + 1 :])
            out = call.emit("slice", out, out=shape, axis=axis, start=start, stop=stop, step=1)
    return out


def _both(found: int | list[int], axes: int, height: int) -> list[int]:
    sizes = [found] * axes if isinstance(found, int) else list(found)
    sizes = sizes * axes if len(sizes) == 1 else sizes
    return sizes if axes == 2 else [height, *sizes]
