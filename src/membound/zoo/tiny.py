"""MLPerf Tiny's networks: an image classifier, ResNet-8; a person detector, MobileNet v1; a keyword spotter, DS-CNN.

`width` is the number of channels of the first layer (of MobileNet: a factor on all of them). As in TensorFlow, where
the networks come from, strided convolutions pad more below and on the right.
"""

from typing import ClassVar

from torch import Tensor, nn

from membound.errors import MemboundError
from membound.zoo.efficientnet_lite0 import Same

# Output channels at width 1 and stride, of each depthwise and pointwise pair of MobileNet v1.
MOBILENET = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


class ResNet8(nn.Module):
    """A 3x3 convolution and three residual blocks of two more, the second and third with a stride of 2.

    >>> import torch
    >>> ResNet8()(torch.zeros(2, *ResNet8.input_shape)).shape
    torch.Size([2, 10])
    """

    input_shape: ClassVar[tuple[int, int, int]] = (3, 32, 32)

    def __init__(self, classes: int = 10, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        _check_sizes(classes, width)
        self.stem = _filtered(channels, width, 3)
        self.blocks = nn.Sequential(
            ResidualBlock(width, width, 1),
            ResidualBlock(width, 2 * width, 2),
            ResidualBlock(2 * width, 4 * width, 2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images [N, channels, H, W]."""
        scores: Tensor = self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))
        return scores


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution with biases where the stride is not 1."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _filtered(inputs, outputs, 3, stride)
        self.conv2 = _filtered(outputs, outputs, 3, acts=False)
        self.shortcut: nn.Module = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        y: Tensor = self.act(self.conv2(self.conv1(x)) + self.shortcut(x))
        return y


def resnet8(classes: int = 10, width: int = 16, channels: int = 3) -> ResNet8:
    """MLPerf Tiny's image classifier with fresh weights: 77,360 weights and, with batch norm folded, 346 biases.

    >>> sum(p.numel() for p in mb.zoo.resnet8().parameters() if p.dim() > 1)
    77360
    """
    return ResNet8(classes, width, channels)


def mobilenet_v1(classes: int = 2, width: float = 0.25, channels: int = 3) -> nn.Sequential:
    """MobileNet v1, a quarter as wide as the original: MLPerf Tiny's person detector on 96-pixel images.

    >>> sum(p.numel() for p in mb.zoo.mobilenet_v1().parameters() if p.dim() > 1)
    208112
    """
    _check_sizes(classes, width)

    def wide(outputs: int) -> int:
        return max(round(outputs * width), 1)

    layers, inputs = [_filtered(channels, wide(32), 3, 2)], wide(32)
    for outputs, stride in MOBILENET:
        layers += [_filtered(inputs, inputs, 3, stride, groups=inputs), _filtered(inputs, wide(outputs), 1)]
        inputs = wide(outputs)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def ds_cnn(classes: int = 12, width: int = 64, channels: int = 1) -> nn.Sequential:
    """MLPerf Tiny's keyword spotter, on spectrograms [N, 1, 49, 10]: a convolution and four depthwise pairs.

    >>> sum(p.numel() for p in mb.zoo.ds_cnn().parameters() if p.dim() > 1)
    22016
    """
    _check_sizes(classes, width)
    layers = [_filtered(channels, width, (10, 4), 2)]
    for _ in range(4):
        layers += [_filtered(width, width, 3, groups=width), _filtered(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def _filtered(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    acts: bool = True,
) -> nn.Sequential:
    """A convolution and its batch norm, with a ReLU unless a shortcut comes first."""
    plain = stride == 1 and isinstance(kernel, int)  # pads alike on all sides
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        if plain and isinstance(kernel, int)
        else Same(inputs, outputs, kernel, stride, groups),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if acts else []))


def _check_sizes(classes: int, width: float) -> None:
    if classes < 1:
        raise MemboundError(f"a network needs at least one class, not {classes}")
    if not width > 0:
        raise MemboundError(f"width={width!r}: a network needs a width above 0", about="width")
