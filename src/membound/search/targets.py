"""What is said of targets: numbers of another scale, classes that count from 1, and outputs that no class has."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from membound.data.numbering import note_from_one, note_unused
from membound.data.several import inputs_of
from membound.search.problem import Copies, Problem
from membound.train.evaluation import in_eval_mode
from membound.units import R_SQUARED

LARGE = 10  # of a mean or a deviation: the gradients of squared errors grow with both


def note_targets(problem: Problem) -> list[str]:
    """Said before numbers are predicted that are far from a mean of 0 and a deviation of 1."""
    return note_scale(problem.data.train.labels) if problem.task.name == R_SQUARED else []


def note_numbering(problem: Problem) -> tuple[str, ...]:
    """Said again at the end of what a warning said before training."""
    labels: Any = problem.data.train.labels
    return note_from_one(labels) if problem.task.counts and labels.dtype.kind in "iu" else ()


@torch.no_grad()
def note_outputs(problem: Problem) -> list[str]:
    """Said before a network is trained that has outputs for classes which the data does not have."""
    data = problem.data
    halves: list[Any] = [split.labels for split in (data.train, data.given, data.test) if split is not None]
    if not problem.task.counts or any(each.ndim != 1 or each.dtype.kind not in "iu" for each in halves):
        return []
    if inputs_of(data.train) is not None:
        return []
    if data.classes is None and (note_unused(halves) or note_from_one(halves[0])):
        return []  # what is wrong may be the labels
    model = problem.make(0)
    weight = next(model.parameters(), torch.zeros(()))  # the network may be in another type, and elsewhere
    with in_eval_mode(model):
        scores: Any = model(weight.new_zeros(1, *data.input_shape))
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        return []
    classes = max(int(each.max()) + 1 for each in halves) if data.classes is None else len(data.classes)
    maker = not isinstance(problem.make, Copies) and problem.training.fresh
    return describe_outputs(scores.shape[1], classes, maker)


def describe_outputs(outputs: int, classes: int, has_maker: bool) -> list[str]:
    """What to do about outputs that no class has; `has_maker` if a function of the user's makes the network.

    >>> print(*describe_outputs(10, 4, True))
    the network has 10 outputs, and the data 4 classes: outputs 4 to 9 have no examples; give your function a \
parameter `classes`
    >>> describe_outputs(5, 4, False), describe_outputs(4, 4, True)
    (['the network has 5 outputs, and the data 4 classes: output 4 has no examples'], [])
    """
    if outputs <= classes:
        return []
    spare = f"output {classes} has" if outputs == classes + 1 else f"outputs {classes} to {outputs - 1} have"
    advice = "; give your function a parameter `classes`" if has_maker else ""
    return [
        f"the network has {outputs:,} outputs, and the data {classes:,} classes: {spare} no examples{advice}"
    ]


def note_scale(targets: Any) -> list[str]:
    """
    >>> note_scale(np.array([1700.0, 3100.0]))[0].split(":")[0]
    'the targets have a mean of 2,400 and a standard deviation of 700'
    >>> note_scale(np.array([[0.0, 10.0], [2.0, 90.0]]))[0].split(":")[0]
    'the targets have means of up to 50 and standard deviations of up to 40'
    >>> note_scale(np.array([-1.0, 3.0]))
    []
    """
    numbers = targets.reshape(len(targets), -1).astype(np.float64)
    means, spreads = numbers.mean(0), numbers.std(0)
    mean, spread = means[np.abs(means).argmax()], spreads.max()
    if max(abs(mean), spread) <= LARGE:
        return []
    found = (
        f"a mean of {_show(mean)} and a standard deviation of {_show(spread)}"
        if len(means) == 1
        else f"means of up to {_show(abs(mean))} and standard deviations of up to {_show(spread)}"
    )
    return [
        f"the targets have {found}: standardize them, (y - mean) / deviation, or training may diverge; if it still "
        "does, take a lower rate (lr=0.005)"
    ]


def _show(number: float) -> str:
    """
    >>> _show(2396.31), _show(0.0312)
    ('2,396', '0.0312')
    """
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
