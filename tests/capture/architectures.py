"""Small networks of many kinds: what capture converts and the runtime runs must agree with torch on all of them.

ARCHITECTURES maps a name to (the function that makes the network, the shape of an input without its batch).
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Applied(nn.Module):
    """Parts under their names, and a function of them and the input."""

    def __init__(self, function: Callable[["Applied", Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def net(function: Callable[[Applied, Tensor], Tensor], **parts: nn.Module) -> Applied:
    return Applied(function, **parts)


def conv_norm(
    inputs: int, outputs: int, kernel: int = 3, act: nn.Module | None = None, **options
) -> nn.Sequential:
    options.setdefault("padding", kernel // 2)
    norm = nn.BatchNorm2d(outputs)
    parts = [nn.Conv2d(inputs, outputs, kernel, bias=False, **options), norm]
    return nn.Sequential(*parts, *([act] if act is not None else []))


def head(features: int, classes: int = 5) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


class Residual(nn.Module):
    """ResNet's block: two convolutions and a shortcut, which is 1x1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = conv_norm(inputs, outputs, act=nn.ReLU(inplace=True), stride=stride)
        self.second = conv_norm(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv_norm(inputs, outputs, 1, stride=stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


class PreActivation(nn.Module):
    """The block of ResNet v2: norms and activations before the convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = (
            nn.BatchNorm2d(channels),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )
        self.norm2, self.conv2 = (
            nn.BatchNorm2d(channels),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.norm1(x)))
        out = self.conv2(F.relu(self.norm2(out)))
        out += x
        return out


class SqueezeExcite(nn.Module):
    """Gates for the channels, from their averages."""

    def __init__(
        self, channels: int, hidden: int, act: nn.Module, gate: nn.Module, *, expand: bool = False
    ) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)
        self.act, self.gate, self.repeat = act, gate, expand

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gate(self.expand(self.act(self.reduce(F.adaptive_avg_pool2d(x, 1)))))
        return x * (gates.expand_as(x) if self.repeat else gates)


class Inverted(nn.Module):
    """The inverted residual of MobileNetV3 and EfficientNet: expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        wide = 3 * inputs
        self.expand = conv_norm(inputs, wide, 1, act)
        self.depthwise = conv_norm(wide, wide, 5, act, stride=stride, groups=wide)
        self.excite = SqueezeExcite(wide, 4, nn.ReLU(), gate, expand=stride == 2)
        self.project = conv_norm(wide, outputs, 1)
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(self.excite(self.depthwise(self.expand(x))))
        return x + out if self.same else out


class Fire(nn.Module):
    """SqueezeNet's module."""

    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1, self.expand3 = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1(x)), F.relu(self.expand3(x))], 1)


class Dense(nn.Module):
    """DenseNet's block: every layer reads all before it."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        widths = [inputs + growth * count for count in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)
        self.convs = nn.ModuleList(nn.Conv2d(width, growth, 3, padding=1, bias=False) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return x


class Inception(nn.Module):
    """GoogLeNet's module, with a branch that pools."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one = conv_norm(inputs, 4, 1, nn.ReLU())
        self.three = nn.Sequential(conv_norm(inputs, 3, 1, nn.ReLU()), conv_norm(3, 5, 3, nn.ReLU()))
        self.five = nn.Sequential(conv_norm(inputs, 2, 1, nn.ReLU()), conv_norm(2, 3, 5, nn.ReLU()))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(inputs, 2, 1, nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class Shuffle(nn.Module):
    """ShuffleNetV2's unit: half of the channels pass by, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv_norm(half, half, 1, nn.ReLU()),
            conv_norm(half, half, 3, groups=half),
            conv_norm(half, half, 1, nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        x = torch.cat([left, self.branch(right)], 1)
        batch, channels, height, width = x.shape
        return (
            x.view(batch, 2, channels // 2, height, width)
            .transpose(1, 2)
            .reshape(batch, channels, height, width)
        )


class Arithmetic(nn.Module):
    """Sums, differences, products and quotients with buffers, parameters and numbers, on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("image", torch.rand(6, 7), persistent=False)
        self.register_buffer("zero", torch.tensor(0.25))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / 0.25
        x = torch.clamp(self.conv(x), -0.5, 0.9) * self.scale
        x = 1 - x / (2 + self.scale.exp()) + self.image - self.zero
        x = torch.add(x, x * x, alpha=0.5) - (-x).clamp_min(-0.3) + torch.sub(x, self.scale, alpha=2)
        x = 2 / (x.clamp_max(3.0) + 9) - F.hardtanh(x, -2, 2) ** 2
        return (self.image[:, :1] - x).mean((2, 3))


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.second.weight = self.first.weight
        self.stem, self.norm, self.head = nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(self.stem(x)))
        x = F.relu(self.norm(self.second(x)))
        x = self.head(x.mean((2, 3)))
        return F.linear(F.linear(x, self.head.weight.t()), self.head.weight)


