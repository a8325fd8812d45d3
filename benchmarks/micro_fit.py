"""Networks fitted into the flash and RAM of a microcontroller: accuracy of all test images through the C code.

    python benchmarks/best_for_bytes.py teacher --width 4 --steps 20000 --out teacher.pt
    python benchmarks/micro_fit.py cifar10-40k cifar10-28k mnist-16k mnist-8k --seeds 0 --device cuda \\
        --cifar10-teacher teacher.pt --save fitted --later
    python benchmarks/micro_fit.py judge --save fitted --out seeds.json
    python benchmarks/micro_fit.py collect --parts seed?.json --out results/micro-fit.json

Flash counts constants and the runtime's code, RAM the context and the stack; images are fed by rows. All seeds of all
names are trained in one process, on a GPU side by side (a process for each seed keeps it busier); they learn from one
teacher for each set of images, in bf16 on a GPU. Rows are written as they come. With --save, what was trained is kept
in that folder as NAME-ACTIVATIONS-SEED.pt, and the fitted file beside it as .safetensors. With --later nothing is
judged: `judge` does that, on another machine if you like, for all that is in the folder and not in --out. `collect`
joins the rows of several --out files.

`accuracy` is that of the C code, `float_accuracy` that of the same file in floating point. A network trained with
--activations calibrated never meets int8 in training: its float_accuracy is what int8 activations are compared with.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _record import ROOT, arguments, collect, record, settings
from torch import nn

import membound as mb
from membound.data import Preprocess, load
from membound.data.augment import choose
from membound.paper.claims import spread
from membound.run.evaluation import evaluate_file
from membound.run.net import Net
from membound.search.jobs import Job, Order, Outcome, carry_out
from membound.search.micro import alike
from membound.search.problem import Problem
from membound.search.scoring import AT_ONCE
from membound.search.teachers import make_teaching
from membound.train.job import choose_recipe
from membound.train.loop import train
from membound.train.parallel import choose_device
from membound.train.run import Progress, Settings
from membound.train.teaching import Teaching
from membound.train.user_data import preprocess_of
from membound.zoo.networks import widened

sys.path.insert(0, str(ROOT / "examples"))
from digits import Digits


@dataclass(frozen=True)
class Teacher:
    """A dense network that all networks for the same images learn from."""

    make: Callable[[], nn.Module]
    steps: int
    batch_size: int = 128


@dataclass(frozen=True)
class Case:
    """A network, what it is trained on, and what it may take."""

    make: Callable[[], nn.Module]
    data: str
    flash: str
    ram: str
    steps: int
    choices: dict[str, Any] = field(default_factory=dict)


AUGMENT = {"mnist": "shift=2,turn=8,zoom=0.08", "cifar10": "mirror,shift=4"}
TEACHERS = {
    "mnist": Teacher(partial(Digits, 64, 128, 256), 9_000),
    "cifar10": Teacher(partial(mb.zoo.resnet8, width=32), 20_000),
}
# How much pupils listen, and how soft both are: fit's own numbers, and those of best_for_bytes.py.
PART, TEMPERATURE = {"mnist": 0.5, "cifar10": 0.9}, {"mnist": 3.0, "cifar10": 4.0}
ASKED = ("names", "seeds", "length", "teacher", "activations", "precision")
# A little less flash than their names say: other compilers make more code of the runtime.
CASES = {
    "mnist-8k": Case(partial(Digits, 12, 24, 64), "mnist", "7.7KB", "2KB", 30_000, {"batch_size": 128}),
    "mnist-16k": Case(partial(Digits, 24, 64, 96), "mnist", "15.6KB", "4KB", 40_000, {"batch_size": 128}),
    "cifar10-40k": Case(partial(mb.zoo.resnet8, width=30), "cifar10", "39.4KB", "20KB", 50_000),
    "cifar10-28k": Case(partial(mb.zoo.resnet8, width=20), "cifar10", "27.4KB", "14KB", 50_000),
    # Networks of MLPerf Tiny on images that are here, not on those that they were made for.
    "mobilenet-32": Case(partial(mb.zoo.mobilenet_v1, classes=10), "cifar10", "60KB", "10KB", 30_000),
    "dscnn-28": Case(partial(mb.zoo.ds_cnn, classes=10), "mnist", "16KB", "18KB", 20_000),
}


class Posed(Exception):
    """What fit() would have trained."""

    def __init__(self, problem: Problem, orders: Sequence[Order]) -> None:
        super().__init__()
        self.problem, self.orders = problem, orders


def only_pose(problem: Problem, orders: Sequence[Order], show: Any) -> Iterator[tuple[Job, Outcome]]:
    raise Posed(problem, orders)


class Fits:
    """The fits of all names and seeds: first all are posed, then all are trained together, then each is judged."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.sets = {name: load(name) for name in {CASES[each].data for each in options.names}}
        self.about_teachers: dict[str, dict[str, Any]] = {}
        self.device = choose_device(options.device)
        self.precision = options.precision or ("bf16" if self.device.type == "cuda" else "float32")
        taught = options.teacher and options.judged is None
        self.teachers = {name: self.teacher_of(name) for name in self.sets} if taught else {}

    def path(self, name: str, seed: int, ending: str) -> Path:
        """Where what came of a fit is kept."""
        kept: Path = self.options.save / f"{name}-{self.options.activations}-{seed}.{ending}"
        return kept

    def steps(self, usual: int) -> int:
        return max(int(usual * self.options.length), 10)

    def teacher_of(self, data: str) -> tuple[nn.Module, Preprocess]:
        """The one in a file, as best_for_bytes.py wrote it, which is waited for; or one that is trained here."""
        path = self.options.cifar10_teacher
        if data != "cifar10" or path is None:
            return self.train_teacher(data)
        while not path.exists():
            time.sleep(1)
        found = torch.load(path, map_location="cpu")
        model = mb.zoo.resnet8(width=int(widened(mb.zoo.resnet8, found["facts"]["width"])))
        model.load_state_dict(found["state"])
        self.about_teachers[data] = {**found["facts"], "part": PART[data], "temperature": TEMPERATURE[data]}
        images = self.sets[data]
        return model, preprocess_of(images, images.train)

    def train_teacher(self, data: str) -> tuple[nn.Module, Preprocess]:
        """By the labels alone, on the training images; what it gets right of the test images is said, no more."""
        teacher, images, begun = TEACHERS[data], self.sets[data], time.monotonic()
        torch.manual_seed(0)
        model = teacher.make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        prepared = alike(preprocess_of(images, images.train), images.train.shape[0])
        recipe = choose_recipe(model, "sgd", self.steps(teacher.steps), teacher.batch_size)
        how = choose(AUGMENT[data], tuple(images.train.shape), images.photos, False)
        found = train(
            model, images.train, recipe, preprocess=prepared, held_out=images.test, augment=how,
            settings=Settings(device=self.options.device, evaluate_every=recipe.steps),
        )  # fmt: skip
        assert found.score is not None
        print(f"teacher of {data}: {found.score.accuracy} %, {time.monotonic() - begun:.0f} s", flush=True)
        self.about_teachers[data] = {
            "accuracy": found.score.accuracy,
            "steps": recipe.steps,
            "part": PART[data],
            "temperature": TEMPERATURE[data],
        }
        return model.cpu(), prepared

    def fit(self, name: str, seed: int, workers: Any) -> Any:
        case = CASES[name]
        return mb.fit(
            case.make, self.sets[case.data], case.flash, ram=case.ram, target="micro", dense=False, seed=seed,
            device="cpu", augment=AUGMENT[case.data], steps=self.steps(case.steps), workers=workers,
            activations=self.options.activations, precision=self.precision, **case.choices,
        )  # fmt: skip

    def posed(self) -> list[tuple[str, int, Order]]:
        """What is to be trained; the seeds of a name have one problem, which has no part in chance."""
        found: list[tuple[str, int, Order]] = []
        common: dict[str, tuple[Any, Teaching | None]] = {}
        for name in self.options.names:
            problem = None
            for seed in self.options.seeds:
                try:
                    self.fit(name, seed, only_pose)
                except Posed as posed:
                    problem = problem or self.taught(posed.problem, CASES[name].data, common)
                    found += [
                        (name, seed, replace(order, problem=problem, folder=None)) for order in posed.orders
                    ]
        return found

    def taught(self, problem: Problem, data: str, common: dict[str, tuple[Any, Teaching | None]]) -> Problem:
        """With the images and the teacher that all share: both are on the device once, and so are its scores."""
        if data not in common:
            teaching = None
            if data in self.teachers:
                # On a GPU it is asked once about every mirrored and shifted image.
                passes = 1e9 if self.device.type == "cuda" else 0.0
                teaching = make_teaching(self.teachers[data], problem, TEMPERATURE[data], PART[data], passes)
            common[data] = problem.data, teaching
        images, teaching = common[data]
        return replace(problem, data=images, teaching=teaching)

    def outcomes(self) -> Iterator[tuple[str, int, str, Outcome, float]]:
        """Names, seeds, keys of jobs, what came of them and seconds: as they are trained."""
        waiting, begun = self.posed(), time.monotonic()
        orders = [order for _, _, order in waiting]
        cases = {id(order.job): (name, seed) for name, seed, order in waiting}
        first = orders[0].problem
        assert first is not None

        def show(job: Job, at: Progress) -> None:
            name, seed = cases[id(job)]
            tell(f"{name}-{seed}", at, time.monotonic() - begun)

        for job, outcome in carry_out(first, orders, self.device, show):
            seconds = round(time.monotonic() - begun, 1)
            name, seed = cases[id(job)]
            if self.options.save is not None:
                self.options.save.mkdir(parents=True, exist_ok=True)
                about = {"name": name, "seed": seed, "key": job.key, "seconds": seconds}
                about |= {"precision": self.precision, "length": self.options.length}
                about |= {"activations": self.options.activations}
                about["teacher"] = self.about_teachers.get(CASES[name].data)
                torch.save((about, outcome.facts, outcome.state), self.path(name, seed, "pt"))
            yield name, seed, job.key, outcome, seconds

    def rows(self) -> Iterator[dict[str, Any]]:
        for name, seed, key, outcome, seconds in self.outcomes():
            print(f"{name}-{seed}: {outcome.facts['accuracy']} % in torch, {seconds} s", flush=True)
            if not self.options.later:
                yield self.judge(name, seed, key, outcome, seconds)

    def judge(self, name: str, seed: int, key: str, outcome: Outcome, seconds: float) -> dict[str, Any]:
        """The network as a file, and all test images through the C code and in floating point."""
        fitted = self.fit(name, seed, partial(_give, key, outcome))
        return self.describe(name, seed, fitted, outcome, seconds)

    def describe(self, name: str, seed: int, fitted: Any, outcome: Outcome, seconds: float) -> dict[str, Any]:
        case = CASES[name]
        if self.options.save is not None:
            fitted.save(self.path(name, seed, "safetensors"))
        stored = fitted.files.stored(fitted.model.state_dict())
        in_float = evaluate_file(Net(stored, max_batch=AT_ONCE), self.sets[case.data])
        return {
            "name": name,
            "data": case.data,
            "seed": seed,
            "activations": self.options.activations,
            "precision": self.precision,
            "steps": self.steps(case.steps),
            "flash_allowed": case.flash,
            "ram_allowed": case.ram,
            "accuracy": fitted.accuracy,
            "float_accuracy": in_float["accuracy"],
            "accuracy_in_torch": outcome.facts["accuracy"],
            "images": fitted.images,
            "nonzeros": fitted.facts["weight_nonzeros"],
            "values": fitted.values,
            "tried": fitted.facts["tried"],
            **fitted.facts["micro"],
            "teacher": self.about_teachers.get(case.data),
            "seconds": seconds,
        }


