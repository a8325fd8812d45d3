"""How much work a fit may be, in a word: how long networks are trained, and what is tried beside."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from membound.search.bounds import Bound
from membound.search.problem import AT_ONCE, Problem
from membound.search.request import Choices
from membound.search.teachers import AUTO
from membound.search.wider import FEW, WIDER
from membound.store.values import value_type
from membound.train.job import BATCH, STEPS
from membound.train.recipe import WarmCosine
from membound.units import name_examples
from membound.zoo.networks import takes_width
from membound.zoo.solver import Solver

TIMES = {"quick": 0.25, "normal": 1.0, "best": 5.0}  # as long as usual
PASSES = 30  # through the images, of a network without a solver of its own; a small set is seen more often
STEPS_A_PASS = 8  # at least, where nobody says how many images a step takes
WIDTHS = (1.0, 1.5, 2.0)  # that `best` tries


def usual_steps(effort: str | None, solver: Solver | None, images: int, batch_size: int) -> int:
    """How long a network is trained if nobody says it: its solver's steps, or passes through the images.

    >>> usual_steps(None, None, 50_000, 128), usual_steps("best", None, 50_000, 128)
    (11719, 58595)
    """
    steps = max(STEPS, math.ceil(PASSES * images / batch_size)) if solver is None else solver.steps
    return max(round(TIMES[effort or "normal"] * steps), 1)


def usual_batch(images: int) -> int:
    """Images per step of a network without a solver of its own: fewer of a small set, for 8 steps or more a pass.

    >>> usual_batch(50_000), usual_batch(1000), usual_batch(192), usual_batch(20)
    (128, 64, 16, 8)
    """
    return max(8, min(BATCH, 1 << max(images // STEPS_A_PASS, 1).bit_length() - 1))


def with_effort(choices: Choices, model: nn.Module | Callable[..., nn.Module], bound: Bound) -> Choices:
    """What the effort adds, where nothing else was asked for: the best takes a teacher, and tries widths."""
    if choices.effort != "best":
        return choices
    if choices.teacher is None and choices.loss is None:
        choices = replace(choices, teacher=AUTO)
    searches = bound.searches or choices.is_greedy or choices.pretrained
    if choices.widths is None and not searches and not isinstance(model, nn.Module) and takes_width(model):
        choices = replace(choices, widths=WIDTHS)
    return choices


def describe_training(problem: Problem, choices: Choices) -> list[str]:
    """How networks are trained, for the report: a sentence each."""
    recipe, augment = problem.training.recipe, problem.training.augment
    passes = recipe.steps * recipe.batch_size / len(problem.data.part)
    effort = f" (effort {choices.effort})" if choices.effort is not None and choices.steps is None else ""
    what = name_examples(problem.data.train.shape)
    found = [
        f"{recipe.steps:,} steps of {recipe.batch_size} {what}, {_count_passes(passes)} through the data{effort}"
    ]
    if augment:
        found.append(f"augmentation: {str(augment).replace(',', ', ')}")
    if problem.training.smoothing:
        found.append(f"labels smoothed by {problem.training.smoothing:g}")
    if problem.teaching is not None:
        found.append("a teacher that was given")
    return found


def _count_passes(passes: float) -> str:
    """
    >>> _count_passes(16.0), _count_passes(0.96), _count_passes(2.56)
    ('16 passes', '1 pass', '2.6 passes')
    """
    number = f"{passes:.1f}".removesuffix(".0")
    return f"{number} pass{'' if number == '1' else 'es'}"


def describe_recipe(problem: Problem, seed: int, warm: bool) -> dict[str, Any]:
    """How the final network was trained, as JSON; `warm` says that it went on from the winner of a search."""
    training = problem.training
    recipe = training.warm if warm else training.recipe
    return {
        "optimizer": recipe.optimizer,
        "steps": recipe.steps,
        "usual_steps": training.usual_steps,
        "batch_size": recipe.batch_size,
        "peak_lr": recipe.peak_lr,
        "search_peak_lr": training.tuning.peak_lr if warm else None,
        "warmup": recipe.lr.warmup if isinstance(recipe.lr, WarmCosine) else None,
        "momentum": recipe.momentum,
        "weight_decay": recipe.weight_decay,
        "ramp": asdict(AT_ONCE if warm else training.ramp),
        "every": training.every,
        "seed": seed,
        "augment": str(training.augment) if training.augment else None,
        "smoothing": training.smoothing,
        "precision": training.precision,
    }


def describe_work(problem: Problem, bound: Bound, choices: Choices) -> str:
    """How much there is to do, for who waits: examples and their size, networks and their steps."""
    recipe, data = problem.training.recipe, problem.data
    size = " x ".join(map(str, data.train.shape))
    test = "" if data.test is None else f" and {len(data.test):,} to test"
    if data.train.labels.dtype.kind == "f" and choices.loss is None:
        test += ", to predict numbers"
    twice = ""
    if data.test is None and data.given is None and data.validation is not None:
        held = len(data.validation)
        those = f"{held:,} examples that measure" if held > 1 else "1 example that measures"
        twice = f"; each is trained twice, once without the {those} its accuracy"
    fitted = max(len(bound.amounts), 1) * bound.members
    networks = fitted + choices.dense
    searches = bound.searches or choices.is_greedy or choices.widths is not None
    count = (
        f"{networks} network{'s' if networks > 1 else ''}, {recipe.steps:,} steps of {recipe.batch_size} each"
    )
    search = ", and a search" if searches else ""
    again = _describe_retraining(problem.target.values, fitted) if bound.may_widen else ""
    these = f"{len(data.train):,} example{'s' if len(data.train) > 1 else ''} of {size}{test}"
    return f"{these}; {count}{twice}{search}{again}"


def _describe_retraining(values: str, networks: int) -> str:
    """What may follow where few bits cost accuracy.

    >>> _describe_retraining("auto", 1), _describe_retraining("f32", 1)
    ('; one more training, in 16 bits, follows if few bits cost too much accuracy', '')
    """
    if values not in WIDER:
        return ""
    more = f"up to {networks} more trainings" if networks > 1 else "one more training"
    follows = "follow" if networks > 1 else "follows"
    bits = value_type(WIDER[values]).bits
    return f"; {more}, in {bits} bits, {follows} if {FEW[values]} cost too much accuracy"
