"""AlexNet as Caffe trains it on ImageNet: 60,965,224 parameters."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from membound.zoo.layers import conv, gaussian, linear, lrn, max_pool
from membound.zoo.solver import Solver, step


class AlexNet(nn.Module):
    """Five convolutions (three of them in two groups) and three fully-connected layers with dropout.

    >>> with torch.device("meta"):
    ...     net = AlexNet()
    >>> net(torch.zeros(2, *AlexNet.input_shape, device="meta")).shape
    torch.Size([2, 1000])
    """

    input_shape: ClassVar[tuple[int, int, int]] = (3, 227, 227)
    caffe_solver: ClassVar[Solver] = Solver(
        batch_size=256,
        steps=450_000,
        lr=step(0.01, 0.1, 100_000),
        momentum=0.9,
        weight_decay=5e-4,
        bias_decay_mult=0.0,
        mean="image",
        crop=227,
        mirror=True,
    )

    def __init__(self, classes: int = 1000, generator: torch.Generator | None = None) -> None:
        super().__init__()
        narrow, narrower = gaussian(0.01), gaussian(0.005)
        self.conv1 = conv(3, 96, 11, narrow, generator, stride=4)
        self.norm1 = lrn(5, 1e-4, 0.75)
        self.pool1 = max_pool(3, 2)
        self.conv2 = conv(96, 256, 5, narrow, generator, pad=2, groups=2, bias=0.1)
        self.norm2 = lrn(5, 1e-4, 0.75)
        self.pool2 = max_pool(3, 2)
        self.conv3 = conv(256, 384, 3, narrow, generator, pad=1)
        self.conv4 = conv(384, 384, 3, narrow, generator, pad=1, groups=2, bias=0.1)
        self.conv5 = conv(384, 256, 3, narrow, generator, pad=1, groups=2, bias=0.1)
        self.pool5 = max_pool(3, 2)
        self.fc6 = linear(256 * 6 * 6, 4096, narrower, generator, bias=0.1)
        self.drop6 = nn.Dropout(0.5)
        self.fc7 = linear(4096, 4096, narrower, generator, bias=0.1)
        self.drop7 = nn.Dropout(0.5)
        self.fc8 = linear(4096, classes, narrow, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images [N, 3, 227, 227] in BGR with values 0..255 less the mean image."""
        x = self.pool1(self.norm1(relu(self.conv1(x))))
        x = self.pool2(self.norm2(relu(self.conv2(x))))
        x = relu(self.conv3(x))
        x = relu(self.conv4(x))
        x = self.pool5(relu(self.conv5(x)))
        x = self.drop6(relu(self.fc6(x.flatten(1))))
        x = self.drop7(relu(self.fc7(x)))
        scores: Tensor = self.fc8(x)
        return scores


def alexnet(classes: int = 1000, generator: torch.Generator | None = None) -> AlexNet:
    """AlexNet with fresh weights, drawn from `generator` or else from torch's own random state.

    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in mb.zoo.alexnet().parameters())
    60965224
    """
    return AlexNet(classes, generator)
