"""Better, worse or within the spread: what the difference of two scores says."""

from collections.abc import Mapping
from typing import Any

from membound.report.eight_bits import uncertainty
from membound.report.paired import WITHIN, Comparison, compare_networks, join_errors, judge, show_difference
from membound.report.text import Score, find_number, find_part

Facts = Mapping[str, Any]


def compare(ours: Facts, theirs: Facts) -> Comparison | None:
    """How much higher our score is than that of dense, and the verdict on it; None where one was not judged.

    The same rule as of `Comparison`: paired by seed where both have several, else by standard errors over images.

    >>> ours, theirs = {"seeds": [0, 1], "accuracies": [99.0, 99.2]}, {"seeds": [0, 1], "accuracies": [99.1, 99.4]}
    >>> found = compare({"seeds": ours}, {"seeds": theirs})
    >>> found.difference, round(found.uncertainty, 2), found.verdict
    (-0.15, 0.64, 'within the spread')
    """
    if all(find_part(net, "seeds") for net in (ours, theirs)):
        return compare_networks(ours, theirs)
    mine, other = (find_number(net, "accuracy") for net in (ours, theirs))
    if mine is None or other is None:
        return None
    gap, spread = round(mine - other, 9), join_errors(uncertainty(ours), uncertainty(theirs))
    seed = int(find_number(find_part(ours, "asked"), "seed") or 0)
    return Comparison(gap, spread, None if spread is None else judge(gap, spread), (seed,), (gap,))


def are_too_few(ours: Facts, theirs: Facts) -> bool:
    """Whether there are two seeds to pair: their interval is so wide that nearly every difference is within it.

    >>> two = {"seeds": {"seeds": [0, 1], "accuracies": [9.0, 9.1]}}
    >>> are_too_few(two, two), are_too_few(two, {"accuracy": 9.0})
    (True, False)
    """
    if not all(find_part(net, "seeds") for net in (ours, theirs)):
        return False
    found = compare_networks(ours, theirs)
    return found is not None and len(found.seeds) == 2


def say_against_dense(ours: Facts, dense: Facts, score: Score) -> str | None:
    """The comparison in words, for a sentence.

    >>> ours = {"accuracy": 98.6, "errors": 140, "images": 10000}
    >>> say_against_dense(ours, {"accuracy": 99.1, "errors": 90, "images": 10000}, Score())
    'worse than dense by 0.50 ± 0.30 points'
    >>> say_against_dense(ours, {"accuracy": 98.8, "errors": 120, "images": 10000}, Score())
    'within the spread of dense (0.20 ± 0.31 points below)'
    """
    found = compare(ours, dense)
    if found is None:
        return None
    gap, verdict = found.difference, found.verdict
    shown = show_difference(abs(gap), found.uncertainty) + (" points" if score.percent else "")
    if verdict is None:
        return score.compare(gap, 0.0)
    if verdict != WITHIN:
        return f"{verdict} than dense by {shown}"
    if gap and are_too_few(ours, dense):
        return f"{score.compare(gap, 0.0)}, where two seeds are too few to tell"
    side = f" {'below' if gap < 0 else 'above'}" if float(shown.split()[0]) else ""
    return f"within the spread of dense ({shown}{side})"


def say_rule(ours: Facts, theirs: Facts) -> str | None:
    """How better and worse are decided, where they are said."""
    found = compare(ours, theirs)
    if found is None or found.verdict is None:
        return None
    return (
        "Better and worse mean that the 95 % confidence interval of the difference leaves out 0; all else is within "
        "the spread. The ± of a difference is half the width of that interval."
    )
