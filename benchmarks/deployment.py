"""Deployed networks against the runtimes that are installed: latency, file, memory, load time, and distance to a floor.

    python benchmarks/deployment.py --skimcaffe caffenet_conv_l1.npz --out results/deployment.json

LeNet, CIFAR-10-quick, AlexNet at three densities, and networks of the shapes of ResNet-18 and MobileNet with 20, 10
and 5 % of their weights (the first layer, and MobileNet's depthwise ones, dense): batches of 1 and 16, 1 and 2 threads.
Peers are held to float32; OpenVINO's own choice of precision is a row of its own. Weights but SkimCaffe's are random,
and the largest of each layer are kept. Stored for speed; each layer's time is measured beside its floor.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from _networks import mobilenet, resnet18
from _record import record
from latency import OURS, keep_, networks
from torch import nn

from membound import machine
from membound.bench.layers import time_layers
from membound.bench.race import race
from membound.capture import capture
from membound.cli.bench import interpreters
from membound.store.file import write

DENSITIES = (0.2, 0.1, 0.05)
IMAGE = (3, 224, 224)


def thin_(net: nn.Module, density: float) -> nn.Module:
    """Every convolution and matrix but the first and the depthwise ones."""
    layers = [
        name
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)
    ]
    return keep_(net, **dict.fromkeys(layers[1:], density))


def everything(skimcaffe: Path | None) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    found = dict(networks(skimcaffe))
    for density in DENSITIES:
        found[f"resnet18, {density:.0%}"] = thin_(resnet18(), density), IMAGE
        found[f"mobilenet, {density:.0%}"] = thin_(mobilenet(), density), IMAGE
    return found


def measure(
    name: str, net: nn.Module, shape: tuple[int, ...], runs: int, rounds: int, pythons: dict[str, str]
) -> list[dict[str, Any]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        stored = write(path, capture(net, torch.zeros(1, *shape)), prefer="speed")
        layers = time_layers(path, runs=max(runs // 4, 5))
        for batch in (1, 16):
            share = runs if batch == 1 else max(runs // 8, rounds)
            facts = race(path, threads=(1, 2), runs=share, rounds=rounds, batch=batch, pythons=pythons)
            for threads in (1, 2):
                rows = [row for row in facts["results"] if row["threads"] == threads]
                times = {row["name"]: row.get("min_ms") for row in rows}
                peers = {k: v for k, v in times.items() if v is not None and k != OURS and "default" not in k}
                fastest = min(peers, key=lambda peer: peers[peer])
                ratio = peers[fastest] / times[OURS]
                print(
                    f"{name}, batch {batch}, {threads} threads: {times[OURS]:.3f} ms, {ratio:.2f} times {fastest}",
                    flush=True,
                )
                found.append(
                    {
                        "network": name, "batch": batch, "threads": threads, "file_bytes": stored.file_bytes,
                        "fastest_peer": fastest, "times_faster": ratio, "rows": rows, "missing": facts["missing"],
                        "versions": facts["versions"],
                        **({"layers": layers["layers"], "machine": layers["machine"]} if batch == threads == 1 else {}),
                    }
                )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--skimcaffe", type=Path, help="convolutions of a CaffeNet trained with l1, for one more network"
    )
    parser.add_argument(
        "--runs", type=int, default=40, help="of large networks; small ones run 30 times as often"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--python", action="append", default=[], help="of a peer, such as deepsparse=venv/bin/python"
    )
    parser.add_argument("--only", action="append", help="networks whose names contain this; may be repeated")
    parser.add_argument("--out", default="results/deployment.json")
    options = parser.parse_args()
    pythons = interpreters(options.python)
    torch.manual_seed(0)
    results: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for name, (net, shape) in everything(options.skimcaffe).items():
        if options.only is None or any(part in name for part in options.only):
            runs = options.runs * (30 if shape[-1] < 64 else 1)
            results += measure(name, net.eval(), shape, runs, options.rounds, pythons)
            for row in results:
                versions |= row.pop("versions", {})
            about = {"hardware": machine.hardware(), "versions": versions, "seed": 0}  # no GPU takes part
            record(options.out, {**about, "runs": options.runs, "rounds": options.rounds, "results": results})


if __name__ == "__main__":
    main()
