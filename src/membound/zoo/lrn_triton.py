"""Normalisation across channels on a GPU, in Triton: one kernel each way, where torch's own takes about twenty.

Every element reads its neighbours itself: all but the first reading of a value come out of a cache. Sums are float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _forward(x, y, d, channels, pixels, scale, beta, k, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """d = k + scale * the sum of squares around each; y = x d^-beta."""
    channel = tl.zeros((BLOCK,), tl.int32) + tl.program_id(0) % channels
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    at = tl.program_id(0).to(tl.int64) * pixels + pixel
    around = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(-HALF, HALF + 1):
        there = inside & (channel + step >= 0) & (channel + step < channels)
        near = tl.load(x + at + step * pixels, mask=there, other=0).to(tl.float32)
        around += near * near
    divisor = k + scale * around
    own = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    tl.store(y + at, own * tl.exp2(-beta * tl.log2(divisor)), mask=inside)
    tl.store(d + at, divisor, mask=inside)


@triton.jit
def _backward(x, d, g, out, channels, pixels, scale, beta, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """g d^-beta - 2 scale beta x times the sum of g x d^(-beta - 1) around each."""
    channel = tl.zeros((BLOCK,), tl.int32) + tl.program_id(0) % channels
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    at = tl.program_id(0).to(tl.int64) * pixels + pixel
    around = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(-HALF, HALF + 1):
        there = inside & (channel + step >= 0) & (channel + step < channels)
        near = at + step * pixels
        gradient = tl.load(g + near, mask=there, other=0).to(tl.float32)
        value = tl.load(x + near, mask=there, other=0).to(tl.float32)
        divisor = tl.load(d + near, mask=there, other=1)
        around += gradient * value * tl.exp2(-(beta + 1) * tl.log2(divisor))
    own = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    gradient = tl.load(g + at, mask=inside, other=0).to(tl.float32)
    divisor = tl.load(d + at, mask=inside, other=1)
    found = gradient * tl.exp2(-beta * tl.log2(divisor)) - 2 * scale * beta * own * around
    tl.store(out + at, found, mask=inside)


def normalise(x: Tensor, size: int, scale: float, beta: float, k: float) -> tuple[Tensor, Tensor]:
    """y = x d^-beta, and d = k + scale * the sum of squares over `size` channels around each, in float32."""
    y, d = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    with _on(x):
        _forward[_grid(x)](x, y, d, *_numbers(x), scale, beta, k, size // 2, BLOCK)
    return y, d


def gradient(x: Tensor, d: Tensor, g: Tensor, size: int, scale: float, beta: float) -> Tensor:
    """The gradient of x from that of y."""
    out = torch.empty_like(x)
    with _on(x):
        _backward[_grid(x)](x, d, g, out, *_numbers(x), scale, beta, size // 2, BLOCK)
    return out


def _on(x: Tensor) -> "torch.cuda.device":
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device(x.device if x.is_cuda else -1)


def _grid(x: Tensor) -> tuple[int, int]:
    """A program for every channel of every image, and BLOCK of its pixels."""
    return x.shape[0] * x.shape[1], triton.cdiv(x[0, 0].numel(), BLOCK)


def _numbers(x: Tensor) -> tuple[int, int]:
    return x.shape[1], x[0, 0].numel()
