"""A ViT-tiny, a ConvNeXt-atto and a U-Net in a tenth of their bytes, beside dense and beside int8.

    python benchmarks/attention_fits.py vit unet --data imagenette160 --device cuda --seeds 0 1 2 --processes 3 \\
        --out results/attention-fits.json

The ViT and the ConvNeXt classify Imagenette at 64 pixels, in patches of 8 and 2. The U-Net labels each pixel. Its
images are composed: one to three MNIST digits, in random colors, lie on a photo of Imagenette at 64 pixels. A pixel is
a digit's where its ink covers more than half, else background: eleven classes, and the score is the mean IoU.
Training images are made of training digits on training photos, test images of test digits on test photos, all with
fixed seeds. Networks are trained from nothing, by the same recipe; nothing was chosen by test images.

    dense    in float32, as `fit` trains it beside the others; through the runtime
    int8     the same network, its weights rounded to 8 bits after training, a scale for each output channel;
             activations stay in float32, norms and tables of positions are not rounded, no header is counted
    tenth    what `fit` makes of a tenth of the dense file's bytes; through the runtime, the whole file counted

With --processes, so many networks are trained side by side, a process each. Results are written as they come, and the
same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _quantized import MANY, fake_quantized, layers_of, stored_bytes
from _record import arguments, record, settings
from _seeds import each_seed
from attention_latency import UNet, convnext
from own_network import dense_state
from torch import Tensor, nn

import membound as mb
from membound.data import Dataset, Split
from membound.data.examples import SEGMENTATION, ExampleSplit
from membound.paper.lab import spread
from membound.search.deployed import score_stored
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem

SIDE, DIGIT = 64, 28
MASKED = {"train": 20_000, "test": 4_000}  # images that are composed


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.attention, self.second = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.LayerNorm(width),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class SmallViT(nn.Module):
    """ViT-tiny (12 blocks of width 192 with 3 heads) for images of 64 pixels, in patches of 8."""

    def __init__(self, width: int = 192, depth: int = 12, heads: int = 3, patch: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(0.02 * torch.randn(1, (SIDE // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.norm(self.blocks(x))[:, 0])


def small_convnext() -> nn.Module:
    """ConvNeXt-atto, with patches of 2 instead of 4: for images of 64 pixels."""
    return convnext(patch=2, classes=10)


class DigitUNet(UNet):
    """With a score for background and for each digit."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Conv2d(self.out.in_channels, 11, 1)


def compose(photos: Split, digits: Split, count: int, seed: int) -> ExampleSplit:
    """Photos with one to three digits on them, and which digit each pixel belongs to, or 0."""
    chance = np.random.default_rng(seed)
    images = photos.read(chance.integers(0, len(photos), count)).copy()
    masks = np.zeros((count, SIDE, SIDE), np.uint8)
    for image, mask in zip(images, masks, strict=True):
        for number in chance.integers(0, len(digits), chance.integers(1, 4)):
            ink = digits.read(np.array([number]))[0, 0].astype(np.float32) / 255
            top, left = chance.integers(0, SIDE - DIGIT + 1, 2)
            here = (slice(top, top + DIGIT), slice(left, left + DIGIT))
            color = chance.integers(0, 256, (3, 1, 1))
            image[:, *here] = np.round(image[:, *here] * (1 - ink) + color * ink)
            mask[here][ink > 0.5] = digits.labels[number] + 1
    return ExampleSplit(images, masks)


def digits_on_photos(path: str) -> Dataset:
    photos, digits = mb.data.load(path, size=SIDE), mb.data.load("mnist")
    classes = ("background", *digits.classes)
    train = compose(photos.train, digits.train, MASKED["train"], 0)
    test = compose(photos.test, digits.test, MASKED["test"], 1)
    return Dataset("digits on photos", train, test, classes, task=SEGMENTATION)


@dataclass(frozen=True)
class Setup:
    make: Callable[[], nn.Module]
    data: Callable[[str], Dataset]
    choices: dict[str, Any]  # of fit


