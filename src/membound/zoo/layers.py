"""The layers of the Caffe networks: fillers, pooling that rounds up, normalisation across channels."""

from collections.abc import Callable
from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor, nn

from membound.errors import MemboundError
from membound.zoo.lrn import ChannelNorm

Filler = Callable[[Tensor, torch.Generator | None], object]
Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def xavier_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill with Caffe's 'xavier': uniform on +-sqrt(3 / fan_in), where fan_in = weights per output.

    >>> w = xavier_(torch.empty(500, 300))
    >>> bool(w.abs().max() <= 0.1)
    True
    """
    bound = sqrt(3 / (weight.numel() // weight.shape[0]))
    return nn.init.uniform_(weight, -bound, bound, generator)


def gaussian(std: float) -> Filler:
    """Make a filler that draws from the normal distribution of mean 0.

    >>> w = torch.empty(100, 100)
    >>> _ = gaussian(0.01)(w, torch.Generator().manual_seed(0))
    >>> 0.0098 < w.std().item() < 0.0102
    True
    """
    return lambda weight, generator: nn.init.normal_(weight, 0.0, std, generator)


def conv(
    inputs: int,
    outputs: int,
    kernel: int,
    fill: Filler,
    generator: torch.Generator | None,
    *,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
    bias: float = 0.0,
) -> nn.Conv2d:
    """A square convolution whose weight is filled by `fill` and whose biases start at `bias`.

    >>> conv(3, 32, 5, gaussian(1e-4), None, pad=2)
    Conv2d(3, 32, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))
    """
    layer = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, device="meta")
    return _filled(layer, fill, generator, bias)


def linear(
    inputs: int, outputs: int, fill: Filler, generator: torch.Generator | None, *, bias: float = 0.0
) -> nn.Linear:
    """A fully-connected layer whose weight is filled by `fill` and whose biases start at `bias`.

    >>> linear(800, 500, xavier_, None)
    Linear(in_features=800, out_features=500, bias=True)
    """
    if outputs < 1:
        raise MemboundError(f"a network needs at least one class, not {outputs}")
    return _filled(nn.Linear(inputs, outputs, device="meta"), fill, generator, bias)


def _filled(layer: Layer, fill: Filler, generator: torch.Generator | None, bias: float) -> Layer:
    # Made on the meta device, so that torch's own initialization costs neither time nor random numbers.
    layer.to_empty(device=torch.get_default_device())
    assert layer.bias is not None
    fill(layer.weight, generator)
    nn.init.constant_(layer.bias, bias)
    return layer


def max_pool(kernel: int, stride: int, pad: int = 0) -> nn.MaxPool2d:
    """Caffe's max pooling: ceil((size + 2 pad - kernel) / stride) + 1 windows, less one that starts outside.

    >>> max_pool(3, 2)(torch.zeros(1, 1, 32, 32)).shape[-1]
    16
    """
    return nn.MaxPool2d(kernel, stride, pad, ceil_mode=True)


def average_pool(kernel: int, stride: int, pad: int = 0) -> nn.AvgPool2d:
    """Caffe's average pooling: sizes as in `max_pool`; divides by the window clipped to the padded input.

    >>> average_pool(3, 2)(torch.ones(1, 1, 4, 4)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    return nn.AvgPool2d(kernel, stride, pad, ceil_mode=True, count_include_pad=True)


def lrn(size: int, alpha: float, beta: float) -> nn.LocalResponseNorm:
    """Normalise across channels: x / (1 + alpha/size sum x^2)^beta, the sum over `size` channels around.

    >>> lrn(5, 5.0, 1.0)(torch.ones(1, 1, 1, 1)).item()
    0.5
    """
    return ChannelNorm(size, alpha, beta, k=1.0)
