"""Does a network take the memory that it says? AlexNet with the paper's densities, in fresh processes without torch.

    python benchmarks/memory.py --out results/memory.json

Alone: resident growth from before the load to after 100 runs, against the file plus the arena. Together: four processes
on one file, the sum of their proportional shares (PSS), against one file plus four arenas.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _record import record
from latency import keep_

from membound import zoo
from membound.capture import capture
from membound.store.file import write

PROCESSES = 4

PROGRAM = """
import json, sys
import numpy as np
from membound.run import load
from membound.machine import resident_bytes

def pss():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))

x = np.random.default_rng(0).standard_normal((1, 3, 227, 227), np.float32)
before, share = resident_bytes(), pss()
net = load(sys.argv[1], threads=int(sys.argv[2]))
for _ in range(100):
    net(x)
memory = net.memory()
assert "torch" not in sys.modules
print(json.dumps({"grown": resident_bytes() - before, "weights": memory.weights, "tables": memory.tables,
                  "arena": memory.arena}), flush=True)
sys.stdin.readline()  # until all have run
print(json.dumps(pss() - share), flush=True)
sys.stdin.readline()
"""


def start(path: Path, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def measure(path: Path, count: int, threads: int) -> tuple[list[Any], list[int]]:
    """What each of `count` processes on one file grew by, and then, while all are there, its share."""
    processes = [start(path, threads) for _ in range(count)]
    grown = [answer(process) for process in processes]
    shares = []
    for process in processes:
        go_on(process)
        shares.append(answer(process))
    for process in processes:
        go_on(process)
        process.wait()
    return grown, shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="results/memory.json")
    options = parser.parse_args()
    torch.manual_seed(0)
    net = keep_(zoo.alexnet(), fc6=3e6 / (4096 * 9216), fc7=3e6 / 4096**2, fc8=4e5 / 4096000)
    model = capture(net.eval(), torch.zeros(1, 3, 227, 227))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for prefer in ("bytes", "speed"):
            path = Path(folder) / f"{prefer}.safetensors"
            write(path, model, prefer=prefer)
            for threads in (1, 2):
                [alone], _ = measure(path, 1, threads)
                together, shares = measure(path, PROCESSES, threads)
                file, arena = alone["weights"], alone["arena"]
                result = {
                    "formats_for": prefer,
                    "threads": threads,
                    "file_bytes": file,
                    **alone,
                    "grown_over_file_and_arena": alone["grown"] / (file + arena),
                    "processes": PROCESSES,
                    "shares": shares,
                    "resident_together": sum(one["grown"] for one in together),
                    "shares_over_file_and_arenas": sum(shares) / (file + PROCESSES * arena),
                }
                results.append(result)
                print(
                    f"for {prefer}, {threads} threads: grew by {alone['grown']:,} bytes, "
                    f"{result['grown_over_file_and_arena']:.3f} of file and arena; {PROCESSES} processes share "
                    f"{sum(shares):,} bytes, {result['shares_over_file_and_arenas']:.3f} of one file and "
                    f"{PROCESSES} arenas"
                )
    record(options.out, {"seed": 0, "results": results})


if __name__ == "__main__":
    main()
