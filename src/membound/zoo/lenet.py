"""LeNet as Caffe trains it on MNIST: 431,080 parameters."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from membound.zoo.layers import conv, linear, max_pool, xavier_
from membound.zoo.solver import Solver, inv


class LeNet(nn.Module):
    """Two convolutions, each max-pooled and without ReLU, and two fully-connected layers.

    >>> LeNet()(torch.zeros(2, *LeNet.input_shape)).shape
    torch.Size([2, 10])
    """

    input_shape: ClassVar[tuple[int, int, int]] = (1, 28, 28)
    caffe_names: ClassVar[Mapping[str, str]] = {"ip1": "fc1", "ip2": "fc2"}
    caffe_solver: ClassVar[Solver] = Solver(
        batch_size=64,
        steps=10_000,
        lr=inv(0.01, 1e-4, 0.75),
        momentum=0.9,
        weight_decay=5e-4,
        peak_lr=0.06,
        scale=1 / 256,
    )

    def __init__(
        self, classes: int = 10, generator: torch.Generator | None = None, hidden: int = 500
    ) -> None:
        super().__init__()
        self.conv1 = conv(1, 20, 5, xavier_, generator)
        self.pool1 = max_pool(2, 2)
        self.conv2 = conv(20, 50, 5, xavier_, generator)
        self.pool2 = max_pool(2, 2)
        self.fc1 = linear(50 * 4 * 4, hidden, xavier_, generator)
        self.fc2 = linear(hidden, classes, xavier_, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images [N, 1, 28, 28] with values 0..255 times 1/256."""
        x = self.pool1(self.conv1(x))
        x = self.pool2(self.conv2(x))
        x = relu(self.fc1(x.flatten(1)))
        scores: Tensor = self.fc2(x)
        return scores


def lenet(classes: int = 10, generator: torch.Generator | None = None, hidden: int = 500) -> LeNet:
    """LeNet with fresh weights, drawn from `generator` or else from torch's own random state.

    `hidden` units are in the first fully-connected layer.

    >>> sum(p.numel() for p in mb.zoo.lenet().parameters())
    431080
    """
    return LeNet(classes, generator, hidden)
