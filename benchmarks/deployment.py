"""Deployed networks against the runtimes that are installed: latency, file, memory, load time, and distance to a floor.

    python benchmarks/deployment.py --skimcaffe caffenet_conv_l1.npz --out results/deployment.json

AlexNet with the paper's densities (convolutions dense, fc6 to fc8 sparse), with the convolutions of SkimCaffe's l1
CaffeNet (fc6, fc7 and fc8 at 9, 9 and 25 %), and with 10 % everywhere but in conv1; LeNet at 5 % and CIFAR-10-quick at
10 % of all weights but conv1's; networks of the shapes of ResNet-18 and MobileNet with 20, 10 and 5 % of their weights
(the first layer, and MobileNet's depthwise ones, dense). Each is stored for the fewest bytes, and raced one image at a
time, and for speed, and raced in batches of 1 and 16, with each layer's time beside its floor; 1 and 2 threads.
Peers are held to float32; OpenVINO's own choice of precision is a row of its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from _networks import everything
from _record import arguments, record
from torch import nn

from membound import machine
from membound.bench.layers import time_layers
from membound.bench.race import race
from membound.capture import capture
from membound.cli.bench import interpreters
from membound.store.file import write

OURS = "membound"
BATCHES = {"bytes": (1,), "speed": (1, 16)}  # by what the file is stored for


def measure(
    name: str, net: nn.Module, shape: tuple[int, ...], runs: int, rounds: int, pythons: dict[str, str]
) -> list[dict[str, Any]]:
    graph, found = capture(net, torch.zeros(1, *shape)), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        for prefer, batches in BATCHES.items():
            stored = write(path, graph, prefer=prefer)
            layers = time_layers(path, runs=max(runs // 4, 5)) if prefer == "speed" else None
            for batch in batches:
                share = runs if batch == 1 else max(runs // 8, rounds)
                facts = race(path, threads=(1, 2), runs=share, rounds=rounds, batch=batch, pythons=pythons)
                about = {
                    "network": name,
                    "formats_for": prefer,
                    "batch": batch,
                    "file_bytes": stored.file_bytes,
                }
                for threads in (1, 2):
                    rows = [row for row in facts["results"] if row["threads"] == threads]
                    found.append(about | {"threads": threads} | compare(rows) | {"rows": rows})
                    found[-1] |= {key: facts[key] for key in ("missing", "versions")}
                    if layers is not None and batch == threads == 1:
                        found[-1] |= {key: layers[key] for key in ("layers", "machine")}
                    print(
                        f"{name}, for {prefer}, batch {batch}, {threads} threads: "
                        f"{found[-1]['times_faster']:.2f} times {found[-1]['fastest_peer']}",
                        flush=True,
                    )
    return found


def compare(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest peer in float32, and its time over ours."""
    times = {row["name"]: row["min_ms"] for row in rows if row.get("min_ms") is not None}
    peers = {name: ms for name, ms in times.items() if name != OURS and "default" not in name}
    fastest = min(peers, key=peers.__getitem__)
    return {"fastest_peer": fastest, "times_faster": peers[fastest] / times[OURS]}


def main() -> None:
    parser = arguments(__doc__)
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