def _give(key: str, outcome: Outcome, problem: Problem, orders: Sequence[Order], show: Any) -> Any:
    """Workers that have done the work already."""
    for order in orders:
        assert order.job.key == key
        yield order.job, outcome


def tell(what: str, at: Progress, seconds: float) -> None:
    if at.score is not None:
        print(f"{seconds:.0f} s: {what}: {at.step:,} of {at.steps:,}, {at.score.accuracy:.2f} %", flush=True)


def judged(options: Any) -> Iterator[dict[str, Any]]:
    """All that was trained and kept in a folder."""
    paths = sorted(options.save.glob("*.pt")) if options.save is not None else []
    if not paths:
        sys.exit("nothing to judge: --save must name a folder that a training with --save has filled")
    kept = [torch.load(path, weights_only=False) for path in paths]
    options.names = sorted({about["name"] for about, _, _ in kept})
    options.seeds = sorted({about["seed"] for about, _, _ in kept})
    there = (
        json.loads(options.out.read_text())["rows"]
        if options.out is not None and options.out.exists()
        else []
    )
    yield from there
    for about, facts, state in kept:
        if any(all(row[key] == about[key] for key in ("name", "seed", "activations")) for row in there):
            continue
        options.length, options.activations, options.precision = (
            about[key] for key in ("length", "activations", "precision")
        )
        fits = Fits(options)
        if about["teacher"] is not None:
            fits.about_teachers[CASES[about["name"]].data] = about["teacher"]
        yield fits.judge(about["name"], about["seed"], about["key"], Outcome(facts, state), about["seconds"])


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds, and the most that any of them takes; `cost` is in points, in each file."""
    found = []
    for name, activations in dict.fromkeys((row["name"], row["activations"]) for row in rows):
        mine = [row for row in rows if (row["name"], row["activations"]) == (name, activations)]
        each = {"name": name, "activations": activations, "data": mine[0]["data"], "seeds": len(mine)}
        each |= {key: spread([row[key] for row in mine]) for key in ("accuracy", "accuracy_in_torch")}
        if all("float_accuracy" in row for row in mine):
            each["float_accuracy"] = spread([row["float_accuracy"] for row in mine])
            each["cost"] = spread([row["float_accuracy"] - row["accuracy"] for row in mine])
        each["most_flash"] = max(row["flash_bytes"] for row in mine)
        each["most_ram"] = max(row["ram_bytes"] for row in mine)
        found.append(each)
    return found


def main() -> None:
    parser = arguments(__doc__)
    commands = {**CASES, "judge": None, "collect": None}
    parser.add_argument("names", nargs="+", choices=commands, metavar="NAME", help=", ".join(commands))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--length", type=float, default=1.0, help="of all trainings, times the usual one")
    parser.add_argument("--no-teacher", dest="teacher", action="store_false")
    parser.add_argument("--cifar10-teacher", type=Path, help="that best_for_bytes.py wrote; waited for")
    parser.add_argument("--activations", default="trained", choices=("trained", "calibrated"))
    parser.add_argument("--precision", choices=("float32", "bf16"), help="bf16 on a GPU, else float32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--later", action="store_true", help="leave the judging to `judge`")
    parser.add_argument("--parts", type=Path, nargs="+", default=[], help="results to collect")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if "collect" in options.names:
        collect(options.parts, options.out, summary)
        return
    options.judged = True if "judge" in options.names else None
    rows: list[dict[str, Any]] = []
    for row in judged(options) if options.judged else Fits(options).rows():
        print(row, flush=True)
        rows.append(row)
        if options.out is not None:
            asked = {name: value for name, value in settings(options).items() if name in ASKED}
            record(options.out, {"settings": asked, "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
