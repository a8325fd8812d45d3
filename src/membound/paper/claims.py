"""What is said of a figure's numbers: means over seeds, and claims that hold, do not, or cannot be decided.

A claim that compares two means has a lead, and the 95 % confidence interval of that lead, by Welch's t: the lead plus
or minus t(f) sqrt(s1^2 / n1 + s2^2 / n2), with f Welch's degrees of freedom. It holds where the interval lies above 0,
and does not hold where it lies below. Where the interval includes 0, the seeds do not decide: with fewer than 5 they
are too few to tell, with more the two are within the spread. Against a fixed number, such as a published one, the
interval is t(n - 1) s / sqrt(n). `fit` pairs seeds, which published numbers and combined means do not have.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

from membound.report.paired import TOO_FEW, WITHIN, student

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not measured"
UNDECIDED = {
    TOO_FEW: "the 95 % confidence interval includes 0, with fewer than 5 seeds: --seeds 10 may decide it",
    WITHIN: "the 95 % confidence interval includes 0: the data show neither a difference nor equality",
}
Case = TypeVar("Case")
ENOUGH = 5  # seeds: with fewer, an interval is so wide that an open question says more of the seeds than of the claim


class Margin(NamedTuple):
    """By how much a claim is met, below 0 if it is not; half the 95 % interval of that, if known; the fewest seeds."""

    gap: float
    noise: float | None
    seeds: int


def say_small(document: Mapping[str, Any]) -> str | None:
    """What marks a figure whose trainings are not the paper's.

    >>> say_small({"quick": False, "most_steps": 300}), say_small({"quick": False})
    ("SHORTENED: at most 300 steps a training, not the paper's", None)
    """
    if document.get("quick"):
        return "QUICK: small, not the paper's sizes"
    most = document.get("most_steps")
    return None if most is None else f"SHORTENED: at most {most:,} steps a training, not the paper's"


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


def above(
    value: Mapping[str, float], other: Mapping[str, float] | float, by: float = 0.0, cases: int = 1
) -> Margin:
    """The margin of a claim that a mean is higher than another, or than a number, by at least so much.

    The interval is that of the level 1 - 0.05 / cases: `best_above` says why.

    >>> gap, noise, seeds = above({"mean": 3.0, "std": 0.5, "n": 3}, {"mean": 1.0, "std": 0.5, "n": 3})
    >>> gap, round(noise, 2), seeds
    (2.0, 1.13, 3)
    >>> gap, noise, _ = above({"mean": 3.0, "std": 0.5, "n": 3}, 2.0, by=2)
    >>> gap, round(noise, 2)
    (-1.0, 1.24)
    """
    both = [value, *([other] if isinstance(other, Mapping) else [])]
    reference = other["mean"] if isinstance(other, Mapping) else other
    noise = _half_interval(both, 1 - 0.05 / cases)
    return Margin(value["mean"] - reference - by, noise, int(min(each["n"] for each in both)))


def best_above(
    cases: Mapping[Case, tuple[Mapping[str, float], Mapping[str, float] | float]],
) -> tuple[Case, Margin]:
    """The margin of a claim that any of these cases would prove, one mean above another; and the case that decides.

    The best of many is ahead by chance more often than one: so it holds where an interval of the level
    1 - 0.05 / cases lies above 0 (Bonferroni), and it does not hold where all 95 % intervals lie below 0.

    >>> none, some = {"mean": 0.0, "std": 0.5, "n": 3}, {"mean": 1.2, "std": 0.5, "n": 3}
    >>> above(some, none).noise < 1.2 < best_above({"a": (some, none), "b": (none, none)})[1].noise
    True
    """
    alone = {case: above(*pair) for case, pair in cases.items()}
    wide = {case: above(*pair, cases=len(cases)) for case, pair in cases.items()}
    surest = max(wide, key=lambda case: _end(wide[case], -1))
    best, last = (
        max(alone, key=lambda case: alone[case].gap),
        max(alone, key=lambda case: _end(alone[case], 1)),
    )
    if _end(wide[surest], -1) > 0:
        return surest, wide[surest]
    if _end(alone[last], 1) < 0:
        return best, alone[best]
    return (best, wide[best]) if _end(wide[best], 1) >= 0 else (last, wide[last])


def _end(margin: Margin, side: int) -> float:
    return margin.gap + side * (margin.noise or 0.0)


def _half_interval(means: Sequence[Mapping[str, float]], level: float) -> float | None:
    """Half the confidence interval of a mean, or of the difference of two (Welch); None with one seed."""
    if any(each["n"] == 1 for each in means):
        return None
    parts = [each["std"] ** 2 / each["n"] for each in means]
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (each["n"] - 1) for part, each in zip(parts, means, strict=True)
    )
    return student(int(freedom + 1e-9) + 1, level) * math.sqrt(sum(parts))


def below(value: Mapping[str, float], other: Mapping[str, float] | float, by: float = 0.0) -> Margin:
    """The same of a mean that is lower.

    >>> below({"mean": 1.0, "std": 0.0, "n": 2}, 2.0)
    Margin(gap=1.0, noise=0.0, seeds=2)
    """
    found = above(value, other)
    return found._replace(gap=-found.gap - by)


def less(one: Margin, other: Margin) -> Margin:
    """By how much one difference is less than another."""
    known = None if one.noise is None or other.noise is None else math.hypot(one.noise, other.noise)
    return Margin(other.gap - one.gap, known, min(one.seeds, other.seeds))


def claim(text: str, holds: bool | None, detail: str, *margins: Margin) -> dict[str, Any]:
    """A statement of the paper, or a target of ours, and how it came out: by its means, and by their margins.

    >>> [claim("better", True, "by 0.1", Margin(0.1, 0.3, seeds))["verdict"] for seeds in (3, 5)]
    ['too few seeds to tell', 'within the spread']
    >>> claim("better", True, "by 0.1", Margin(0.1, None, 1))["verdict"]
    'holds'
    """
    return {"claim": text, "holds": holds, "verdict": _judge(holds, margins), "detail": detail}


def _judge(holds: bool | None, margins: Sequence[Margin]) -> str:
    """The least of its margins decides; one seed has no interval, and then the means alone do."""
    if holds is None:
        return UNKNOWN
    if any(each.noise is not None and each.gap < -each.noise for each in margins):
        return FAILS
    open_ones = [each for each in margins if each.noise is not None and abs(each.gap) <= each.noise]
    if open_ones:
        return TOO_FEW if min(each.seeds for each in open_ones) < ENOUGH else WITHIN
    return HOLDS if holds else FAILS
