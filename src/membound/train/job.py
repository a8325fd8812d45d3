"""What the commands do, as plain functions: a network, data and options in, facts out."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from membound import data as sets
from membound.data.augment import Augment, choose
from membound.data.numbering import check_numbering
from membound.data.pictures import Size, describe_size
from membound.data.source import has_own_size
from membound.errors import MemboundError
from membound.train import recipe as recipes
from membound.train.batches import Feeder
from membound.train.evaluation import check_fits, evaluate
from membound.train.fingerprints import data_digest, describe_rule
from membound.train.loop import train
from membound.train.parallel import choose_device, join
from membound.train.preprocessing import preprocess_for, solver_of
from membound.train.recipe import Recipe
from membound.train.rules import select
from membound.train.run import Progress, Settings
from membound.train.schedules import Number
from membound.train.schedules import ramp as ramp_schedule
from membound.train.sharded import count_nonzeros, gathered
from membound.train.updates import Update, chain, l0_project, l1_shrink, l1_subgradient, l2_decay, palette
from membound.train.weights import load_weights_, write_state
from membound.train.writable import check_writable
from membound.zoo.networks import find

RAMP_BEGIN, RAMP_UNTIL = 0.15, 0.7
STEPS, BATCH = 5000, 128  # of a network that brings no solver


def image_size(net: str, data: str, saved: Size | None = None) -> Size | None:
    """The size to read a folder's images at: as its weights were trained, or as a network that crops wants it."""
    if has_own_size(data):
        return None
    known = find(net)
    return saved or (None if known is None else known.reads)


def combine_rules(
    model: nn.Module,
    *,
    decay: Mapping[str, float],
    l1: Mapping[str, float],
    shrink: Mapping[str, float],
    keep: Mapping[str, Number],
    levels: Mapping[str, int],
    every: int,
    ramp: bool = False,
) -> dict[str, Update]:
    """Rules by kind, each matched in its own order, chained for each weight: decay, l1, shrink, keep, levels."""

    def bound(value: Number) -> Update:
        whole: Number = 1.0 if isinstance(value, float) else 0
        if not ramp:
            return l0_project(value, every)
        if isinstance(value, int):
            raise MemboundError(
                f"ramp needs keep as a fraction of the weights, such as 0.05, not as a count: got {value}",
                about=("ramp", "keep"),
            )
        return l0_project(ramp_schedule(whole, value, RAMP_BEGIN, RAMP_UNTIL), every)

    kinds: list[dict[str, Update]] = [
        {pattern: l2_decay(value) for pattern, value in decay.items()},
        {pattern: l1_subgradient(value) for pattern, value in l1.items()},
        {pattern: l1_shrink(value) for pattern, value in shrink.items()},
        {pattern: bound(value) for pattern, value in keep.items()},
        {pattern: palette(value) for pattern, value in levels.items()},
    ]
    chosen: dict[str, list[Update]] = {}
    for rules in kinds:
        for name, (_, pattern) in select(model, rules).items() if rules else ():
            chosen.setdefault(name, []).append(rules[pattern])
    return {name: chain(*updates) for name, updates in chosen.items()}


