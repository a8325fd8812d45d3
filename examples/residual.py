"""A network of one's own for `membound fit examples.residual:small_resnet`: residual blocks with batch norm.

A callable that has a parameter `classes` is told how many there are.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import relu


class Block(nn.Module):
    """Two convolutions around which the input goes unchanged, or through one of its own where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(out + self.skip(x))


def small_resnet(classes: int = 10, width: int = 16) -> nn.Module:
    """Four blocks at widths of 1, 2, 4 and 8 times `width`: 308,826 parameters for ten classes."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    stem = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))
