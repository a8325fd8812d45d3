"""Networks of given bytes whose values are stored in one way or another, as `membound fit` makes them: whole files.

    python benchmarks/few_bits.py lenet --budgets 8KB 5KB --values auto p4 f16 --out results/few-bits-lenet.json
    python benchmarks/few_bits.py efficientnet_lite0 --init lite0.safetensors --cache packed224 --processes 3 \\
        --budgets 2.2MB 1.35MB 1MB --values auto --out results/few-bits-lite0.json

Recipes, steps and images are those of quantized_peers.py, which makes the rows of other methods; --init starts from
trained weights. Accuracy is that of the file, through the runtime, on the test images. Of every file there are the
bytes of values, positions, palettes, scales, biases and header, and the entropy of the positions beside them. Each
result is written as soon as it is there, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from _record import arguments, record, settings
from _seeds import each_seed
from _setups import SETUPS, trained_network

import membound as mb
from membound.paper.claims import spread
from membound.run.inspection import inspect
from membound.search.jobs import Job, Order, carry_out
from membound.search.problem import Problem, Target
from membound.search.request import Choices, Examples
from membound.search.scoring import score_stored
from membound.search.setup import make_problem
from membound.train.parallel import choose_device
from membound.units import parse_bytes


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("net", choices=SETUPS)
    parser.add_argument("--data", help="instead of the network's own")
    parser.add_argument("--budgets", nargs="+", required=True)
    parser.add_argument("--values", nargs="+", default=["auto"])
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--init", type=Path, nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--files", type=Path, help="a folder for the model files")
    parser.add_argument(
        "--judge", choices=("test", "validation"), default="test", help="validation: to choose by"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    done = {(row["values"], row["budget"], row["seed"]) for row in rows}
    wanted = [
        job
        for seed in seeds
        for budget in options.budgets
        for values in options.values
        if (job := (values, budget, seed)) not in done
    ]
    # Networks with dropout are trained one after another in a process.
    groups = [wanted[number :: options.processes] for number in range(min(options.processes, len(wanted)))]
    for found in each_seed(partial(train_group, options, groups), range(len(groups)), options.processes):
        rows += found
        keep(rows, options)


def keep(rows: list[dict], options: argparse.Namespace) -> None:
    rows.sort(key=lambda row: (options.values.index(row["values"]), -row["limit"], row["seed"]))
    about = settings(options) | {"init": [path.name for path in options.init], "cache": None}
    record(options.out, {**about, "summary": summarise(rows), "rows": rows})


def make(options: argparse.Namespace) -> Problem:
    setup = SETUPS[options.net]
    data = mb.data.load(options.data or setup.data, size=setup.size, cache=options.cache)
    steps = options.steps or setup.steps
    choices = Choices(steps=steps, batch_size=setup.batch_size, pretrained=bool(options.init), augment="none")
    examples, start = Examples(train_data=data), partial(setup.make, options.width)
    if options.init:
        start, preprocess = trained_network(options.net, options.init[0], data)
        examples = replace(examples, preprocess=preprocess)
    return make_problem(start, examples, choices, Target("file"), hold_out=options.judge == "validation")


def train_group(options: argparse.Namespace, groups: list, number: int) -> list[dict]:
    problem, begun = make(options), time.monotonic()
    jobs = [
        Job(
            f"{values}-{budget}-{seed}", seed, limit=parse_bytes(budget), values=values,
            everything=options.judge == "test", about={"budget": budget},
        )
        for values, budget, seed in groups[number]
    ]  # fmt: skip
    rows = []
    orders = [Order(job, start_of(options, job.seed)) for job in jobs]
    for job, outcome in carry_out(problem, orders, choose_device(options.device)):
        base = replace(problem.target, values=job.values).base
        files = replace(problem.files, values=base, types=outcome.facts["types"] or {})
        stored, values = files.stored(outcome.state), job.values
        score = score_stored(stored, getattr(problem.data, options.judge), problem)
        if options.files is not None:
            options.files.mkdir(parents=True, exist_ok=True)
            files.write(
                options.files / f"{options.net}-{values}-{job.about['budget']}-{job.seed}.safetensors",
                outcome.state,
            )
        rows.append(
            {
                "values": values, "budget": job.about["budget"], "seed": job.seed, "limit": job.limit,
                "file_bytes": stored.file_bytes, "accuracy": score.accuracy, "errors": score.errors,
                "in_torch": outcome.facts["accuracy"], "nonzeros": outcome.facts["nonzeros"],
                "types": outcome.facts["types"], "counts": outcome.facts["counts"],
                "bytes": byte_parts(stored), "seconds": time.monotonic() - begun,
            }
        )  # fmt: skip
        shown = ("values", "budget", "seed", "file_bytes", "accuracy", "in_torch", "nonzeros", "types")
        print({key: rows[-1][key] for key in shown}, f"{rows[-1]['seconds']:.0f} s", flush=True)
        if options.processes == 1:
            keep(rows, options)
    return rows


def byte_parts(stored) -> dict[str, float]:
    """Where the bytes of a file are."""
    facts = inspect(stored)
    parts = {
        key: value
        for key, value in facts.items()
        if key.endswith("_bytes") and isinstance(value, int | float)
    }
    for layer in facts["layers"]:
        for key, value in layer.items():
            if key.endswith("_bytes") and isinstance(value, int | float):
                parts[f"layers_{key}"] = parts.get(f"layers_{key}", 0) + value
    return parts


def start_of(options: argparse.Namespace, seed: int) -> dict | None:
    """The weights of this seed's dense network, where each has its own."""
    if len(options.init) < 2:
        return None
    data = mb.data.load(SETUPS[options.net].data, size=SETUPS[options.net].size, cache=options.cache)
    return trained_network(options.net, options.init[seed], data)[0].state_dict()


def summarise(rows: list[dict]) -> list[dict]:
    """Of every way and size, over the seeds."""
    found: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        found.setdefault((row["values"], row["budget"]), []).append(row)
    return [
        {
            "values": values, "budget": budget, "seeds": len(mine),
            "file_bytes": max(row["file_bytes"] for row in mine),
            "accuracy": spread([row["accuracy"] for row in mine]),
        }
        for (values, budget), mine in found.items()
    ]  # fmt: skip


if __name__ == "__main__":
    main()
