"""Better, worse or within the spread: what the difference of two scores says."""

from collections.abc import Mapping
from typing import Any

from membound.report.eight_bits import uncertainty
from membound.report.text import Score, find_number, find_part

Facts = Mapping[str, Any]
BETTER, WORSE, WITHIN = "better", "worse", "within the spread"
Range = tuple[float, float | None]  # a score, and how far it may be off; None where nobody knows


def judge(gap: float, spread: float) -> str:
    """One of the three, of how much higher a score is than another; `spread` is both their ± together.

    >>> judge(0.3, 0.2), judge(-0.3, 0.2), judge(0.2, 0.2)
    ('better', 'worse', 'within the spread')
    """
    return WITHIN if abs(gap) <= spread else BETTER if gap > 0 else WORSE


def find_ranges(ours: Facts, theirs: Facts) -> tuple[Range, Range] | None:
    """Means and standard deviations over seeds, where both have them; else scores and standard errors over images.

    >>> one = {"accuracy": 99.0, "seeds": {"mean": 98.9, "std": 0.1}}
    >>> find_ranges(one, one), find_ranges(one, {"accuracy": 99.1})
    (((98.9, 0.1), (98.9, 0.1)), ((99.0, None), (99.1, None)))
    """
    seeds = [find_part(net, "seeds") for net in (ours, theirs)]
    if all(seeds):
        ranges = [(find_number(each, "mean"), find_number(each, "std")) for each in seeds]
    else:
        ranges = [(find_number(net, "accuracy"), uncertainty(net)) for net in (ours, theirs)]
    (mine, my_spread), (other, their_spread) = ranges
    return None if mine is None or other is None else ((mine, my_spread), (other, their_spread))


def compare(ours: Facts, theirs: Facts) -> tuple[float, str | None] | None:
    """How much higher our score is, and the verdict on it; None where nothing says how far scores may be off.

    >>> ours, theirs = {"mean": 99.0, "std": 0.1}, {"mean": 99.15, "std": 0.1}
    >>> gap, verdict = compare({"seeds": ours}, {"seeds": theirs})
    >>> round(gap, 2), verdict
    (-0.15, 'within the spread')
    """
    ranges = find_ranges(ours, theirs)
    if ranges is None:
        return None
    (mine, my_spread), (other, their_spread) = ranges
    gap = round(mine - other, 9)
    if my_spread is None or their_spread is None:
        return gap, None
    return gap, judge(gap, my_spread + their_spread)


def say_against_dense(ours: Facts, dense: Facts, score: Score) -> str | None:
    """The comparison in words, for a sentence.

    >>> ours = {"seeds": {"mean": 98.97, "std": 0.02}}
    >>> say_against_dense(ours, {"seeds": {"mean": 99.12, "std": 0.03}}, Score())
    'worse than dense by 0.15 points'
    >>> say_against_dense(ours, {"seeds": {"mean": 99.0, "std": 0.03}}, Score())
    'within the spread of dense (0.03 points below)'
    """
    found = compare(ours, dense)
    if found is None:
        return None
    gap, verdict = found
    shown = f"{abs(gap):.2f} points" if score.percent else f"{abs(gap):.3g}"
    if verdict is None:
        return score.compare(gap, 0.0)
    if verdict != WITHIN:
        return f"{verdict} than dense by {shown}"
    side = f" ({shown} {'below' if gap < 0 else 'above'})" if float(shown.split()[0]) else ""
    return f"within the spread of dense{side}"


def say_rule(ours: Facts, theirs: Facts) -> str | None:
    """How better and worse are decided, where they are said."""
    found = compare(ours, theirs)
    if found is None or found[1] is None:
        return None
    return "Better and worse mean that the ± ranges do not overlap; all else is within the spread."
