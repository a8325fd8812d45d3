"""Normalisation across channels whose training is faster than torch's own, which goes through a pooling in 3-D."""

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class ChannelNorm(nn.LocalResponseNorm):
    """torch's LocalResponseNorm of an odd size; in training computed another way, and differentiable once."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and torch.is_grad_enabled()) or self.size % 2 == 0 or input.dim() < 3:
            return super().forward(input)
        given = self.size, self.alpha / self.size, self.beta, self.k
        if input.is_cuda and input.itemsize <= 4 and input.numel() and _kernels_work(input.device):
            return _OnGpu.apply(input, *given)  # type: ignore[no-any-return, no-untyped-call]
        wide = input.float() if input.itemsize < 4 else input  # squares need the range
        found: Tensor = _Normalise.apply(wide, *given)  # type: ignore[no-untyped-call]
        return found.to(input.dtype)


@cache
def _kernels_work(device: torch.device) -> bool:
    """Whether Triton is there and can build for this GPU, by trying: it also needs a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return False
    from membound.zoo.lrn_triton import normalise

    try:
        normalise(torch.ones(1, 1, 1, device=device), 1, 1.0, 1.0, 1.0)
    except Exception:  # of many kinds
        return False
    return True


class _OnGpu(torch.autograd.Function):
    """The same as _Normalise, in a kernel each way; it takes any of the floating types, and sums in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, scale: float, beta: float, k: float) -> Tensor:
        from membound.zoo.lrn_triton import normalise

        x = x.contiguous()
        y, d = normalise(x, size, scale, beta, k)
        ctx.save_for_backward(x, d)
        ctx.given = size, scale, beta
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from membound.zoo.lrn_triton import gradient

        x, d = ctx.saved_tensors
        return gradient(x, d, g.contiguous(), *ctx.given), None, None, None, None


class _Normalise(torch.autograd.Function):
    """y = x d^-beta with d = k + scale sum x^2; its gradient is g d^-beta - 2 scale beta x sum(g y / d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, scale: float, beta: float, k: float) -> Tensor:
        d = _sum_around(x.square(), size).mul_(scale).add_(k)
        y = x * d.pow(-beta)
        ctx.save_for_backward(x, d, y)
        ctx.given = size, scale, beta
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, d, y = ctx.saved_tensors
        size, scale, beta = ctx.given
        around = _sum_around(g * y / d, size)
        return g * d.pow(-beta) - 2 * scale * beta * x * around, None, None, None, None


def _sum_around(x: Tensor, size: int) -> Tensor:
    """The sum over `size` channels around each."""
    out, channels = x.clone(), x.shape[1]
    for far in range(1, min(size // 2, channels - 1) + 1):
        out[:, far:] += x[:, : channels - far]
        out[:, : channels - far] += x[:, far:]
    return out
