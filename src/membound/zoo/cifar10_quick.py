"""Caffe's 'CIFAR-10 quick' network: 145,578 parameters."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from membound.zoo.layers import average_pool, conv, gaussian, linear, max_pool
from membound.zoo.solver import Solver, multistep


class Cifar10Quick(nn.Module):
    """Three convolutions, max-pooled then average-pooled twice, and two fully-connected layers.

    >>> Cifar10Quick()(torch.zeros(2, *Cifar10Quick.input_shape)).shape
    torch.Size([2, 10])
    """

    input_shape: ClassVar[tuple[int, int, int]] = (3, 32, 32)
    caffe_names: ClassVar[Mapping[str, str]] = {"ip1": "fc1", "ip2": "fc2"}
    caffe_solver: ClassVar[Solver] = Solver(
        batch_size=100,
        steps=5_000,
        lr=multistep(0.001, {4_000: 0.0001}),
        momentum=0.9,
        weight_decay=0.004,
        mean="image",
    )

    def __init__(self, classes: int = 10, generator: torch.Generator | None = None, hidden: int = 64) -> None:
        super().__init__()
        self.conv1 = conv(3, 32, 5, gaussian(1e-4), generator, pad=2)
        self.pool1 = max_pool(3, 2)
        self.conv2 = conv(32, 32, 5, gaussian(0.01), generator, pad=2)
        self.pool2 = average_pool(3, 2)
        self.conv3 = conv(32, 64, 5, gaussian(0.01), generator, pad=2)
        self.pool3 = average_pool(3, 2)
        self.fc1 = linear(64 * 4 * 4, hidden, gaussian(0.1), generator)
        self.fc2 = linear(hidden, classes, gaussian(0.1), generator)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images [N, 3, 32, 32] with values 0..255 less the mean image."""
        x = relu(self.pool1(self.conv1(x)))
        x = self.pool2(relu(self.conv2(x)))
        x = self.pool3(relu(self.conv3(x)))
        scores: Tensor = self.fc2(self.fc1(x.flatten(1)))
        return scores


def cifar10_quick(
    classes: int = 10, generator: torch.Generator | None = None, hidden: int = 64
) -> Cifar10Quick:
    """CIFAR-10-quick with fresh weights, drawn from `generator` or else from torch's own random state.

    `hidden` units are in the first fully-connected layer.

    >>> sum(p.numel() for p in mb.zoo.cifar10_quick().parameters())
    145578
    """
    return Cifar10Quick(classes, generator, hidden)