class Pieces(nn.Module):
    """Slices of every kind, put together again."""

    def forward(self, x: Tensor) -> Tensor:
        left, middle, right = x.split([2, 3, 3], 1)
        first, second = middle[:, :, ::2, 1:].unbind(-1)[:2]
        row = x.select(2, 1).narrow(1, 0, 3)
        stacked = torch.stack([first, second], dim=2).squeeze().unsqueeze(1).flatten(2, 3)
        padded = F.pad(row, (1, -2), value=0.5)
        both = torch.cat(
            [left.flatten(1), right.permute(0, 3, 1, 2).reshape(len(x), -1), padded.flatten(1)], 1
        )
        return torch.cat([both, stacked.contiguous().view(x.size(0), -1).detach()], 1).softmax(-1)


class InPlace(nn.Module):
    """Operations in place, on tensors that others share."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).add_(0.1)
        rows, kept = x[:, :, :2], x * 3
        F.relu_(x)  # also what `rows` are
        x.mul_(2)
        return self.last(F.dropout(x - kept, 0.5, self.training, True)) + rows.mean((1, 2, 3), keepdim=True)


def conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 6, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.MaxPool1d(3, 2, 1),
        nn.Conv1d(6, 6, 3, padding="same", groups=3, dilation=2),
        nn.Tanh(),
        nn.AvgPool1d(2, ceil_mode=True),
        nn.AdaptiveMaxPool1d(3),
        nn.Conv1d(6, 4, 1),
        nn.AdaptiveAvgPool1d(2),
        nn.Flatten(),
        nn.BatchNorm1d(8),
        nn.Linear(8, 3),
    )


def conv1d_residual() -> nn.Module:
    return net(
        lambda m, x: m.last((F.silu(m.norm(m.conv(m.stem(x)))) + m.stem(x)).mean(-1)),
        stem=nn.Conv1d(2, 4, 3, padding=1),
        conv=nn.Conv1d(4, 4, 3, padding=1),
        norm=nn.BatchNorm1d(4),
        last=nn.Linear(4, 3),
    )


def mixer() -> nn.Module:
    """An MLP-Mixer of one block, and a norm of images as ConvNeXt has it."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.image_norm(m.patches(x).permute(0, 2, 3, 1)).flatten(1, 2)
        x = x + m.across(m.first_norm(x).transpose(1, 2)).transpose(1, 2)
        x = x + m.along(m.second_norm(x))
        return m.last(m.plain_norm(x).mean(1))

    return net(
        forward,
        patches=nn.Conv2d(3, 6, 2, 2),
        image_norm=nn.LayerNorm(6, eps=1e-6),
        first_norm=nn.LayerNorm([16, 6]),
        across=nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 16)),
        second_norm=nn.LayerNorm(6, bias=False),
        along=nn.Sequential(nn.Linear(6, 20), nn.GELU(), nn.Linear(20, 6)),
        plain_norm=nn.LayerNorm(6, elementwise_affine=False),
        last=nn.Linear(6, 4),
    )


