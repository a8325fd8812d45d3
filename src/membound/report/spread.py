"""Better, worse or within the spread: what the difference of two scores says."""

from collections.abc import Mapping
from typing import Any

from membound.report.paired import (
    TOO_FEW,
    WITHIN,
    Comparison,
    compare_by_images,
    compare_networks,
    say_rule_of,
    say_verdict,
)
from membound.report.text import Score, find_number, find_part

Facts = Mapping[str, Any]


def compare(ours: Facts, theirs: Facts) -> Comparison | None:
    """How much higher our score is than that of dense, and the verdict on it; None where one was not judged.

    The same rule as of `Comparison`: paired by seed where both have several, else by test image.

    >>> ours, theirs = {"seeds": [0, 1], "accuracies": [99.0, 99.2]}, {"seeds": [0, 1], "accuracies": [99.1, 99.4]}
    >>> found = compare({"seeds": ours}, {"seeds": theirs})
    >>> found.difference, round(found.uncertainty, 2), found.verdict
    (-0.15, 0.64, 'too few seeds to tell')
    """
    if all(find_part(net, "seeds") for net in (ours, theirs)):
        return compare_networks(ours, theirs)
    mine, other = (find_number(net, "accuracy") for net in (ours, theirs))
    if mine is None or other is None:
        return None
    seed = int(find_number(find_part(ours, "asked"), "seed") or 0)
    return compare_by_images(ours, theirs, round(mine - other, 9), seed)


def say_against_dense(ours: Facts, dense: Facts, score: Score) -> str | None:
    """The comparison in words, for a sentence.

    >>> ours = {"accuracy": 98.6, "errors": 140, "images": 10000}
    >>> say_against_dense(ours, {"accuracy": 99.1, "errors": 90, "images": 10000}, Score())
    'worse than dense by 0.50 ± 0.30 points'
    >>> say_against_dense(ours, {"accuracy": 98.8, "errors": 120, "images": 10000}, Score())
    'within the spread of dense (−0.20 ± 0.31 points)'
    """
    found = compare(ours, dense)
    return None if found is None else say_verdict(found, score, "dense")


def say_rule(ours: Facts, theirs: Facts) -> str | None:
    """How better and worse are decided, where they are said."""
    found = compare(ours, theirs)
    if found is None or found.verdict is None:
        return None
    rule = say_rule_of([found.verdict])
    return rule if not found.by_image else f"{rule} With one seed, the two are paired by test example."


def brief_rule(ours: Facts, theirs: Facts) -> str | None:
    """The same in a line of a terminal, and only what this verdict needs.

    >>> brief_rule({"accuracy": 98.6, "errors": 5, "images": 80}, {"accuracy": 98.8, "errors": 4, "images": 80})
    'after a difference: half its 95 % interval; within the spread: neither a difference nor equality is shown'
    """
    found = compare(ours, theirs)
    if found is None or found.verdict is None:
        return None
    rule = "after a difference: half its 95 % interval"
    if found.by_image:
        rule += ", paired by test example"
    more = {
        WITHIN: "within the spread: neither a difference nor equality is shown",
        TOO_FEW: "to tell, use three seeds or more",
    }
    return "; ".join([rule, more[found.verdict]]) if found.verdict in more else rule
