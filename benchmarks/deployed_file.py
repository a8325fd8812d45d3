"""A model file against the dense runtimes that are installed, as `membound bench FILE` races them, kept as JSON.

python benchmarks/deployed_file.py lite0.safetensors --out results/deployed-lite0.json
"""

import argparse
from pathlib import Path

from _record import record

from membound.bench.race import race


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    facts = race(options.file, threads=(1, 2), runs=options.runs, rounds=options.rounds, batch=options.batch)
    record(options.out, {name: fact for name, fact in facts.items() if name != "command"})
    for row in facts["results"]:
        if row.get("min_ms") is not None:
            print(f"{row['threads']} threads, {row['name']}: {row['min_ms']:.2f} ms")


if __name__ == "__main__":
    main()
