"""The best network for the bytes: what a fit reaches with its recipes, what each part of them gives, and on other data.

    python benchmarks/best_for_bytes.py list
    python benchmarks/best_for_bytes.py run cifar10-20KB-all --seed 0 --runs runs/best
    python benchmarks/best_for_bytes.py all --match cifar10 --processes 6 --runs runs/best
    python benchmarks/best_for_bytes.py all --match other --npz fashion.npz svhn.npz --runs runs/best
    python benchmarks/best_for_bytes.py collect --runs runs/best --out results/best-for-bytes.json

`run` does one configuration with one seed, in its own process, so that many share a GPU; it writes
RUNS/CONFIGURATION-SEED.json, and goes on where it was stopped. `all` starts such processes. Choices (widths) are made
on validation images; test images only judge the finished files, through the runtime. `--steps` is for a dry run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from _record import arguments, hardware, record, versions

import membound as mb
from membound.paper.lab import spread
from membound.search.bits import trained_levels
from membound.search.deployed import score_stored
from membound.search.jobs import Job
from membound.search.ledger import open_run
from membound.search.problem import Problem, Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.search.teachers import train_teacher, with_wider
from membound.search.workshop import Workshop, this_process
from membound.train.distill import PART, TEMPERATURE
from membound.train.parallel import choose_device
from membound.train.updates import palette
from membound.units import parse_bytes
from membound.zoo.networks import widened

BEST = {"effort": "best"}
LONG = 58_594  # steps of `best` on CIFAR-10: 150 passes
BEFORE = {"augment": "none", "steps": 12_000}  # how results/few-bits-resnet8.json was made


@dataclass(frozen=True)
class Configuration:
    """One fit."""

    net: str
    data: str
    budget: str
    asked: dict = field(default_factory=dict)
    dense_bits: int | None = (
        None  # not sparse: the widest network whose weights of so many bits fit, all of them
    )


def configurations(npz: list[Path]) -> dict[str, Configuration]:
    """All, by name."""
    found = {}
    for budget in ("40KB", "24KB", "16KB", "12KB", "11.4KB"):
        found[f"cifar10-{budget}-all"] = Configuration("resnet8", "cifar10", budget, BEST)
    parts = {
        "before": {**BEFORE, "values": "f16"},
        "palette": BEFORE,
        "recipe": {"steps": LONG, "values": "f16"},
        "recipe-palette": {"steps": LONG},
        "recipe-palette-teacher": {"steps": LONG, "teacher": "auto"},
        "recipe-palette-width": {"steps": LONG, "widths": (1, 1.5, 2, 3)},
        "all": {"steps": LONG, "teacher": "auto", "widths": (1, 1.5, 2, 3)},
    }
    for name, asked in parts.items():
        found[f"cifar10-20KB-{name}"] = Configuration("resnet8", "cifar10", "20KB", asked)
    for name, asked in (("narrow-dense", {}), ("narrow-dense-teacher", {"teacher": "auto"})):
        for budget in ("20KB", "12KB"):
            asked = {"steps": LONG, **asked}
            found[f"cifar10-{budget}-{name}"] = Configuration("resnet8", "cifar10", budget, asked, 4)
    for net in ("lenet", "resnet8"):
        for budget in ("6KB", "12KB"):
            asked = {**BEST, "augment": "standard"}
            found[f"mnist-{budget}-{net}"] = Configuration(net, "mnist", budget, asked)
    for path in npz:  # nothing was ever tuned on these
        found[f"other-{path.stem}"] = Configuration("resnet8", str(path), "5%")
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("command", choices=("list", "run", "all", "collect"))
    parser.add_argument("name", nargs="?", help="of the configuration to run")
    parser.add_argument("--match", default="", help="only configurations with this in their names")
    parser.add_argument("--npz", type=Path, nargs="*", default=[], help="data that nothing was tuned on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, help="for a dry run")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs/best"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = {name: each for name, each in configurations(options.npz).items() if options.match in name}
    if options.command == "list":
        print("\n".join(chosen))
    elif options.command == "run":
        if options.name not in chosen:
            parser.error(f"there is no configuration {options.name!r}: see list")
        run(options.name, chosen[options.name], options)
    elif options.command == "all":
        run_all(list(chosen), options)
    else:
        if options.out is None:
            parser.error("collect needs --out")
        collect(options)


def run(name: str, how: Configuration, options: argparse.Namespace) -> None:
    """Fit once and write what came of it."""
    target = options.runs / f"{name}-{options.seed}.json"
    if target.exists():
        print(f"{target} is there")
        return
    options.runs.mkdir(parents=True, exist_ok=True)
    data = mb.data.load(how.data)
    maker = getattr(mb.zoo, how.net)
    if how.net != "lenet":
        maker = partial(maker, len(data.classes), channels=data.shape[0])
    asked = dict(how.asked)
    if options.steps is not None:
        asked["steps"] = options.steps
    if how.dense_bits is not None:
        record(target, run_dense(name, how, maker, data, asked, options))
        return
    fitted = mb.fit(
        maker, data, how.budget, seed=options.seed, device=options.device,
        run_dir=options.runs / f"{name}-{options.seed}", **asked,
    )  # fmt: skip
    facts = fitted.facts
    dense = None if fitted.dense is None else {key: fitted.dense[key] for key in ("accuracy", "file_bytes")}
    payload = {
        "name": name, "seed": options.seed, "net": how.net, "data": Path(how.data).name, "budget": how.budget,
        "asked": asked, "accuracy": fitted.accuracy, "errors": fitted.errors, "images": fitted.images,
        "file_bytes": fitted.file_bytes, "limit": fitted.limit, "values": fitted.values,
        "nonzeros": facts["nonzeros"], "memory_bytes": facts["memory_bytes"],
        "width": facts.get("width", 1.0), "tried": facts["tried"], "dense": dense, "seconds": facts["seconds"],
        "candidates": [
            {key: each[key] for key in ("budget", "width", "round", "accuracy", "steps", "won")}
            for each in fitted.history
        ],
    }  # fmt: skip
    fitted.save(options.runs / f"{name}-{options.seed}.safetensors")
    record(target, payload)
    print(f"{name}, seed {options.seed}: {fitted.accuracy:.2f} % in {fitted.file_bytes:,} bytes", flush=True)


def run_dense(name: str, how: Configuration, maker, data, asked: dict, options: argparse.Namespace) -> dict:
    """The honest alternative: the widest network that fits in few bits with all its weights, trained alike."""
    choices = Choices(steps=asked["steps"], seed=options.seed)
    width, problem = widest_dense(maker, data, how, choices)
    types = problem.types | problem.rounded
    levels = {weight: trained_levels(kind) for weight, kind in types.items()}
    # Of a palette one code is left to zero, so that no positions are stored; even steps have one for it.
    levels = {weight: count - 1 if count <= 64 else count for weight, count in levels.items()}
    rules = {weight: palette(count, begin=problem.training.ramp.until) for weight, count in levels.items()}
    teacher = asked.get("teacher") is not None
    with open_run(options.runs / f"{name}-{options.seed}", {"name": name, "steps": asked["steps"]}) as folder:
        workshop = Workshop(with_wider(problem), folder, this_process(choose_device(options.device)))
        if teacher:
            teaching, _ = train_teacher(workshop, options.seed, TEMPERATURE, PART)
            workshop.problem = replace(workshop.problem, teaching=teaching)
        (facts,) = workshop.do([Job("final", options.seed, rules=rules, everything=True)])
        stored = replace(problem.files, types=types).stored(workshop.state("final"))
    score = score_stored(stored, data.test, problem)
    if stored.file_bytes > parse_bytes(how.budget):
        raise SystemExit(f"{name}: {stored.file_bytes:,} bytes are more than {how.budget}")
    print(f"{name}, seed {options.seed}: {score.accuracy:.2f} % in {stored.file_bytes:,} bytes", flush=True)
    return {
        "name": name, "seed": options.seed, "net": how.net, "data": how.data, "budget": how.budget, "asked": asked,
        "accuracy": score.accuracy, "errors": score.errors, "images": score.images, "width": width, "dense": None,
        "file_bytes": stored.file_bytes, "nonzeros": facts["nonzeros"], "seconds": facts["seconds"],
    }  # fmt: skip


def widest_dense(maker, data: mb.data.Dataset, how: Configuration, choices: Choices) -> tuple[float, Problem]:
    """The largest width, in sixteenths, of which all weights fit into the budget in so many bits; and its problem."""
    for sixteenths in range(16, 0, -1):
        make = partial(maker, width=widened(maker, sixteenths / 16))
        target = Target("file", f"p{how.dense_bits}")
        problem = make_problem(make, Examples(train_data=data), choices, target)
        if replace(problem.files, types=problem.types | problem.rounded).dense() <= parse_bytes(how.budget):
            return sixteenths / 16, problem
    raise SystemExit(f"no width fits into {how.budget}")


def run_all(names: list[str], options: argparse.Namespace) -> None:
    """Every configuration with every seed, so many processes at a time."""
    shared = ["--runs", str(options.runs), "--device", options.device, "--npz", *map(str, options.npz)]
    if options.steps is not None:
        shared += ["--steps", str(options.steps)]

    def start(task: tuple[int, str]) -> int:
        seed, name = task
        command = [sys.executable, __file__, "run", name, "--seed", str(seed), *shared]
        return subprocess.run(command, check=False).returncode

    tasks = [(seed, name) for seed in range(options.seeds) for name in names]
    with ThreadPoolExecutor(options.processes) as pool:
        failed = [task for task, code in zip(tasks, pool.map(start, tasks), strict=True) if code]
    if failed:
        sys.exit(f"failed: {', '.join(f'{name} with seed {seed}' for seed, name in failed)}")


def collect(options: argparse.Namespace) -> None:
    """One record of all that is done, with the mean over the seeds of each configuration."""
    rows = [json.loads(path.read_text()) for path in sorted(options.runs.glob("*.json"))]
    if not rows:
        sys.exit(f"{options.runs} has no results")
    machines = [{"hardware": row.pop("hardware"), "versions": row.pop("versions")} for row in rows]
    names = sorted({row["name"] for row in rows})
    summary = []
    for name in names:
        mine = [row for row in rows if row["name"] == name]
        summary.append({
            "name": name, "seeds": len(mine), "accuracy": spread([row["accuracy"] for row in mine]),
            "dense": spread([row["dense"]["accuracy"] for row in mine if row["dense"]]) if mine[0]["dense"] else None,
            "most_bytes": max(row["file_bytes"] for row in mine), "widths": [row["width"] for row in mine],
        })  # fmt: skip
        print(summary[-1])
    same = all(each == machines[0] for each in machines)
    made_on = machines[0] if same else {"hardware": hardware(), "versions": versions()}
    record(options.out, {"made_on": made_on, "summary": summary, "rows": rows})


if __name__ == "__main__":
    main()
