"""`make demo` over several seeds: dense against 5 % of the weights, LeNet on MNIST.

python benchmarks/demo_seeds.py --seeds 3 --out results/demo.json
"""

import argparse
import json
import statistics
import subprocess
import sys

from _record import ROOT, record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="results/demo.json")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        command = [sys.executable, "examples/demo.py", "--json", "--seed", str(seed)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        rows = json.loads(done.stdout)
        print(seed, [(row["network"], row["accuracy"], row["seconds"]) for row in rows], flush=True)
        runs.append({"seed": seed, **{row["network"]: row for row in rows}})
    summary = {}
    for network in ("dense", "sparse"):
        accuracies = [run[network]["accuracy"] for run in runs]
        summary[network] = {
            "mean": statistics.mean(accuracies),
            "std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
            "bytes": runs[0][network]["bytes"],
            "weight_nonzeros": runs[0][network]["weight_nonzeros"],
            "seconds": statistics.median(run[network]["seconds"] for run in runs),
        }
    record(options.out, {"summary": summary, "runs": runs, "target_sparse_accuracy": 98.9})


if __name__ == "__main__":
    main()
