"""What is said of targets: numbers of another scale than a training expects, and classes that count from 1."""

from typing import Any

import numpy as np

from membound.data.numbering import note_from_one
from membound.search.problem import Problem
from membound.units import R_SQUARED

LARGE = 10  # of a mean or a deviation: the gradients of squared errors grow with both


def note_targets(problem: Problem) -> list[str]:
    """Said before numbers are predicted that are far from a mean of 0 and a deviation of 1."""
    return note_scale(problem.data.train.labels) if problem.task.name == R_SQUARED else []


def note_numbering(problem: Problem) -> tuple[str, ...]:
    """Said again at the end of what a warning said before training."""
    labels: Any = problem.data.train.labels
    return note_from_one(labels) if problem.task.counts and labels.dtype.kind in "iu" else ()


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
