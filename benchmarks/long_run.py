"""Run one network for a long time: answers stay the same to the bit, and memory stays where it was.

    python benchmarks/long_run.py --calls 10000000 --out results/long-run.json
    python benchmarks/long_run.py --seconds 300          as many calls as fit into that time

The network is LeNet with 2 % of its weights, random; every answer of the first image is compared with the first one.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _record import record

import membound as mb

WARM_UP = 5_000  # calls before memory is looked at for the first time
CHUNK = 50_000  # calls between two looks
MOST_GROWTH = 1 << 20  # bytes


def resident() -> dict[str, int]:
    """Bytes of memory that this process has: its own, those of them in huge pages, and pages of mapped files.

    The system may join small pages into a huge one at any time, which then counts in full.
    """
    lines = (
        Path("/proc/self/status").read_text() + Path("/proc/self/smaps_rollup").read_text().partition("\n")[2]
    )
    found = dict(line.split(":", 1) for line in lines.splitlines())
    names = {"own": "RssAnon", "huge": "AnonHugePages", "files": "RssFile"}
    return {kind: 1024 * int(found[name].split()[0]) for kind, name in names.items()}


def make(path: Path) -> None:
    torch.manual_seed(0)
    net = mb.zoo.lenet()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(torch.rand(weight.shape) < 0.02)
    mb.save(net, path, torch.zeros(1, 1, 28, 28))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop earlier, after so long")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", help="a JSON file for what was found")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lenet.safetensors")
        make(path)
        net = mb.load(path, threads=options.threads)
    x = np.random.default_rng(0).standard_normal((1, 1, 28, 28), np.float32)
    wanted = net(x).tobytes()
    for _ in range(WARM_UP):
        net(x)
    before, changes, calls, wrong = resident(), [], 0, 0
    start = time.monotonic()
    while calls < options.calls and time.monotonic() - start < options.seconds:
        chunk = min(CHUNK, options.calls - calls)
        for _ in range(chunk):
            wrong += net(x).tobytes() != wanted
        calls += chunk
        now = resident()
        grown = {kind: now[kind] - before[kind] for kind in now}
        if not changes or {**changes[-1], "calls": 0} != {"calls": 0, **grown}:
            changes.append({"calls": calls, **grown})
    seconds = time.monotonic() - start
    print(
        f"{calls:,} calls in {seconds:.0f} s: {wrong} answers differ; growth in bytes where it changed: {changes}"
    )
    if options.out:
        facts = {
            "calls": calls, "asked_for": options.calls, "seconds": round(seconds, 1), "threads": options.threads,
            "answers_that_differ": wrong, "resident_before": before, "growth_where_it_changed": changes,
        }  # fmt: skip
        record(options.out, facts)
    assert wrong == 0
    most = max(change["own"] - change["huge"] for change in changes)
    assert most < MOST_GROWTH, f"memory grew by {most:,} bytes"


if __name__ == "__main__":
    main()
