"""Trained networks brought into fewer bytes: each seed's fitted to parts of its dense file, or the smallest that
is still within some points of dense, found for the first of several networks and then made of the others, too. All
weights but those of depthwise convolutions are bounded, and values are stored in 16 bits.

python benchmarks/pretrained.py alexnet imagenette160 --init dense0.safetensors dense1.safetensors dense2.safetensors \
    --within 0.5 --out results/smallest-alexnet.json
python benchmarks/pretrained.py efficientnet_lite0 imagenette160 --init lite0.safetensors --size 224 --batch-size 64 \
    --steps 600 --budget 25% --budget 10% --out results/efficientnet-lite0.json
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from _record import arguments, record
from _seeds import each_seed

import membound as mb
from membound.paper.claims import spread
from membound.train.preprocessing import preprocess_for
from membound.train.weights import load_weights_

TRIED = ("key", "accuracy", "size", "nonzeros", "won")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("net")
    parser.add_argument("data")
    parser.add_argument("--init", type=Path, nargs="+", required=True)
    bound = parser.add_mutually_exclusive_group(required=True)
    bound.add_argument("--within", type=float)
    bound.add_argument("--budget", action="append")
    parser.add_argument("--seeds", type=int, help="as many as there are networks, or 3 of one")
    parser.add_argument("--processes", type=int, default=1, help="seeds that are trained side by side")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--file", type=Path, help="where the smallest network of the first seed is saved")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = len(options.init) if len(options.init) > 1 else 3
    # Packed before processes share it, and not by each of them.
    mb.data.load(options.data, size=options.size, cache=options.cache)
    bound: dict = {"budget": options.budget} if options.budget else {"within": options.within}
    rows = one_seed(options, bound, 0) if options.within else []
    if rows:
        keep(rows, options)
        bound = {"budget": [rows[0]["limit"]]}
    for more in each_seed(
        partial(one_seed, options, bound), range(len(rows), options.seeds), options.processes
    ):
        rows += more
        keep(rows, options)


def one_seed(options: argparse.Namespace, bound: dict, seed: int) -> list[dict]:
    begun = time.monotonic()
    data = mb.data.load(options.data, size=options.size, cache=options.cache)
    found = fit(data, options.init[seed % len(options.init)], seed, bound, options)
    found = found if isinstance(found, list) else [found]
    if seed == 0 and options.file is not None:
        min(found, key=lambda fitted: fitted.file_bytes).save(options.file)
    rows = [describe(fitted, seed) | {"seconds": time.monotonic() - begun} for fitted in found]
    for row in rows:
        print({key: value for key, value in row.items() if key not in ("layers", "tried")}, flush=True)
    return rows


def keep(rows: list[dict], options: argparse.Namespace) -> None:
    rows = sorted(rows, key=lambda row: (row["seed"], -row["limit"]))
    names = ("net", "within", "budget", "size", "steps", "batch_size", "every", "processes")
    about = {name: getattr(options, name) for name in names}
    about |= {"data": Path(options.data).name, "seeds": len({row["seed"] for row in rows})}
    record(options.out, {**about, "summary": summarise(rows), "rows": rows})


def fit(data, init: Path, seed: int, bound: dict, options):
    model = mb.zoo.build_for(options.net, len(data.classes))
    preprocess = load_weights_(model, init)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        return mb.fit(
            model, data, values="f16", steps=options.steps, batch_size=options.batch_size, every=options.every,
            seed=seed, device=options.device, run_dir=folder, pretrained=True, augment="none",
            preprocess=preprocess or preprocess_for(model, data.train, "channel"), **bound,
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


def summarise(rows: list[dict]) -> list[dict]:
    """Of every size, over the seeds."""
    return [
        {
            "limit": limit,
            "times_smaller": min(row["times_smaller"] for row in some),
            "dense": spread([row["dense_accuracy"] for row in some]),
            "sparse": spread([row["accuracy"] for row in some]),
            "points": spread([row["accuracy"] - row["dense_accuracy"] for row in some]),
        }
        for limit in sorted({row["limit"] for row in rows}, reverse=True)
        if (some := [row for row in rows if row["limit"] == limit])
    ]


if __name__ == "__main__":
    main()
