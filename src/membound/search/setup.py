"""From what users have to a problem: their model, data, loss and choices, checked."""

import inspect
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from membound.capture.capture import Tracer
from membound.data import ArraySplit, Dataset, Preprocess, Split
from membound.data.augment import choose
from membound.data.examples import IGNORED, NUMBERS_OF, REGRESSION, is_one_hot
from membound.data.numbering import check_numbering, note_from_one, note_unused
from membound.data.preprocess import check_pixels
from membound.data.several import inputs_of
from membound.errors import DataError, MemboundError, RuleError, a_kind, shown
from membound.search.bound import Ramp
from membound.search.effort import usual_batch, usual_steps
from membound.search.halves import say_turned, say_which
from membound.search.micro import alike, refuse_unrolled
from membound.search.own_scores import refuse_no_scores, warn_if_changing
from membound.search.problem import (
    Copies,
    Data,
    Fresh,
    Problem,
    Target,
    Training,
    bounded_weights,
    fine_tuned,
)
from membound.search.request import Choices, Examples
from membound.search.telling import Splits, told
from membound.train.batches import Feeder, order_of
from membound.train.computed import check_copied
from membound.train.evaluation import check_fits, first_score
from membound.train.fingerprints import describe_split
from membound.train.items import ItemSplit
from membound.train.job import BATCH, choose_recipe
from membound.train.loaders import LoaderSplit
from membound.train.preprocessing import preprocess_for, solver_of
from membound.train.recipe import Recipe, Scaled, annealed
from membound.train.several import MakesSeveral, Several
from membound.train.task import Task
from membound.train.tasks import inferred_task, task_of
from membound.train.user_data import as_split, hold_out, preprocess_of

SHORT = 5000  # steps
IN_MEMORY_BYTES = 2 * 1024**3
SHOWN = 8  # classes that a warning names
SAMPLED, BRIGHT = 16, 64  # images that are looked at; what no input of a usual scale has, and pixels do
PRETRAINED_RATE = 0.2  # of the peak learning rate, for weights that are trained already


def make_problem(
    model: nn.Module | Callable[[], nn.Module],
    examples: Examples,
    choices: Choices,
    target: Target,
    *,
    hold_out: bool = False,
    warn: Callable[[str], None] = lambda text: None,
) -> Problem:
    """The problem that a call of fit() poses; `hold_out` says that choices are made by validation images.

    All that can be seen to be wrong is said here, before anything is trained.
    """
    if not isinstance(model, nn.Module) and not callable(model):
        raise MemboundError(
            f"the model is {a_kind(model)}: give a torch.nn.Module, or a function that makes one"
        )
    _check_preprocesses(examples)
    if isinstance(examples.train_data, Dataset) and examples.classes is None:
        check_numbering(examples.train_data)
    splits = _read(examples)
    if not isinstance(model, nn.Module):
        model = told(model, splits, examples)
        _refuse_what_needs_arguments(model)
    make: Callable[[int], nn.Module] = Copies(model) if isinstance(model, nn.Module) else Fresh(model)
    network = make(choices.seed)
    check_copied(network)
    data = _data(network, splits, examples, choices, hold_out)
    if (inputs := inputs_of(data.train)) is not None:
        _refuse_for_several(choices, target)
        make = MakesSeveral(make, inputs)
        network = make(choices.seed)
    if target.micro and examples.pixels is not None:
        raise MemboundError("pixels does not go with a microcontroller: give uint8 images", about="pixels")
    if target.micro and examples.preprocess is None:
        data = replace(data, preprocess=alike(data.preprocess, data.train.shape[0]))
    task = _task(examples, choices, data.train)
    if data.train.labels.ndim > 2 and choices.augment not in (None, "none"):
        raise MemboundError(
            f"augment={choices.augment!r}: images would move and their masks would not: leave it out, or augment both "
            "in a Dataset of your own",
            about="augment",
        )
    if target.micro:
        refuse_unrolled(network)  # by its name, whatever shape examples have
    _check_fits(network, data, task)
    if choices.score is not None:
        _check_score(network, data, task, warn)
    _warn_of_labels(data, task, warn)
    _warn_of_the_same(data, warn)
    _warn_of_raw_pixels(data, warn)
    try:
        names = bounded_weights(network, choices.layers, choices.protect, choices.depthwise)
    except RuleError:
        if not isinstance(network, Several):  # that it cannot be deployed is the larger trouble
            Tracer(network, torch.zeros(1, *data.input_shape))
        raise
    if callable(choices.strategy):
        refuse_no_scores(choices.strategy, network, names)
        warn_if_changing(choices.strategy, network, names, warn)
    choices = _with_loaders_batch(choices, data.train, warn)
    training = _training(network, choices, len(data.part))
    _warn_of_every(choices, training, warn)
    # Photos alone are augmented without being asked; data of the user's own passes through untouched.
    photos = isinstance(examples.train_data, Dataset) and examples.train_data.photos
    has_own = data.preprocess.crop is not None or data.preprocess.mirror
    training = replace(
        training,
        augment=choose(choices.augment, data.input_shape, photos, has_own),
        smoothing=choices.smoothing or 0.0,
        precision=choices.precision or "float32",
    )
    return Problem(make, data, training, target, names, task)


