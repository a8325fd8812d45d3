"""Files of few bits as they are deployed, beside dense peers in float32 and in 8 bits: latency, memory, file size.

    python benchmarks/few_bits_latency.py lenet-f16.safetensors lenet-p8.safetensors lenet-p4.safetensors \\
        --out results/few-bits-latency.json

The files are one network, as fit wrote it with several types of values; for several networks, give --group once for
each. Peers get the network of the first file, dense: ONNX Runtime, OpenVINO, torch and DeepSparse in float32, OpenVINO
also in the precision of its choice, and ONNX Runtime (static, a scale for each channel) and OpenVINO (NNCF) in 8 bits,
calibrated on random inputs. All take turns in every round; batches of 1 and 16, 1 and 2 threads. Memory is what a
process grew by since its runtime was imported.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _record import arguments, record

from membound import machine
from membound.bench.race import race
from membound.cli.bench import interpreters

KEPT = (
    "name", "threads", "precision", "min_ms", "median_ms", "resident_bytes", "peak_bytes", "imported_bytes",
    "load_ms", "file_bytes", "max_relative_difference", "error",
)  # fmt: skip


def measure(group: list[Path], batch: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One network in all contenders: a row each, and how it stands to our first file."""
    runs = max(options.runs // (8 if batch > 1 else 1), options.rounds)
    facts = race(
        group[0], beside=group[1:], int8=True, threads=options.threads, runs=runs, rounds=options.rounds,
        batch=batch, pythons=interpreters(options.python), peers=options.peers, clock=options.clock,
    )  # fmt: skip
    found = []
    for threads in options.threads:
        rows = [row for row in facts["results"] if row["threads"] == threads]
        ours = rows[0]["min_ms"]
        found.append(
            {
                "network": group[0].stem,
                "files": [path.name for path in group],
                "batch": batch,
                "threads": threads,
                "runs": runs,
                "missing": facts["missing"],
                "versions": facts["versions"],
                "rows": [
                    {key: row[key] for key in KEPT if key in row}
                    | ({"times_the_first": row["min_ms"] / ours} if "min_ms" in row else {})
                    for row in rows
                ],
            }
        )
        tell(found[-1])
    return found


def tell(result: dict[str, Any]) -> None:
    print(f"{result['network']}, batch {result['batch']}, {result['threads']} threads", flush=True)
    for row in result["rows"]:
        if "min_ms" not in row:
            print(f"  {row['name']:<40} failed: {row['error']}")
            continue
        grown = "unknown" if row["resident_bytes"] is None else f"{row['resident_bytes'] / 2**20:.1f}"
        print(
            f"  {row['name']:<40} {row['min_ms']:>9.3f} ms  median {row['median_ms']:>9.3f}  +{grown} MiB  "
            f"file {row['file_bytes'] / 1024:,.1f} KiB"
        )
    if result["missing"]:
        print(f"  not installed: {', '.join(result['missing'])}", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="one network in several types of values")
    parser.add_argument(
        "--group", type=Path, nargs="+", action="append", default=[], help="the same, for each of several"
    )
    parser.add_argument("--runs", type=int, default=200, help="of batch 1; batches of 16 run an eighth of it")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--peers", nargs="*", default=["torch", "onnxruntime", "openvino", "deepsparse"])
    parser.add_argument(
        "--python", action="append", default=[], help="of a peer, such as deepsparse=venv/bin/python"
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="processor: of one thread, if others run, too",
    )
    parser.add_argument("--out", default="results/few-bits-latency.json")
    options = parser.parse_args()
    groups = [options.files, *options.group] if options.files else options.group
    if not groups:
        parser.error("give the files of a network")
    results: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for group in groups:
        for batch in options.batches:
            results += measure(group, batch, options)
            for result in results:
                versions |= result.pop("versions", {})
            about = {"hardware": machine.hardware(), "versions": versions}  # no GPU takes part
            record(
                options.out, {**about, "rounds": options.rounds, "clock": options.clock, "results": results}
            )


if __name__ == "__main__":
    main()
