"""A ViT-tiny, a ConvNeXt-atto and a U-Net in a tenth of their bytes, beside dense and beside int8.

    python benchmarks/attention_fits.py vit unet --data imagenette160 --device cuda --seeds 0 1 2 --processes 6 \\
        --out results/attention-fits.json

The ViT and the ConvNeXt classify Imagenette at 64 pixels, in patches of 8 and 2. The U-Net labels each pixel. Its
images are composed: one to three MNIST digits, in random colors, lie on a photo of Imagenette at 64 pixels. A pixel is
a digit's where its ink covers more than half, else background: eleven classes, and the score is the mean IoU.
Training images are made of training digits on training photos, test images of test digits on test photos, all with
fixed seeds. Networks are trained from nothing, by the same recipe; nothing was chosen by test images.

    dense    in float32, as `fit` trains it beside the others
    int8     the same network as it is, without more training: weights rounded to 8 bits, a scale for each output
             channel; the file that `export --values p8` writes. Activations stay in float32, as in all three
    tenth    what `fit` makes of a tenth of the dense file's bytes

All three are whole files, measured through the runtime. With --processes, so many networks are trained side by side, a
process each, on its share of the cores. Results are written as they come, and the same command goes on where it was
stopped; with --runs, in the middle of a training, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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
from _record import arguments, record, settings
from _seeds import each_seed
from attention_latency import UNet, convnext
from torch import Tensor, nn

import membound as mb
from membound.data import Dataset, Split
from membound.data.examples import SEGMENTATION, ExampleSplit
from membound.paper.claims import spread
from membound.search.place import Watch
from membound.search.progress import by_lines

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


def photos_of(options: argparse.Namespace, cache: str) -> Dataset:
    found = mb.data.load(options.data, size=SIDE, cache=cache)
    return replace(found, train=some(found.train, options.images), test=some(found.test, options.images))


def some(split: Split, most: int | None) -> Split:
    """So many images of a split, from all of its classes."""
    if most is None or most >= len(split):
        return split
    return split.take(np.linspace(0, len(split) - 1, most, dtype=np.int64))


def digits_on_photos(options: argparse.Namespace, cache: str) -> Dataset:
    photos, digits = photos_of(options, cache), mb.data.load("mnist")
    classes = ("background", *digits.classes)
    count = {half: min(options.images or most, most) for half, most in MASKED.items()}
    train = compose(photos.train, digits.train, count["train"], 0)
    test = compose(photos.test, digits.test, count["test"], 1)
    return Dataset("digits on photos", train, test, classes, task=SEGMENTATION)


@dataclass(frozen=True)
class Setup:
    make: Callable[[], nn.Module]
    data: Callable[[argparse.Namespace, str], Dataset]  # decoded into a folder
    choices: dict[str, Any]  # of fit


COMMON = {"solver": "adamw", "precision": "bf16"}
# 81 passes through 9,469 photos. A network without convolutions has to learn from variations that neighbors are
# neighbors, so there are more of them than `standard` has.
CLASSIFY = {
    **COMMON, "steps": 3_000, "batch_size": 256, "lr": 1e-3, "weight_decay": 0.05, "smoothing": 0.1,
    "augment": "mirror,shift=8,turn=10,zoom=0.25,cutout=16",
}  # fmt: skip
LABEL = {**COMMON, "steps": 4_000, "batch_size": 64, "lr": 2e-3, "weight_decay": 0.01}
SETUPS = {
    "vit": Setup(SmallViT, photos_of, CLASSIFY),
    "convnext": Setup(small_convnext, photos_of, CLASSIFY),
    "unet": Setup(DigitUNet, digits_on_photos, LABEL),
}


def one_seed(options: argparse.Namespace, cache: str, task: tuple[str, int]) -> dict[str, Any]:
    name, seed = task
    begun, setup = time.monotonic(), SETUPS[name]
    take_share_of_cores(options.processes)
    given = {name: getattr(options, name) for name in ("steps", "batch_size", "precision")}
    chosen = setup.choices | {name: value for name, value in given.items() if value is not None}
    data = setup.data(options, cache)
    with run_folder(options.runs, f"{name}-{seed}") as folder:
        fitted = mb.fit(
            setup.make, data, options.budget, seed=seed, device=options.device, run_dir=folder,
            watch=lines_of(f"{name}, seed {seed}", begun), **chosen,
        )  # fmt: skip
    dense, facts = fitted.dense, fitted.facts
    assert dense is not None
    return {
        "network": name, "seed": seed, "score": facts.get("score_name", "accuracy"), **chosen,
        "dense": dense["accuracy"], "dense_bytes": dense["file_bytes"],
        "int8": dense["int8"]["accuracy"], "int8_bytes": dense["int8"]["file_bytes"],
        "tenth": fitted.accuracy, "tenth_bytes": fitted.file_bytes, "limit": fitted.limit,
        "values": fitted.values, "tried": facts["tried"],
        "nonzeros": facts["nonzeros"], "parameters": facts["parameters"],
        "latency_ms": facts["latency_ms"], "dense_latency_ms": dense["latency_ms"],
        "training_seconds": round(facts["seconds"]), "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


def take_share_of_cores(processes: int) -> None:
    """Stay on a few cores: the runtime takes as many threads as it has cores, and so would every process."""
    if processes > 1:
        cores = sorted(os.sched_getaffinity(0))
        share = max(len(cores) // processes, 1)
        begin = os.getpid() * share % len(cores)  # processes that begin together have numbers in a row
        os.sched_setaffinity(0, {cores[(begin + number) % len(cores)] for number in range(share)})


def run_folder(folder: Path | None, name: str) -> contextlib.AbstractContextManager[str | Path]:
    """Where a training is kept, to go on from; without a folder, until it is done."""
    return tempfile.TemporaryDirectory() if folder is None else contextlib.nullcontext(folder / name)


def lines_of(name: str, begun: float) -> Watch:
    """A line now and then about how far a fit is."""
    return by_lines(
        lambda text: print(f"{time.monotonic() - begun:.0f} s: {name}: {text}", flush=True), every=15.0
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("networks", nargs="+", choices=SETUPS)
    parser.add_argument("--data", default="imagenette160", help="the folder of Imagenette")
    parser.add_argument("--budget", default="10%")
    parser.add_argument("--steps", type=int, help="instead of each network's own")
    parser.add_argument("--batch-size", type=int, help="instead of each network's own")
    parser.add_argument("--precision", help="instead of bf16, which is slow on most CPUs: float32")
    parser.add_argument("--images", type=int, help="to train on, and to judge by, at most: for a dry run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, help="folder for trainings under way, to go on from")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    done = {(row["network"], row["seed"]) for row in rows}
    tasks = [(name, seed) for seed in options.seeds for name in options.networks]
    left = [task for task in tasks if task not in done]
    with tempfile.TemporaryDirectory() as cache:
        if left:
            photos_of(options, cache)  # decoded once, for all processes
        for row in each_seed(partial(one_seed, options, cache), left, options.processes):
            rows = sorted([*rows, row], key=lambda row: (row["network"], row["seed"]))
            print(row, flush=True)
            about = {key: value for key, value in settings(options).items() if key != "runs"}
            record(
                options.out,
                {**about, "data": Path(options.data).name, "summary": summarize(rows), "rows": rows},
            )


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and spread over the seeds of each network, and bytes: the most of any seed."""
    summary = {}
    for name in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == name]
        summary[name] = {"seeds": len(mine), "score": mine[0]["score"]} | {
            who: spread([row[who] for row in mine]) | {"bytes": max(row[f"{who}_bytes"] for row in mine)}
            for who in ("dense", "int8", "tenth")
        }
    return summary


if __name__ == "__main__":
    main()
