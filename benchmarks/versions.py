"""One version of membound against another, alternating: that nothing became slower, and which bits changed.

    python benchmarks/versions.py --old old/.venv/bin/python [--out results/versions.json]

`--old` is a Python that has the other version installed. Every network of deployment.py, stored in f32 for speed, as it
is raced there, and in f16 with the fewest bytes, as fit() writes it: `--stored` names other pairs; with
`f32-speed:f16-bytes` the old version runs the one and the new version the other. Each round runs both versions, each in
a process of its own, and takes the least time of a few runs; the ratio is the median over rounds.
Both load the network anew every few rounds, behind a block of memory of another size: where an arena lies matters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _networks import everything
from _record import record

from membound import machine
from membound.capture import capture
from membound.store.file import write

RUNNER = """
import json, sys, time
import numpy as np
import membound as mb

net = x = ballast = None
for line in sys.stdin:
    order = json.loads(line)
    if "load" in order:
        net = None
        ballast = np.ones(order["ballast"], np.uint8)
        net = mb.load(order["load"], threads=order["threads"], max_batch=order["batch"], engine=order["engine"])
        x = np.random.default_rng(0).standard_normal((order["batch"], *net.input_shape), np.float32)
        y = net(x)
        np.save(order["output"], y)
        answer = net.memory().total
    else:
        times = []
        for _ in range(order["runs"]):
            begun = time.perf_counter()
            net(x)
            times.append(time.perf_counter() - begun)
        answer = min(times)
    print(json.dumps(answer), flush=True)
"""
LOADS = 5  # of each network


class Runner:
    """A process that runs one version."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, **order: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare(
    runners: dict[str, Runner], paths: dict[str, Path], threads: int, batch: int, engine: str, rounds: int
) -> dict[str, Any]:
    outputs = {name: str(path.with_suffix(f".{name}.npy")) for name, path in paths.items()}
    blocks = np.random.default_rng(0)

    def load() -> dict[str, int]:
        ballast = int(blocks.integers(1, 1 << 20))
        order = {"threads": threads, "batch": batch, "engine": engine, "ballast": ballast}
        return {
            name: runner(**order, load=str(paths[name]), output=outputs[name])
            for name, runner in runners.items()
        }

    memory = load()
    old, new = (np.load(outputs[name]) for name in ("old", "new"))
    seconds = runners["new"](runs=3)
    runs = int(min(max(0.02 / seconds, 1), 50))
    times: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(rounds):
        if number and number % max(rounds // LOADS, 1) == 0:
            load()
        for name in runners if number % 2 else reversed(runners):
            times[name].append(1000 * runners[name](runs=runs))
    ratios = [after / before for before, after in zip(times["old"], times["new"], strict=True)]
    return {
        "threads": threads, "batch": batch, "engine": engine,
        "old_ms": statistics.median(times["old"]), "new_ms": statistics.median(times["new"]),
        "old_min_ms": min(times["old"]), "new_min_ms": min(times["new"]),
        "ratio": statistics.median(ratios), "old_memory_bytes": memory["old"], "new_memory_bytes": memory["new"],
        "same_bits": bool(np.array_equal(old, new)),
        "distance": float(np.abs(old - new).max() / np.abs(old).max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", required=True, help="a Python with the other version")
    parser.add_argument("--skimcaffe", type=Path, help="as for deployment.py")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--stored", nargs="+", default=["f32-speed", "f16-bytes"], help="values and prefer, as f16-bytes"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engine", choices=["float", "int8"], default="float")
    parser.add_argument(
        "--only", action="append", help="networks whose names begin with this; may be repeated"
    )
    parser.add_argument("--out", default="results/versions.json")
    options = parser.parse_args()
    results = []
    runners = {"old": Runner(options.old), "new": Runner(sys.executable)}
    for name, (make, shape) in everything(options.skimcaffe).items():
        if options.only is not None and not name.startswith(tuple(options.only)):
            continue
        graph = capture(make(), torch.zeros(1, *shape))
        with tempfile.TemporaryDirectory() as folder:
            for stored in options.stored:
                paths = {}
                for which, pair in zip(("old", "new"), (stored.split(":") * 2)[:2], strict=True):
                    values, prefer = pair.split("-")
                    paths[which] = Path(folder) / f"{pair}.safetensors"
                    write(paths[which], graph, values=values, prefer=prefer)
                for batch in options.batches:
                    for threads in options.threads:
                        found = compare(runners, paths, threads, batch, options.engine, options.rounds)
                        results.append(
                            {"network": name, "stored": stored, "values": values, "prefer": prefer, **found}
                        )
                        print(
                            f"{name}, {stored}, batch {batch}, {threads} threads: {found['old_ms']:.3f} -> "
                            f"{found['new_ms']:.3f} ms, {found['ratio']:.3f}, memory {found['old_memory_bytes']:,} -> "
                            f"{found['new_memory_bytes']:,}, distance {found['distance']:.1e}",
                            flush=True,
                        )
        record(
            options.out,
            {"hardware": machine.hardware(), "seed": 0, "rounds": options.rounds, "results": results},
        )


if __name__ == "__main__":
    main()
