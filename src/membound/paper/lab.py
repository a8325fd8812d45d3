"""Where the paper's experiments are done: its networks and data, its recipes and ours, and a cache of all trainings.

Three tracks: 'paper' is Caffe's solver to the letter, with counts imposed from the first step; 'ours' has as many
steps, but a learning rate that warms up and anneals, and bounds that tighten along a ramp; 'longer' is ours with
more steps. Choices are made on validation images, which are a part of the training images.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from membound import zoo
from membound.data import Dataset, load, subsample, validation_split
from membound.data.augment import NONE
from membound.search.bound import Ramp
from membound.search.greedy import Greedy, Round, Search, search_together
from membound.search.jobs import Job, Show
from membound.search.ledger import RunDirectory, open_run
from membound.search.problem import Data, Fresh, Problem, Target, Training, bounded_weights
from membound.search.workshop import Finished, Workers, Workshop
from membound.store.sizes import total_bytes
from membound.train.batches import Feeder
from membound.train.evaluation import evaluate
from membound.train.fingerprints import (
    describe_preprocess,
    describe_split,
    describe_task,
    digest,
    network_digest,
)
from membound.train.preprocessing import preprocess_for
from membound.train.recipe import Recipe, annealed, caffe
from membound.train.rules import load_plain_
from membound.train.updates import Update, chain, l0_project, l2_decay
from membound.zoo.networks import find
from membound.zoo.solver import Solver, multistep

Facts = dict[str, Any]
TRACKS = ("paper", "ours", "longer")
EVERY = 100  # steps between projections; the paper says so for AlexNet
VALIDATION = 5000


def name_track(track: str) -> str:
    """
    >>> name_track("ours"), name_track("paper")
    ('our track', 'paper track')
    """
    return f"{'our' if track == 'ours' else track} track"


@dataclass(frozen=True)
class Net:
    """One of the paper's networks, its data, and how many nonzeros its greedy search ends with.

    A candidate of that search is trained for `candidate` steps, about one epoch. `peak` and `ramp` are what our
    track has been given, with validation images, for the few steps of Caffe's solvers.
    """

    factory: Callable[..., nn.Module]
    data: str
    longer: int
    candidate: int
    least: int
    title: str
    mean: str | None = None  # on our tracks; the solver's own by default
    peak: float | None = None  # of the learning rate; the solver's own by default
    ramp: Ramp = field(default_factory=Ramp)


NETS = {
    "lenet": Net(zoo.lenet, "mnist", 40_000, 1_000, 4_311, "LeNet on MNIST"),
    "quick": Net(
        zoo.cifar10_quick, "cifar10", 20_000, 500, 14_557, "CIFAR-10-quick",
        mean="channel", peak=0.002, ramp=Ramp(0.1, 0.8),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How large experiments are: in full, or small ones that only show that all of it works."""

    quick: bool = False
    repeated: int | None = None  # how many seeds; a figure's own number by default
    most_steps: int | None = None  # of any training

    def steps(self, full: int) -> int:
        """Of a training that has so many in full.

        >>> Size().steps(5000), Size(quick=True).steps(5000), Size(most_steps=300).steps(5000)
        (5000, 20, 300)
        """
        steps = max(full // 250, 20) if self.quick else full
        return steps if self.most_steps is None else min(steps, self.most_steps)

    @property
    def is_full(self) -> bool:
        """Whether trainings are the paper's, so that something can be claimed."""
        return not self.quick and self.most_steps is None

    @property
    def batch_size(self) -> int | None:
        """Of every training; the solver's own in full."""
        return 20 if self.quick else None

    def seeds(self, full: int = 3) -> range:
        """Those of a figure that has so many in full.

        >>> Size().seeds(5), Size(quick=True).seeds(5), Size(quick=True, repeated=4).seeds(5)
        (range(0, 5), range(0, 2), range(0, 4))
        """
        if self.repeated is not None:
            return range(self.repeated)
        return range(min(full, 2)) if self.quick else range(full)

    def some(self, values: Sequence[Any], most: int = 2) -> list[Any]:
        """All of the points of a sweep; or some, the first and the last among them."""
        if not self.quick or len(values) <= most:
            return list(values)
        return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]


def count_networks(number: int) -> str:
    """
    >>> count_networks(1), count_networks(1200)
    ('1 network', '1,200 networks')
    """
    return f"{number:,} network{'' if number == 1 else 's'}"