def _warn_of_every(choices: Choices, training: Training, warn: Callable[[str], None]) -> None:
    """A projection that only the end brings is pruning in one shot, from which a network does not recover."""
    trainings = [("steps", training.recipe.steps)]
    if choices.is_greedy:
        trainings.append(("candidate_steps", training.tuning.steps))
    for name, steps in trainings:
        if choices.every is not None and choices.every > steps:
            warn(
                f"every={choices.every} is more than {name}={steps}: weights are projected only once, at the end, "
                "which is pruning in one shot; give a smaller every"
            )


def _refuse_what_needs_arguments(model: Any) -> None:
    """A class, or a function, that cannot be called as it is."""
    try:
        asked = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):  # it does not say
        return
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in asked if each.default is each.empty and each.kind not in anything]
    if needed:
        made = model.func if isinstance(model, partial) else model
        name = getattr(made, "__name__", type(made).__name__)
        raise MemboundError(
            f"the model is made by {name}, which needs {', '.join(needed)}: give the network itself, such as "
            f"{name}({needed[0]}=...), or a function without arguments that makes it"
        )


def _warn_of_labels(data: Data, task: Task, warn: Callable[[str], None]) -> None:
    """Labels that count from 1 leave an output that never wins; classes that only other images have are not learned."""
    labels = data.train.labels
    if not task.counts or not labels.size or labels.dtype.kind not in "iu":
        return
    if labels.ndim == 1 and data.classes is None:
        for note in note_unused(
            [split.labels for split in (data.train, data.given, data.test) if split is not None]
        ):
            warn(note)
    for note in note_from_one(labels):
        warn(note)
    for split, on in ((data.test, "test"), (data.given, "validation")):
        if split is None or split.labels.ndim != 1 or split.labels.dtype.kind not in "iu":
            continue
        unknown = np.setdiff1d(split.labels, labels).tolist()
        if unknown:
            names = ", ".join(_name_of(label, data.classes) for label in unknown[:SHOWN])
            more = f" and {len(unknown) - SHOWN:,} more" if len(unknown) > SHOWN else ""
            count = int(np.isin(split.labels, unknown).sum())
            warn(
                f"no training examples of {'class' if len(unknown) == 1 else 'classes'} {names}{more}, which "
                f"{count:,} of {len(split):,} {on} labels name: these count as errors"
            )


def _warn_of_the_same(data: Data, warn: Callable[[str], None]) -> None:
    """Networks that are judged by what they were trained on look better than they are."""
    mine = describe_split(data.train)[:3]
    splits = (("test", data.test), ("validation", data.given))
    same = [on for on, split in splits if split is not None and describe_split(split)[:3] == mine]
    if same:
        verb = "are" if len(same) > 1 else "is"
        warn(
            f"the {' and '.join(same)} data {verb} the training data: what the scores say of a network does not hold "
            "for other examples"
        )


def _warn_of_raw_pixels(data: Data, warn: Callable[[str], None]) -> None:
    """Floats are taken as they are: of 0 to 255, a network with usual weights learns little."""
    train = data.train
    if inputs_of(train) is not None or len(train.shape) != 3 or train.shape[0] not in (1, 3):
        return
    if _dtype(train).kind != "f":
        return
    rows = np.unique(np.linspace(0, len(train) - 1, SAMPLED).astype(np.int64))
    inputs = data.preprocess(train.read(rows))
    low, high = float(inputs.min()), float(inputs.max())
    if low >= 0 and BRIGHT < high <= 255:
        warn(
            f"the images are floats from {low:g} to {high:g}, which look like pixels from 0 to 255 that are not "
            "normalized: give them as uint8, which fit normalizes, or normalize them and say how with "
            "pixels=mb.data.Preprocess(...), so that the file takes pictures"
        )


