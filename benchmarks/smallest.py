"""The smallest file of a trained network that is still within some points of dense: found for the first of several
trained networks, then made of the others, too. All weights are bounded, and values are stored in 16 bits.

python benchmarks/smallest.py alexnet imagenette160 --init dense0.safetensors dense1.safetensors dense2.safetensors \
    --out results/smallest-alexnet.json
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from _record import record

import membound as mb
from membound.train.checkpoint import read_tensors
from membound.train.preprocessing import preprocess_for
from membound.train.rules import load_plain_

TRIED = ("key", "accuracy", "size", "nonzeros", "won")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("net")
    parser.add_argument("data")
    parser.add_argument("--init", type=Path, nargs="+", required=True)
    parser.add_argument("--within", type=float, default=0.5)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--file", type=Path, help="where the first network is saved")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    data = mb.data.load(options.data, size=options.size, cache=options.cache)
    rows: list[dict] = []
    for seed, init in enumerate(options.init):
        begun = time.monotonic()
        bound = {"within": options.within} if not rows else {"budget": rows[0]["limit"]}
        fitted = fit(data, init, seed, bound, options)
        if not rows and options.file is not None:
            fitted.save(options.file)
        rows.append(describe(fitted, seed) | {"seconds": time.monotonic() - begun})
        print({key: value for key, value in rows[-1].items() if key not in ("layers", "tried")}, flush=True)
        about = {
            name: getattr(options, name) for name in ("net", "within", "size", "steps", "batch_size", "every")
        }
        about |= {"data": Path(options.data).name, "seeds": len(rows)}
        record(options.out, {**about, "summary": summarise(rows), "rows": rows})


def fit(data, init: Path, seed: int, bound: dict, options):
    model = mb.zoo.build_for(options.net, len(data.classes))
    load_plain_(model, read_tensors(init)[0])
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        return mb.fit(
            model, data, values="f16", steps=options.steps, batch_size=options.batch_size, every=options.every,
            seed=seed, device=options.device, run_dir=folder, pretrained=True,
            preprocess=preprocess_for(model, data.train, "channel"), **bound,
        )  # fmt: skip


def describe(fitted, seed: int) -> dict:
    dense = fitted.dense
    return {
        "seed": seed, "limit": fitted.limit, "file_bytes": fitted.file_bytes, "accuracy": fitted.accuracy,
        "images": fitted.images, "dense_accuracy": dense["accuracy"], "dense_bytes": dense["file_bytes"],
        "times_smaller": dense["file_bytes"] / fitted.file_bytes, "nonzeros": fitted.facts["nonzeros"],
        "memory_bytes": fitted.facts["memory_bytes"], "latency_ms": fitted.facts["latency_ms"],
        "dense_latency_ms": dense["latency_ms"], "layers": fitted.facts["layers"],
        "tried": [{key: each[key] for key in TRIED} for each in fitted.history],
    }  # fmt: skip


def summarise(rows: list[dict]) -> dict:
    points = [row["accuracy"] - row["dense_accuracy"] for row in rows]
    return {
        "times_smaller": min(row["times_smaller"] for row in rows),
        **{
            name: {
                "mean": statistics.mean(values),
                "std": statistics.stdev(values) if len(values) > 1 else 0.0,
            }
            for name, values in {
                "dense": [row["dense_accuracy"] for row in rows],
                "sparse": [row["accuracy"] for row in rows],
                "points": points,
            }.items()
        },
    }


if __name__ == "__main__":
    main()
