"""What is said of a figure's numbers: means over seeds, and claims that hold, do not, or are within the spread.

A claim that compares two means holds where the one is ahead by more than both standard deviations together, so that
their ranges, mean ± standard deviation, do not overlap. It does not hold where it is behind by as much. Between these
it is within the spread. Against a fixed number, such as a published one, one standard deviation counts. `fit` has a
stricter rule, a paired 95 % confidence interval: published numbers have no seeds to pair.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

HOLDS, FAILS, WITHIN, UNKNOWN = "holds", "does not hold", "within the spread", "not measured"
Margin = tuple[
    float, float | None
]  # by how much a claim is met, below 0 if it is not; and the spread of that


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.4142135623730951, 'n': 2}
    """
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0, "n": len(values)}


def show(value: Mapping[str, float], places: int = 2) -> str:
    """Mean and spread for a table; one seed has none.

    >>> show({"mean": 1.0, "std": 0.25}), show({"mean": 1.0, "std": 0.0, "n": 1})
    ('1.00 ± 0.25', '1.00')
    """
    shown = f"{value['mean']:.{places}f}"
    return shown if value.get("n") == 1 else f"{shown} ± {value['std']:.{places}f}"


def above(value: Mapping[str, float], other: Mapping[str, float] | float, by: float = 0.0) -> Margin:
    """The margin of a claim that a mean is higher than another, or than a number, by at least so much.

    >>> above({"mean": 3.0, "std": 0.5}, {"mean": 1.0, "std": 0.25}), above({"mean": 3.0, "std": 0.5}, 2.0, by=2)
    ((2.0, 0.75), (-1.0, 0.5))
    """
    both = [value, *([other] if isinstance(other, Mapping) else [])]
    known = all(each.get("n") != 1 for each in both)
    reference = other["mean"] if isinstance(other, Mapping) else other
    return value["mean"] - reference - by, sum(each["std"] for each in both) if known else None


def below(value: Mapping[str, float], other: Mapping[str, float] | float, by: float = 0.0) -> Margin:
    """The same of a mean that is lower.

    >>> below({"mean": 1.0, "std": 0.5}, 2.0)
    (1.0, 0.5)
    """
    gap, noise = above(value, other)
    return -gap - by, noise


def claim(text: str, holds: bool | None, detail: str, *margins: Margin) -> dict[str, Any]:
    """A statement of the paper, or a target of ours, and how it came out: by its means, and by their margins.

    >>> claim("better", True, "by 0.1", (0.1, 0.3))["verdict"], claim("better", True, "by 0.1", (0.1, None))["verdict"]
    ('within the spread', 'holds')
    """
    return {"claim": text, "holds": holds, "verdict": _judge(holds, margins), "detail": detail}


def _judge(holds: bool | None, margins: Sequence[Margin]) -> str:
    """The least of its margins decides; one seed has no spread, and then the means alone do."""
    if holds is None:
        return UNKNOWN
    if any(noise is not None and gap < -noise for gap, noise in margins):
        return FAILS
    if any(noise is not None and abs(gap) <= noise for gap, noise in margins):
        return WITHIN
    return HOLDS if holds else FAILS
