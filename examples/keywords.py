"""Keyword spotting: features along time, [n, bands, frames], and a network of 1-d convolutions.

    python examples/keywords.py

The words are made here: sweeps of tones through noise, as bands of energy over time. With features of your own (an
.npz of floating-point x_train [n, C, L] and integer y_train):

    membound fit examples.keywords:spotter --data words.npz --layout NCL --budget 3KB --out spotter.safetensors
    membound evaluate spotter.safetensors --data words.npz --layout NCL

On a microcontroller, the same network is fed time step by time step, and RAM does not grow with the length. This
writes C:

    python examples/keywords.py --micro firmware
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from torch import nn

import membound as mb

BANDS, FRAMES, WORDS = 20, 49, 6
DEVICE = {"target": "micro", "budget": "7 KB", "ram": "2 KB"}


def spotter(classes: int = WORDS, channels: int = BANDS, width: int = 24) -> nn.Module:
    """Convolutions over time, as small keyword spotters have them."""
    return nn.Sequential(
        nn.Conv1d(channels, width, 5, 2), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Conv1d(width, width, 5, 2), nn.BatchNorm1d(width), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip


def make_words(count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Each word is a sweep from one band to another; it begins when it likes."""
    random = np.random.default_rng(0)
    words, bands = random.integers(0, WORDS, count), np.arange(BANDS)[:, None]
    ends = np.array([(2, 17), (17, 2), (2, 10), (10, 2), (10, 17), (17, 10)])
    features = random.normal(0, 0.8, (count, BANDS, FRAMES))
    for feature, word in zip(features, words, strict=True):
        first, length = random.integers(0, 20), random.integers(18, 28)
        course = np.linspace(*ends[word], length) + random.normal(0, 0.5)
        feature[:, first : first + length] += 2 * np.exp(-((bands - course) ** 2) / 4)
    return features.astype(np.float32), words


def write_words(path: Path, count: int) -> None:
    """An .npz for `membound fit --data`."""
    x, y = make_words(count)
    half = count * 4 // 5
    np.savez(path, x_train=x[:half], y_train=y[:half], x_test=x[half:], y_test=y[half:])


def fit_for_device(path: Path, steps: int, folder: Path) -> None:
    """Fit the features of an .npz to 7 KB of flash and 2 KB of RAM, and write C into a new folder."""
    with np.load(path) as file:
        train, test = ((file[f"x_{half}"], file[f"y_{half}"]) for half in ("train", "test"))
    fitted = mb.fit(spotter, train, test_data=test, steps=steps, **DEVICE)
    fitted.save(path.with_name("spotter.safetensors"))
    net = mb.export_c(path.with_name("spotter.safetensors"), folder)
    memory = net.memory()
    print(
        f"accuracy {fitted.accuracy:.2f} % in {memory.flash:,} bytes of flash and {memory.ram:,} of RAM: {folder}"
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=600)
    arguments.add_argument("--words", type=int, default=4000)
    arguments.add_argument("--micro", type=Path, help="write C for a microcontroller into this new folder")
    asked = arguments.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder, "words.npz")
        write_words(path, asked.words)
        if asked.micro is not None:
            fit_for_device(path, asked.steps, asked.micro)
            raise SystemExit
        data = mb.data.load(path, layout="NCL")
        fitted = mb.fit(spotter, data, budget="3 KB", steps=asked.steps)
        print(
            f"accuracy {fitted.accuracy:.2f} % in {fitted.file_bytes:,} bytes, dense {fitted.dense['accuracy']:.2f} %"
        )