def choose_recipe(
    model: nn.Module,
    solver: str | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    warmup: int | None = None,
) -> Recipe:
    """The Caffe solver that a network comes with, or a modern one with what is given."""
    own = solver_of(model)
    solver = solver or ("caffe" if own else "sgd")
    if solver != "caffe":
        count = steps or (own.steps if own else STEPS)
        warm = min(200, count // 10) if warmup is None else warmup
        return recipes.modern(solver, count, batch_size or BATCH, lr, weight_decay, warmup=warm)
    if own is None:
        raise MemboundError(
            "the caffe solver belongs to the networks of the zoo: choose sgd or adamw", about="solver"
        )
    modern = {"lr": lr, "weight_decay": weight_decay, "warmup": warmup}
    if given := [name for name, value in modern.items() if value is not None]:
        raise MemboundError(
            f"the caffe solver has its own schedule: leave {' and '.join(given)} out, or choose sgd or adamw",
            about=given,
        )
    return recipes.caffe(own, steps, batch_size)


def train_network(
    model: nn.Module,
    dataset: sets.Dataset,
    recipe: Recipe,
    rules: Mapping[str, Update],
    settings: Settings,
    *,
    init: Path | None = None,
    names: Mapping[str, str] | None = None,
    mean: str | None = None,
    out: Path | None = None,
    validation: int | None = None,
    subsample: int | None = None,
    bag: bool = False,
    augment: str | Augment | None = None,
    show: Callable[[Progress], None] | None = None,
) -> dict[str, Any] | None:
    """Train, save and describe one network; None in the processes of a torchrun that do not lead."""
    if out is not None:
        check_writable(out)
    check_numbering(dataset)
    split, judge = dataset.train, dataset.test
    if validation is not None:
        split, judge = sets.validation_split(split, validation, seed=settings.seed)
    if subsample is not None:
        split = sets.subsample(split, subsample, seed=settings.seed)
    if bag:
        split = sets.bag(split, seed=settings.seed)
    preprocess = load_weights_(model, init, names) if init is not None else None
    if preprocess is None or mean is not None:
        preprocess = preprocess_for(model, split, mean)
    # Caffe's own solvers say to the letter what is done to images.
    has_own = recipe.optimizer == "caffe" or preprocess.crop is not None or preprocess.mirror
    how = choose(augment, tuple(split.shape), dataset.photos, has_own)
    result = train(
        model,
        split,
        recipe,
        rules,
        preprocess=preprocess,
        held_out=judge,
        settings=settings,
        augment=how,
        show=show,
    )
    leads = join(choose_device(settings.device)).leads
    counts = count_parameters(model)
    state = gathered(model.state_dict(), keep=leads and out is not None)
    if not leads:
        return None
    assert result.score is not None
    facts = {
        "accuracy": result.score.accuracy,
        "top5_accuracy": result.score.top5,
        "errors": result.score.errors,
        "images": result.score.images,
        "evaluated_on": "validation" if validation is not None else "test",
        **counts,
        "layers": [] if result.report is None else result.report.to_dict()["layers"],
        "steps": recipe.steps,
        "augment": str(how),
        "iterations": recipe.steps,  # as it was called before
        "seed": settings.seed,
        "training": {
            name: getattr(recipe, name)
            for name in ("optimizer", "peak_lr", "batch_size", "momentum", "weight_decay")
        },
        "rules": {pattern: describe_rule(update) for pattern, update in rules.items()},
        "training_data": data_digest(split),
        "seconds": round(result.seconds, 2),
        "resumed": result.resumed,
        "history": result.history,
    }
    if out is not None:
        about = {
            "accuracy": facts["accuracy"],
            "seed": settings.seed,
            **({"image_size": describe_size(split.shape)} if len(split.shape) == 3 else {}),
            "shape": list(split.shape),
            "classes": list(dataset.classes),
        }
        write_state(out, state, preprocess, about)
    return facts


def evaluate_weights(
    model: nn.Module,
    weights: Path,
    dataset: sets.Dataset,
    names: Mapping[str, str] | None = None,
    *,
    split: str = "test",
    mean: str | None = None,
    device: str = "auto",
    batch: int = 500,
) -> dict[str, Any]:
    """Accuracy and size of weights of any supported kind, in torch."""
    preprocess = load_weights_(model, weights, names)
    if preprocess is None or mean is not None:
        preprocess = preprocess_for(model, dataset.train, mean)
    chosen = choose_device(device)
    half = dataset.test if split == "test" else dataset.train
    feeder = Feeder(half, preprocess, chosen, torch.float32)
    model.to(chosen, torch.float32)
    check_fits(model, feeder)
    said: set[int] = set()

    def forward(network: nn.Module, x: torch.Tensor) -> Any:
        outputs = network(x)
        said.update(outputs.argmax(1).unique().tolist())
        return outputs

    score = evaluate(model, feeder, batch, forward=forward)
    alone = len(said) == 1 < len(set(half.labels.tolist()))
    facts = {
        "accuracy": score.accuracy, "top5_accuracy": score.top5, "errors": score.errors, "images": score.images,
        "loss": score.loss, "collapsed": said.pop() if alone else None,
    }  # fmt: skip
    return {**facts, **count_parameters(model)}


def check_takes(model: nn.Module, dataset: sets.Dataset, preprocess: sets.Preprocess | None = None) -> None:
    """Whether a network takes images as those of the data set, and has a score for each class."""
    used = preprocess if preprocess is not None else preprocess_for(model, dataset.train)
    check_fits(model, Feeder(dataset.test, used, torch.device("cpu"), torch.float32))


def judge_loaded(model: nn.Module, dataset: sets.Dataset, preprocess: sets.Preprocess, device: str) -> float:
    """The accuracy of a network on the test images; the network is left as it was."""
    chosen = choose_device(device)
    model.to(chosen, torch.float32)
    feeder = Feeder(dataset.test, preprocess, chosen, torch.float32)
    check_fits(model, feeder)
    score = evaluate(model, feeder)
    model.to("cpu")
    return score.accuracy


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters and nonzeros, biases included; `weight_nonzeros` leaves them out."""
    values = dict(model.named_parameters())
    counts = {name: count_nonzeros(value) for name, value in values.items()}
    return {
        "parameters": sum(value.numel() for value in values.values()),
        "nonzeros": sum(counts.values()),
        "weight_nonzeros": sum(count for name, count in counts.items() if not name.endswith("bias")),
    }
