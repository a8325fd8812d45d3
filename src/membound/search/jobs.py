"""A job: one network trained one way, described so that any worker can do it, and always with the same result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.data import Split, bag, subsample
from membound.errors import Diverged
from membound.modules import plain_keys
from membound.search.allocation import Score
from membound.search.bits import FRESH, Types, as_if_trained, trained_levels
from membound.search.bound import NetworkBound
from membound.search.problem import AT_ONCE, Problem, State
from membound.train.batches import Feeders
from membound.train.evaluation import evaluate, wrong_images
from membound.train.fingerprints import describe_function, describe_update
from membound.train.parallel import World
from membound.train.population import train_all
from membound.train.recipe import Recipe, Scaled
from membound.train.regularizer import Regularizer
from membound.train.rules import load_plain_
from membound.train.run import Bound, Progress, Run, Settings
from membound.train.schedules import ramp
from membound.train.updates import Update, chain, l0_project, palette

WATCHED = 1000  # images that the curves of a training are drawn from
Show = Callable[["Job", Progress], None]


@dataclass(frozen=True)
class Job:
    """What is trained, and under which bound: none, `counts` of each weight, or a `limit` on the whole.

    With a limit, counts come from the scores; or, where `counts` are given too, they keep those proportions. `rules`
    are for studies of single updates, instead of either.
    """

    key: str
    seed: int
    start: str | None = None  # the job whose weights it goes on from; else the network's own
    tuning: bool = False  # a candidate's short training, not the whole way
    warm: bool = False  # the whole way, but from weights that are trained at about this bound
    lr_scale: float = 1.0  # times the recipe's learning rate
    limit: int | None = None
    score: Score = "lamp"
    counts: Mapping[str, int] | None = None
    rules: Mapping[str, Update] | None = None
    recipe: Recipe | None = None  # instead of the problem's
    network: str | None = None  # one of the problem's variants
    values: str | None = None  # how they are stored, instead of as the problem says
    everything: bool = False  # on all training images, with the test images for the last word
    bag: int | None = None  # on a resample of the images, drawn by this seed
    images: int | None = None  # on so many of the images, drawn by the job's seed
    also: Sequence[
        str
    ] = ()  # report on the images for "test", and on those it was trained on; nobody chooses by them
    looks: int | None = None  # at the held-out images, all of them, while it trains
    paired: bool = False  # say which held-out images it gets wrong: two networks are compared image by image
    may_fail: bool = False  # where it diverges, that is its outcome, not the end of everything
    about: Mapping[str, Any] = field(default_factory=dict)  # for people: round, layer, budget

    @property
    def is_ruled(self) -> bool:
        """Whether it is under a bound, or rules of its own."""
        return self.limit is not None or self.counts is not None or self.rules is not None

    def describe(self) -> dict[str, Any]:
        """The job as JSON."""
        score = self.score if isinstance(self.score, str) else describe_function(self.score)
        plain = replace(self, score=score, counts=None, rules=None, recipe=None, about={})
        rules = {name: describe_update(update) for name, update in (self.rules or {}).items()}
        return asdict(plain) | {
            "counts": None if self.counts is None else dict(self.counts),
            "rules": None if self.rules is None else rules,
            "recipe": None if self.recipe is None else self.recipe.describe(),
            "also": list(self.also),
            "about": dict(self.about),
        }


@dataclass(frozen=True)
class Outcome:
    """What came of a job: facts as JSON, and the state of the network on the CPU, if it got to its end."""

    facts: dict[str, Any]
    state: dict[str, Tensor]

    @property
    def failed(self) -> bool:
        return "failure" in self.facts


@dataclass(frozen=True)
class Order:
    """A job with what it needs from elsewhere: weights it starts from, folders for its checkpoints and its curves."""

    job: Job
    start: State | None = None
    folder: Path | None = None
    curves: Path | None = None
    problem: Problem | None = None  # instead of that of all


def carry_out(
    problem: Problem,
    orders: Sequence[Order],
    device: torch.device,
    show: Show | None = None,
    feeders: Feeders | None = None,
    world: World | None = None,
) -> Iterator[tuple[Job, Outcome]]:
    """Train all, on a GPU side by side; each outcome comes as soon as it is there.

    One that diverges, and must not, is told when all others are done.
    `feeders` keeps the images on the device from one call to the next. The processes of a `world` train each network
    together, and all get the same outcomes.
    """
    feeders, world = {} if feeders is None else feeders, world or World()
    problems = [order.problem or problem for order in orders]
    benches = {id(each): _Bench(each, device, feeders, world) for each in problems}
    mine = [benches[id(each)] for each in problems]
    members = [partial(bench.begin, order, show) for bench, order in zip(mine, orders, strict=True)]
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = (
        True  # the same job is the same network, at no cost that could be measured
    )
    try:
        failure: Diverged | None = None
        for number, run in train_all(members, device, world):
            job = orders[number].job
            if run.failure is not None and not job.may_fail:
                failure = failure or run.failure
            else:
                yield job, mine[number].conclude(job, run)
            del run  # its memory is the next ones'
        if failure is not None:
            raise failure
    finally:
        torch.backends.cudnn.deterministic = before
        for bench in benches.values():
            bench.let_go()


class _Bench:
    """Makes runs of one problem on one device; images are there once."""

    def __init__(self, problem: Problem, device: torch.device, feeders: Feeders, world: World) -> None:
        self.problem, self.device, self.feeders, self.world = problem, device, feeders, world
        self.drawn: dict[tuple[Any, ...], Split] = {}
        self.stored_as: dict[str, Problem] = {}

    def let_go(self) -> None:
        """Of the images that were drawn: nobody else will draw the same."""
        drawn = {id(split) for split in self.drawn.values()} - {
            id(self.problem.data.train),
            id(self.problem.data.part),
        }
        for key in [key for key in self.feeders if key[0] in drawn]:
            del self.feeders[key]

    def problem_of(self, job: Job) -> Problem:
        """The problem with the values that a job asks for."""
        if job.values is None:
            return self.problem
        if job.values not in self.stored_as:
            target = replace(self.problem.target, values=job.values)
            self.stored_as[job.values] = self.problem.changed(target=target)
        return self.stored_as[job.values]

    def begin(self, order: Order, show: Show | None) -> Run:
        job, problem = order.job, self.problem
        make = problem.make if job.network is None else problem.variants[job.network]
        model = make(job.seed)
        self.world.share_weights(model)
        # Convolutions are a fifth faster so on a CPU, and up to twice as fast on a GPU; values and names stay.
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if order.start is not None:
            load_plain_(model, order.start)
        training = problem.training
        recipe = job.recipe or (
            training.tuning if job.tuning else training.warm if job.warm else training.recipe
        )
        if job.lr_scale != 1:
            recipe = replace(recipe, lr=Scaled(recipe.lr, job.lr_scale))
        steps = recipe.steps
        settings = Settings(
            seed=job.seed,
            device=str(self.device),
            precision=training.precision,
            evaluate_every=max(steps // (job.looks or (4 if job.tuning else 20)), 1),
            run_dir=order.folder,
            tensorboard=order.curves or False,
            watched=None if job.looks else WATCHED,
        )
        return Run(
            model,
            self._split(job),
            recipe,
            problem.data.preprocess,
            settings,
            self.device,
            self.world,
            rules=self._rules(job),
            held_out=problem.data.test if job.everything else problem.data.validation,
            bound=self._bound(job, steps),
            task=problem.task,
            augment=training.augment,
            smoothing=training.smoothing,
            # A dense network shows what its labels alone teach.
            teaching=problem.teaching if job.is_ruled else None,
            points=problem.points if job.is_ruled and not job.tuning else None,
            show=None if show is None else partial(show, job),
            feeders=self.feeders,
        )

    def _split(self, job: Job) -> Split:
        data = self.problem.data
        split = data.train if job.everything else data.part
        if job.bag is None and job.images is None:
            return split
        key = (job.everything, job.bag, job.images, job.seed if job.images else None)
        if key not in self.drawn:
            if job.images is not None:
                split = subsample(split, job.images, seed=job.seed)
            self.drawn[key] = split if job.bag is None else bag(split, seed=job.bag)
        return self.drawn[key]

    def _rules(self, job: Job) -> dict[str, Update]:
        """Counts that are given; a network that does not start from these counts gets there along the ramp."""
        if job.rules is not None:
            return dict(job.rules)
        if job.counts is None or job.limit is not None:
            return {}
        problem = self.problem_of(job)
        training, sizes = problem.training, problem.sizes
        rules = {}
        for name, count in job.counts.items():
            if job.tuning or job.warm:
                rules[name] = l0_project(count, training.every)
            else:
                begin, until = training.ramp.begin, training.ramp.until
                rules[name] = l0_project(ramp(sizes[name], count, begin, until), training.every)
        if not job.tuning:  # a candidate shows what counts cost, not what bits do
            few = {name: problem.types[name] for name in job.counts} | problem.rounded
            for name, kind in few.items():
                if (levels := trained_levels(kind)) is not None:
                    rule = palette(levels, begin=training.ramp.until)
                    rules[name] = chain(rules[name], rule) if name in rules else rule
        return rules

    def _bound(self, job: Job, steps: int) -> Bound | None:
        if job.limit is None:
            return None
        problem, training = self.problem_of(job), self.problem.training
        course = AT_ONCE if job.warm else training.ramp

        def attach(optimizer: Optimizer, model: nn.Module) -> Regularizer:
            assert job.limit is not None
            plain = problem.target.chooses and problem.plain_bytes <= job.limit  # there is nothing to save

            def measure(state: State, types: Types) -> int:
                self.world.share_buffers(model)  # which are in the state: all processes measure the same
                return problem.measure(state, types)

            bound = NetworkBound(
                model,
                problem.weights,
                measure=measure,
                limit=job.limit,
                cost=problem.cost,
                types=problem.plain_types if plain else problem.types,
                rounded={} if plain else problem.rounded,
                noise=FRESH if training.fresh and not job.warm else None,
                chooses=problem.target.chooses and not plain,
                widens=problem.target.cycles is not None,
                counts_code=bool(problem.target.micro),
                score=job.score,
                proportions=job.counts,
                total_steps=steps,
                every=training.every,
                ramp=course,
            )
            return bound.attach(optimizer)

        return attach, {**job.describe(), "every": training.every, "ramp": vars(course)}

    def conclude(self, job: Job, run: Run) -> Outcome:
        """What a finished run has come to."""
        if run.failure is not None:
            return Outcome(self._describe_failure(job, run), {})
        self.world.share_buffers(run.model)
        result, problem = run.result(), self.problem_of(job)
        state = {
            name: value.detach().cpu().contiguous()
            for name, value in plain_keys(run.model.state_dict()).items()
        }
        guide = None if run.reg is None else run.reg.guide
        types = guide.types if isinstance(guide, NetworkBound) else None
        if job.counts is not None and types is None:  # what has no count is not trained for few values
            few = {name: problem.types[name] for name in job.counts}
            types = {**dict.fromkeys(problem.weights, problem.target.base), **few}
        names = plain_keys(dict(run.model.named_parameters())).keys()
        nonzeros = {name: int(value.count_nonzero()) for name, value in state.items() if name in names}
        score = result.score
        facts: dict[str, Any] = {
            "job": job.describe(),
            "accuracy": None if score is None else score.accuracy,
            "errors": None if score is None else score.errors,
            "images": None if score is None else score.images,
            "loss": None if score is None else score.loss,
            "types": types,
            "size": _size(problem, job, state, types) if job.network is None else sum(nonzeros.values()),
            "size_in": problem.target.counted_in,
            "nonzeros": sum(nonzeros.values()),
            "weight_nonzeros": sum(count for name, count in nonzeros.items() if not name.endswith("bias")),
            "counts": {name: nonzeros[name] for name in problem.weights if name in nonzeros},
            "steps": run.recipe.steps,
            "seconds": round(result.seconds, 3),
            "history": result.history,
        }
        if job.paired and problem.task.counts and run.held_out is not None:
            facts["wrong"] = wrong_images(run.model, run.feeder_of(run.held_out))
        for name in job.also:
            split = run.split if name == "train" else problem.data.test
            assert split is not None
            facts[f"{name}_accuracy"] = evaluate(run.model, run.feeder_of(split), task=problem.task).accuracy
        return Outcome(facts, state)

    def _describe_failure(self, job: Job, run: Run) -> dict[str, Any]:
        nothing = (
            "accuracy",
            "errors",
            "images",
            "loss",
            "types",
            "size",
            "nonzeros",
            "weight_nonzeros",
            "counts",
        )
        return {
            "job": job.describe(),
            **dict.fromkeys(nothing),
            "steps": run.step,
            "seconds": round(run.seconds, 3),
            "history": run.history,
            "failure": str(run.failure),
        }


def _size(problem: Problem, job: Job, state: State, types: Types | None) -> int:
    """What the budget counts; a candidate of a search is not trained for few values, but will be."""
    if types is not None and job.tuning:
        few = {name: as_if_trained(state[name], kind) for name, kind in types.items() if name in state}
        state = {**state, **few}
    return problem.measure(state, types)
