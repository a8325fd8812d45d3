"""The loop for one network: train under rules, evaluate what would be deployed, survive being killed."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.data import Preprocess, Split
from membound.errors import Diverged, MemboundError, ModelError, TrainingError
from membound.train import checkpoint as files
from membound.train.batches import Feeder, Feeders
from membound.train.divergence import WORSE, highest_loss, loss_of_some, not_finite
from membound.train.evaluation import Score, check_fits, evaluate
from membound.train.fingerprints import (
    describe_preprocess,
    describe_split,
    describe_task,
    describe_update,
    network_digest,
)
from membound.train.parallel import World, choose_device, gradients_wait, join, lost_another
from membound.train.recipe import Recipe, make_optimizer
from membound.train.regularizer import Regularizer, attach
from membound.train.reports import Report
from membound.train.resume import resume, save
from membound.train.rules import select
from membound.train.stepping import make_stepper
from membound.train.task import Task
from membound.train.tensorboard import Curves, check_installed
from membound.train.updates import Update
from membound.train.weights import CHECKPOINT

PRECISIONS = {"float32": torch.float32, "bf16": torch.float32, "float64": torch.float64}
LARGEST_BATCH = 1 << 16  # beyond the size of the data; up to here a small set may repeat within a batch
LOOK_EVERY = 50  # iterations between looks at the loss, each of which waits for the device


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM after saving what is needed to go on."""


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
            raise MemboundError(f"there is no precision {self.precision!r}: choose {', '.join(PRECISIONS)}")
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise MemboundError(
                f"evaluations come every so many iterations, from 1: {self.evaluate_every} cannot be"
            )
        if self.accumulate < 1:
            raise MemboundError(f"a batch has at least 1 part: to accumulate {self.accumulate} cannot be")


@dataclass(frozen=True)
class Progress:
    """Where a run is; `score` is there after an evaluation."""

    iteration: int
    iterations: int
    loss: float
    score: Score | None = None


@dataclass(frozen=True)
class Result:
    """A finished run: the network is trained and every constraint holds."""

    score: Score | None
    history: list[dict[str, Any]]
    report: Report | None
    seconds: float
    resumed: int | None  # the iteration of the checkpoint that it went on from


def train(
    model: nn.Module,
    split: Split,
    recipe: Recipe,
    rules: Mapping[str, Update] | None = None,
    *,
    preprocess: Preprocess,
    held_out: Split | None = None,
    settings: Settings | None = None,
    show: Callable[[Progress], None] | None = None,
) -> Result:
    """Train `model` in place on `split`; `held_out` is only looked at, to report.

    With a `run_dir` an interrupted or killed run is resumed by the same call, bit for bit on the CPU.
    """
    settings = settings or Settings()
    device = choose_device(settings.device)
    world = join(device)
    with graceful_interrupt(world) as interrupted, run_folder(settings, world):
        run = Run(
            model, split, recipe, preprocess, settings, device, world, dict(rules or {}), held_out, show=show
        )
        for _ in run.steps(interrupted):
            pass
        return run.result()


def run_folder(settings: Settings, world: World) -> AbstractContextManager[None]:
    """The run's directory, held against other processes."""
    if settings.run_dir is None or not world.leads:
        return nullcontext()
    return files.locked(settings.run_dir)


# What bounds a network as a whole, once its optimizer is there; and what tells such bounds apart.
Bound = tuple[Callable[[Optimizer, nn.Module], Regularizer], Any]