def _name_of(label: int, classes: tuple[str, ...] | None) -> str:
    """Its number, and its name where it has one.

    >>> _name_of(1, ("cat", "dog")), _name_of(1, ("0", "1")), _name_of(9, None)
    ('1 (dog)', '1', '9')
    """
    name = classes[label] if classes is not None and label < len(classes) else str(label)
    return str(label) if name == str(label) else f"{label} ({name})"


def _refuse_for_several(choices: Choices, target: Target) -> None:
    """What is made for networks of one input."""
    refused = {
        "teacher": choices.teacher not in (None, "none"),
        "widths": choices.widths is not None,
        "augment": choices.augment not in (None, "none"),
        "target": bool(target.micro),
    }
    if given := [name for name, is_given in refused.items() if is_given]:
        raise MemboundError(
            f"{given[0]} is for networks with one input, and these examples have several: leave it out",
            about=given[0],
        )


def _task(examples: Examples, choices: Choices, train: Split) -> Task:
    """What is asked for; or what a membound Dataset is for; or what targets are."""
    if choices.loss is None and choices.score is None:
        known = isinstance(examples.train_data, Dataset)
        if not known:
            _refuse_one_hot(train)
        return task_of(examples.train_data) if known else inferred_task(train)
    return Task(choices.loss, choices.score)


def _refuse_one_hot(train: Split) -> None:
    """Classes as rows of zeros with a one, which would be taken for numbers to predict."""
    if is_one_hot(train.labels):
        raise DataError(
            f"targets {list(train.labels.shape)} are {NUMBERS_OF.format('give')}; to predict them as numbers, name a "
            "loss, such as loss=torch.nn.functional.mse_loss"
        )


def _with_loaders_batch(choices: Choices, train: Split, warn: Callable[[str], None]) -> Choices:
    """The batch size of a DataLoader, unless another one was asked for."""
    if not isinstance(train, LoaderSplit) or choices.batch_size == train.batch_size:
        return choices
    if choices.batch_size is None:
        return replace(choices, batch_size=train.batch_size)
    warn(f"batch_size={choices.batch_size} is used; the DataLoader's is {train.batch_size}")
    return choices


def _check_fits(network: nn.Module, data: Data, task: Task) -> None:
    """One example of each split through a network, and all labels: what judges at the end must fit as well."""
    cpu = torch.device("cpu")
    network.to(cpu, torch.float32)
    for split in (data.train, data.given, data.test):
        if split is not None:
            check_fits(network, Feeder(split, data.preprocess, cpu, torch.float32), task)


def _check_score(network: nn.Module, data: Data, task: Task, warn: Callable[[str], None]) -> None:
    """A score of the user's own on what will be judged: a mistake in it must not wait until a network is trained.

    One that is not finite is only said: there are scores that an untrained network has none of.
    """
    for split, on in ((data.validation, "validation"), (data.test, "test")):
        if split is None:
            continue
        value = first_score(network, Feeder(split, data.preprocess, torch.device("cpu"), torch.float32), task)
        if not math.isfinite(value):
            warn(
                f"before training, the score of the first {on} batch is {value}: scores that are not finite count as "
                "not measured"
            )


def _data(
    network: nn.Module, splits: Splits, examples: Examples, choices: Choices, wants_validation: bool
) -> Data:
    (train, given, test), train_data, classes = splits, examples.train_data, examples.classes
    if isinstance(train_data, Dataset) and classes is None and train_data.task != REGRESSION:
        classes = train_data.classes
    dtype = _dtype(train)
    for name, split in (("val_data", given), ("test_data", test)):
        if split is not None and (tuple(split.shape), _dtype(split)) != (tuple(train.shape), dtype):
            raise DataError(
                f"the training data has examples of shape {list(train.shape)} and type {dtype}, {name} of "
                f"{list(split.shape)} and {_dtype(split)}: they must be alike{say_turned(train, split, name)}"
                f"{say_which(network, train, split, name)}"
            )
        if split is not None and inputs_of(split) != inputs_of(train):
            raise DataError(f"{name} has other inputs than the training data: they must be alike")
    part, validation = train, given
    if given is None and (wants_validation or test is None):
        part, validation = hold_out(train, choices.validation, choices.seed)
    preprocess = examples.preprocess
    if preprocess is None:
        own = solver_of(network) is not None and dtype == np.uint8
        preprocess = (
            preprocess_for(network, train, _mean(network)) if own else preprocess_of(train_data, train)
        )
    elif dtype != np.uint8:
        preprocess = replace(preprocess, takes="float32")  # it is for this data
    _check_pixels(examples, dtype, train)
    names = None if classes is None else tuple(classes)
    if examples.classes is not None:
        _check_names(examples.classes, train)
    return Data(train, part, validation, test, preprocess, names, given, examples.pixels)


