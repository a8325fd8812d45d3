"""The best network for the bytes: what fits reach with recipe, teacher, width and few bits, one by one and together.

    python benchmarks/best_for_bytes.py teacher --width 4 --steps 20000 --out teacher.pt
    python benchmarks/best_for_bytes.py explore --teacher held-out.pt --judge validation --out explored.json
    python benchmarks/best_for_bytes.py cifar10 --teacher teacher.pt --out results/best-for-bytes.json --files fitted
    python benchmarks/best_for_bytes.py parts --teacher teacher.pt --out results/best-for-bytes-parts.json
    python benchmarks/best_for_bytes.py mnist --out results/best-for-bytes-mnist.json
    python benchmarks/best_for_bytes.py collect --parts seed?.json --out results/best-for-bytes.json

All rows and seeds of a command are one population, side by side on a GPU, each trained as `fit` trains its final
network; the row has the command that does it alone. A process for each seed, and `collect`, keep a GPU busier. Choices
are made by `explore`, on validation images that neither its networks nor their teacher (`teacher --judge validation`)
saw; test images only judge the files, through the runtime. A teacher is trained once, by seed 0, for all rows. What is
in --out is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import torch
from _record import arguments, collect, record

import membound as mb
from membound.paper.claims import spread
from membound.search.bits import trained_levels
from membound.search.jobs import Job, Order, Outcome, carry_out
from membound.search.problem import Problem, Target
from membound.search.request import Choices, Examples
from membound.search.scoring import score_stored
from membound.search.setup import make_problem
from membound.train.parallel import choose_device
from membound.train.teaching import Teaching
from membound.train.updates import palette
from membound.units import parse_bytes
from membound.zoo.networks import widened

LONG, NORMAL = 58_594, 11_719  # steps: 150 and 30 passes through CIFAR-10
# By what `explore` found on validation images (results/best-for-bytes-explored.json): in 16 KB width 1.5 as good as 2,
# in 12 KB narrower ones better.
WIDTHS = {"40KB": 2, "24KB": 2, "20KB": 2, "16KB": 1.5, "12KB": 1.25}
PART, TEMPERATURE = 0.9, 4.0


@dataclass(frozen=True)
class Row:
    """One fit of ResNet-8 or LeNet."""

    name: str
    budget: str | None  # None: the dense network
    width: float = 1.0
    choices: dict = field(default_factory=dict)
    values: str = "auto"
    taught: bool = False
    part: float = PART
    temperature: float = TEMPERATURE
    dense_bits: int | None = (
        None  # not sparse: all weights of the widest network that fits so, in so many bits
    )
    net: str = "resnet8"
    until: float | None = None

    def command(self, data: str, seed: int) -> str:
        """That does the same alone."""
        if self.budget is None or self.dense_bits is not None:
            return ""
        more = {"widths": self.width, "values": self.values, **self.choices, "seed": seed}
        if self.net == "lenet":
            del more["widths"]
        if self.taught:
            more |= {"teacher": "TEACHER", "teacher-part": self.part, "temperature": self.temperature}
        else:
            more["teacher"] = "none"
        options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in more.items())
        return f"membound fit {self.net} --data {data} --budget {self.budget} {options}"


def cifar10_rows() -> list[Row]:
    long = {"steps": LONG, "precision": "bf16"}
    budgets = ("40KB", "24KB", "16KB", "12KB")
    return [Row(budget, budget, WIDTHS[budget], long, taught=True) for budget in budgets]


def parts_rows() -> list[Row]:
    new = {"steps": NORMAL, "precision": "bf16"}
    old = {**new, "augment": "none"}
    wide = WIDTHS["20KB"]
    return [
        Row("f16, no recipe", "20KB", 1, old, "f16"),
        Row("palette", "20KB", 1, old),
        Row("recipe", "20KB", 1, new, "f16"),
        Row("recipe, palette", "20KB", 1, new),
        Row("recipe, palette, width", "20KB", wide, new),
        Row("recipe, palette, teacher", "20KB", 1, new, taught=True),
        Row("all", "20KB", wide, new, taught=True),
        Row("narrow dense, 4 bits, recipe", "20KB", 0, new, dense_bits=4),
        Row("narrow dense, 4 bits, recipe, teacher", "20KB", 0, new, taught=True, dense_bits=4),
        Row("dense, width 1", None, 1, new),
    ]


def explore_rows() -> list[Row]:
    short = {"steps": NORMAL, "precision": "bf16"}
    taught = partial(Row, choices=short, taught=True)
    rows = [taught(f"width {w}, {b}", b, w) for b in ("16KB", "12KB") for w in (1, 1.5, 2)]
    return [
        *rows,
        Row("no teacher, 16KB", "16KB", 2, short),
        taught("part .5, temperature 3, 16KB", "16KB", 2, part=0.5, temperature=3.0),
        taught("temperature 2, 16KB", "16KB", 2, temperature=2.0),
        taught("ramp until .7, 16KB", "16KB", 2, until=0.7),
    ]


def mnist_rows() -> list[Row]:
    rows = []
    for budget in ("6KB", "12KB"):
        how = {"augment": "standard", "precision": "bf16"}
        rows += [
            Row(f"lenet, {budget}", budget, 1, {**how, "steps": 50_000}, net="lenet"),
            Row(f"resnet8, {budget}", budget, 1, {**how, "steps": 40_000}),
        ]
    return rows


ROWS = {
    "cifar10": cifar10_rows,
    "parts": parts_rows,
    "explore": explore_rows,
    "mnist": mnist_rows,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("command", choices=("teacher", "collect", *ROWS))
    parser.add_argument("--match", default="", help="only rows with this in their names")
    parser.add_argument("--parts", type=Path, nargs="+", default=[], help="results to collect")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="of the teacher; for a dry run, of all")
    parser.add_argument("--width", type=float, default=4, help="of the teacher")
    parser.add_argument("--teacher", type=Path, help="weights that `teacher` wrote; waited for")
    parser.add_argument("--judge", choices=("test", "validation"), default="test")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--files", type=Path, help="folder for the fitted files")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "teacher":
        train_teacher(options)
        return
    if options.command == "collect":
        collect(options.parts, options.out, summary)
        return
    done = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    Lot("mnist" if options.command == "mnist" else "cifar10", options, done).run()


def network(net: str, data: mb.data.Dataset, width: float):
    maker = getattr(mb.zoo, net)
    if net == "lenet":
        return maker
    maker = partial(maker, len(data.classes), channels=data.shape[0])
    return partial(maker, width=widened(maker, width))


def train_teacher(options: argparse.Namespace) -> None:
    """A dense network, wide, by seed 0."""
    data = mb.data.load("cifar10")
    choices = Choices(steps=options.steps, precision="bf16", validation=5000)
    make = network("resnet8", data, options.width)
    problem = make_problem(make, Examples(train_data=data), choices, Target("file", "f32"), hold_out=True)
    job = Job("teacher", 0, everything=options.judge == "test")
    ((_, outcome),) = carry_out(problem, [Order(job)], choose_device(options.device))
    facts = {key: outcome.facts[key] for key in ("accuracy", "nonzeros", "steps", "seconds")}
    facts |= {"width": options.width, "judged_on": options.judge}
    partial_name = options.out.with_suffix(".part")
    torch.save({"state": outcome.state, "facts": facts}, partial_name)
    partial_name.rename(options.out)
    print(facts, flush=True)


class Lot:
    """All rows of one set of images."""

    def __init__(self, name: str, options: argparse.Namespace, done: list[dict]) -> None:
        self.options, self.done, self.name = options, done, name
        self.data = mb.data.load(name)
        self.device = choose_device(options.device)
        self.everything = options.judge == "test"
        rows = [row for row in ROWS[options.command]() if options.match in row.name]
        there = {(row["data"], row["name"], row["seed"]) for row in done}
        self.todo = [
            (row, seed) for row in rows for seed in options.seeds if (self.name, row.name, seed) not in there
        ]

    @cache  # noqa: B019
    def base(self, net: str) -> Problem:
        """What all problems of one network share: images, and how they are prepared."""
        make = network(net, self.data, 1)
        choices = Choices(steps=1, validation=5000)
        examples = Examples(train_data=self.data)
        return make_problem(make, examples, choices, Target("file", "f32"), hold_out=True)

    @cache  # noqa: B019
    def teaching(self) -> tuple[Teaching, dict]:
        path = self.options.teacher
        if path is None:
            sys.exit("these rows have a teacher: give --teacher FILE, written by `teacher`")
        while not path.exists():
            time.sleep(1)
        found = torch.load(path, map_location="cpu")
        model = network("resnet8", self.data, found["facts"]["width"])()
        model.load_state_dict(found["state"])
        return Teaching(model, passes=1e9, bf16=True), found["facts"]

    def problem_of(self, row: Row) -> tuple[Problem, dict]:
        """A row's problem, and the types of a dense one's weights."""
        choices = dict(row.choices)
        if self.options.steps is not None:
            choices["steps"] = self.options.steps
        choices = Choices(**choices, validation=5000)
        examples = Examples(train_data=self.data)
        if row.dense_bits is None:
            make = network(row.net, self.data, row.width)
            problem = make_problem(make, examples, choices, Target("file", row.values), hold_out=True)
            types = {}
        else:
            problem, types = widest_dense(self.data, row, choices, examples)
        # The same objects for all, so that images, and what the teacher says of them, are there once.
        problem = replace(problem, data=self.base(row.net).data)
        if row.until is not None:
            training = replace(problem.training, ramp=replace(problem.training.ramp, until=row.until))
            problem = replace(problem, training=training)
        if row.taught:
            teaching, _ = self.teaching()
            # The same tables for all.
            problem = replace(problem, teaching=replace(teaching, part=row.part, temperature=row.temperature))
        return problem, types

    def run(self) -> None:
        orders, about = [], {}
        for row in dict.fromkeys(row.name for row, _ in self.todo):
            seeds = [(each, seed) for each, seed in self.todo if each.name == row]
            problem, types = self.problem_of(seeds[0][0])
            for each, seed in seeds:
                key = f"{each.name} {seed}"
                orders.append(Order(self.job(key, each, seed, problem, types), problem=problem))
                about[key] = (each, seed, problem, types)
        if not orders:
            print(f"{self.name}: nothing to do")
            return
        begun, found = time.time(), []
        for job, outcome in carry_out(orders[0].problem, orders, self.device, show=Shown(begun)):
            found.append((job, outcome))
            if self.options.files is not None:
                self.options.files.mkdir(parents=True, exist_ok=True)
                torch.save((outcome.facts, outcome.state), self.options.files / f"{self.name} {job.key}.pt")
        for job, outcome in found:
            self.judge(*about[job.key], outcome)

    def job(self, key: str, row: Row, seed: int, problem: Problem, types: dict) -> Job:
        if row.budget is None:
            return Job(key, seed, everything=self.everything)
        if row.dense_bits is None:
            return Job(key, seed, limit=self.limit(row, problem), everything=self.everything)
        levels = {weight: trained_levels(kind) for weight, kind in types.items()}
        # Of a palette one code is left to zero, so that no positions are stored; even steps have one for it.
        levels = {weight: count - 1 if count <= 64 else count for weight, count in levels.items()}
        rules = {
            weight: palette(count, begin=problem.training.ramp.until) for weight, count in levels.items()
        }
        return Job(key, seed, rules=rules, everything=self.everything)

    def limit(self, row: Row, problem: Problem) -> int:
        if row.budget.endswith("%"):
            return int(float(row.budget[:-1]) / 100 * replace(problem.files, values="f32").dense())
        return parse_bytes(row.budget)

    def judge(self, row: Row, seed: int, problem: Problem, types: dict, outcome: Outcome) -> None:
        facts = outcome.facts
        types = types or facts["types"] or {}
        base = problem.target.base if row.budget is not None else "f32"
        files = replace(problem.files, values=base, types=types)
        stored = files.stored(outcome.state)
        split = problem.data.test if self.everything else problem.data.validation
        score = score_stored(stored, split, problem)
        if row.budget is not None and stored.file_bytes > self.limit(row, problem):
            sys.exit(f"{row.name}: {stored.file_bytes:,} bytes are more than {row.budget}")
        if self.options.files is not None:
            path = self.options.files / f"{self.name} {row.name} {seed}.safetensors"
            files.write(path, outcome.state)
        weights = sum(weight.numel() for weight in problem.make(0).parameters() if weight.dim() > 1)
        self.done.append({
            "data": self.name, "name": row.name, "seed": seed, "net": row.net, "budget": row.budget,
            "accuracy": score.accuracy, "errors": score.errors, "images": score.images,
            "judged_on": self.options.judge, "file_bytes": stored.file_bytes, "width": row.width,
            "weights": weights, "nonzeros": facts["nonzeros"], "types": sorted(set(types.values())),
            "steps": facts["steps"], "batch_size": problem.training.recipe.batch_size,
            "augment": str(problem.training.augment), "teacher": self.teaching()[1] if row.taught else None,
            "part": row.part if row.taught else None, "temperature": row.temperature if row.taught else None,
            "until": row.until, "seconds": facts["seconds"], "command": row.command(self.name, seed),
        })  # fmt: skip
        print(f"RESULT {self.name} {row.name}, seed {seed}: {score.accuracy:.2f} % in {stored.file_bytes:,} bytes, "
              f"{facts['nonzeros']:,} nonzeros", flush=True)  # fmt: skip
        record(self.options.out, {"summary": summary(self.done), "rows": self.done})


class Shown:
    """Says now and then where the first network is."""

    def __init__(self, begun: float) -> None:
        self.begun, self.told = begun, 0.0

    def __call__(self, job: Job, progress) -> None:
        if time.time() - self.told > 10:
            self.told = time.time()
            taken = time.time() - self.begun
            print(f"{taken:.0f} s: {job.key}: {progress.step:,} of {progress.steps:,}", flush=True)


def widest_dense(data, row: Row, choices: Choices, examples: Examples) -> tuple[Problem, dict]:
    """The honest alternative: the widest network of which all weights fit in so many bits."""
    for channels in range(32, 0, -1):
        maker = partial(getattr(mb.zoo, row.net), len(data.classes), channels=data.shape[0], width=channels)
        problem = make_problem(maker, examples, choices, Target("file", f"p{row.dense_bits}"), hold_out=True)
        types = problem.types | problem.rounded
        if replace(problem.files, types=types).dense() <= parse_bytes(row.budget):
            return problem, types
    raise SystemExit(f"no width fits into {row.budget}")


def summary(rows: list[dict]) -> list[dict]:
    """Mean and spread over the seeds."""
    found = []
    for data, name in dict.fromkeys((row["data"], row["name"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["name"]) == (data, name)]
        found.append({
            "data": data, "name": name, "seeds": len(mine), "accuracy": spread([row["accuracy"] for row in mine]),
            "most_bytes": max(row["file_bytes"] for row in mine), "width": mine[0]["width"],
        })  # fmt: skip
    return found


if __name__ == "__main__":
    main()
