"""Digits on a microcontroller of 8 KB of flash and 2 KB of RAM, code and stack included.

    membound fit examples.digits:digits --data mnist --target micro --budget 8KB --ram 2KB \\
        --augment shift=2,turn=8,zoom=0.08 --steps 1000 --batch-size 128 --out digits.safetensors
    membound export digits.safetensors --c firmware

LeNet's maps are too wide for 2 KB: this is a narrower network of the same kind. More steps make it better.
"""

from torch import Tensor, nn


class Digits(nn.Module):
    """Two convolutions with pools and two linear layers, for 28 x 28 pixels."""

    def __init__(self, first: int, second: int, hidden: int, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, first, 5, bias=False), nn.BatchNorm2d(first)
        self.conv2, self.norm2 = nn.Conv2d(first, second, 5, bias=False), nn.BatchNorm2d(second)
        self.fc1, self.fc2 = nn.Linear(second * 4 * 4, hidden), nn.Linear(hidden, classes)
        self.pool, self.act = nn.MaxPool2d(2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm1(self.conv1(x))))
        x = self.pool(self.act(self.norm2(self.conv2(x)))).flatten(1)
        scores: Tensor = self.fc2(self.act(self.fc1(x)))
        return scores


def digits(classes: int = 10, channels: int = 1, width: int = 12) -> nn.Module:
    """`width` channels, then twice as many: 12 of them run in 2 KB of RAM."""
    return Digits(width, 2 * width, 64, classes, channels)
