"""How fast do stored networks run, against the runtimes that are installed? Batch 1, the peers held to float32.

    python benchmarks/latency.py SKIMCAFFE.npz --out results/latency.json

AlexNet with the paper's densities (convolutions dense, fc6 to fc8 sparse); with the convolutions of SkimCaffe's l1
CaffeNet and fc6, fc7, fc8 at 9, 9 and 25 %; with 10 % everywhere but in conv1; LeNet at 5 % and quick at 10 % of all
weights but conv1's. Each is stored once for the fewest bytes and once for speed. Weights that are not SkimCaffe's are
random; what is kept are the largest, so that nonzeros lie at random places.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _record import record
from torch import nn

from membound import zoo
from membound.bench.race import race
from membound.capture import capture
from membound.store.file import write
from membound.train.projection import project_

OURS = "membound"


def keep_(net: nn.Module, **fractions: float) -> nn.Module:
    """Project each named layer's weight onto that fraction of it."""
    for name, fraction in fractions.items():
        weight = net.get_parameter(f"{name}.weight")
        project_(weight, round(weight.numel() * fraction))
    return net


def networks(skimcaffe: Path | None) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    image = (3, 227, 227)
    paper = keep_(zoo.alexnet(), fc6=3e6 / (4096 * 9216), fc7=3e6 / 4096**2, fc8=4e5 / 4096000)
    found = {"alexnet, the paper's": (paper, image)}
    if skimcaffe is not None:
        real = keep_(zoo.alexnet(), fc6=0.09, fc7=0.09, fc8=0.25)
        weights = np.load(skimcaffe)
        with torch.no_grad():
            for name in ("conv1", "conv2", "conv3", "conv4", "conv5"):
                real.get_parameter(f"{name}.weight").copy_(torch.from_numpy(weights[name]))
        found["alexnet, sparse convolutions"] = (real, image)
    rest = ("conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")
    tenth = keep_(zoo.alexnet(), **dict.fromkeys(rest, 0.1))
    lenet = keep_(zoo.lenet(), **dict.fromkeys(("conv2", "fc1", "fc2"), 0.05))
    quick = keep_(zoo.cifar10_quick(), **dict.fromkeys(("conv2", "conv3", "fc1", "fc2"), 0.1))
    return found | {
        "alexnet, a tenth": (tenth, image),
        "lenet": (lenet, (1, 28, 28)),
        "quick": (quick, (3, 32, 32)),
    }


def measure(
    name: str, net: nn.Module, shape: tuple[int, ...], runs: int, rounds: int
) -> list[dict[str, Any]]:
    model = capture(net, torch.zeros(1, *shape))
    found = []
    for prefer in ("bytes", "speed"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.safetensors"
            stored = write(path, model, prefer=prefer)
            facts = race(path, threads=(1, 2), runs=runs, rounds=rounds)
        rows = facts["results"]
        best = {}
        for row in rows:
            if row.get("min_ms") is not None:
                best[row["name"]] = min(best.get(row["name"], np.inf), row["min_ms"])
        peers = {peer: ms for peer, ms in best.items() if peer != OURS and "default" not in peer}
        fastest = min(peers, key=peers.__getitem__)
        ratio = peers[fastest] / best[OURS]
        print(
            f"{name}, for {prefer}: {best[OURS]:.3f} ms, {stored.file_bytes:,} bytes; {ratio:.2f} times {fastest}"
        )
        found.append(
            {
                "network": name,
                "formats_for": prefer,
                "file_bytes": stored.file_bytes,
                "formats": {
                    key: tensor.format for key, tensor in stored.tensors.items() if key.endswith("weight")
                },
                "best_ms": best,
                "fastest_peer": fastest,
                "times_faster": ratio,
                "rows": rows,
                "missing": facts["missing"],
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("skimcaffe", type=Path, help="caffenet_conv_l1.npz")
    parser.add_argument(
        "--runs", type=int, default=100, help="of AlexNet; the small networks run 30 times as often"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", default="results/latency.json")
    options = parser.parse_args()
    results = []
    for name, (net, shape) in networks(options.skimcaffe).items():
        large = sum(weight.numel() for weight in net.parameters()) > 10**7
        runs = options.runs * (1 if large else 30)
        results += measure(name, net.eval(), shape, runs, options.rounds)
    record(
        options.out,
        {"batch": 1, "seed": 0, "runs": options.runs, "rounds": options.rounds, "results": results},
    )


if __name__ == "__main__":
    main()
