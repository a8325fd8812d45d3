"""Small networks in the styles of benchmarks/architectures.csv that plain convolutional ones do not have.

STYLES maps a name to (the function that makes the network, the shape of an input, whether it is thinned out).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, bias: Tensor | None = None) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.bias is None:
            found = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5 + self.bias
            found = scores.softmax(-1) @ v
        return self.out(found.transpose(1, 2).reshape(n, tokens, width))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int, bias: Tensor | None = None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, bias)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 12, 4, 4), nn.Parameter(torch.randn(1, 1, 12))
        self.place = nn.Parameter(torch.randn(1, 10, 12))
        self.blocks, self.head = nn.Sequential(Encoder(12, 3), Encoder(12, 3)), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.blocks(x)[:, 0])


class Swin(nn.Module):
    """Attention in windows of 3 x 3, of which the second ones are shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 2, 2)
        self.blocks = nn.ModuleList(Encoder(8, 2, torch.randn(2, 9, 9)) for _ in range(2))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        n, high, wide, width = x.shape
        for shift, block in zip((0, 1), self.blocks, strict=True):
            moved = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
            windows = moved.reshape(n, high // 3, 3, wide // 3, 3, width).permute(0, 1, 3, 2, 4, 5)
            found = block(windows.reshape(-1, 9, width))
            found = found.reshape(n, high // 3, wide // 3, 3, 3, width).permute(0, 1, 3, 2, 4, 5)
            x = found.reshape(n, high, wide, width)
            x = torch.roll(x, (shift, shift), (1, 2)) if shift else x
        return self.head(x.mean((1, 2)))


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(24, 8)
        self.scale, self.head = nn.Parameter(torch.rand(8)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        x = x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


class MobileVit(nn.Module):
    """Attention between the pixels of the same place in patches of 2 x 2."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, 8, 3, 2, 1), Encoder(8, 2)
        self.join, self.head = nn.Conv2d(16, 6, 3, padding=1), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        n, width, high, wide = x.shape
        patches = x.reshape(n, width, high // 2, 2, wide // 2, 2).permute(0, 3, 5, 2, 4, 1)
        found = self.block(patches.reshape(n * 4, high * wide // 4, width))
        found = found.reshape(n, 2, 2, high // 2, wide // 2, width).permute(0, 5, 3, 1, 4, 2)
        y = torch.cat([x, found.reshape(n, width, high, wide)], 1)
        return self.head(F.silu(self.join(y)).mean((2, 3)))


class Bert(nn.Module):
    """Words, GELU as BERT writes it, norms behind the sums."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.place = nn.Embedding(30, 8), nn.Embedding(7, 8)
        self.attention, self.norms = Attention(8, 2), nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.place(torch.arange(ids.shape[1]))
        x = self.norms[0](x + self.attention(x))
        y = self.up(x)
        x = self.norms[1](x + self.down(y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0)))))
        return self.head(torch.tanh(x[:, 0]))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], both: bool) -> None:
        super().__init__()
        self.rnn = kind(6, 8, 1, batch_first=True, bidirectional=both)
        self.head = nn.Linear(16 if both else 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Decoder(nn.Module):
    """A U-Net with transposed convolutions, group norm and a PReLU for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.PReLU(6))
        self.second = nn.Sequential(
            nn.Conv2d(6, 12, 3, padding=1), nn.InstanceNorm2d(12, affine=True), nn.Mish()
        )
        self.up, self.out = nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1), nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.up(self.second(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, b], 1))


class DeepLab(nn.Module):
    """Dilated branches, one of the whole image, and a resize with corners aligned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.branches = nn.ModuleList(nn.Conv2d(8, 6, 3, padding=rate, dilation=rate) for rate in (1, 2, 3))
        self.whole, self.out = nn.Conv2d(8, 6, 1), nn.Conv2d(24, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[2:]
        x = self.stem(x)
        whole = F.interpolate(self.whole(F.adaptive_avg_pool2d(x, 1)), x.shape[2:], mode="bilinear")
        y = self.out(F.relu(torch.cat([*(branch(x) for branch in self.branches), whole], 1)))
        return F.interpolate(y, side, mode="bilinear", align_corners=True)


class Pyramid(nn.Module):
    """Maps of three sizes, added from the coarsest on, and a score from each."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3 if n == 0 else 8, 8, 3, 2, 1) for n in range(3))
        self.sides = nn.ModuleList(nn.Conv2d(8, 6, 1) for _ in range(3))
        self.head = nn.Conv2d(6, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for layer in self.down:
            x = F.leaky_relu(layer(x), 0.1)
            maps.append(x)
        found, above = [], None
        for side, here in zip(reversed(self.sides), reversed(maps), strict=True):
            merged = side(here)
            above = merged if above is None else merged + F.interpolate(above, scale_factor=2)
            found.append(self.head(above).flatten(2))
        return torch.cat(found, 2).sigmoid()


class Audio(nn.Module):
    """Gated convolutions along time, with edges repeated, and an average weighed by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(5, 16, 5, padding=2, padding_mode="replicate")
        self.second, self.weigh = nn.Conv1d(8, 16, 3, padding=2, dilation=2), nn.Conv1d(8, 1, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.first(x), 1)
        x = x + F.glu(self.second(x), 1)
        return self.head((x * self.weigh(x).softmax(2)).sum(2)).log_softmax(1)


STYLES = {
    "vit": (Vit, (3, 12, 12), True),
    "swin": (Swin, (3, 12, 12), False),
    "convnext": (ConvNext, (3, 12, 12), True),
    "mobilevit": (MobileVit, (3, 16, 12), False),
    "bert": (Bert, (7,), True),
    "lstm": (lambda: Recurrent(nn.LSTM, both=True), (3, 6), False),
    "gru": (lambda: Recurrent(nn.GRU, both=False), (3, 6), True),
    "decoder": (Decoder, (3, 12, 10), False),
    "deeplab": (DeepLab, (3, 14, 17), True),
    "pyramid": (Pyramid, (3, 16, 24), False),
    "audio": (Audio, (5, 23), True),
}
