"""Latency of a ViT-tiny, a ConvNeXt-atto, a U-Net and an LSTM, dense and at 10 %, beside torch and ONNX Runtime.

    python benchmarks/attention_latency.py results/attention-latency-x86.json

The networks have random weights, of which nine of ten are zero at 10 %; batch 1, one thread; the least of many runs,
all contenders in turn. torch runs its own module, without the graph that membound captured. Time is that of the thread,
which all three run in: what others do on the machine lengthens the clock's time, and that much less. Both are recorded.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from membound.capture import capture
from membound.export.onnx import to_onnx
from membound.machine import describe
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

SECONDS = 20.0  # for each network, all contenders together
CLOCKS = {"thread": time.thread_time, "wall": time.perf_counter}


class ViT(nn.Module):
    """ViT-tiny: 12 blocks of width 192 with 3 heads, patches of 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 192, 16, 16), nn.Parameter(torch.randn(1, 1, 192))
        self.place = nn.Parameter(0.02 * torch.randn(1, 197, 192))
        block = {"batch_first": True, "norm_first": True, "activation": "gelu", "dropout": 0.0}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(192, 3, 768, **block) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


def convnext(patch: int = 4, classes: int = 1000) -> nn.Module:
    """ConvNeXt-atto: blocks of widths 40 to 320, 2, 2, 6 and 2 of them."""
    parts: list[nn.Module] = [nn.Conv2d(3, 40, patch, patch), ChannelNorm(40)]
    before = 40
    for width, depth in ((40, 2), (80, 2), (160, 6), (320, 2)):
        if width != before:
            parts += [ChannelNorm(before), nn.Conv2d(before, width, 2, 2)]
        parts += [Block(width) for _ in range(depth)]
        before = width
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(320), nn.Linear(320, classes)
    )


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        pairs = [*zip((3, *widths), widths, strict=False)]
        self.down = nn.ModuleList(self._block(i, o) for i, o in pairs)
        self.up = nn.ModuleList(self._block(high + low, low) for low, high in reversed(pairs[1:]))
        self.out = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def _block(i: int, o: int) -> nn.Sequential:
        half = [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
        return nn.Sequential(*half, nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for block, skip in zip(self.up, reversed(kept[:-1]), strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0, mode="bilinear"), skip], 1))
        return self.out(x)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(40, 256, 2, batch_first=True), nn.Linear(256, 35)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


NETWORKS = {
    "vit-tiny": (ViT, (3, 224, 224)),
    "convnext-atto": (convnext, (3, 224, 224)),
    "unet": (UNet, (3, 128, 128)),
    "lstm": (Lstm, (50, 40)),
}


def thin_out(net: nn.Module, keep: float) -> None:
    chance = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        if parameter.dim() >= 2 and parameter.numel() > 4096:
            parameter.data *= (torch.rand(parameter.shape, generator=chance) < keep) / keep**0.5


def measure(name: str, keep: float) -> dict[str, object]:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    net = make().eval()
    thin_out(net, keep)
    x = torch.randn(1, *shape)
    model = capture(net, x)
    content = to_bytes(model, prefer="speed")
    ours = Net(read_bytes(content), threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(b"".join(to_onnx(model)), options)
    array = x.numpy()

    def in_torch() -> np.ndarray:
        with torch.inference_mode():
            return net(x).numpy()

    runs = {
        "membound": lambda: ours(array),
        "torch": in_torch,
        "onnxruntime": lambda: session.run(None, {"input": array})[0],
    }
    wanted = in_torch()
    off = {who: float(np.abs(run() - wanted).max() / np.abs(wanted).max()) for who, run in runs.items()}
    best = {clock: dict.fromkeys(runs, float("inf")) for clock in CLOCKS}
    rounds, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        for who, run in runs.items():
            begun = {clock: read() for clock, read in CLOCKS.items()}
            run()
            for clock, read in CLOCKS.items():
                best[clock][who] = min(best[clock][who], 1e3 * (read() - begun[clock]))
        rounds += 1
    return {
        "network": name,
        "keep": keep,
        "min_ms": best["thread"],
        "min_wall_ms": best["wall"],
        "rounds": rounds,
        "off": off,
        "file_bytes": len(content),
        "memory_bytes": ours.memory().total,
    }


def main(out: str, only: str = "") -> None:
    torch.set_num_threads(1)
    rows = []
    for name in NETWORKS:
        for keep in (1.0, 0.1):
            if only in name:
                rows.append(measure(name, keep))
                print(json.dumps(rows[-1]), flush=True)
    command = "python benchmarks/attention_latency.py results/attention-latency-x86.json"
    load = os.getloadavg()
    found = {**describe(("torch", "numpy", "onnxruntime")), "command": command, "load": load, "rows": rows}
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