@dataclass
class Run:
    """One network's training, a step at a time."""

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
    show: Callable[[Progress], None] | None = None
    feeders: Feeders = field(default_factory=dict)
    iteration: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    resumed: int | None = None
    score: Score | None = None  # of the finished network
    failure: Diverged | None = None  # of a member of a population that got no further

    def __post_init__(self) -> None:
        if self.recipe.batch_size > max(len(self.split), LARGEST_BATCH):
            raise MemboundError(
                f"a batch of {self.recipe.batch_size:,} images: there are {len(self.split):,} to train on; take no more"
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
        self.highest_loss = highest_loss(self.model, self.feeder, self.task)
        self.curves: Curves | None = None
        if asked := self.settings.tensorboard:
            check_installed()
            own = (self.settings.run_dir or Path("runs")) / "tensorboard"
            self.curves = Curves(asked if isinstance(asked, Path) else own) if self.world.leads else None
        self.evaluate_every = self.settings.evaluate_every or max(self.recipe.iterations // 10, 1)
        self.description = {} if self.path is None else self._description()  # of the network as it starts
        torch.manual_seed(self.settings.seed + self.world.rank)  # dropout
        if self.settings.shard:
            self.world.shard_(self.model, self.device)
        self.optimizer = make_optimizer(self.model, self.recipe, undecayed=self._decayed_by_rules())
        self.reg: Regularizer | None = None
        if self.bound is not None:
            self.reg = self.bound[0](self.optimizer, self.model)
        elif self.rules:
            self.reg = attach(self.optimizer, self.model, self.rules, total_steps=self.recipe.iterations)
        # The sum of the losses since the last evaluation, on the device: looking at it waits for the device.
        self.running = torch.zeros((), dtype=torch.float64, device=self.device)

    def feeder_of(self, split: Split, dtype: torch.dtype | None = None) -> Feeder:
        """Of images as this run sees them; it may be shared with other runs."""
        dtype = dtype or PRECISIONS[self.settings.precision]
        key = (id(split), id(self.preprocess), dtype)  # a feeder keeps both, so that no other gets their ids
        if key not in self.feeders:
            self.feeders[key] = Feeder(split, self.preprocess, self.device, dtype)
        return self.feeders[key]

    def _decayed_by_rules(self) -> list[nn.Parameter]:
        chosen = select(self.model, self.rules) if self.rules else {}
        return [weight for weight, rule in chosen.values() if "l2_decay" in self.rules[rule].kinds]

    def steps(self, interrupted: Callable[[], bool]) -> Iterator[None]:
        """From where it is to the end: each time it goes on, one step is taken."""
        try:
            if self.path is not None and self.path.exists():
                resume(self, self.path)
            if not self.finished:
                yield from self._train(interrupted)
            if self.judge is not None and self.score is None:
                self.score = self._score()
        finally:
            if self.reg is not None:
                self.reg.detach()
            if self.curves is not None:
                self.curves.close()

    def result(self) -> Result:
        """Of a run that has taken all of its steps."""
        report = None if self.reg is None else self.reg.report()
        return Result(self.score, self.history, report, self.seconds, self.resumed)

    @property
    def path(self) -> Path | None:
        return None if self.settings.run_dir is None else self.settings.run_dir / CHECKPOINT

    @property
    def finished(self) -> bool:
        return self.iteration >= self.recipe.iterations and (self.reg is None or self.reg.finished)

    def _train(self, interrupted: Callable[[], bool]) -> Iterator[None]:
        started, saved = time.monotonic() - self.seconds, time.monotonic()
        self.model.train()
        take = make_stepper(self)
        while self.iteration < self.recipe.iterations:
            with self._named_failure(f"iteration {self.iteration + 1}"):
                take()
            self.iteration += 1
            last = self.iteration == self.recipe.iterations
            evaluating = last or self.iteration % self.evaluate_every == 0
            stopping = interrupted()
            if evaluating or stopping or self.iteration % LOOK_EVERY == 0:
                with self._named_failure(f"what comes after iteration {self.iteration}"):
                    self._check_loss()
                    self.seconds = time.monotonic() - started
                    if last:
                        self._finish()
                    if evaluating:
                        self._evaluate()
                    else:
                        self._tell()
                    due = time.monotonic() - saved > self.settings.checkpoint_seconds
                    if stopping or last or self.world.agree(due):
                        save(self)
                        saved = time.monotonic()
            if stopping and not last:
                raise Interrupted
            yield

    @contextmanager
    def _named_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except ModelError:  # it may be that nothing else than infinities cannot be stored
            self._check_finite()
            raise
        except MemboundError:
            raise
        except Exception as error:
            if self.world.size > 1 and lost_another(error):
                again = "the same command goes on from the last checkpoint"
                if self.path is None:
                    again = "with a run directory the same command would go on from a checkpoint"
                raise TrainingError(
                    f"another process of this run is gone, at iteration {self.iteration}: {again}"
                ) from error
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
            raise TrainingError(f"{what} failed with {type(error).__name__}: {reason}") from error

    def backward(self, network: nn.Module, x: Tensor, y: Tensor) -> None:
        """Leave the gradients of the mean loss over the global batch."""
        parts = self.settings.accumulate
        for number, (some, targets) in enumerate(
            zip(x.tensor_split(parts), y.tensor_split(parts), strict=True)
        ):
            with gradients_wait(network, number < parts - 1):
                self._backward(network, some, targets)

    def _backward(self, network: nn.Module, x: Tensor, y: Tensor) -> None:
        bf16 = self.settings.precision == "bf16"
        # Without a cache of its own: a recording must not rely on casts made before it.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            outputs = network(x)
        if bf16:
            outputs = outputs.float()
        # Averaged over processes, whose shares of the batch may differ in size.
        loss = self.task.batch_loss(outputs, y) * (len(y) * self.world.size / self.recipe.batch_size)
        loss.backward()  # type: ignore[no-untyped-call]
        self.running += loss.detach() / self.world.size

    # Looking

    def _check_loss(self) -> None:
        if not math.isfinite(self.world.sum(float(self.running))[0]):
            raise self._diverged(f"the loss is not finite at iteration {self.iteration}")

    def _finish(self) -> None:
        """Make the bounds hold; refuse a network that is no use, whatever the losses on the way were."""
        self._check_finite()
        if self.reg is not None:
            self.reg.finish()
        loss = self.world.sum(loss_of_some(self.model, self.feeder, self.task))[0] / self.world.size
        if not loss <= self.highest_loss:  # nor NaN
            raise self._diverged(
                f"the loss is {loss:.3g} at the end, over {WORSE:g} times that at the start and that of outputs of zero"
            )

    def _check_finite(self) -> None:
        if (name := not_finite(self.model)) is not None:
            raise self._diverged(f"'{name}' has a value that is NaN or infinite")

    def _diverged(self, found: str) -> Diverged:
        peak = max(self.recipe.describe()["lr"])
        return Diverged(
            f"{found}: training has diverged; lower the learning rate (its peak is {peak:g}), or scale inputs and "
            "targets to about 1"
        )

    def _evaluate(self) -> None:
        since = self.iteration - (self.history[-1]["iteration"] if self.history else 0)
        loss = self.world.sum(float(self.running))[0] / since
        self.running.zero_()
        entry: dict[str, Any] = {"iteration": self.iteration, "loss": loss, "seconds": round(self.seconds, 2)}
        score = None
        if self.judge is not None:
            score = self._score()
            entry |= {"accuracy": score.accuracy, "test_loss": score.loss}
            if self.finished:
                if not math.isfinite(score.loss):
                    raise self._diverged("the loss on held-out data is not finite")
                self.score = score
        report = None if self.reg is None else self.reg.report()
        if report is not None:
            entry["nonzeros"] = report.at_bound().nonzeros
        self.history.append(entry)
        if self.curves is not None:
            drawn = ("loss", "accuracy", "test_loss")
            scalars: dict[str, float] = {name: entry[name] for name in drawn if name in entry}
            scalars["learning_rate"] = self.recipe.lr(self.iteration - 1)  # of the step just taken
            self.curves.add(self.iteration, scalars, report)
        self._tell(score, loss)

    def _score(self) -> Score:
        """Of the network as it would be deployed now: at the present bound."""
        judge = self.judge if self.finished else self.watch
        assert judge is not None
        self.world.share_buffers(self.model)
        bf16 = self.settings.precision == "bf16"
        if self.reg is None or self.reg.finished:
            return evaluate(self.model, judge, world=self.world, bf16=bf16, task=self.task)
        with self.reg.projected():
            return evaluate(self.model, judge, world=self.world, bf16=bf16, task=self.task)

    def _tell(self, score: Score | None = None, loss: float | None = None) -> None:
        if self.show is not None and self.world.leads:
            if loss is None:
                done = self.iteration - (self.history[-1]["iteration"] if self.history else 0)
                loss = float(self.running) / done if done else math.nan
            self.show(Progress(self.iteration, self.recipe.iterations, loss, score))

    def _check_model(self) -> None:
        if not any(weight.requires_grad for weight in self.model.parameters()):
            raise TrainingError(
                "the network has no parameter that can be trained: all are frozen, or there are none"
            )
        check_fits(self.model, self.feeder, self.task)
        if self.judge is not None:
            check_fits(self.model, self.judge, self.task)

    # Saving

    def _description(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "recipe": self.recipe.describe(),
            "rules": {pattern: describe_update(update) for pattern, update in self.rules.items()},
            "bound": None if self.bound is None else self.bound[1],
            "network": network_digest(self.model),
            "data": [describe_split(split) for split in (self.split, self.held_out) if split is not None],
            "image_size": min(self.split.shape[1:], default=None),
            "task": describe_task(self.task),
            "preprocess": describe_preprocess(self.preprocess),
            "seed": self.settings.seed,
            "precision": self.settings.precision,
            "evaluate_every": self.evaluate_every,
        }


@contextmanager
def graceful_interrupt(world: World) -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM wait for the end of the step; a second Ctrl-C does not.

    Processes of one torchrun see a signal at different steps, so there the last checkpoint has to do.
    """
    if threading.current_thread() is not threading.main_thread() or world.size > 1:
        yield lambda: False
        return
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
