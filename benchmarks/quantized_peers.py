"""Networks in few bytes as people make them today: fewer bits, and fewer channels. Accuracy on the test images.

    python benchmarks/quantized_peers.py lenet --device cuda --out results/quantized-lenet.json
    python benchmarks/quantized_peers.py efficientnet_lite0 --init efficientnet-lite0.pth --cache packed224 \\
        --processes 3 --device cuda --out results/quantized-lite0.json

    f32               dense
    int8              the same network, its weights rounded to 8 bits after training, a scale for each channel
    int8, trained     quantized while it is trained, as Brevitas does it
    4 bits, trained   the same with 4 bits; the first layer, the last and depthwise ones keep 8

Steps, batches, learning rates, preprocessing, seeds and the order of images are those of `membound fit`;
quantization is on from the first step. Only weights are quantized: activations stay in float32. The bytes of a network
are its weights packed at their bits, a 16-bit scale for each channel and a float32 bias for each; batch norm is folded,
and there is no header. Narrower networks (--widths) are how these methods reach other sizes.

Networks without dropout are trained side by side on one GPU by one process; for the others --processes says how many.
Each result is written as soon as it is there, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _quantized import quantize_, stored_bytes
from _record import arguments, record
from _seeds import each_seed
from _setups import SETUPS, trained_network

import membound as mb
from membound import machine
from membound.errors import MemboundError
from membound.paper.claims import spread
from membound.search.problem import Problem, Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.train.batches import Feeders
from membound.train.evaluation import evaluate
from membound.train.population import train_all
from membound.train.run import Progress, Run, Settings

TELL_EVERY = 10.0  # seconds
BITS: dict[str, int | None] = {"f32": None, "int8": 8, "int8, trained": 8, "4 bits, trained": 4}
AFTER = "int8"  # what is made of a dense network without training


class Task(NamedTuple):
    """One training: of float weights, or of quantized ones."""

    contender: str
    width: float
    seed: int

    @property
    def makes(self) -> tuple[str, ...]:
        """The contenders that come of it."""
        return (self.contender, AFTER) if BITS[self.contender] is None else (self.contender,)


class Late(MemboundError):
    """The time is over."""


class Clock:
    """Says how far all trainings are, and ends them when the time is over."""

    def __init__(self, steps: int, deadline: float) -> None:
        self.steps, self.deadline = steps, deadline  # of all tasks together
        self.at: dict[Task, int] = {}
        self.begun = self.told = time.monotonic()

    def show(self, task: Task, progress: Progress) -> None:
        self.at[task] = progress.step
        now = time.monotonic()
        if now > self.deadline:
            raise Late("the time is over")
        if now - self.told > TELL_EVERY:
            self.told, done = now, sum(self.at.values())
            left = (now - self.begun) * (self.steps - done) / done
            print(f"{done:,} of {self.steps:,} steps, about {left:.0f} s to go", flush=True)


class Workshop:
    """What the tasks of one process have in common: images that are on the device once, and problems by width."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.data = mb.data.load(options.data, size=options.size, cache=options.cache)
        self.feeders: Feeders = {}
        self.problems: dict[tuple[float, int], Problem] = {}
        torch.backends.cudnn.deterministic = True  # as in a fit

    def problem(self, task: Task) -> Problem:
        """What fit would make of the network; with weights of several files, one for each."""
        files = self.options.init
        key = (task.width, task.seed % len(files) if files else 0)
        if key not in self.problems:
            model: Any = partial(SETUPS[self.options.net].make, task.width)
            preprocess = None
            if files:
                model, preprocess = trained_network(self.options.net, files[key[1]], self.data)
            choices = Choices(
                steps=self.options.steps,
                batch_size=self.options.batch_size,
                pretrained=bool(files),
                augment="none",
            )
            known = next(iter(self.problems.values()), None)
            examples = Examples(train_data=self.data, preprocess=preprocess)
            found = make_problem(model, examples, choices, Target())
            if known is not None:  # the same images, so that they are on the device once
                found = replace(found, data=replace(found.data, train=known.data.train, test=known.data.test))
            self.problems[key] = found
        return self.problems[key]

    def begin(self, task: Task, clock: Clock) -> Run:
        problem, bits = self.problem(task), BITS[task.contender]
        model = problem.make(task.seed)
        if bits is not None:
            quantize_(model, bits, self.options.brevitas)
        model = model.to(memory_format=torch.channels_last)  # as in a fit
        recipe = problem.training.recipe
        settings = Settings(task.seed, self.options.device, evaluate_every=recipe.steps)
        return Run(
            model, problem.data.train, recipe, problem.data.preprocess, settings, self.device,
            held_out=problem.data.test, show=partial(clock.show, task), feeders=self.feeders,
        )  # fmt: skip

    def rows(self, task: Task, run: Run) -> Iterator[dict[str, Any]]:
        """The results of a training."""
        for contender in task.makes:
            bits = BITS[contender]
            if contender == AFTER:
                assert bits is not None
                assert run.judge is not None
                run.score = evaluate(quantize_(run.model, bits, self.options.brevitas), run.judge)
            about = {"contender": contender, "width": task.width, "seed": task.seed, "bits": bits or 32}
            if run.failure is not None or run.score is None:
                yield about | {"failure": str(run.failure)}
                return
            yield about | {
                "bytes": stored_bytes(run.model, bits),
                "accuracy": run.score.accuracy,
                "errors": run.score.errors,
                "images": run.score.images,
                "loss": run.score.loss,
                "seconds": round(run.seconds, 1),
            }