def unet() -> nn.Module:
    """A decoder that upsamples, beside what it skips; by a factor, by a size, and exactly."""

    def forward(m: Any, x: Tensor) -> Tensor:
        top = F.relu(m.top(x))
        deep = F.relu(m.deep(F.max_pool2d(top, (2, 3))))
        gates = F.interpolate(deep.mean((2, 3), keepdim=True), scale_factor=(8, 47), mode="nearest-exact")
        x = m.joined(torch.cat([top, m.up(deep)], 1)) + gates[..., :9]
        return m.last(F.interpolate(F.interpolate(x, size=(16, 9)), scale_factor=1))

    return net(
        forward,
        top=nn.Conv2d(2, 4, 3, padding=1),
        deep=nn.Conv2d(4, 6, 3, padding=1),
        up=nn.Upsample(scale_factor=(2, 3), mode="nearest"),
        joined=nn.Conv2d(10, 6, 3, padding=1),
        last=nn.Conv2d(6, 3, 1),
    )


def resnet() -> nn.Module:
    stem = nn.Sequential(conv_norm(3, 6, act=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, Residual(6, 6), Residual(6, 8, 2), Residual(8, 8), head(8))


def mobilenet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 6, act=nn.Hardswish(), stride=2),
        Inverted(6, 6, 1, nn.Hardswish(), nn.Hardsigmoid()),
        Inverted(6, 8, 2, nn.ReLU6(), nn.Hardsigmoid()),
        head(8),
    )


def efficientnet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 4, act=nn.SiLU(), stride=2),
        Inverted(4, 4, 1, nn.SiLU(), nn.Sigmoid()),
        Inverted(4, 6, 2, nn.SiLU(), nn.Sigmoid()),
        nn.Dropout(0.3),
        head(6),
    )


def asymmetric() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, (1, 7), padding=(0, 3)),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4, 4, (7, 1), stride=(2, 1), padding=(3, 0), bias=False),
        nn.ELU(0.7),
        nn.Conv2d(4, 3, (2, 3), stride=(1, 2), padding=(1, 2), dilation=(2, 1)),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def ceil_pools() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.Conv2d(3, 3, 3, padding=2),
        nn.AvgPool2d((3, 2), (2, 2), (1, 1), ceil_mode=True, count_include_pad=False),
        nn.Conv2d(3, 3, 3, padding=3),
        nn.AvgPool2d(4, 3, 2, ceil_mode=True, divisor_override=7),
        nn.Conv2d(3, 3, 3, padding=4),
        nn.MaxPool2d(2, 1, 1, dilation=2),
        nn.MaxPool2d((2, 3), (3, 2), (0, 1), dilation=(1, 2), ceil_mode=True),
    )


def tokens() -> nn.Module:
    """A mixer: linear layers over the last of several axes, and over tokens by transposing."""
    return net(
        lambda m, x: m.head(_mixed(m, m.embed(x).flatten(2).transpose(1, 2)).mean(1)),
        embed=nn.Conv2d(3, 8, 4, 4),
        token=nn.Linear(4, 6),
        back=nn.Linear(6, 4),
        norm=nn.BatchNorm1d(4),
        channel=nn.Linear(8, 8),
        head=nn.Linear(8, 3),
    )


