"""Networks for benchmarks that the zoo does not have: the shapes of ResNet-18 and MobileNet, on 224-pixel images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


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
