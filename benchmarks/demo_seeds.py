"""`make demo` over several seeds: LeNet on MNIST within 6 KB, and the dense network beside it.

python benchmarks/demo_seeds.py --seeds 3 --out results/demo.json
"""

import json
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _record import ROOT, arguments, record

from membound.paper.claims import spread


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strategies", nargs="*", default=["global"])
    parser.add_argument("--out", default="results/demo.json")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        for strategy in options.strategies:
            runs.append(run(seed, strategy, dense=strategy == options.strategies[0]))
            print(runs[-1], flush=True)
    summary = {}
    for strategy in options.strategies:
        found = [row for row in runs if row["strategy"] == strategy]
        summary[strategy] = spread([row["accuracy"] for row in found]) | {
            "file_bytes": max(row["file_bytes"] for row in found),
            "seconds": statistics.median(row["seconds"] for row in found),
            "processor_seconds": statistics.median(row["processor_seconds"] for row in found),
        }
    dense = [row for row in runs if row["dense"] is not None]
    summary["dense"] = spread([row["dense"] for row in dense]) | {"file_bytes": dense[0]["dense_bytes"]}
    record(options.out, {"arguments": demo_arguments(), "summary": summary, "runs": runs})


def demo_arguments() -> list[str]:
    """What `make demo` says to membound, without where the file goes."""
    line = re.search(r"membound (fit .*?) --out", (ROOT / "Makefile").read_text())
    assert line is not None
    return shlex.split(line[1])


def run(seed: int, strategy: str, dense: bool) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "net.safetensors"
        more = ["--out", str(out), "--seed", str(seed), "--strategy", strategy, "--json"]
        more += [] if dense else ["--no-dense"]
        command = [sys.executable, "-m", "membound", *demo_arguments(), *more]
        begun, before = time.monotonic(), processor_seconds()
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        seconds, processor = time.monotonic() - begun, processor_seconds() - before
        size = out.stat().st_size
    facts = json.loads(done.stdout)
    final, beside = facts["finals"][0], facts.get("dense") or {}
    assert final["file_bytes"] == size
    return {
        "seed": seed,
        "strategy": strategy,
        "accuracy": final["accuracy"],
        "errors": final["errors"],
        "file_bytes": size,
        "nonzeros": final["nonzeros"],
        "dense": beside.get("accuracy"),
        "dense_bytes": beside.get("file_bytes"),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
    }


def processor_seconds() -> float:
    """Of all processes that have ended: what a busy machine does not stretch as it does the time that passes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
