"""What capture makes of torch's functions, run by the runtime, against torch in float64: one small network each."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import net
from profiles import chiefly
from torch import nn

from membound.capture import capture
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

IMAGE, SEQUENCE, VECTOR = (6, 9, 7), (5, 12), (12,)


class Attention(nn.Module):
    """Self-attention as timm and transformers write it, with a class token and a table of positions."""

    def __init__(self, *, flat: bool, token: bool) -> None:
        super().__init__()
        self.qkv, self.proj, self.flat = nn.Linear(12, 36), nn.Linear(12, 12), flat
        self.norm = nn.LayerNorm(12)
        self.token = nn.Parameter(torch.randn(1, 1, 12)) if token else None
        self.table = nn.Parameter(torch.randn(1, 6 if token else 5, 12))

    def forward(self, x):
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = x + self.table
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, tokens, 3, 3, 4).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if self.flat:  # heads are folded into the batch
            q, k, v = (part.reshape(batch * 3, tokens, 4) for part in (q, k, v))
            out = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 2, -1), v)
            out = out.reshape(batch, 3, tokens, 4)
        else:
            out = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(out.transpose(1, 2).reshape(batch, tokens, width))


class Windows(nn.Module):
    """Swin's: windows are rolled, folded into the batch, and masked."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(6, 2, batch_first=True)
        self.bias = nn.Parameter(torch.randn(9, 9))

    def forward(self, x):
        batch, channels = x.shape[:2]
        x = torch.roll(x.permute(0, 2, 3, 1), (-1, 2), (1, 2))
        windows = x.reshape(batch, 2, 3, 2, 3, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 9, channels)
        mixed = self.mix(windows, windows, windows, need_weights=False)[0] + self.bias[None, :, :6]
        return (
            mixed.reshape(batch, 2, 2, 3, 3, channels)
            .permute(0, 5, 1, 3, 2, 4)
            .reshape(batch, channels, 6, 6)
        )


def mode(**options):
    return lambda: net(lambda m, x: F.interpolate(x, **options))


def of(function):
    return lambda: net(lambda m, x: function(x))


def exponents():
    """As parameters, in the way of poolings that learn theirs."""
    each = nn.Linear(3, 1)
    each.weight.data = torch.tensor([[3.0, -1.0, 1.0]])
    return each


def encoder(**options):
    return lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 3, 16, batch_first=True, **options), 2, enable_nested_tensor=False
    )