def _mixed(m: Applied, x: Tensor) -> Tensor:
    x = x + m.back(F.gelu(m.token(x.permute(0, 2, 1)))).permute(0, 2, 1)
    return m.norm(x) + F.gelu(m.channel(x), approximate="tanh")


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet": (resnet, (3, 17, 15)),
    "preactivation": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 5, 3), PreActivation(5), PreActivation(5), nn.BatchNorm2d(5), head(5)
        ),
        (3, 9, 9),
    ),
    "mobilenet": (mobilenet, (3, 16, 16)),
    "efficientnet": (efficientnet, (3, 15, 17)),
    "squeezenet": (
        lambda: nn.Sequential(Fire(3, 2, 4), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 3, 5), head(10)),
        (3, 12, 11),
    ),
    "densenet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), Dense(4, 3, 3), conv_norm(13, 6, 1), nn.AvgPool2d(2), Dense(6, 2, 2), head(10)
        ),
        (3, 10, 10),
    ),
    "inception": (lambda: nn.Sequential(Inception(3), nn.MaxPool2d(2), Inception(14), head(14)), (3, 9, 10)),
    "shufflenet": (lambda: nn.Sequential(conv_norm(3, 8), Shuffle(8), Shuffle(8), head(8)), (3, 8, 8)),
    "shuffles": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 12, 3, groups=2),
            nn.ChannelShuffle(3),
            nn.PixelShuffle(2),
            nn.Conv2d(3, 4, 3),
            head(4),
        ),
        (2, 6, 7),
    ),
    "dilated": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=3, dilation=(3, 2)),
            head(4),
        ),
        (1, 11, 12),
    ),
    "grouped": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, groups=4),
            nn.Sigmoid(),
            head(12),
        ),
        (4, 9, 9),
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, groups=3),
            nn.ReLU6(),
            nn.Conv2d(6, 6, 5, padding=2, stride=2, groups=6),
            head(6),
        ),
        (3, 9, 7),
    ),
    "asymmetric": (asymmetric, (2, 10, 9)),
    "odd_sizes": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 5, 3, stride=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(5, 7, 3, padding=1),
            head(7),
        ),
        (3, 19, 23),
    ),
    "pointwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 7, 1),
            nn.ReLU(),
            nn.Conv2d(7, 5, 1),
            nn.Hardtanh(),
            nn.Conv2d(5, 4, 1),
            nn.AdaptiveMaxPool2d(1),
        ),
        (3, 5, 6),
    ),
    "deep_narrow": (
        lambda: nn.Sequential(*(conv_norm(2, 2, act=nn.ReLU()) for _ in range(12)), head(2)),
        (2, 7, 7),
    ),
    "conv1d": (conv1d, (2, 33)),
    "conv1d_residual": (conv1d_residual, (2, 9)),
    "same_padding": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2, padding="same"),
            nn.ReLU(),
            nn.Conv2d(3, 3, (4, 3), padding="same", dilation=(1, 3)),
            nn.Conv2d(3, 2, 3, padding="valid"),
        ),
        (2, 8, 9),
    ),
    "ceil_pools": (ceil_pools, (1, 13, 12)),
    "lrn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 7, 3),
            nn.ReLU(),
            nn.LocalResponseNorm(5, 0.5, 0.75, 2.0),
            nn.MaxPool2d(2),
            nn.LocalResponseNorm(4, 0.9, 0.5, 1.0),
            nn.LocalResponseNorm(1),
            nn.Flatten(2),
            nn.LocalResponseNorm(3),
        ),
        (2, 8, 8),
    ),
    "mixer": (mixer, (3, 8, 8)),
    "mlp": (
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Linear(48, 9),
            nn.GELU(),
            nn.Linear(9, 8, bias=False),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Dropout(),
            nn.Linear(8, 7),
            nn.GELU("tanh"),
            nn.Linear(7, 4),
            nn.LogSoftmax(-1),
        ),
        (3, 4, 4),
    ),
    "adaptive": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.AdaptiveAvgPool2d((5, 3)),
            nn.Conv2d(3, 3, 1),
            nn.AdaptiveMaxPool2d((3, None)),
            nn.SELU(),
        ),
        (1, 13, 12),
    ),
    "global_mean": (
        lambda: net(
            lambda m, x: (
                m.fc(F.relu(m.conv(x)).mean(3).mean(2))
                + m.conv(x).mean((-2, -1), keepdim=True).flatten(1).sum(1, True)
            ),
            conv=nn.Conv2d(3, 6, 3),
            fc=nn.Linear(6, 4),
        ),
        (3, 8, 7),
    ),
    "arithmetic": (Arithmetic, (3, 8, 9)),
    "softmax": (
        lambda: nn.Sequential(nn.Conv2d(2, 5, 3), nn.Softmax(1), nn.Conv2d(5, 3, 1), nn.Softmax2d()),
        (2, 6, 6),
    ),
    "in_place": (InPlace, (3, 7, 6)),
    "tied": (Tied, (1, 6, 6)),
    "pieces": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(), Pieces()), (3, 5, 4)),
    "tokens": (tokens, (3, 8, 8)),
    "unet": (unet, (2, 8, 9)),
}


def build(name: str, seed: int = 0) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in eval mode, with norms that do something, and the shape of its input."""
    factory, shape = ARCHITECTURES[name]
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        module = factory().train()
        with torch.no_grad():
            for part in module.modules():
                if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                    part.weight.normal_(1, 0.3)
                    part.bias.normal_(0, 0.3)
            for _ in range(3):
                module(torch.randn(8, *shape))
    return module.eval(), shape