def carry_out(options: argparse.Namespace, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """Train all in this process, on a GPU side by side; rows come as soon as they are there."""
    workshop = Workshop(options)
    clock = Clock(len(tasks) * options.steps, options.deadline)
    members = [partial(workshop.begin, task, clock) for task in tasks]
    for number, run in train_all(members, workshop.device):
        yield from workshop.rows(tasks[number], run)


def alone(options: argparse.Namespace, tasks: Sequence[Task], number: int) -> list[dict[str, Any]]:
    """One task in a process of its own."""
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(Late):
        rows.extend(carry_out(options, [tasks[number]]))
    return rows


def all_rows(options: argparse.Namespace, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    if options.processes == 1:
        try:
            yield from carry_out(options, tasks)
        except Late:
            print("the time is over: the same command trains the rest", flush=True)
        return
    for rows in each_seed(partial(alone, options, tasks), range(len(tasks)), options.processes):
        yield from rows


def summarize(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every contender and width, over the seeds."""
    found = []
    for width in sorted({row["width"] for row in rows}, reverse=True):
        for contender in BITS:
            some = [
                row
                for row in rows
                if (row["contender"], row["width"]) == (contender, width) and "accuracy" in row
            ]
            if some:
                about = {"contender": contender, "width": width, "bytes": some[0]["bytes"]}
                found.append(about | spread([row["accuracy"] for row in some]) | {"n": len(some)})
    return found


def parsed() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("net", choices=tuple(SETUPS))
    parser.add_argument("--init", type=Path, nargs="+", default=[], help="trained weights, one file a seed")
    parser.add_argument(
        "--brevitas", action="store_true", help="the library's own layers: the same weights, in more time"
    )
    parser.add_argument("--data", help="default: MNIST, CIFAR-10 or Imagenette, as the network is for")
    parser.add_argument("--contenders", nargs="+", choices=[name for name in BITS if name != AFTER])
    parser.add_argument("--widths", type=float, nargs="+", help="parts of the channels; not with --init")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--size", type=int, help="of images in a folder")
    parser.add_argument("--cache", type=Path, help="where decoded images of a folder are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side, with dropout")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="what is not done then is left")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    setup = SETUPS[options.net]
    for name in ("data", "steps", "batch_size", "size"):
        if getattr(options, name) is None:
            setattr(options, name, getattr(setup, name))
    options.contenders = options.contenders or [name for name in BITS if name != AFTER]
    options.widths = options.widths or list(setup.widths)
    if setup.widths == (1.0,) and options.widths != [1.0]:
        parser.error(f"{options.net} has one width: leave --widths out")
    if options.init and options.widths != [1.0]:
        parser.error("trained weights have one width: give --widths 1 with --init")
    options.deadline = time.monotonic() + options.seconds  # one clock for all processes of a machine
    return options


def main() -> None:
    options = parsed()
    names = ("net", "steps", "batch_size", "size", "processes", "brevitas")
    about = {name: getattr(options, name) for name in names}
    about |= {"data": Path(options.data).name, "pretrained": bool(options.init)}
    rows: list[dict[str, Any]] = []
    if options.out.exists():
        before = json.loads(options.out.read_text())
        if any(before.get(name) != about[name] for name in about if name != "processes"):
            raise SystemExit(f"{options.out} is of other settings: remove it, or name another file")
        rows = before["rows"]
    done = {(row["contender"], row["width"], row["seed"]) for row in rows}
    every = [
        Task(contender, width, seed)
        for width in options.widths
        for seed in range(options.seeds)
        for contender in options.contenders
    ]
    tasks = [task for task in every if any((each, task.width, task.seed) not in done for each in task.makes)]
    if options.cache is not None:  # packed before processes share it, and not by each of them
        mb.data.load(options.data, size=options.size, cache=options.cache)
    peers = machine.versions(("brevitas", "torch", "numpy", "membound"))
    for row in all_rows(options, tasks):
        print(row, flush=True)
        rows = [
            each for each in rows if any(each[name] != row[name] for name in ("contender", "width", "seed"))
        ] + [row]
        rows.sort(key=lambda row: (-row["width"], row["bits"], row["contender"], row["seed"]))
        record(options.out, {**about, "summary": summarize(rows), "versions": peers, "rows": rows})
    for each in summarize(rows):
        print(
            f"{each['contender']:>16}, width {each['width']:g}: {each['bytes']:>12,} bytes, "
            f"{each['mean']:.2f} ± {each['std']:.2f} % ({each['n']} seeds)"
        )


if __name__ == "__main__":
    main()