CASES = {
    "group norm": (lambda: nn.GroupNorm(3, 6), IMAGE),
    "group norm without weights": (lambda: nn.GroupNorm(2, 6, affine=False), IMAGE),
    "group norm of a sequence": (lambda: nn.GroupNorm(5, 5), SEQUENCE),
    "group norm of a vector": (lambda: nn.GroupNorm(4, 12), VECTOR),
    "instance norm": (lambda: nn.InstanceNorm2d(6, affine=True), IMAGE),
    "instance norm of a sequence": (lambda: nn.InstanceNorm1d(5), SEQUENCE),
    "instance norm by statistics": (lambda: nn.InstanceNorm2d(6, track_running_stats=True), IMAGE),
    "RMS norm": (lambda: nn.RMSNorm(12), SEQUENCE),
    "RMS norm of images": (lambda: nn.RMSNorm((9, 7), eps=1e-3), IMAGE),
    "RMS norm, tokens first": (
        lambda: net(lambda m, x: m.norm(x.transpose(0, 1)).transpose(0, 1), norm=nn.RMSNorm(12)),
        SEQUENCE,
    ),
    "normalized by hand": (
        of(lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-3)),
        IMAGE,
    ),
    "vector norm": (of(lambda x: x / torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)), IMAGE),
    "normalized": (of(lambda x: F.normalize(x, dim=1)), IMAGE),
    "norm of first order": (of(lambda x: x.norm(1, dim=1)), IMAGE),
    **{
        f"interpolate {kind} {name}": (mode(mode=kind, **how), IMAGE)
        for kind in ("nearest", "nearest-exact", "bilinear", "bicubic")
        for name, how in {
            "by 2": {"scale_factor": 2},
            "by 1.7 and 0.6": {"scale_factor": (1.7, 0.6)},
            "by 1.05 and 1.6, which keeps rows": {"scale_factor": (1.05, 1.6)},
            "to 5 and 20": {"size": (5, 20)},
        }.items()
    },
    "bilinear corners": (mode(mode="bilinear", size=(4, 13), align_corners=True), IMAGE),
    "bicubic corners": (mode(mode="bicubic", size=(18, 1), align_corners=True), IMAGE),
    "linear": (mode(mode="linear", scale_factor=2), SEQUENCE),
    "nearest sequence": (mode(scale_factor=1.5), SEQUENCE),
    "attention": (lambda: Attention(flat=False, token=False), SEQUENCE),
    "attention, folded": (lambda: Attention(flat=True, token=False), SEQUENCE),
    "class token": (lambda: Attention(flat=False, token=True), SEQUENCE),
    "class token, folded": (lambda: Attention(flat=True, token=True), SEQUENCE),
    "causal attention": (of(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)), (2, 5, 4)),
    "masked attention": (
        of(lambda x: F.scaled_dot_product_attention(x, x, x, torch.eye(5, dtype=torch.bool), scale=0.3)),
        (2, 5, 4),
    ),
    "encoder": (encoder(), SEQUENCE),
    "encoder, norm first": (encoder(norm_first=True, activation="gelu"), SEQUENCE),
    "tokens first": (
        lambda: net(
            lambda m, x: m.mix(*[x.transpose(0, 1)] * 3, need_weights=False)[0].transpose(0, 1),
            mix=nn.MultiheadAttention(12, 4),
        ),
        SEQUENCE,
    ),
    "windows": (Windows, (6, 6, 6)),
    "product of two values": (of(lambda x: x @ x.transpose(2, 3)), IMAGE),
    "a constant matrix by einsum": (
        lambda: net(lambda m, x: torch.einsum("btd,ed->bte", x, m.fc.weight), fc=nn.Linear(12, 4)),
        SEQUENCE,
    ),
    "a constant matrix from the left": (
        lambda: net(lambda m, x: m.fc.weight @ x, fc=nn.Linear(9, 4)),
        IMAGE,
    ),
    **{
        f"transposed convolution {options}": (
            lambda options=options: nn.ConvTranspose2d(6, 4, **options),
            IMAGE,
        )
        for options in (
            {"kernel_size": 2, "stride": 2},
            {"kernel_size": 4, "stride": 2, "padding": 1},
            {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
            {"kernel_size": (3, 5), "stride": (1, 3), "padding": (2, 0), "groups": 2, "bias": False},
            {"kernel_size": 2, "stride": 4, "output_padding": 3, "dilation": 1},
            {"kernel_size": 3, "stride": 2, "dilation": 3, "padding": 1},
        )
    },
    "transposed convolution of a sequence": (lambda: nn.ConvTranspose1d(5, 3, 4, 2, 1), SEQUENCE),
    **{
        f"{cell.__name__} {options}": (
            lambda cell=cell, options=options: net(
                lambda m, x: m.rnn(x)[0][:, -1], rnn=cell(12, 6, batch_first=True, **options)
            ),
            SEQUENCE,
        )
        for cell in (nn.LSTM, nn.GRU, nn.RNN)
        for options in ({}, {"bidirectional": True, "num_layers": 2})
    },
    "slopes": (lambda: nn.PReLU(6, init=0.3), IMAGE),
    "mish": (nn.Mish, IMAGE),
    "softplus": (lambda: nn.Softplus(beta=2), IMAGE),
    "softsign": (nn.Softsign, IMAGE),
    "abs": (of(torch.abs), IMAGE),
    "glu": (lambda: nn.GLU(1), IMAGE),
    "clamped by a table": (of(lambda x: x.clamp(-torch.arange(7.0), torch.arange(9.0)[:, None])), IMAGE),
    "clamped by itself": (of(lambda x: x.clamp(min=x.mean((2, 3), keepdim=True))), IMAGE),
    "celu": (lambda: nn.CELU(1.3), IMAGE),
    "log sigmoid": (nn.LogSigmoid, IMAGE),
    "pixel unshuffle": (lambda: nn.PixelUnshuffle(3), (2, 9, 6)),
    "lower triangle": (of(lambda x: x.tril(-1)), IMAGE),
    "upper triangle": (of(lambda x: x.triu(2)), IMAGE),
    "cells that begin with zeros": (
        lambda: net(
            lambda m, x: (
                m.cell(x[:, 1], m.cell(x[:, 0], [x.new_zeros(x.shape[0], 6)] * 2))[0] * x.new_full((6,), 3)
            ),
            cell=nn.LSTMCell(12, 6),
        ),
        SEQUENCE,
    ),
    "smallest": (of(lambda x: x.amin((2, 3)) + x.min(1)[0].mean((1, 2), keepdim=True)[..., 0]), IMAGE),
    "variance": (of(lambda x: x.var((1, 3))), IMAGE),
    "variance and mean": (of(lambda x: sum(torch.var_mean(x, 1, correction=0, keepdim=True))), IMAGE),
    "deviation": (of(lambda x: x.std(2, correction=2)), IMAGE),
    "amax": (of(lambda x: x.amax((2, 3))), IMAGE),
    "max along an axis": (of(lambda x: x.max(1, keepdim=True)[0] * x), IMAGE),
    "maximum": (of(lambda x: torch.maximum(x, -0.5 * x)), IMAGE),
    "minimum": (of(lambda x: torch.minimum(x, torch.full((7,), 0.2))), IMAGE),
    "addcmul": (of(lambda x: torch.addcmul(x, x, torch.arange(7.0), value=0.5)), IMAGE),
    "addcdiv": (of(lambda x: torch.addcdiv(x, x, torch.arange(7.0) + 1, value=0.5)), IMAGE),
    "between": (
        of(lambda x: x.lerp(torch.arange(7.0), 0.3) + x.lerp(x.roll(1, 1), torch.arange(9.0)[:, None])),
        IMAGE,
    ),
    "deviation and mean": (of(lambda x: sum(torch.std_mean(x, (1, 2)))), IMAGE),
    "grouped queries": (
        of(lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, 1:3], enable_gqa=True)),
        (6, 5, 4),
    ),
    "a product with factors": (
        lambda: net(
            lambda m, x: torch.addmm(m.fc.bias, x, m.fc.weight.t(), beta=0.5, alpha=2.0), fc=nn.Linear(12, 4)
        ),
        VECTOR,
    ),
    "masked fill": (of(lambda x: x.masked_fill(torch.eye(9, 7) > 0, -2.0)), IMAGE),
    "masked softmax": (
        of(lambda x: x.masked_fill(torch.eye(9, 7) > 0, float("-inf")).softmax(-1)),
        IMAGE,
    ),
    "reflect": (lambda: nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "replicate": (lambda: nn.ReplicationPad2d((1, 2, 3, 0)), IMAGE),
    "circular": (lambda: nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular"), IMAGE),
    "index": (of(lambda x: x[:, [2, 0, 5]]), IMAGE),
    "index_select": (of(lambda x: x.index_select(2, torch.tensor([3, 3, 1]))), IMAGE),
    "flip": (of(lambda x: x.flip(1, -1)), IMAGE),
    "repeat": (of(lambda x: x.repeat(1, 2, 1, 3)), IMAGE),
    "cube": (of(lambda x: x**3), IMAGE),
    "powers": (
        lambda: net(
            lambda m, x: sum((x.abs() + 1).pow(p) for p in (*m.each.weight[0], -0.5, -2)), each=exponents()
        ),
        IMAGE,
    ),
    "repeated": (of(lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4).softmax(2)), IMAGE),
    "concatenated constant": (
        of(
            lambda x: torch.cat([x, torch.arange(63.0).reshape(1, 1, 9, 7).expand(x.shape[0], -1, -1, -1)], 1)
        ),
        IMAGE,
    ),
}
SOME = [
    "group norm", "normalized", "interpolate bilinear by 1.7 and 0.6", "class token, folded", "encoder", "windows",
    "max along an axis", "RMS norm, tokens first", "variance",
    "transposed convolution {'kernel_size': 3, 'stride': 2, 'padding': 1, 'output_padding': 1}",
    "GRU {}",
]  # fmt: skip


@pytest.mark.parametrize("name", chiefly(SOME, CASES))
def test_networks(name):
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = make().eval()
    model = capture(module, torch.zeros(1, *shape))
    run = Net(read_bytes(to_bytes(model)), threads=1, max_batch=2)
    precise = copy.deepcopy(module).double()
    torch.set_default_dtype(torch.float64)
    try:
        for batch in (1, 3):
            x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(batch))
            with torch.no_grad():
                wanted = precise(x.double()).numpy()
            found = run(x.float().numpy())
            assert found.shape == wanted.shape
            assert np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())
    finally:
        torch.set_default_dtype(torch.float32)
