"""Better, worse or within the spread: what the difference of two scores says."""

from collections.abc import Mapping
from typing import Any

from membound.report.eight_bits import uncertainty
from membound.report.paired import WITHIN, compare_networks, join_errors, judge
from membound.report.text import Score, find_number, find_part

Facts = Mapping[str, Any]


def compare(ours: Facts, theirs: Facts) -> tuple[float, str | None] | None:
    """How much higher our score is, and the verdict on it; None where nothing says how far scores may be off.

    The same rule as of `Comparison`: paired by seed where both have several, else by standard errors over images.

    >>> ours, theirs = {"seeds": [0, 1], "accuracies": [99.0, 99.2]}, {"seeds": [0, 1], "accuracies": [99.1, 99.4]}
    >>> gap, verdict = compare({"seeds": ours}, {"seeds": theirs})
    >>> round(gap, 2), verdict
    (-0.15, 'within the spread')
    """
    if all(find_part(net, "seeds") for net in (ours, theirs)):
        found = compare_networks(ours, theirs)
        return None if found is None else (found.difference, found.verdict)
    mine, other = (find_number(net, "accuracy") for net in (ours, theirs))
    if mine is None or other is None:
        return None
    gap, spread = round(mine - other, 9), join_errors(uncertainty(ours), uncertainty(theirs))
    return gap, None if spread is None else judge(gap, spread)


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
    'worse than dense by 0.50 points'
    >>> say_against_dense(ours, {"accuracy": 98.8, "errors": 120, "images": 10000}, Score())
    'within the spread of dense (0.20 points below)'
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
    if gap and are_too_few(ours, dense):
        return f"{score.compare(gap, 0.0)}, where two seeds are too few to tell"
    side = f" ({shown} {'below' if gap < 0 else 'above'})" if float(shown.split()[0]) else ""
    return f"within the spread of dense{side}"


def say_rule(ours: Facts, theirs: Facts) -> str | None:
    """How better and worse are decided, where they are said."""
    found = compare(ours, theirs)
    if found is None or found[1] is None:
        return None
    return (
        "Better and worse mean that the 95 % confidence interval of the difference leaves out 0; all else is within "
        "the spread."
    )
