"""Sparse networks to race: the zoo's, and ResNet-18, MobileNet and EfficientNet-Lite0 in shape, on 224-pixel images.

Weights that are not SkimCaffe's are random; what is kept are the largest, so that nonzeros lie at random places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from membound import zoo
from membound.train.projection import project_
from membound.zoo.layers import conv, gaussian, linear, xavier_

DENSITIES = (0.1, 0.05, 0.2)  # of all but AlexNet; what tells most comes first
Raced = tuple[Callable[[], nn.Module], tuple[int, ...]]  # what makes a network, and the shape of its images


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int = 1000) -> nn.Sequential:
    blocks = []
    inputs = 64
    for outputs, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        blocks.append(Block(inputs, outputs, stride))
        inputs = outputs
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def narrow_lenet(width: float) -> nn.Module:
    """LeNet with that part of its channels and hidden units."""
    net = zoo.lenet(hidden=max(round(500 * width), 1))
    first, second = max(round(20 * width), 1), max(round(50 * width), 1)
    net.conv1 = conv(1, first, 5, xavier_, None)
    net.conv2 = conv(first, second, 5, xavier_, None)
    net.fc1 = linear(16 * second, net.fc2.in_features, xavier_, None)
    return net


def narrow_quick(width: float) -> nn.Module:
    """CIFAR-10-quick with that part of its channels and hidden units."""
    some, more = max(round(32 * width), 1), max(round(64 * width), 1)
    net = zoo.cifar10_quick(hidden=more)
    net.conv1 = conv(3, some, 5, gaussian(1e-4), None, pad=2)
    net.conv2 = conv(some, some, 5, gaussian(0.01), None, pad=2)
    net.conv3 = conv(some, more, 5, gaussian(0.01), None, pad=2)
    net.fc1 = linear(16 * more, more, gaussian(0.1), None)
    return net


def mobilenet(classes: int = 1000) -> nn.Sequential:
    """MobileNet v1: depthwise 3x3 and pointwise 1x1 convolutions by turns."""

    def convolution(
        inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]

    layers = convolution(3, 32, 3, 2)
    inputs = 32
    for outputs, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
    ):  # fmt: skip
        layers += convolution(inputs, inputs, 3, stride, groups=inputs) + convolution(inputs, outputs, 1)
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, classes))


def keep_(net: nn.Module, **fractions: float) -> nn.Module:
    """Project each named layer's weight onto that fraction of it."""
    for name, fraction in fractions.items():
        weight = net.get_parameter(f"{name}.weight")
        project_(weight, round(weight.numel() * fraction))
    return net


def thin_(net: nn.Module, density: float) -> nn.Module:
    """Every convolution and matrix but the first and the depthwise ones."""
    layers = [
        name
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)
    ]
    return keep_(net, **dict.fromkeys(layers[1:], density))


def everything(skimcaffe: Path | None) -> dict[str, Raced]:
    """All that is raced, by name; each is made when it is asked for, with the same weights every time."""

    def thin(make: Callable[[], nn.Module], density: float) -> Callable[[], nn.Module]:
        return lambda: thin_(make(), density)

    photos, found = (3, 224, 224), dict[str, Raced]()
    for density in DENSITIES:
        found[f"lenet, {density:.0%}"] = thin(zoo.lenet, density), (1, 28, 28)
        found[f"quick, {density:.0%}"] = thin(zoo.cifar10_quick, density), (3, 32, 32)
        found[f"resnet8, {density:.0%}"] = thin(zoo.resnet8, density), (3, 32, 32)
        found[f"resnet18, {density:.0%}"] = thin(resnet18, density), photos
        found[f"mobilenet, {density:.0%}"] = thin(mobilenet, density), photos
        found[f"lite0, {density:.0%}"] = thin(zoo.efficientnet_lite0, density), photos
        if density == DENSITIES[0]:
            found |= alexnets(skimcaffe)
    return {name: (_seeded(make), shape) for name, (make, shape) in found.items()}


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def seeded() -> nn.Module:
        torch.manual_seed(0)
        return make().eval()

    return seeded


def alexnets(skimcaffe: Path | None) -> dict[str, Raced]:
    image = (3, 227, 227)
    rest = ("conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")

    def paper() -> nn.Module:
        return keep_(zoo.alexnet(), fc6=3e6 / (4096 * 9216), fc7=3e6 / 4096**2, fc8=4e5 / 4096000)

    def tenth() -> nn.Module:
        return keep_(zoo.alexnet(), **dict.fromkeys(rest, 0.1))

    found: dict[str, Raced] = {"alexnet, a tenth": (tenth, image), "alexnet, the paper's": (paper, image)}
    if skimcaffe is None:
        return found
    weights = np.load(skimcaffe)

    def real() -> nn.Module:
        net = keep_(zoo.alexnet(), fc6=0.09, fc7=0.09, fc8=0.25)
        with torch.no_grad():
            for name in ("conv1", "conv2", "conv3", "conv4", "conv5"):
                net.get_parameter(f"{name}.weight").copy_(torch.from_numpy(weights[name]))
        return net

    return found | {"alexnet, sparse convolutions": (real, image)}
