"""What makes two calls the same fit, and which options differ where they are not."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from membound.search import teachers
from membound.search.bounds import Bound
from membound.search.differences import Difference, find_differences
from membound.search.problem import Problem
from membound.search.request import Choices
from membound.search.stages import Stages
from membound.train.fingerprints import (
    describe_function,
    describe_preprocess,
    describe_split,
    describe_task,
    network_digest,
)

ELSEWHERE = (  # choices that stand in another part of a description
    "strategy",
    "seed",
    "seeds",
    "dense",
    "loss",
    "score",
    "augment",
    "effort",
    "widths",
    "smoothing",
    "precision",
    "teacher",
    "temperature",
    "teacher_part",
)
# What a user calls parts of a description, where the last word of their place does not say it.
OPTIONS = {
    "wanted.may_widen": "values",
    "target.kind": "bound",
    "data.train": "train_data",
    "data.validation": "val_data",
    "data.test": "test_data",
    "network": "model",
    "teacher.by": "teacher",
    "recipe.optimizer": "solver",
    "recipe.iterations": "effort",
}
# What follows from what: said only where nothing that it follows from differs.
TRAINING = ("choices.solver", "choices.pretrained", "network")
LENGTH = ("choices.steps", "choices.batch_size", "data.train", *TRAINING)
FOLLOWS = {
    "wanted.may_widen": ("target.",),
    "wanted.amounts": ("target.kind",),
    "teacher.by": ("wanted.dense",),
    "teacher.": ("wanted.dense", "teacher.by"),
    "network": ("wanted.seed", "choices.pretrained"),
    "recipe.iterations": LENGTH,
    "recipe.lr": ("choices.lr", "recipe.iterations", *LENGTH),
    "recipe.batch_size": LENGTH,
    "recipe.weight_decay": ("choices.weight_decay", *TRAINING),
    "recipe.": TRAINING,
}


def describe_fit(problem: Problem, bound: Bound, choices: Choices) -> dict[str, Any]:
    """What must be the same for a fit to go on; run directories keep it, so its names stay."""
    data = problem.data
    splits = {"train": data.train, "validation": data.given, "test": data.test}
    wanted = {
        "amounts": [str(amount) for amount in bound.amounts],
        "stages": bound.stages.describe() if isinstance(bound.stages, Stages) else None,
        "strategy": describe_function(choices.strategy)
        if callable(choices.strategy)
        else choices.strategy_name,
        **{name: getattr(bound, name) for name in ("within", "members", "average", "may_widen")},
        **{name: getattr(choices, name) for name in ("seed", "dense", "greedy_step")},
    }
    chosen = {
        each.name: getattr(choices, each.name) for each in fields(choices) if each.name not in ELSEWHERE
    }
    taught = None if problem.teaching is None else problem.teaching.describe()
    if choices.teacher == teachers.AUTO:
        taught = [teachers.AUTO, *teachers.teaching_numbers(choices)]
    elif teachers.dense_teaches(problem, bound, choices):
        taught = [teachers.DENSE, *teachers.teaching_numbers(choices)]
    beside = {
        "augment": str(problem.training.augment) if problem.training.augment else None,
        "teacher": taught,
        "widths": None if choices.widths is None else list(choices.widths),
        "smoothing": choices.smoothing or None,
        "precision": choices.precision if choices.precision != "float32" else None,
        "latency": None if bound.latency is None else [str(bound.latency), bound.threads],
        "pixels": None if data.pixels is None else describe_preprocess(data.pixels),
    }
    return {
        "wanted": wanted,
        "target": {name: v for name, v in vars(problem.target).items() if v is not None},
        "choices": {name: list(v) if isinstance(v, tuple) else v for name, v in chosen.items()},
        "recipe": problem.training.recipe.describe(),
        "network": network_digest(problem.make(choices.seed)),
        "data": {name: None if split is None else describe_split(split) for name, split in splits.items()},
        "preprocess": describe_preprocess(data.preprocess),
        "classes": data.classes,
        "task": describe_task(problem.task),
        **{name: value for name, value in beside.items() if value is not None},  # as before there was any
    }


def differing_options(bound: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Which options two descriptions differ in; `bound` is what the caller's bound is called.

    >>> recipe = {"iterations": 20, "lr": [0.03, 0.06, 0.0]}
    >>> old = {"choices": {"steps": 20}, "recipe": recipe}
    >>> new = {"choices": {"steps": 40}, "recipe": {"iterations": 40, "lr": [0.015, 0.06, 0.0]}}
    >>> list(differing_options("budget", old, new))
    [('steps', '20', '40')]
    >>> list(differing_options("budget", old, {**new, "choices": {"steps": 20}}))  # of the same data
    [('effort', '"for 20 steps"', '"for 40 steps"')]
    """
    found = list(find_differences(_as_given(old), _as_given(new)))
    places = [place for place, *_ in found]
    for place, was, now in found:
        causes = next((causes for begin, causes in FOLLOWS.items() if place.startswith(begin)), ())
        if not any(each.startswith(causes) for each in places if causes):
            named = {"wanted.amounts": bound, **OPTIONS}
            name = next((name for begin, name in named.items() if place.startswith(begin)), None)
            yield name or place.rpartition(".")[2].partition("[")[0], was, now


def _as_given(described: Mapping[str, Any]) -> dict[str, Any]:
    """A description with what is computed from options in the words of these."""
    plain = dict(described)
    recipe = dict(plain.get("recipe") or {})
    if "iterations" in recipe:
        recipe["iterations"] = f"for {recipe['iterations']:,} steps"
    if isinstance(recipe.get("lr"), list):  # samples of the schedule
        recipe["lr"] = max(recipe["lr"])
    taught = plain.pop("teacher", None)
    if taught is None or isinstance(taught, list):
        names = ("by", "temperature", "teacher_part")
        taught = dict(zip(names, taught or ["none"], strict=False))
    return {**plain, "recipe": recipe, "teacher": taught}
