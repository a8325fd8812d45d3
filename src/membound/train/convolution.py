"""Gradients of convolutions as products of matrices, for CPUs on which torch has no fast kernel for them.

On ARM without SVE (Cortex-A, Neoverse N1) torch computes these gradients with a plain reference product. Here the
windows of some images become the rows of a matrix, and BLAS does the work:

    y = windows(x) W,   dW = windows(x)^T dy,   dx = what the taps of dy W^T add up to
"""

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, pad
from torch.overrides import TorchFunctionMode

TOGETHER = 8 << 20  # bytes of windows that are written out at once
FEW_CHANNELS = 4  # below it windows are written column by column: runs along a row of an image are longer


@cache
def gradients_are_slow() -> bool:
    """Whether torch has only a reference kernel for the gradients of convolutions on this CPU."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    plain = torch.backends.cpu.get_cpu_capability() == "DEFAULT"  # no SVE, for which there are kernels
    return arm and plain and torch._C._has_mkldnn


def fast_gradients(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, the convolutions of a network that is trained get their gradients here, where that is faster."""
    return ByProducts() if device.type == "cpu" and gradients_are_slow() else nullcontext()


class ByProducts(TorchFunctionMode):
    """Inside, the gradients of `conv2d` are products of matrices, whoever calls it.

    >>> x, layer = torch.ones(1, 1, 3, 3), nn.Conv2d(1, 1, 2)
    >>> with ByProducts():
    ...     layer(x).sum().backward()
    >>> layer.weight.grad.flatten().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is conv2d and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return _convolve(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """As conv2d, to which all is left that is not plain: a window at every pixel, of several pixels."""
    tensors = [input, weight, *([] if bias is None else [bias])]
    plain = all(type(each) in (Tensor, nn.Parameter) and each.dtype == torch.float32 for each in tensors)
    usual = groups == 1 and not isinstance(padding, str) and _pair(stride) == _pair(dilation) == (1, 1)
    if plain and usual and weight.requires_grad and not torch.is_autocast_enabled("cpu"):
        around = _pair(padding)
        if _fits(input.shape, weight.shape, around):
            found: Tensor = Convolution.apply(input, weight, bias, around)  # type: ignore[no-untyped-call]
            return found
    return conv2d(input, weight, bias, stride, padding, dilation, groups)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def _fits(images: torch.Size, weight: torch.Size, around: tuple[int, int]) -> bool:
    """Whether there is anything to do, and nothing that torch has to refuse."""
    if len(images) != 4 or len(weight) != 4 or images[1] != weight[1] or 0 in images or 0 in weight:
        return False
    sides = zip(images[2:], weight[2:], around, strict=True)
    return weight[2] * weight[3] > 1 and all(side + 2 * more >= taps for side, taps, more in sides)


class Windows:
    """How the windows of a convolution lie in images, padded."""

    def __init__(self, images: Tensor, weight: Tensor, around: tuple[int, int]) -> None:
        self.units, self.channels, *kernel = weight.shape
        self.kernel, self.around = kernel, around
        self.size = [side + 2 * more for side, more in zip(images.shape[2:], around, strict=True)]
        self.out = [side - taps + 1 for side, taps in zip(self.size, kernel, strict=True)]
        self.length = kernel[0] * kernel[1] * self.channels
        self.together = max(TOGETHER // (self.out[0] * self.out[1] * self.length * images.element_size()), 1)
        self.matrix = weight.permute(2, 3, 1, 0).reshape(self.length, self.units)

    def rows(self, images: Tensor) -> Tensor:
        """Of images [N, C, H, W], every window: [N * places, taps * C]."""
        x = images.permute(0, 2, 3, 1)
        (top, left) = self.around
        x = pad(x, (0, 0, left, left, top, top)) if top or left else x
        x = x.contiguous()
        each, row, column, channel = x.stride()
        if self.channels < FEW_CHANNELS:
            sizes = (*self.kernel, self.channels, len(x), *self.out)
            return x.as_strided(sizes, (row, column, channel, each, row, column)).reshape(self.length, -1).t()
        sizes = (len(x), *self.out, *self.kernel, self.channels)
        return x.as_strided(sizes, (each, row, column, row, column, channel)).reshape(-1, self.length)

    def gradient(self, g: Tensor) -> Tensor:
        """Of images [N, C, H, W], from that of what the network has there, [N, rows, columns, units].

        With the images innermost, what the taps give is added in long runs.
        """
        given = self.matrix @ g.permute(3, 1, 2, 0).reshape(self.units, -1)
        given = given.view(*self.kernel, self.channels, *self.out, len(g))
        (height, width), (top, left) = self.out, self.around
        rows = g.new_zeros(self.kernel[0], self.channels, height, self.size[1], len(g))
        for j in range(self.kernel[1]):
            rows[:, :, :, j : j + width] += given[:, j]
        found = g.new_zeros(self.channels, *self.size, len(g))
        for i in range(self.kernel[0]):
            found[:, i : i + height] += rows[i]
        return found[:, top : self.size[0] - top, left : self.size[1] - left].permute(3, 0, 1, 2)


class Convolution(torch.autograd.Function):
    """conv2d with windows that are written out anew in the backward pass, some images at once: none are kept."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, around: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.around = around
        if images.shape[1] > 1:  # torch's forward pass is fast but for one channel
            return conv2d(images, weight, bias, padding=around)
        windows = Windows(images, weight, around)
        found = images.new_empty(len(images), *windows.out, windows.units)
        for at in range(0, len(images), windows.together):
            part = slice(at, at + windows.together)
            torch.mm(windows.rows(images[part]), windows.matrix, out=found[part].view(-1, windows.units))
        if bias is not None:
            found += bias
        return found.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        windows, g = Windows(images, weight, ctx.around), gradient.permute(0, 2, 3, 1).contiguous()
        of_images = torch.empty_like(images) if ctx.needs_input_grad[0] else None
        of_weight = g.new_zeros(windows.units, windows.length)
        for at in range(0, len(images), windows.together):
            part = slice(at, at + windows.together)
            rows, given = windows.rows(images[part]), g[part].view(-1, windows.units)
            if windows.channels < FEW_CHANNELS:  # the faster way round for windows that lie in columns
                of_weight += (rows.t() @ given).t()
            else:
                of_weight.addmm_(given.t(), rows)
            if of_images is not None:
                of_images[part] = windows.gradient(g[part])
        of_weight = of_weight.view(windows.units, *windows.kernel, windows.channels).permute(0, 3, 1, 2)
        of_bias = g.sum((0, 1, 2)) if ctx.needs_input_grad[2] else None
        return of_images, of_weight.contiguous(), of_bias, None