@dataclass
class Lab:
    """Networks are trained by `workers`; what was trained is kept in `folder` and never trained again."""

    folder: Path | None
    workers: Workers
    device: torch.device
    size: Size = field(default_factory=Size)
    nets: Sequence[str] = ("lenet", "quick")  # of the figures that have a panel for each
    longer: bool = True  # whether there is a track of more steps where the paper has its own number
    show: Show | None = None
    done: Finished | None = None
    begin: Callable[[int | None], None] = lambda networks: None  # so many are to be trained now
    say: Callable[[str], None] = lambda text: None
    imagenet: Any = None  # the task of the figure of this name, which brings its own data

    def __post_init__(self) -> None:
        self.trained = 0  # networks, in all; what is cached is not
        self._data: dict[str, Dataset] = {}
        self._studies: dict[tuple[str, str], Study] = {}

    def study(self, net: str, track: str) -> "Study":
        """Trainings of one network on one track."""
        if (net, track) not in self._studies:
            self._studies[net, track] = Study(self, net, track)
        return self._studies[net, track]

    def workshop(self, problem: Problem, directory: RunDirectory) -> Workshop:
        """Where jobs are done, and counted."""

        def count(job: Job, facts: Facts) -> None:
            self.trained += 1
            if self.done is not None:
                self.done(job, facts)

        return Workshop(problem, directory, self.workers, self.show, count)

    def images(self, net: str) -> Dataset:
        name = NETS[net].data
        if name not in self._data:
            found = load(name)
            if self.size.quick:
                train, test = min(2500, len(found.train)), min(500, len(found.test))
                found = replace(found, train=subsample(found.train, train), test=subsample(found.test, test))
            self._data[name] = found
        return self._data[name]


