"""Train under a bound, save, and run the file: the second half needs numpy only, and could be another machine."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import membound as mb


def train_and_save(data: mb.data.Dataset, steps: int, path: Path) -> None:
    """A network of which 5 % of the weights stay, saved with how its images are prepared."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(mb.ramp(1.0, 0.05), every=10)}, steps)
    preprocess = mb.data.Preprocess(scale=1 / 255)
    for _ in range(steps):
        chosen = rng.integers(0, len(data.train), 128)
        images = torch.from_numpy(preprocess(data.train.read(chosen)))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), torch.from_numpy(data.train.labels[chosen])).backward()
        optimizer.step()
    reg.finish()
    mb.save(model, path, torch.zeros(1, 1, 28, 28), preprocess=preprocess, classes=data.classes)


def deploy(data: mb.data.Dataset, path: Path) -> None:
    """Load, look at the memory, run."""
    net = mb.load(path, max_batch=100)
    right = 0
    for begin in range(0, len(data.test), 100):
        chosen = np.arange(begin, begin + 100)
        scores = net(net.preprocess(data.test.read(chosen)))
        right += int((scores.argmax(1) == data.test.labels[chosen]).sum())
    memory = net.memory()
    print(
        f"accuracy {right / len(data.test):.2%}, file {path.stat().st_size} bytes, memory {memory.total} bytes"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=2000)
    arguments.add_argument("--out", type=Path, help="keep the model file here (.safetensors)")
    given = arguments.parse_args()
    data = mb.data.load("mnist")
    with tempfile.TemporaryDirectory() as folder:
        path = given.out or Path(folder) / "net.safetensors"
        train_and_save(data, given.steps, path)
        deploy(data, path)


if __name__ == "__main__":
    main()