def _read(examples: Examples) -> Splits:
    """The examples for training, those that were given for choices, and those for the last word."""
    train_data, test_data = examples.train_data, examples.test_data
    train = _in_memory(as_split(train_data))
    if isinstance(train_data, Dataset) and test_data is None:
        test_data = train_data.test
    test = None if test_data is None else _in_memory(_as_held_out(test_data))
    given = None if examples.val_data is None else _in_memory(_as_held_out(examples.val_data))
    return train, given, test


def _check_preprocesses(examples: Examples) -> None:
    for name in ("preprocess", "pixels"):
        given = getattr(examples, name)
        if given is not None and not isinstance(given, Preprocess):
            raise DataError(
                f"{name}={shown(given)}: give mb.data.Preprocess(scale=1 / 255, mean=..., std=...), or leave it out",
                about=name,
            )


def _check_names(names: Sequence[str], train: Split) -> None:
    """Whether each class has a name; names of classes that only the network knows are none too many."""
    labels: Any = train.labels
    known = labels[labels != IGNORED] if labels.ndim > 1 else labels  # pixels that nobody labelled
    if labels.dtype.kind in "iu" and known.size and len(names) <= known.max():
        raise DataError(
            f"classes has {len(names)} names, and labels go from 0 to {known.max()}: give each class its name, "
            f"{known.max() + 1} of them",
            about="classes",
        )


def _check_pixels(examples: Examples, dtype: Any, train: Split) -> None:
    """Pixels become what the training data has, once and outside of the fit."""
    pixels = examples.pixels
    if pixels is None:
        return
    check_pixels(pixels, None if inputs_of(train) is not None else tuple(train.shape))
    if dtype == np.uint8 or examples.preprocess is not None or isinstance(examples.train_data, Dataset):
        raise DataError(
            "pixels says how pixels became float examples, which are used as they are: with uint8 images, with a "
            "membound Dataset, or to prepare the examples during the fit, give preprocess instead",
            about="pixels",
        )


def _in_memory(split: Split) -> Split:
    """A folder of small pictures, decoded once: every candidate reads all of them many times."""
    if isinstance(split, ItemSplit) or hasattr(split, "images"):
        return split  # a user's own items may be others at every reading
    if len(split) * math.prod(split.shape) > IN_MEMORY_BYTES:
        return split
    blocks = np.array_split(np.arange(len(split)), max(len(split) // 64, 1))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = np.concatenate(list(pool.map(split.read, blocks)))
    return ArraySplit(images, split.labels)


def _dtype(split: Split) -> Any:
    return split.read(np.zeros(1, np.intp)).dtype


def _as_held_out(data: Any) -> Split:
    split = data.test if isinstance(data, Dataset) else as_split(data)
    if order_of(split).weights is not None:
        raise DataError(
            "the DataLoader of held-out examples draws with replacement, but each example is judged once: leave the "
            "sampler out"
        )
    return split


def _mean(network: nn.Module) -> str | None:
    """The mean of each channel where Caffe has a mean image: as good, and next to nothing to store."""
    solver = solver_of(network)
    return "channel" if solver is not None and solver.mean == "image" else None


def _training(network: nn.Module, choices: Choices, images: int) -> Training:
    recipe = _recipe(network, choices, images)
    steps = recipe.steps
    every = choices.every or min(max(steps // 400, 5), 100)
    # A short training needs more of its time at the limit.
    ramp = Ramp(0.0, 0.5) if choices.pretrained else Ramp(0.05, 0.5) if steps < SHORT else Ramp()
    tuning = fine_tuned(recipe, choices.candidate_steps)
    usual = usual_steps(None, solver_of(network), images, recipe.batch_size)
    return Training(recipe, tuning, every, ramp, usual, fresh=not choices.pretrained)


def _recipe(network: nn.Module, choices: Choices, images: int) -> Recipe:
    """That of `train`, but that a Caffe solver's schedule is one that anneals, and that many images take longer."""
    solver = solver_of(network)
    own = solver is not None and choices.solver in (None, "caffe")
    batch = choices.batch_size or (None if own else usual_batch(images))
    given = (batch, choices.lr, choices.weight_decay)
    steps = choices.steps or usual_steps(choices.effort, solver, images, batch or BATCH)
    if solver is not None and own:
        recipe = annealed(solver, steps, *given)
    else:
        recipe = choose_recipe(network, choices.solver, steps, *given)
    if choices.pretrained and choices.lr is None:
        recipe = replace(recipe, lr=Scaled(recipe.lr, PRETRAINED_RATE))
    return recipe