class Study:
    """One network on one track."""

    def __init__(self, lab: Lab, net: str, track: str) -> None:
        self.lab, self.net, self.track = lab, net, track

    @property
    def solver(self) -> Solver:
        network = find(self.net)
        assert network is not None
        assert network.solver is not None
        return network.solver

    @property
    def full_steps(self) -> int:
        return NETS[self.net].longer if self.track == "longer" else self.solver.steps

    @cached_property
    def steps(self) -> int:
        """Iterations of one training."""
        return self.lab.size.steps(self.full_steps)

    @cached_property
    def every(self) -> int:
        return max(EVERY * self.steps // self.full_steps, 2)

    @cached_property
    def recipe(self) -> Recipe:
        if self.track != "paper":
            peak = NETS[self.net].peak if self.track == "ours" else None
            return annealed(self.solver, self.steps, self.lab.size.batch_size, peak)
        recipe = caffe(self.solver, self.steps, self.lab.size.batch_size)
        return replace(recipe, lr=Stretched(recipe.lr, self.solver.steps / self.steps))

    @cached_property
    def tuning(self) -> Recipe:
        """Of a candidate of the greedy search: at the solver's first rate, then at a tenth of it."""
        steps, first = self.lab.size.steps(NETS[self.net].candidate), self.solver.lr(0)
        return replace(self.recipe, steps=steps, lr=multistep(first, {round(0.8 * steps): first / 10}))

    @cached_property
    def problem(self) -> Problem:
        images, factory = self.lab.images(self.net), NETS[self.net].factory
        held_out = min(VALIDATION, len(images.train) // 10)
        part, validation = validation_split(images.train, held_out)
        model = factory()
        mean = None if self.track == "paper" else NETS[self.net].mean
        data = Data(
            images.train,
            part,
            validation,
            images.test,
            preprocess_for(model, images.train, mean),
            images.classes,
        )
        every = self.every if self.track == "paper" else max(self.every // 4, 1)
        ramp = NETS[self.net].ramp if self.track == "ours" else Ramp()
        training = Training(self.recipe, self.tuning, every, ramp, augment=NONE)
        return Problem(Fresh(factory), data, training, Target("nonzeros"), bounded_weights(model))

    @cached_property
    def sizes(self) -> dict[str, int]:
        return self.problem.sizes

    @cached_property
    def description(self) -> dict[str, Any]:
        """What its trainings have in common, as JSON: other facts make other trainings."""
        problem, data = self.problem, self.problem.data
        task = {} if problem.task.counts else {"task": describe_task(problem.task)}
        return task | {
            "recipe": problem.training.recipe.describe(),
            "tuning": problem.training.tuning.describe(),
            "every": problem.training.every,
            "ramp": vars(problem.training.ramp),
            "network": network_digest(problem.make(0)),
            "data": [
                describe_split(split) for split in (data.train, data.part, data.test) if split is not None
            ],
            "preprocess": describe_preprocess(data.preprocess),
        }

    # What is trained

    def dense(self, seed: int, **more: Any) -> Job:
        return Job("dense", seed, everything=True, **more)

    def counted(self, counts: Mapping[str, int], seed: int, **more: Any) -> Job:
        """So many nonzeros a layer: on the paper's track from the first step on, on ours along a ramp."""
        if self.track != "paper":
            return Job("counts", seed, counts=dict(counts), everything=True, **more)
        rules = {name: l0_project(count, self.every) for name, count in counts.items()}
        return replace(self.ruled(rules, seed, **more), may_fail=False)

    def limited(self, nonzeros: int, seed: int, score: str = "lamp", **more: Any) -> Job:
        """So many nonzeros in all, biases included, shared out by scores along a ramp."""
        return Job("limit", seed, limit=nonzeros, score=score, everything=True, **more)

    def ruled(self, rules: Mapping[str, Update], seed: int, **more: Any) -> Job:
        """Any updates, of any strength: that some diverge may be what is to be seen."""
        return Job("rules", seed, rules=dict(rules), everything=True, may_fail=True, **more)

    # Training it

    def do(
        self, jobs: Sequence[Job], weights: bool = False, variants: Mapping[str, Any] | None = None
    ) -> list[Facts]:
        """The facts of each job; only what the cache does not have is trained."""
        problem = self.problem if not variants else replace(self.problem, variants=dict(variants))
        with open_run(self._folder("networks"), {"cache": 1}) as directory:
            workshop = self.lab.workshop(problem, directory)
            if self.lab.size.quick:  # looking takes longer than training
                jobs = [replace(job, looks=2) for job in jobs]
            named = [replace(job, key=self._key(job, weights, variants)) for job in jobs]
            unique = list({job.key: job for job in named}.values())
            count = sum(directory.finished(job.key) is None for job in unique)
            kept = f", {len(unique) - count:,} of them trained before" if count < len(unique) else ""
            networks = count_networks(len(unique))
            self.lab.say(f"{self.net}, {name_track(self.track)}: {networks} of {self.steps:,} steps{kept}")
            self.lab.begin(count)
            found = {job.key: facts for job, facts in zip(unique, workshop.do(unique, weights), strict=True)}
            if weights:
                self._states |= {
                    key: directory.weights(key) for key, facts in found.items() if "failure" not in facts
                }
        # What is cached may have been wanted for another figure, which says other things about it.
        return [
            {**found[job.key], "job": {**found[job.key]["job"], "about": dict(job.about)}} for job in named
        ]

    @cached_property
    def _states(self) -> dict[str, dict[str, Tensor]]:
        return {}

    def state(self, facts: Facts) -> dict[str, Tensor]:
        """The weights of a network that was trained to keep them."""
        return self._states[facts["job"]["key"]]

    def _folder(self, name: str) -> Path | None:
        return None if self.lab.folder is None else self.lab.folder / name

    def _key(self, job: Job, weights: bool, variants: Mapping[str, Any] | None) -> str:
        """Says what it is, and then by a digest all that could make it another network."""
        described = {name: value for name, value in job.describe().items() if name not in ("key", "about")}
        network = None
        if job.network is not None and variants:
            network = network_digest(variants[job.network](job.seed))
        content = [described, self.description, network, weights]
        mark = digest(json.dumps(content, sort_keys=True).encode())
        return f"{self.net}-{self.track}-{job.network or job.key}-s{job.seed}-{mark}"

    def search(self, seeds: Sequence[int]) -> list[list[Round]]:
        """The paper's greedy search, one for each seed."""
        limit, options = NETS[self.net].least, Greedy()
        if self.lab.size.quick:  # few rounds
            limit = round(0.7 * sum(self.sizes.values()))
            options = Greedy(0.3, sorted(self.sizes, key=lambda name: -self.sizes[name])[:2])
        described = {**self.description, "limit": limit, "seeds": list(seeds), "greedy": vars(options)}
        mark = digest(json.dumps(described, sort_keys=True).encode())
        self.lab.say(
            f"{self.net}: {len(seeds)} greedy searches to {limit:,} nonzeros; how many networks they train is seen then"
        )
        self.lab.begin(None)
        with open_run(self._folder(f"greedy-{self.net}-{mark}"), described) as directory:
            workshop = self.lab.workshop(self.problem, directory)
            searches = [
                Search(workshop, [limit], 1000 * seed, options, prefix=f"s{seed}-", also=("test",))
                for seed in seeds
            ]
            return search_together(workshop, searches)

    # Looking at what was trained

    @cached_property
    def _test(self) -> Feeder:
        data = self.problem.data
        assert data.test is not None
        return Feeder(data.test, data.preprocess, self.lab.device, torch.float32)

    def test(self, model: nn.Module) -> float:
        """Its accuracy on the test images."""
        accuracy = evaluate(model.to(self.lab.device), self._test).accuracy
        assert accuracy is not None
        return accuracy

    def network(self, state: Mapping[str, Tensor]) -> nn.Module:
        """A network with these weights."""
        model = self.problem.make(0)
        load_plain_(model, state)
        return model

    def bytes(self, counts: Mapping[str, int], ours: bool = False) -> int:
        """In the best format of each layer: the paper's, with 32 bits a value, or ours, with 16; biases are dense."""
        shapes = self.problem.shapes
        tensors = {
            name: (shape, counts.get(name, int(torch.Size(shape).numel()))) for name, shape in shapes.items()
        }
        return total_bytes(tensors, "best", "ours" if ours else "paper", "f16" if ours else "f32")


@dataclass(frozen=True)
class Stretched:
    """A schedule run through faster, for a training of fewer steps."""

    lr: Callable[[int], float]
    factor: float

    def __call__(self, step: int) -> float:
        return self.lr(int(step * self.factor))


def undecayed(update: Update) -> Update:
    """In place of the solver's l2 decay, not beside it."""
    return chain(l2_decay(0.0), update)
