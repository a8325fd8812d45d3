"""Segmentation: a folder of images and masks, a small U-Net, and a budget.

    python examples/segmentation.py                # makes such a folder from MNIST, and fits

With data of your own the same is two commands:

    membound fit examples.segmentation:small_unet --data FOLDER --budget 2KB --out unet.safetensors
    membound evaluate unet.safetensors --data FOLDER
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import membound as mb


class UNet(nn.Module):
    """Down once, up once, and what was before beside it."""

    def __init__(self, classes: int, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU())
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.Upsample(scale_factor=2)
        self.last = nn.Sequential(
            nn.Conv2d(3 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        scores: Tensor = self.last(torch.cat([fine, self.up(self.down(fine))], 1))
        return scores


def small_unet(classes: int = 2, channels: int = 3, width: int = 8) -> nn.Module:
    """A score for each class at each pixel."""
    return UNet(classes, channels, width)


def write_folder(folder: Path, count: int) -> None:
    """Digits on a noisy ground: class 1 is the digit. `images/NAME.png` goes with `masks/NAME.png`."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    random, digits = np.random.default_rng(0), mb.data.load("mnist").train.read(np.arange(count))[:, 0]
    for number, digit in enumerate(digits):
        noisy = np.clip(0.6 * digit + random.normal(60, 30, digit.shape), 0, 255)
        Image.fromarray(noisy.astype(np.uint8)).save(folder / "images" / f"{number}.png")
        Image.fromarray((digit > 127).astype(np.uint8)).save(folder / "masks" / f"{number}.png")
    (folder / "classes.txt").write_text("ground\ndigit\n")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--images", type=int, default=600)
    asked = arguments.parse_args()
    with TemporaryDirectory() as place:
        write_folder(Path(place), asked.images)
        data = mb.data.load(place)
        fitted = mb.fit(small_unet, data, budget="2 KB", steps=asked.steps, lr=0.01, solver="adamw")
        print(
            f"mean IoU {fitted.accuracy:.3f} in {fitted.file_bytes:,} bytes, dense {fitted.dense['accuracy']:.3f}"
        )
