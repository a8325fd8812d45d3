"""A job: one network trained one way, described so that any worker can do it, and always with the same result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.data import Split, bag
from membound.search.bound import NetworkBound
from membound.search.problem import AT_ONCE, Problem, State
from membound.train.batches import Feeder
from membound.train.loop import Bound, Progress, Run, Settings
from membound.train.population import train_all
from membound.train.recipe import Scaled
from membound.train.regularizer import Regularizer
from membound.train.rules import load_plain_, plain_keys
from membound.train.schedules import ramp
from membound.train.updates import Update, l0_project

WATCHED = 1000  # images that the curves of a training are drawn from
Show = Callable[["Job", Progress], None]


@dataclass(frozen=True)
class Job:
    """What is trained, and under which bound: none, `counts` of each weight, or a `limit` on the whole.

    With a limit, counts come from the scores; or, where `counts` are given too, they keep those proportions.
    """

    key: str
    seed: int
    start: str | None = None  # the job whose weights it goes on from; else the network's own
    tuning: bool = False  # a candidate's short training, not the whole way
    warm: bool = False  # the whole way, but from weights that are trained at about this bound
    lr_scale: float = 1.0  # times the recipe's learning rate
    limit: int | None = None
    score: str = "lamp"
    counts: Mapping[str, int] | None = None
    everything: bool = False  # on all training images, with the test images for the last word
    bag: int | None = None  # on a resample of the images, drawn by this seed
    about: Mapping[str, Any] = field(default_factory=dict)  # for people: round, layer, budget

    def describe(self) -> dict[str, Any]:
        """The job as JSON."""
        return asdict(
            replace(self, counts=None if self.counts is None else dict(self.counts), about=dict(self.about))
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a job: facts as JSON, and the state of the network on the CPU."""

    facts: dict[str, Any]
    state: dict[str, Tensor]


@dataclass(frozen=True)
class Order:
    """A job with what it needs from elsewhere: the weights it starts from, a folder for its checkpoints."""

    job: Job
    start: State | None = None
    folder: Path | None = None


def carry_out(
    problem: Problem,
    orders: Sequence[Order],
    device: torch.device,
    show: Show | None = None,
    feeders: dict[int, Feeder] | None = None,
) -> Iterator[tuple[Job, Outcome]]:
    """Train all, on a GPU side by side; each outcome comes as soon as it is there.

    `feeders` keeps the images on the device from one call to the next.
    """
    bench = _Bench(problem, device, {} if feeders is None else feeders)
    members = [partial(bench.begin, order, show) for order in orders]
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = (
        True  # the same job is the same network, at no cost that could be measured
    )
    try:
        for number, run in train_all(members, device):
            job = orders[number].job
            yield job, bench.conclude(job, run)
    finally:
        torch.backends.cudnn.deterministic = before


class _Bench:
    """Makes runs of one problem on one device; images are there once."""

    def __init__(self, problem: Problem, device: torch.device, feeders: dict[int, Feeder]) -> None:
        self.problem, self.device, self.feeders = problem, device, feeders
        self.bags: dict[tuple[int, bool], Split] = {}

    def begin(self, order: Order, show: Show | None) -> Run:
        job, problem = order.job, self.problem
        model = problem.make(job.seed)
        if self.device.type == "cpu":  # there convolutions are a fifth faster so; values and names stay
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if order.start is not None:
            load_plain_(model, order.start)
        training = problem.training
        recipe = training.tuning if job.tuning else training.warm if job.warm else training.recipe
        if job.lr_scale != 1:
            recipe = replace(recipe, lr=Scaled(recipe.lr, job.lr_scale))
        steps = recipe.iterations
        settings = Settings(
            seed=job.seed,
            device=str(self.device),
            evaluate_every=max(steps // (4 if job.tuning else 20), 1),
            run_dir=order.folder,
            watched=WATCHED,
        )
        return Run(
            model,
            self._split(job),
            recipe,
            problem.data.preprocess,
            settings,
            self.device,
            rules=self._rules(job),
            held_out=problem.data.test if job.everything else problem.data.validation,
            bound=self._bound(job, steps),
            task=problem.task,
            show=None if show is None else partial(show, job),
            feeders=self.feeders,
        )

    def _split(self, job: Job) -> Split:
        data = self.problem.data
        split = data.train if job.everything else data.part
        if job.bag is None:
            return split
        key = (job.bag, job.everything)
        if key not in self.bags:
            self.bags[key] = bag(split, seed=job.bag)
        return self.bags[key]

    def _rules(self, job: Job) -> dict[str, Update]:
        """Counts that are given; a network that does not start from these counts gets there along the ramp."""
        if job.counts is None or job.limit is not None:
            return {}
        training, sizes = self.problem.training, self.problem.sizes
        rules = {}
        for name, count in job.counts.items():
            if job.tuning:
                rules[name] = l0_project(count, training.every)
            else:
                begin, until = training.ramp.begin, training.ramp.until
                rules[name] = l0_project(ramp(sizes[name], count, begin, until), training.every)
        return rules

    def _bound(self, job: Job, steps: int) -> Bound | None:
        if job.limit is None:
            return None
        problem, training = self.problem, self.problem.training
        course = AT_ONCE if job.warm else training.ramp

        def attach(optimizer: Optimizer, model: nn.Module) -> Regularizer:
            assert job.limit is not None
            return NetworkBound(
                optimizer,
                model,
                problem.weights,
                measure=problem.measure,
                limit=job.limit,
                cost=problem.cost,
                score=job.score,
                proportions=job.counts,
                total_steps=steps,
                every=training.every,
                ramp=course,
            )

        return attach, {**job.describe(), "every": training.every, "ramp": vars(course)}

    def conclude(self, job: Job, run: Run) -> Outcome:
        """What a finished run has come to."""
        result, problem = run.result(), self.problem
        state = {
            name: value.detach().cpu().contiguous()
            for name, value in plain_keys(run.model.state_dict()).items()
        }
        names = set(problem.shapes)
        nonzeros = {name: int(value.count_nonzero()) for name, value in state.items() if name in names}
        score = result.score
        facts = {
            "job": job.describe(),
            "accuracy": None if score is None else score.accuracy,
            "errors": None if score is None else score.errors,
            "images": None if score is None else score.images,
            "loss": None if score is None else score.loss,
            "size": problem.measure(state),
            "nonzeros": sum(nonzeros.values()),
            "weight_nonzeros": sum(count for name, count in nonzeros.items() if not name.endswith("bias")),
            "counts": {name: nonzeros[name] for name in problem.weights},
            "steps": run.recipe.iterations,
            "seconds": round(result.seconds, 3),
            "history": result.history,
        }
        return Outcome(facts, state)
