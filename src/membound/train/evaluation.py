"""How good a network is on a split."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membound.data.several import inputs_of
from membound.data.splits import Labels
from membound.errors import DataError, MemboundError, TrainingError
from membound.modules import explain_refusal
from membound.train.batches import Feeder, size_together, whole
from membound.train.parallel import World
from membound.train.several import plain
from membound.train.shapes import advise_features, advise_shape
from membound.train.sharded import is_sharded
from membound.train.task import CLASSIFICATION, Task
from membound.units import name_examples


@dataclass(frozen=True)
class Score:
    """How good a network is on one split.

    For classification `correct` counts images and `value` is None; a task with a loss or score of its own has no
    right and wrong: there `correct` and `errors` are None and `value` is the mean of its score over the examples.
    `among_five` counts images whose class is one of the five best, where there are more than five. `by_class` has
    images and errors of each class, where they were counted, and `wrong` which images the errors are, in order;
    `class_iou` has the IoU of each class of pixels, None of one that is neither there nor said, and `image_scores` the
    score of each image, in order.
    """

    images: int
    correct: int | None
    loss: float
    value: float | None = None
    among_five: int | None = None
    by_class: tuple[tuple[int, int], ...] | None = None
    class_iou: tuple[float | None, ...] | None = None
    image_scores: tuple[float, ...] | None = None
    wrong: tuple[int, ...] | None = None

    @property
    def accuracy(self) -> float:
        """In percent; for a task of its own the mean of its score: higher is better."""
        if self.correct is None:
            assert self.value is not None
            return self.value
        return 100.0 * self.correct / self.images

    @property
    def known(self) -> float | None:
        """The accuracy where it is a number that can be compared; None where a score of the user's own is not finite.

        >>> Score(9, None, 0.1, value=math.nan).known, Score(9, None, 0.1, value=0.5).known
        (None, 0.5)
        """
        return self.accuracy if math.isfinite(self.accuracy) else None

    @property
    def top5(self) -> float | None:
        """In percent."""
        return None if self.among_five is None else 100.0 * self.among_five / self.images

    @property
    def errors(self) -> int | None:
        return None if self.correct is None else self.images - self.correct


def check_fits(model: nn.Module, feeder: Feeder, task: Task = CLASSIFICATION) -> None:
    """One image through the network, so that what does not fit is said in a line and at once.

    With a loss of its own, a task decides itself what outputs and targets go together: it must give a finite number.
    """
    if task.classifies:
        _check_class_numbers(feeder)
    differentiable = not task.classifies and any(weight.requires_grad for weight in model.parameters())
    with torch.set_grad_enabled(differentiable), in_eval_mode(model):
        outputs, targets = _run_one(model, feeder)
        if task.classifies:
            _check_class_scores(outputs, feeder.split.labels, tuple(feeder.split.shape), model)
            return
        loss = task.batch_loss(outputs, targets)
    if not math.isfinite(float(loss.detach())):
        raise TrainingError(
            f"the loss of one example is {float(loss.detach())}: it must be finite before training begins: "
            "look for inputs that are NaN or infinite, logarithms of 0 and divisions by 0"
        )


@torch.no_grad()
def first_score(model: nn.Module, feeder: Feeder, task: Task) -> float:
    """What a score of the user's own gives for the first batch that will be judged: what fails fails here."""
    x, targets = next(feeder.batches(whole(feeder.split, size_together(feeder.split))))
    with in_eval_mode(model):
        return float(task.batch_score(model(x), targets))


