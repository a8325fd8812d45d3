"""What parts of the recipe give by themselves: a teacher, augmentation, averaged weights, in fits with fit's defaults.

    python benchmarks/recipes.py lenet-mnist resnet8-fashion28 --ways none dense --seeds 3 --out results/recipes.json
    python benchmarks/recipes.py resnet-imagenette160 --ways dense --judge test --out test.json
    python benchmarks/recipes.py collect --parts test-?.json --out results/recipes-test.json

Choices are made by these numbers, so networks are trained on six sevenths of the training images and judged on the
rest, unless --judge test asks for what a user gets. `dense` is the default, the dense network as teacher; `none` goes
without; `hard` listens to it more; `unsteady` lets it pull harder than labels do; `wide` also tries networks that are
wider. `averaged` is `none` with an exponential average of the weights of the last quarter. --folder is where
fashion28.npz and imagenette32.npz are: Fashion-MNIST, and Imagenette in 32 x 32 pixels.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _networks import mobilenet
from _record import ROOT, arguments, collect, record
from _seeds import each_seed

import membound as mb
from membound.paper.claims import spread
from membound.search import teachers
from membound.train import loop
from membound.train.run import Run

PARTS = 7  # of the training images one is held out
WAYS: dict[str, dict[str, Any]] = {
    "none": {"teacher": "none"},
    "dense": {},
    "hard": {"teacher_part": 0.9, "temperature": 4.0},
    "unsteady": {"temperature": 2.0},
    "averaged": {"teacher": "none"},
    "shifted": {"augment": "shift=4"},
    "standard": {"augment": "standard"},
    "standard-none": {"augment": "standard", "teacher": "none"},
    "wide": {"widths": (1.0, 1.5, 2.0)},
    "plain": {"augment": "none"},
    "plain-none": {"augment": "none", "teacher": "none"},
}


def small_resnet(width: int = 16) -> torch.nn.Module:
    import sys

    sys.path.insert(0, str(ROOT))
    from examples.residual import small_resnet as make

    return make(width=width)


@dataclass(frozen=True)
class Case:
    """A network, its images, and what it may take."""

    make: Callable[..., torch.nn.Module]
    data: str
    budget: str
    size: int | None = None
    choices: dict[str, Any] = field(default_factory=dict)


BF16 = {"precision": "bf16"}
CASES = {
    "lenet-mnist": Case(mb.zoo.lenet, "mnist", "6KB", choices={"steps": 2800, "weight_decay": 1e-4}),
    "resnet8-fashion28": Case(partial(mb.zoo.resnet8, channels=1), "fashion28.npz", "5%", choices=BF16),
    "resnet8-imagenette32": Case(mb.zoo.resnet8, "imagenette32.npz", "5%", choices=BF16),
    "resnet8-cifar10": Case(mb.zoo.resnet8, "cifar10", "20KB", choices=BF16),
    "resnet-imagenette160": Case(small_resnet, "imagenette160", "10%", 64, {"steps": 4440, "batch_size": 64}),
    "mobilenet-imagenette160": Case(
        partial(mobilenet, 10), "imagenette160", "5%", 128, {"steps": 3000, "batch_size": 64}
    ),
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "cases", nargs="+", choices=(*CASES, "collect"), metavar="CASE", help=", ".join(CASES)
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["dense", "none"])
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--judge", choices=("held-out", "test"), default="held-out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="seeds that are trained side by side")
    parser.add_argument("--steps", type=int, help="instead of each case's own")
    parser.add_argument("--parts", type=Path, nargs="+", default=[], help="results to collect")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if "collect" in options.cases:
        collect(options.parts, options.out, summary)
        return
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    there = {(row["case"], row["way"], row["seed"]) for row in rows}
    todo = [
        (case, way, seed) for case in options.cases for way in options.ways for seed in range(options.seeds)
    ]
    todo = [each for each in todo if each not in there]
    for row in each_seed(partial(one, options), todo, options.processes):
        rows.append(row)
        print(row, flush=True)
        record(options.out, {"judge": options.judge, "summary": summary(rows), "rows": rows})


def one(options: argparse.Namespace, which: tuple[str, str, int]) -> dict[str, Any]:
    name, way, seed = which
    case, begun = CASES[name], time.monotonic()
    choices = {**case.choices, **WAYS[way]}
    if options.steps is not None:
        choices["steps"] = options.steps
    data = images(case, options.folder, options.judge)
    with {"averaged": averaged, "unsteady": unsteady}.get(way, nullcontext)():
        fitted = mb.fit(case.make, data, case.budget, seed=seed, device=options.device, **choices)
    assert fitted.dense is not None
    return {
        "case": name, "way": way, "seed": seed, "judge": options.judge, "fitted": fitted.accuracy,
        "dense": fitted.dense["accuracy"], "file_bytes": fitted.file_bytes, "limit": fitted.limit,
        "dense_bytes": fitted.dense["file_bytes"], "images": fitted.images, "steps": fitted.facts["steps"],
        "tried": fitted.facts["tried"], "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def images(case: Case, folder: Path, judge: str) -> mb.data.Dataset:
    """With the test images, or with some of the training images in their place."""
    name = str(folder / case.data) if case.data.endswith(".npz") else case.data
    data = mb.data.load(name) if case.size is None else mb.data.load(name, size=case.size)
    if judge == "test":
        return data
    order = np.random.default_rng(0).permutation(len(data.train))
    few = len(order) // PARTS
    return replace(data, train=data.train.take(order[few:]), test=data.train.take(order[:few]))


@contextmanager
def averaged(decay: float = 0.998, begin: float = 0.75) -> Iterator[None]:
    """Networks end with the average of their weights and statistics since that part of the steps."""
    make, finish, means = loop.make_stepper, loop._finish, {}

    def make_stepper(run: Run) -> Callable[[], None]:
        take = make(run)

        def step() -> None:
            take()
            now = [value for value in run.model.state_dict().values() if value.is_floating_point()]
            if run.step == int(begin * run.recipe.steps):
                means[id(run)] = [value.clone() for value in now]
            elif id(run) in means:
                torch._foreach_lerp_(means[id(run)], now, 1 - decay)

        return step

    def finish_with_means(run: Run) -> None:
        now = [value for value in run.model.state_dict().values() if value.is_floating_point()]
        torch._foreach_copy_(now, means.pop(id(run)))
        finish(run)

    loop.make_stepper, loop._finish = make_stepper, finish_with_means
    try:
        yield
    finally:
        loop.make_stepper, loop._finish = make, finish


@contextmanager
def unsteady() -> Iterator[None]:
    """The dense network teaches as any other teacher does."""
    before = teachers.dense_teaching
    teachers.dense_teaching = lambda *given: replace(before(*given), steady=False)
    try:
        yield
    finally:
        teachers.dense_teaching = before


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each case, way and length; `gain` is against the dense network of the same seed."""
    found = []
    kinds = [(row["case"], row["way"], row["steps"], row["judge"]) for row in rows]
    for kind in dict.fromkeys(kinds):
        case, way, steps, judge = kind
        mine = [row for row, own in zip(rows, kinds, strict=True) if own == kind]
        found.append({
            "case": case, "way": way, "fitted": spread([row["fitted"] for row in mine]),
            "dense": spread([row["dense"] for row in mine]),
            "gain": spread([row["fitted"] - row["dense"] for row in mine]),
            "most_bytes": max(row["file_bytes"] for row in mine), "dense_bytes": mine[0]["dense_bytes"],
            "steps": steps, "judge": judge,
        })  # fmt: skip
    return found


if __name__ == "__main__":
    main()
