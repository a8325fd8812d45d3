"""The activations of a graph as torch has them."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: Mapping[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "leaky": F.leaky_relu,
    "clip": torch.clamp,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "elu": F.elu,
    "mish": F.mish,
    "softplus": F.softplus,
    "sqrt": torch.sqrt,
}