ADAMW = {"solver": "adamw", "batch_size": 128}
CLASSIFY = {**ADAMW, "augment": "standard", "lr": 1e-3, "weight_decay": 0.05}
SETUPS = {
    "vit": Setup(SmallViT, partial(mb.data.load, size=SIDE), {**CLASSIFY, "steps": 10_000}),
    "convnext": Setup(small_convnext, partial(mb.data.load, size=SIDE), {**CLASSIFY, "steps": 10_000}),
    "unet": Setup(DigitUNet, digits_on_photos, {**ADAMW, "lr": 2e-3, "weight_decay": 0.01, "steps": 6_000}),
}


def one_seed(options: argparse.Namespace, task: tuple[str, int]) -> dict[str, Any]:
    name, seed = task
    begun, setup = time.monotonic(), SETUPS[name]
    chosen = setup.choices | ({"steps": options.steps} if options.steps else {})
    data = setup.data(options.data)
    with tempfile.TemporaryDirectory() as folder:
        fitted = mb.fit(
            setup.make, data, options.budget, seed=seed, device=options.device, run_dir=folder, **chosen
        )
        state = dense_state(Path(folder))
    assert fitted.dense is not None
    return {
        "network": name, "seed": seed, "score": fitted.facts.get("score_name", "accuracy"), **chosen,
        "dense": fitted.dense["accuracy"], "dense_bytes": fitted.dense["file_bytes"],
        **int8(setup, data, state, seed, chosen),
        "tenth": fitted.accuracy, "tenth_bytes": fitted.file_bytes, "limit": fitted.limit,
        "nonzeros": fitted.facts["nonzeros"], "parameters": fitted.facts["parameters"],
        "latency_ms": fitted.facts["latency_ms"], "dense_latency_ms": fitted.dense["latency_ms"],
        "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


def int8(setup: Setup, data: Dataset, state: Any, seed: int, chosen: dict[str, Any]) -> dict[str, Any]:
    """The dense network with its weights rounded to 8 bits, by output channel, and what that takes."""
    model = setup.make()
    model.load_state_dict(state)
    for layer in layers_of(model).values():
        layer.weight.data = fake_quantized(layer.weight.data, MANY, training=False)
    choices = Choices(seed=seed, **chosen)
    problem = make_problem(setup.make, Examples(train_data=data), choices, Target())
    stored = replace(problem.files, values="f32", types={}).stored(model.state_dict())
    assert problem.data.test is not None
    known = {id(weight) for layer in layers_of(model).values() for weight in layer.parameters()}
    folded = {
        id(weight)
        for part in model.modules()
        if isinstance(part, nn.BatchNorm2d)
        for weight in part.parameters()
    }
    others = sum(weight.numel() for weight in model.parameters() if id(weight) not in known | folded)
    return {
        "int8": score_stored(stored, problem.data.test, problem).accuracy,
        "int8_bytes": stored_bytes(model, MANY) + 4 * others,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("networks", nargs="+", choices=SETUPS)
    parser.add_argument("--data", default="imagenette160", help="the folder of Imagenette")
    parser.add_argument("--budget", default="10%")
    parser.add_argument("--steps", type=int, help="instead of each network's own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    done = {(row["network"], row["seed"]) for row in rows}
    tasks = [(name, seed) for seed in options.seeds for name in options.networks]
    left = [task for task in tasks if task not in done]
    for row in each_seed(partial(one_seed, options), left, options.processes):
        rows = sorted([*rows, row], key=lambda row: (row["network"], row["seed"]))
        print(row, flush=True)
        summary = {
            name: {
                who: spread([row[who] for row in rows if row["network"] == name])
                for who in ("dense", "int8", "tenth")
            }
            for name in dict.fromkeys(row["network"] for row in rows)
        }
        record(
            options.out,
            {**settings(options), "data": Path(options.data).name, "summary": summary, "rows": rows},
        )


if __name__ == "__main__":
    main()
