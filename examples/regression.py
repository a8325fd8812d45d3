"""Regression: where a digit is in its image, as two numbers.

    python examples/regression.py

With data of your own: an .npz whose y_train and y_test are floating point, [n] or [n, outputs].

    membound fit examples.regression:locator --data places.npz --budget 3KB --out locator.safetensors
    membound evaluate locator.safetensors --data places.npz
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

import membound as mb

SIDE = 40


def locator(classes: int = 2) -> nn.Module:
    """`classes` is told how many numbers a target has."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(784, classes),
    )


def write_places(path: Path, count: int) -> None:
    """Digits somewhere on a dark ground, and where their middle is, from -1 to 1."""
    random, digits = np.random.default_rng(0), mb.data.load("mnist").train.read(np.arange(count))
    images, places = np.zeros((count, 1, SIDE, SIDE), np.uint8), random.integers(0, SIDE - 27, (count, 2))
    for image, digit, (top, left) in zip(images, digits, places, strict=True):
        image[:, top : top + 28, left : left + 28] = digit
    y = (places / (SIDE - 28) * 2 - 1).astype(np.float32)
    half = count * 4 // 5
    np.savez(path, x_train=images[:half], y_train=y[:half], x_test=images[half:], y_test=y[half:])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=600)
    arguments.add_argument("--images", type=int, default=4000)
    asked = arguments.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder, "places.npz")
        write_places(path, asked.images)
        fitted = mb.fit(locator, mb.data.load(path), budget="3 KB", steps=asked.steps, lr=0.01)
        print(
            f"R² {fitted.accuracy:.3f} in {fitted.file_bytes:,} bytes, dense {fitted.dense['accuracy']:.3f}"
        )
