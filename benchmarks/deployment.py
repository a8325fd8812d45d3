"""Deployed networks against the runtimes that are installed: latency, file, memory, load time, and distance to a floor.

    python benchmarks/deployment.py --skimcaffe caffenet_conv_l1.npz --out results/deployment.json

AlexNet with the paper's densities (convolutions dense, fc6 to fc8 sparse), with the convolutions of SkimCaffe's l1
CaffeNet (fc6, fc7 and fc8 at 9, 9 and 25 %), and with 10 % everywhere but in conv1; and LeNet, CIFAR-10-quick, ResNet-8
and networks of the shapes of ResNet-18, MobileNet and EfficientNet-Lite0 with 10, 5 and 20 % of their weights (the
first layer, and depthwise ones, dense). Batches of 1 and 16, 1 and 2 threads.

Each network is stored in float32 for speed, which races dense peers in float32, and, as fit writes it, for the fewest
bytes in f16 and in codes of 4 bits (p8 in first and depthwise layers), which race peers in 8 bits. All take turns in
every round, each in a process of its own. A ratio is a peer's time over ours: the least of each turn, its geometric
mean over the turns, and the 95 % interval of that (Student's t on logarithms). OpenVINO's own choice of precision is a
row of its own. `load` is how many processes wanted to run when a race began. What is in --out already is not measured
again, so that an interrupted race, or one that --minutes ended, goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
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
PEERS = ("torch", "onnxruntime", "openvino", "deepsparse")
FITTED = {"f16": "net-f16", "p4": "net-p4"}  # values of the files that race int8, and their names
# Of Student's distribution, what 2.5 % exceed, by degrees of freedom.
QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)
KEPT = (
    "name", "precision", "min_ms", "median_ms", "turns_ms", "resident_bytes", "peak_bytes", "load_ms", "file_bytes",
    "max_relative_difference", "error",
)  # fmt: skip


def measure(
    name: str,
    net: nn.Module,
    shape: tuple[int, ...],
    batch: int,
    counts: list[int],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """One network in batches of one size: an entry for each number of threads."""
    graph, found = capture(net, torch.zeros(1, *shape)), []
    runs = options.runs * (30 if shape[-1] < 64 else 1)
    share = runs if batch == 1 else max(runs // 8, options.rounds)
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # what else ran on the machine, before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        beside = {values: Path(folder) / f"{stem}.safetensors" for values, stem in FITTED.items()}
        stored = write(path, graph, prefer="speed")
        for values, file in beside.items():
            write(file, graph, values)
        facts = race(
            path, beside=list(beside.values()), int8=True, threads=counts, runs=share, rounds=options.rounds,
            batch=batch, peers=options.peers, pythons=interpreters(options.python),
        )  # fmt: skip
        layers = time_layers(path, runs=max(runs // 4, 5)) if batch == 1 and options.layers else None
    for threads in counts:
        rows = [row for row in facts["results"] if row["threads"] == threads]
        about = {"network": name, "formats_for": "speed", "batch": batch, "threads": threads}
        entry = about | {"file_bytes": stored.file_bytes, "runs": share} | compare(rows)
        entry |= {"rows": [{key: row[key] for key in KEPT if key in row} for row in rows]}
        entry |= {key: facts[key] for key in ("missing", "versions")} | {"load": busy}
        if layers is not None and threads == 1:
            entry |= {key: layers[key] for key in ("layers", "machine")}
        found.append(entry)
        tell(entry)
    return found


def compare(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Our float32 file beside the fastest peer in float32, and those of few bits beside the fastest in 8 bits."""
    timed = {row["name"]: row for row in rows if row.get("min_ms") is not None}
    int8 = [name for name in timed if name.endswith("int8")]
    f32 = [name for name in timed if not name.startswith(OURS) and "default" not in name and name not in int8]
    fastest = min(f32, key=lambda name: timed[name]["min_ms"])
    found = {
        "fastest_peer": fastest,
        "times_faster": timed[fastest]["min_ms"] / timed[OURS]["min_ms"],
        "ratios": {name: ratio(timed[name], timed[OURS]) for name in f32},
    }
    if int8:
        eight = min(int8, key=lambda name: timed[name]["min_ms"])
        ours = {"f32": OURS} | {values: f"{OURS} {stem}" for values, stem in FITTED.items()}
        found["fastest_int8"] = eight
        found["int8_ratios"] = {
            values: ratio(timed[eight], timed[name]) for values, name in ours.items() if name in timed
        }
    return found


def ratio(peer: dict[str, Any], ours: dict[str, Any]) -> dict[str, float]:
    """A peer's time over ours, turn by turn, with its 95 % interval."""
    logs = [math.log(theirs / own) for theirs, own in zip(peer["turns_ms"], ours["turns_ms"], strict=True)]
    middle, half = statistics.fmean(logs), math.inf
    if len(logs) > 1:
        quantile = QUANTILES[min(len(logs) - 1, len(QUANTILES)) - 1]
        half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"ratio": math.exp(middle), "low": math.exp(middle - half), "high": math.exp(middle + half)}


def tell(entry: dict[str, Any]) -> None:
    beside = entry["ratios"][entry["fastest_peer"]]
    words = f"{beside['ratio']:.2f} [{beside['low']:.2f}, {beside['high']:.2f}] times {entry['fastest_peer']}"
    for values, found in entry.get("int8_ratios", {}).items():
        words += f"; {values} {found['ratio']:.2f} times {entry['fastest_int8']}"
    print(
        f"{entry['network']}, batch {entry['batch']}, {entry['threads']} threads: {words}",
        flush=True,
    )


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean over all rows of the fastest float32 peer's time over ours, and how many rows are ahead."""
    times = [entry["times_faster"] for entry in results]
    return {
        "rows": len(times),
        "ahead": sum(each >= 1 for each in times),
        "geometric_mean": math.exp(statistics.fmean(map(math.log, times))),
        "least": min(times),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--skimcaffe", type=Path, help="convolutions of a CaffeNet trained with l1, for one more network"
    )
    parser.add_argument(
        "--runs", type=int, default=40, help="of large networks; small ones run 30 times as often"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument(
        "--python", action="append", default=[], help="of a peer, such as deepsparse=venv/bin/python"
    )
    parser.add_argument(
        "--only", action="append", help="networks whose names begin with this; may be repeated"
    )
    parser.add_argument("--minutes", type=float, help="after which no more races begin")
    parser.add_argument("--layers", action="store_true", help="also the time of each layer, and its floor")
    parser.add_argument("--out", default="results/deployment.json")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # two cores for everyone
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    before = json.loads(Path(options.out).read_text()) if Path(options.out).exists() else {}
    results: list[dict[str, Any]] = before.get("results", [])
    versions: dict[str, str] = before.get("versions", {})
    done = {(entry["network"], entry["batch"], entry["threads"]) for entry in results}
    begun = time.monotonic()
    for name, (make, shape) in everything(options.skimcaffe).items():
        if options.only is not None and not name.startswith(tuple(options.only)):
            continue
        for batch in options.batches:
            counts = [threads for threads in options.threads if (name, batch, threads) not in done]
            if not counts or (options.minutes and time.monotonic() - begun > 60 * options.minutes):
                continue
            results += measure(name, make(), shape, batch, counts, options)
            for row in results:
                versions |= row.pop("versions", {})
            about = {"hardware": machine.hardware(), "versions": versions, "seed": 0}  # no GPU takes part
            about |= {"runs": options.runs, "rounds": options.rounds, "summary": summary(results)}
            record(options.out, {**about, "results": results})


if __name__ == "__main__":
    main()
