"""One network's training: what it is made of, what it was asked for, and where it stands."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.data import Preprocess, Split
from membound.data.augment import NONE, Augment
from membound.data.pictures import describe_size
from membound.errors import Diverged, MemboundError, TrainingError
from membound.train.activations import Points, RoundedActivations
from membound.train.batches import Feeder, Feeders
from membound.train.checkpoint import seed_random
from membound.train.convolution import fast_gradients
from membound.train.divergence import highest_loss
from membound.train.evaluation import Score, check_fits
from membound.train.fingerprints import (
    describe_preprocess,
    describe_split,
    describe_task,
    describe_update,
    network_digest,
)
from membound.train.parallel import World, gradients_wait
from membound.train.recipe import Recipe, make_optimizer
from membound.train.regularizer import Regularizer
from membound.train.reports import Report
from membound.train.rules import select
from membound.train.task import Task, widen
from membound.train.teaching import Teaching
from membound.train.tensorboard import Curves, check_installed
from membound.train.updates import Update
from membound.train.weights import CHECKPOINT

PRECISIONS = {"float32": torch.float32, "bf16": torch.float32, "float64": torch.float64}
LARGEST_BATCH = 1 << 16  # beyond the size of the data; up to here a small set may repeat within a batch


@dataclass(frozen=True)
class Settings:
    """What a run does besides its recipe and rules."""

    seed: int = 0
    device: str = "auto"
    precision: str = "float32"  # or bf16 (autocast) or float64
    evaluate_every: int | None = None  # ten times in all by default
    run_dir: Path | None = None  # checkpoints, to resume from
    checkpoint_seconds: float = 20.0
    tensorboard: bool | Path = False  # curves: in run_dir, or in this folder
    watched: int | None = None  # held-out images that evaluations before the last one look at; all by default
    shard: bool = False  # weights and the optimizer's state are spread over the processes
    accumulate: int = 1  # parts of a batch that go through the network one after another

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            there = ", ".join(PRECISIONS)
            raise MemboundError(
                f"there is no precision {self.precision!r}: choose {there}", about="precision"
            )
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise MemboundError(
                f"evaluate_every must be at least 1 step, got {self.evaluate_every}", about="evaluate_every"
            )
        if self.accumulate < 1:
            raise MemboundError(f"accumulate must be at least 1, got {self.accumulate}", about="accumulate")


@dataclass(frozen=True)
class Progress:
    """Where a run is; `score` is there after an evaluation."""

    step: int
    steps: int
    loss: float
    score: Score | None = None
    taught: bool = False  # a teacher's part is in the loss

    def say_loss(self) -> str:
        """
        >>> Progress(1, 2, 0.25).say_loss(), Progress(1, 2, 1.9, taught=True).say_loss()
        ('loss 0.2500', 'loss 1.9000 (teacher included)')
        """
        part = " (teacher included)" if self.taught else ""
        return f"loss {self.loss:.4f}{part}"


@dataclass(frozen=True)
class Result:
    """A finished run: the network is trained and every constraint holds."""

    score: Score | None
    history: list[dict[str, Any]]
    report: Report | None
    seconds: float
    resumed: int | None  # the step of the checkpoint that it went on from


# What bounds a network as a whole, once its optimizer is there; and what tells such bounds apart.
Bound = tuple[Callable[[Optimizer, nn.Module], Regularizer], Any]


@dataclass
class Run:
    """One network's training: `take_steps` of `loop` takes it from where it is to its end."""

    model: nn.Module
    split: Split
    recipe: Recipe
    preprocess: Preprocess
    settings: Settings
    device: torch.device
    world: World = field(default_factory=World)
    rules: dict[str, Update] = field(default_factory=dict)
    held_out: Split | None = None
    bound: Bound | None = None  # instead of rules
    task: Task = field(default_factory=Task)
    augment: Augment = NONE  # of the images that it is trained on
    teaching: Teaching | None = None
    points: Points | None = None  # values inside the network that are rounded to 8 bits in the last part
    smoothing: float = 0.0  # of labels, in classification
    show: Callable[[Progress], None] | None = None
    feeders: Feeders = field(default_factory=dict)
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    resumed: int | None = None
    score: Score | None = None  # of the finished network
    failure: Diverged | None = None  # of a member of a population that got no further

    def __post_init__(self) -> None:
        if self.recipe.batch_size > max(len(self.split), LARGEST_BATCH):
            raise MemboundError(
                f"batch_size={self.recipe.batch_size:,}: there are only {len(self.split):,} images to train on"
            )
        if self.recipe.batch_size < self.world.size * self.settings.accumulate:
            raise MemboundError(
                f"a batch of {self.recipe.batch_size} images cannot be shared by {self.world.size} processes in "
                f"{self.settings.accumulate} parts each: take at least {self.world.size * self.settings.accumulate}"
            )
        dtype = PRECISIONS[self.settings.precision]
        self.model.to(self.device, dtype)
        self.feeder = self.feeder_of(self.split, dtype)
        self.judge = None if self.held_out is None else self.feeder_of(self.held_out, dtype)
        self.watch = self.judge
        watched = self.settings.watched
        if self.held_out is not None and watched is not None and watched < len(self.held_out):
            some = np.linspace(0, len(self.held_out) - 1, watched, dtype=np.int64)
            self.watch = Feeder(self.held_out.take(some), self.preprocess, self.device, dtype)
        self._check_model()
        self.augment.check(self.input_shape)
        if self.smoothing and not self.task.classifies:
            raise TrainingError(
                "smoothing is for classification, and you pass a loss of your own: leave one of them out",
                about="smoothing",
            )
        if self.teaching is not None:
            self.teaching.to(self.device)
        if self.settings.precision == "bf16" and self.device.type == "cpu":
            # A CPU without bf16 computes it another way, of which torch tells with pages of addresses.
            warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        self.highest_loss = highest_loss(self.model, self.feeder, self.task)
        self.curves: Curves | None = None
        if asked := self.settings.tensorboard:
            check_installed()
            own = (self.settings.run_dir or Path("runs")) / "tensorboard"
            self.curves = Curves(asked if isinstance(asked, Path) else own) if self.world.leads else None
        self.evaluate_every = self.settings.evaluate_every or max(self.recipe.steps // 10, 1)
        self.rounded: RoundedActivations | None = None
        if self.points is not None:
            self.rounded = RoundedActivations(self.points, self.recipe.steps, self.device)
        self.description = {} if self.path is None else self._description()  # of the network as it starts
        seed_random(self.settings.seed + self.world.rank)  # dropout
        if self.settings.shard:
            self.world.shard_(self.model, self.device)
        self.optimizer = make_optimizer(self.model, self.recipe, undecayed=self._decayed_by_rules())
        self.reg: Regularizer | None = None
        if self.bound is not None:
            self.reg = self.bound[0](self.optimizer, self.model)
        elif self.rules:
            self.reg = Regularizer(self.optimizer, self.model, self.rules, self.recipe.steps)
        # The sum of the losses since the last evaluation, on the device: looking at it waits for the device.
        self.running = torch.zeros((), dtype=torch.float64, device=self.device)

    def feeder_of(self, split: Split, dtype: torch.dtype | None = None) -> Feeder:
        """Of images as this run sees them; it may be shared with other runs."""
        dtype = dtype or PRECISIONS[self.settings.precision]
        key = (id(split), id(self.preprocess), dtype)  # a feeder keeps both, so that no other gets their ids
        if key not in self.feeders:
            self.feeders[key] = Feeder(split, self.preprocess, self.device, dtype)
        return self.feeders[key]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of an example as the network sees it."""
        shape, crop = tuple(self.split.shape), self.preprocess.crop
        return shape if crop is None else (shape[0], crop, crop)

    def _decayed_by_rules(self) -> list[nn.Parameter]:
        chosen = select(self.model, self.rules) if self.rules else {}
        return [weight for weight, rule in chosen.values() if "l2_decay" in self.rules[rule].kinds]

    def result(self) -> Result:
        """Of a run that has taken all of its steps."""
        report = None if self.reg is None else self.reg.report()
        return Result(self.score, self.history, report, self.seconds, self.resumed)

    @property
    def path(self) -> Path | None:
        return None if self.settings.run_dir is None else self.settings.run_dir / CHECKPOINT

    @property
    def finished(self) -> bool:
        return self.step >= self.recipe.steps and (self.reg is None or self.reg.finished)

    def backward(self, network: nn.Module, *batch: Tensor) -> None:
        """Leave the gradients of the mean loss over the global batch: images, targets, a teacher's scores if any."""
        parts = self.settings.accumulate
        for number, some in enumerate(zip(*(each.tensor_split(parts) for each in batch), strict=True)):
            with gradients_wait(network, number < parts - 1):
                self._backward(network, *some)

    def _backward(self, network: nn.Module, x: Tensor, y: Tensor, hints: Tensor | None = None) -> None:
        bf16 = self.settings.precision == "bf16"
        # Without a cache of its own: a recording must not rely on casts made before it.
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False)
        with autocast, fast_gradients(self.device):
            outputs = self.forward(network, x)
        if bf16:
            outputs = outputs.float()
        # Averaged over processes, whose shares of the batch may differ in size.
        if self.teaching is not None and hints is not None:
            loss = self.teaching.loss(outputs, y, hints, self.smoothing)
        elif self.smoothing:
            loss = nn.functional.cross_entropy(widen(outputs), y, label_smoothing=self.smoothing)
        else:
            loss = self.task.batch_loss(outputs, y)
        loss = loss * (len(y) * self.world.size / self.recipe.batch_size)
        loss.backward()  # type: ignore[no-untyped-call]
        self.running += loss.detach() / self.world.size

    def forward(self, network: nn.Module, x: Tensor) -> Any:
        """What the network gives, its values rounded where that has begun."""
        return network(x) if self.rounded is None else self.rounded.forward(network, x)

    def _check_model(self) -> None:
        if not any(weight.requires_grad for weight in self.model.parameters()):
            raise TrainingError(
                "the network has no parameter that can be trained: all are frozen, or there are none"
            )
        check_fits(self.model, self.feeder, self.task)
        if self.judge is not None:
            check_fits(self.model, self.judge, self.task)

    def _description(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "recipe": self.recipe.describe(),
            "rules": {pattern: describe_update(update) for pattern, update in self.rules.items()},
            "bound": None if self.bound is None else self.bound[1],
            "network": network_digest(self.model),
            "data": [describe_split(split) for split in (self.split, self.held_out) if split is not None],
            "image_size": describe_size(self.split.shape),
            "task": describe_task(self.task),
            "preprocess": describe_preprocess(self.preprocess),
            "augment": str(self.augment) if self.augment else None,  # as in runs from before there was any
            "teaching": None if self.teaching is None else self.teaching.describe(),
            "smoothing": self.smoothing or None,
            "activations": None if self.rounded is None else self.rounded.describe(),
            "seed": self.settings.seed,
            "precision": self.settings.precision,
            "evaluate_every": self.evaluate_every,
        }
