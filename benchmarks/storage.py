"""What networks weigh: AlexNet in the paper's accounting and in ours, and the pruned LeNet as a file that runs.

    python benchmarks/storage.py CAFFEMODELS --out results/storage.json

AlexNet's sparse layers have random nonzeros, 3,000,000 in fc6 and in fc7, 400,000 in fc8, as many as the paper's. The
pruned LeNet is Dynamic Network Surgery's, trained by others: it is saved, loaded again in a process that has no torch,
and classifies the MNIST test set there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _record import record

import membound as mb
from membound.capture import capture
from membound.data import Preprocess
from membound.store import sizes
from membound.store.file import file_size

MIB = 2**20
KEPT = {"fc6.weight": 3_000_000, "fc7.weight": 3_000_000, "fc8.weight": 400_000}

WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
import membound as mb
from membound.run.evaluation import evaluate_file
print(json.dumps(evaluate_file(mb.load(sys.argv[1], max_batch=64), mb.data.load("mnist"))))
"""


def alexnet() -> dict[str, Any]:
    net = mb.zoo.alexnet()
    shapes = {name: tuple(weight.shape) for name, weight in net.named_parameters()}
    dense = {name: (shape, int(np.prod(shape))) for name, shape in shapes.items()}
    sparse = dense | {name: (shapes[name], kept) for name, kept in KEPT.items()}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, kept in KEPT.items():
            weight = net.get_parameter(name)
            dropped = torch.randperm(weight.numel(), generator=generator)[kept:]
            weight.view(-1)[dropped] = 0
            for bias in net.parameters():
                if bias.dim() == 1:
                    bias.fill_(0.1)  # counted in full, as the paper does
    model = capture(net, torch.zeros(1, 3, 227, 227))
    paper = {
        "dense": sizes.total_bytes(dense, "dense"),
        "sparse, indexed": sizes.total_bytes(sparse, dict.fromkeys(KEPT, "indexed")),
        "sparse, best of the paper's formats": sizes.total_bytes(sparse),
        "sparse, best of our formats": sizes.total_bytes(sparse, accounting="ours"),
        "sparse, our file at f32": file_size(model),
        "sparse, our file at f16": file_size(model, values="f16"),
        "sparse, our file for speed at f32": file_size(model, prefer="speed"),
    }
    return {name: {"bytes": size, "MiB": round(size / MIB, 2)} for name, size in paper.items()}


def pruned_lenet(weights: Path, folder: Path) -> dict[str, Any]:
    net = mb.zoo.lenet()
    mb.zoo.load_caffemodel(net, weights)
    found = {}
    for values in ("f32", "f16"):
        path = folder / f"lenet-{values}.safetensors"
        preprocess = Preprocess(scale=1 / 256)
        mb.save(net, path, torch.zeros(1, 1, 28, 28), values=values, preprocess=preprocess)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, str(path)], capture_output=True, text=True, check=True
        )
        found[values] = {"file_bytes": path.stat().st_size} | json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("caffemodels", type=Path, help="the folder with lenet_dns_sparse.caffemodel")
    parser.add_argument("--out", default="results/storage.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = options.caffemodels / "lenet_dns_sparse.caffemodel"
        found = {"seed": 0, "alexnet": alexnet(), "pruned_lenet": pruned_lenet(weights, Path(folder))}
    print(json.dumps(found, indent=2))
    record(options.out, found)


if __name__ == "__main__":
    main()