@torch.no_grad()
def takes_shape(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a network computes something of an example of zeros."""
    weight = next(model.parameters(), None)
    zeros = torch.zeros(1, *shape) if weight is None else weight.new_zeros(1, *shape)
    try:
        with in_eval_mode(model):
            model(zeros)
    except Exception:  # whatever a network raises
        return False
    return True


def _check_class_numbers(feeder: Feeder) -> None:
    labels = feeder.split.labels
    if labels.ndim == 3 and len(feeder.split.shape) == 3:
        masks, images = (" x ".join(map(str, shape[1:])) for shape in (labels.shape, feeder.split.shape))
        raise DataError(f"masks are {masks} and images {images}: give masks of the size of their images")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"targets are {labels.dtype} {list(labels.shape)}: classification takes class numbers, integers [n] from 0 "
            "(y.argmax(1) of one-hot labels); for another task pass its loss"
        )


def _run_one(model: nn.Module, feeder: Feeder) -> tuple[Any, Tensor]:
    """What the network gives for the first example, and the example's target."""
    first = np.zeros(1, np.int64)
    shape = tuple(feeder.split.shape)
    try:
        if len(shape) == 3:
            feeder.preprocess(feeder.split.read(first))  # numpy's way checks every shape
        x, targets = next(feeder.batches(iter([first])))
        return model(x), targets
    except MemboundError:
        raise
    except (Exception, SystemExit) as error:
        pixels = len(shape) == 3 and feeder.preprocess.takes == "uint8"
        what = name_examples(shape)
        why, about = explain_refusal(error, model), ("size",) if pixels else ()
        reading = getattr(feeder.split, "reading", "")
        if (unknown := _unknown_names(feeder.split, model)) is not None:
            raise DataError(f"the network does not take these examples: {unknown}") from error
        if (advice := advise_shape(shape, why, model, reading)) is not None:
            why, about = advice, ("layout",) if "layout" in advice else ()
        elif len(shape) == 1:
            why = why.replace(", or pool before it", "")  # features have no place
        elif "channel" in why:
            about = ()
        elif len(shape) == 3 and not pixels:
            about = ("layout",)
        raise DataError(f"the network does not take {what} of shape {shape}: {why}", about=about) from error


def _unknown_names(split: Any, model: nn.Module) -> str | None:
    """What to do about examples that are dicts, where the network has no inputs of these names."""
    inputs = inputs_of(split)
    if inputs is None or not inputs.named:
        return None
    there = inspect.signature(plain(model).forward).parameters
    missing = [part.name for part in inputs.parts if part.name not in there]
    if not missing or any(each.kind is each.VAR_KEYWORD for each in there.values()):
        return None
    names = " and ".join(repr(part.name) for part in inputs.parts)
    return (
        f"they are dicts with {names}, which it is called with by name, and it takes {', '.join(there)}: give pairs "
        f"(x, y), such as [(item[{missing[0]!r}], item['label']) for item in data]"
    )


def _check_class_scores(scores: object, labels: Labels, shape: tuple[int, ...], model: nn.Module) -> None:
    classes = int(labels.max()) + 1
    if isinstance(scores, Tensor) and scores.dim() == 2 and scores.shape[1] >= classes:
        return
    if isinstance(scores, Tensor) and scores.dim() == 2:
        outputs = f"{scores.shape[1]:,} output{'s' if scores.shape[1] > 1 else ''}"
        found = f"the network has {outputs}, and the data {classes:,} classes (labels up to {classes - 1:,})"
        maker = "or give your function a parameter `classes`, which gets this number"
        remedy = f"make its last layer give {classes:,}, {maker}"
    else:
        what = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        one = "image" if name_examples(shape) == "images" else f"example of shape {shape}"
        found = f"the network gives {what} for one {one}, and classification takes a score for each class"
        remedy = f"let it give shape (1, {classes}), as the labels go up to {classes - 1:,}"
    if labels.min() == 1:
        remedy = f"labels begin at 1, so subtract 1 if they count from 1; else {remedy}"
    if isinstance(scores, Tensor) and scores.dim() > 2 and (advice := advise_features(shape, model)):
        remedy = advice
    raise DataError(f"{found}: {remedy}")


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@torch.no_grad()
def evaluate(
    model: nn.Module,
    feeder: Feeder,
    batch_size: int | None = None,
    world: World | None = None,
    bf16: bool = False,
    task: Task = CLASSIFICATION,
    forward: Callable[[nn.Module, Tensor], Any] = nn.Module.__call__,
) -> Score:
    """Score and mean loss over the whole split, of what `forward` gives; the model's mode is left as it was."""
    world, batch_size = world or World(), batch_size or size_together(feeder.split)
    gained = torch.zeros((), dtype=torch.float64, device=feeder.device)  # whole numbers stay exact
    loss = torch.zeros((), dtype=torch.float64, device=feeder.device)
    among_five = torch.zeros_like(gained)
    done, classes = 0, 0  # classes: that the network tells apart
    with in_eval_mode(model):
        for x, y in feeder.batches(whole(feeder.split, batch_size, world.share())):
            done += 1
            with torch.autocast(feeder.device.type, torch.bfloat16, enabled=bf16):
                outputs = forward(model, x)
            if task.classifies:
                loss += nn.functional.cross_entropy(outputs.double(), y, reduction="sum")
            else:
                loss += task.batch_loss(outputs, y).double() * len(y)
            if task.counts:
                gained += (outputs.argmax(1) == y).sum()
                classes = outputs.shape[1]
                if classes > 5:
                    among_five += (outputs.topk(5).indices == y[:, None]).sum()
            elif task.score is not None:
                gained += task.batch_score(outputs, y) * len(y)
        _keep_in_step(model, feeder, world, batch_size, done)
    total_gained, total_loss, total_among = world.sum(float(gained), float(loss), float(among_five))
    images = len(feeder.split)
    if task.counts:
        among = int(total_among) if classes > 5 else None
        return Score(images, int(total_gained), total_loss / images, among_five=among)
    value = total_gained / images if task.score is not None else -total_loss / images
    return Score(images, None, total_loss / images, value)


@torch.no_grad()
def wrong_images(model: nn.Module, feeder: Feeder) -> list[int]:
    """Which images of the split a classifier gets wrong, in order: what a paired comparison of two networks needs."""
    right = []
    with in_eval_mode(model):
        for x, y in feeder.batches(whole(feeder.split, size_together(feeder.split))):
            right.append(model(x).argmax(1) == y)
    return torch.cat(right).logical_not().nonzero().flatten().tolist()


def _keep_in_step(model: nn.Module, feeder: Feeder, world: World, batch_size: int, done: int) -> None:
    """Every pass of a sharded network needs all processes: those with fewer batches than the leader make up for it."""
    if world.size > 1 and any(is_sharded(weight) for weight in model.parameters()):
        leaders = -(-len(feeder.split) // world.size)
        for _ in range(-(-leaders // batch_size) - done):
            x, _y = next(feeder.batches(iter([np.zeros(1, np.int64)])))
            model(x)
