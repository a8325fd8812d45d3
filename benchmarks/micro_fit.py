"""Networks fitted into the flash and RAM of a microcontroller: accuracy of all test images through the C code.

    python benchmarks/micro_fit.py mnist-8k mnist-16k --seeds 0 1 2 --out results/micro-fit.json
    python benchmarks/micro_fit.py cifar10-40k cifar10-28k --seeds 0 1 2 --device cuda --out results/micro-fit.json

Flash counts constants and the runtime's code, RAM the context and the stack; images are fed by rows. All seeds of all
names are trained in one process, on a GPU side by side; they learn from one teacher for each set of images. Rows are
written as they come. With --save the files are kept, as NAME-SEED.safetensors in that folder.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _record import arguments, record, settings
from torch import Tensor, nn

import membound as mb
from membound.data import Preprocess, load
from membound.data.augment import choose
from membound.search.jobs import Job, Order, Outcome, carry_out
from membound.search.micro import alike
from membound.search.problem import Problem
from membound.train.job import choose_recipe
from membound.train.loop import train
from membound.train.parallel import choose_device
from membound.train.run import Progress, Settings
from membound.train.user_data import preprocess_of


class Digits(nn.Module):
    """Two convolutions with pools and two linear layers, for 28 x 28 pixels."""

    def __init__(self, first: int, second: int, hidden: int, kernel: int = 5) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, first, 5, bias=False), nn.BatchNorm2d(first)
        self.conv2, self.norm2 = nn.Conv2d(first, second, kernel, bias=False), nn.BatchNorm2d(second)
        side = (12 - kernel + 1) // 2
        self.fc1, self.fc2 = nn.Linear(second * side * side, hidden), nn.Linear(hidden, 10)
        self.pool, self.act = nn.MaxPool2d(2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm1(self.conv1(x))))
        x = self.pool(self.act(self.norm2(self.conv2(x)))).flatten(1)
        scores: Tensor = self.fc2(self.act(self.fc1(x)))
        return scores


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
CIFAR = {"batch_size": 128, "lr": 0.1, "weight_decay": 2e-4}
# A little less flash than their names say: other compilers make more code of the runtime.
CASES = {
    "mnist-8k": Case(partial(Digits, 12, 24, 64), "mnist", "7.7KB", "2KB", 20_000, {"batch_size": 128}),
    "mnist-16k": Case(partial(Digits, 24, 64, 96), "mnist", "15.6KB", "4KB", 40_000, {"batch_size": 128}),
    "cifar10-40k": Case(partial(mb.zoo.resnet8, width=22), "cifar10", "39.4KB", "20KB", 40_000, CIFAR),
    "cifar10-28k": Case(partial(mb.zoo.resnet8, width=15), "cifar10", "27.4KB", "14KB", 40_000, CIFAR),
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
        self.teachers = {name: self.train_teacher(name) for name in self.sets} if options.teacher else {}

    def steps(self, usual: int) -> int:
        return max(int(usual * self.options.length), 10)

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
        return model.cpu(), prepared

    def fit(self, name: str, seed: int, workers: Any) -> Any:
        case = CASES[name]
        return mb.fit(
            case.make, self.sets[case.data], case.flash, ram=case.ram, target="micro", dense=False, seed=seed,
            device="cpu", augment=AUGMENT[case.data], steps=self.steps(case.steps), workers=workers,
            teacher=self.teachers.get(case.data), activations=self.options.activations, **case.choices,
        )  # fmt: skip

    def posed(self) -> list[tuple[str, int, Order]]:
        """What is to be trained; the seeds of a name have one problem, which has no part in chance."""
        found = []
        for name in self.options.names:
            problem = None
            for seed in self.options.seeds:
                try:
                    self.fit(name, seed, only_pose)
                except Posed as posed:
                    problem = problem or posed.problem
                    found += [
                        (name, seed, replace(order, problem=problem, folder=None)) for order in posed.orders
                    ]
        return found

    def rows(self) -> Iterator[dict[str, Any]]:
        waiting, begun = self.posed(), time.monotonic()
        orders = [order for _, _, order in waiting]
        cases = {id(order.job): (name, seed) for name, seed, order in waiting}
        first = orders[0].problem
        assert first is not None

        def show(job: Job, at: Progress) -> None:
            name, seed = cases[id(job)]
            tell(f"{name}-{seed}", at)

        for job, outcome in carry_out(first, orders, choose_device(self.options.device), show):
            name, seed = cases[id(job)]
            workers = partial(_give, job.key, outcome)
            yield self.describe(name, seed, self.fit(name, seed, workers), outcome, time.monotonic() - begun)

    def describe(self, name: str, seed: int, fitted: Any, outcome: Outcome, seconds: float) -> dict[str, Any]:
        case = CASES[name]
        if self.options.save is not None:
            self.options.save.mkdir(parents=True, exist_ok=True)
            fitted.save(self.options.save / f"{name}-{seed}.safetensors")
        return {
            "name": name,
            "data": case.data,
            "seed": seed,
            "activations": self.options.activations,
            "flash_allowed": case.flash,
            "ram_allowed": case.ram,
            "accuracy": fitted.accuracy,
            "accuracy_in_torch": outcome.facts["accuracy"],
            "images": fitted.images,
            "nonzeros": fitted.facts["weight_nonzeros"],
            "values": fitted.values,
            "tried": fitted.facts["tried"],
            **fitted.facts["micro"],
            "seconds": round(seconds, 1),
        }


def _give(key: str, outcome: Outcome, problem: Problem, orders: Sequence[Order], show: Any) -> Any:
    """Workers that have done the work already."""
    for order in orders:
        assert order.job.key == key
        yield order.job, outcome


def tell(what: str, at: Progress) -> None:
    if at.score is not None:
        print(f"{what}: step {at.step:,} of {at.steps:,}, {at.score.accuracy:.2f} %", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="+", choices=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--length", type=float, default=1.0, help="of all trainings, times the usual one")
    parser.add_argument("--no-teacher", dest="teacher", action="store_false")
    parser.add_argument("--activations", default="trained", choices=("trained", "calibrated"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for row in Fits(options).rows():
        print(row, flush=True)
        rows.append(row)
        if options.out is not None:
            asked = {name: value for name, value in settings(options).items() if name != "save"}
            record(options.out, {"settings": asked, "rows": rows})


if __name__ == "__main__":
    main()
