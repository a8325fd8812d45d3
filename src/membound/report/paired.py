"""Network against network: the mean difference of their scores, seed by seed, and how far it may be off."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean, stdev
from typing import Any

from membound.errors import MemboundError
from membound.report.alike import find_unequal, say_other_tests
from membound.report.eight_bits import uncertainty
from membound.report.records import join_records, judged_with, read_records, records_by_seed, score_by_seed
from membound.report.text import Score, find_number, find_numbers

Facts = Mapping[str, Any]
BETTER, WORSE, WITHIN, TOO_FEW = "better", "worse", "within the spread", "too few seeds to tell"
NOT_EQUAL = "does not mean equal"  # said once wherever WITHIN leads
NORMAL = 1.959964  # standard errors to either side that hold 95 % of a normal distribution


@dataclass(frozen=True)
class Comparison:
    """How much higher one network scores than another, and whether that is more than chance.

    `difference` is the mean over the seeds that both have of our score less theirs, seed by seed: in points where
    scores are percentages. `uncertainty` is half the width of its 95 % confidence interval,

        t(n - 1) s / sqrt(n),    s the standard deviation of the n differences, t Student's quantile

    with s of at least what one test image makes, and `verdict` is 'better', 'worse', or 'within the spread' where the
    interval includes 0: the data show neither a difference nor equality. With two seeds the interval is so wide that
    it is 'too few seeds to tell' instead. Pairs cancel what a seed does to both. This interval is about training
    again with new seeds: all are judged on the same test images, and how far other images would move the difference
    is not in it.

    With one seed in common, and one in each fit, the two are paired by test image. Of n images, both networks get some
    wrong that the other one gets right, `wrong_alone`: a only ours, and b only theirs. Then `uncertainty` is

        1.96 sqrt(a + b + 2 - (a - b)^2 / (n + 2)) / n    (of McNemar's test, as Bonett and Price have it)

    A score that is a mean over images, as that of segmentation, has a difference for each image; then it is
    t(n - 1) s / sqrt(n) of these n. Where neither is known, it is 1.96 sqrt(c^2 + d^2), of the standard errors c and d
    over test images. An interval of one seed is about these two networks on other test images: how far training again
    with another seed would move the difference is not in it. Without standard errors (a score of your own, or `of` one
    pair of numbers), it is None, and so is `verdict`: one seed has no interval.
    """

    difference: float
    uncertainty: float | None
    verdict: str | None
    seeds: tuple[int, ...]  # that both have
    differences: tuple[float, ...]  # of each of these seeds
    unequal: tuple[str, ...] = ()  # other differences, ours first: with any, the comparison is not fair
    wrong_alone: tuple[int, int] | None = (
        None  # of one seed: images that only ours gets wrong, and only theirs
    )
    by_image: bool = False  # of one seed: paired by test image
    in_points: bool = False  # known to be of percentages

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the verdict, for JSON."""
        names = ("difference", "uncertainty", "verdict", "seeds", "differences", "wrong_alone")
        return {
            name: list(found) if isinstance(found := getattr(self, name), tuple) else found for name in names
        }

    @classmethod
    def of(
        cls,
        ours: Sequence[float],
        theirs: Sequence[float],
        seeds: Sequence[int] | None = None,
        images: int | None = None,
    ) -> "Comparison":
        """From scores paired by position: the first of `ours` and the first of `theirs` have the same seed.

        `images` are those that accuracies in percent were counted on: then the standard deviation of differences counts
        as no less than one of these, as when fits are compared. Without it, seeds that differ alike prove a difference.

        >>> found = mb.Comparison.of([86.9, 87.6, 86.9], [85.1, 84.0, 84.5])
        >>> print(found)
        better by 2.60 ± 2.28
        >>> print(mb.Comparison.of([86.9], [85.1]))
        higher by 1.80 (one seed: no interval, so it may be chance)
        >>> print(mb.Comparison.of([90.0, 90.2, 89.9], [90.1, 90.0, 90.0], images=100))
        within the spread (0.00 ± 2.48 points), which does not mean equal
        >>> print(mb.Comparison.of([90.0, 90.0], [91.0, 91.0], images=100))
        too few seeds to tell (−1.00 ± 8.98 points)
        """
        if images is not None and images < 1:
            raise MemboundError(f"images={images}: give how many there were, from 1 up", about="images")
        known = list(range(len(ours)) if seeds is None else seeds)
        if not len(ours) == len(theirs) == len(known) or not known:
            raise MemboundError(
                f"{len(ours)} scores against {len(theirs)}, for {len(known)} seeds: give one score of "
                "each method for every seed"
            )
        values = [math.nan if each is None else float(each) for each in (*ours, *theirs)]
        if not all(map(math.isfinite, values)):
            raise MemboundError("a score is missing or not finite: leave its seed out of both")
        if len(set(known)) < len(known):
            twice = next(seed for seed in known if known.count(seed) > 1)
            raise MemboundError(
                f"seed {twice} is there {known.count(twice)} times: give each seed once", about="seeds"
            )
        if images is not None and (max(values) > 100 or min(values) < 0):
            raise MemboundError(
                f"images={images} is for accuracies in percent, from 0 to 100, and there is {max(values):g}",
                about="images",
            )
        if images is not None and 0 < max(values) <= 1:
            raise MemboundError(
                f"images={images} is for accuracies in percent, and the highest is {max(values):g}: multiply fractions "
                "by 100",
                about="images",
            )
        differences = [round(a - b, 9) for a, b in zip(values, values[len(ours) :], strict=False)]
        return _pair(differences, known, 0.0 if images is None else 100 / images)

    @classmethod
    def of_records(cls, ours: Any, theirs: Any) -> "Comparison":
        """Of fits in other processes, by the JSON that they saved, as `Fitted.compare` compares two fits.

        Either is what `fitted.to_dict()` gives, or `membound fit --json` prints: a dict, or the path of its file. A
        list of them is one method, fitted in a process for each seed:

            mb.Comparison.of_records(["mine-0.json", "mine-1.json"], ["lamp-0.json", "lamp-1.json"])
        """
        return compare_records(ours, theirs)

    def __str__(self) -> str:
        told = say_verdict(self) + (f", which {NOT_EQUAL}" if self.verdict == WITHIN else "")
        if len(self.seeds) == 1 and self.uncertainty is not None:
            told += f"; one seed in common ({self.seeds[0]}): {say_one_seed(self)}"
        return f"{told}; not alike: {'; '.join(self.unequal)}" if self.unequal else told


def judge(gap: float, spread: float, seeds: int = 1) -> str:
    """One of the four, of how much higher a score is than another; `spread` is how far that may be off.

    >>> judge(0.3, 0.2), judge(-0.3, 0.2), judge(0.2, 0.2), judge(0.2, 0.2, seeds=2)
    ('better', 'worse', 'within the spread', 'too few seeds to tell')
    """
    if abs(gap) > spread:
        return BETTER if gap > 0 else WORSE
    return TOO_FEW if seeds == 2 else WITHIN


def say_verdict(found: Comparison, score: Score | None = None, than: str = "", brief: bool = False) -> str:
    """A comparison in words, wherever it is told: `than` names the other network, `brief` leaves the interval out.

    >>> found = Comparison(-2.25, 4.5, WITHIN, (0, 1, 2), (-2.0, -2.5, -2.25))
    >>> say_verdict(found, Score(), "dense"), say_verdict(found, Score(), brief=True)
    ('within the spread of dense (−2.25 ± 4.50 points)', 'within the spread (2.25 points below)')
    >>> say_verdict(Comparison(0.5, 0.3, BETTER, (0,), (0.5,)), Score(), "dense")
    'better than dense by 0.50 ± 0.30 points'
    >>> say_verdict(Comparison(0.5, 9.0, TOO_FEW, (0, 1), (0.4, 0.6)), Score(), "dense")
    'too few seeds to tell (+0.50 ± 9.00 points against dense)'
    """
    gap, verdict = found.difference, found.verdict
    percent = found.in_points if score is None else score.percent
    exact = show_difference(abs(gap), found.uncertainty)
    short = f"{abs(gap):.2f}" if percent else exact.split()[0] if found.uncertainty else f"{abs(gap):.3g}"
    plain = short if brief or (than and verdict is None) else exact
    is_zero, amount = not float(plain.split()[0]), f"{plain} points" if percent else plain
    side = "above" if gap > 0 else "below"
    where = amount if is_zero else f"{amount} {side}"
    if not brief and not is_zero and found.uncertainty is not None:
        where = show_difference(gap, found.uncertainty, "+") + (" points" if percent else "")
    if verdict in (BETTER, WORSE):
        return f"{verdict}{f' than {than}' if than else ''} by {amount}"
    if verdict == WITHIN:
        return f"{WITHIN}{f' of {than}' if than else ''} ({where})"
    if verdict == TOO_FEW:
        return f"{TOO_FEW} ({where}{f' against {than}' if than and not is_zero else ''})"
    if than or brief:
        return f"as good as {than}" if is_zero and than else f"{where} {than}".rstrip()
    return f"{'higher' if gap >= 0 else 'lower'} by {amount} (one seed: no interval, so it may be chance)"


def say_one_seed(found: Comparison) -> str:
    """What the interval of one seed covers, and what it does not.

    >>> say_one_seed(Comparison(0.5, 0.3, BETTER, (0,), (0.5,), wrong_alone=(2, 7)))
    '± covers other test examples (2 that only ours gets wrong, 7 that only theirs does), not another seed'
    """
    paired = ""
    if found.wrong_alone is not None:
        ours, theirs = found.wrong_alone
        paired = f" ({ours:,} that only ours gets wrong, {theirs:,} that only theirs does)"
    return f"± covers other test examples{paired}, not another seed"


def say_rule_of(verdicts: Collection[str | None]) -> str:
    """What the words of these verdicts mean, said once where they appear."""
    if TOO_FEW in verdicts:
        few = " With two seeds, the interval includes nearly every difference: use three or more."
    else:
        few = ""
    return (
        "After a difference, ± is half its 95 % confidence interval. 'Better' or 'worse' means that this interval "
        "excludes 0. 'Within the spread' means that it includes 0: the data show neither a difference nor equality."
        f"{few}"
    )


def show_difference(value: float, spread: float | None, sign: str = "-") -> str:
    """To two places, or to as many as its uncertainty has two digits in.

    >>> show_difference(2.6, 2.277), show_difference(-0.0123, 0.0045, "+"), show_difference(0.5, None)
    ('2.60 ± 2.28', '−0.0123 ± 0.0045', '0.50')
    """
    small = spread or abs(value)
    places = 2 if not small else min(max(2, 1 - math.floor(math.log10(small))), 6)
    shown = f"{value:{sign}.{places}f}".replace("-", "\N{MINUS SIGN}")
    return shown if spread is None else f"{shown} ± {spread:.{places}f}"


@cache
def student(count: int, level: float = 0.95) -> float:
    """How many standard errors to either side of the mean of `count` differences hold this level: Student's t.

    >>> round(student(3), 3), round(student(11), 3), round(student(100), 3), round(student(3, 0.99), 3)
    (4.303, 2.228, 1.984, 9.925)
    """
    low, high = 0.0, 1.0
    while _held(high, count - 1) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(middle, count - 1) < level else (low, middle)
    return high


def _held(t: float, freedom: int) -> float:
    """What part of Student's t lies within so many standard errors: a finite sum for any degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def compare_networks(ours: Facts, theirs: Facts) -> Comparison | None:
    """By the facts of both: paired by seed where they share two seeds or more; None where no seed is shared.

    >>> seeds = {"seeds": [0, 1, 2], "accuracies": [86.9, 87.6, 86.9]}
    >>> others = {"seeds": [1, 2, 3], "accuracies": [84.0, 84.5, 84.7]}
    >>> found = compare_networks({"seeds": seeds}, {"seeds": others})
    >>> found.seeds, found.differences, found.verdict
    ((1, 2), (3.6, 2.4), 'too few seeds to tell')
    """
    mine, other = score_by_seed(ours), score_by_seed(theirs)
    shared = [seed for seed in mine if seed in other]
    if not shared:
        return None
    if len(shared) > 1:
        differences = [round(mine[seed] - other[seed], 9) for seed in shared]
        images = [find_number(net, "images") for net in (ours, theirs)]
        counted = find_number(ours, "errors") is not None and all(images)
        return _pair(differences, shared, 100 / min(each or 1 for each in images) if counted else 0.0)
    (seed,) = shared
    first, second = (judged_with(net, seed) for net in (ours, theirs))
    return compare_by_images(first, second, round(mine[seed] - other[seed], 9), seed)


def compare_by_images(ours: Facts, theirs: Facts, difference: float, seed: int) -> Comparison:
    """Of one seed: paired by test image where it is known which ones are wrong, else by standard errors.

    >>> net = {"images": 1000, "errors": 9, "wrong": [*range(9)]}
    >>> found = compare_by_images(net, net | {"errors": 4, "wrong": [8, 9, 10, 11]}, -0.5, seed=0)
    >>> found.wrong_alone, round(found.uncertainty, 3), found.verdict
    ((8, 3), 0.706, 'within the spread')
    >>> net, other = {"image_scores": [0.5, 0.75, 0.625]}, {"image_scores": [0.25, 0.5, 0.5]}
    >>> found = compare_by_images(net, other, 0.208333, seed=0)
    >>> round(found.uncertainty, 3), found.verdict, found.by_image
    (0.179, 'better', True)
    """
    if gaps := _image_gaps(ours, theirs):
        spread = student(len(gaps)) * stdev(gaps) / math.sqrt(len(gaps))
        return replace(_told([difference], spread, [seed]), by_image=True)
    alone = _count_wrong_alone(ours, theirs)
    if alone is None:
        return _told([difference], join_errors(uncertainty(ours), uncertainty(theirs)), [seed])
    images = int(ours["images"])
    variance = sum(alone) + 2 - (alone[0] - alone[1]) ** 2 / (images + 2)
    found = _told([difference], 100 * NORMAL * math.sqrt(variance) / images, [seed])
    return replace(found, wrong_alone=alone, by_image=True, in_points=True)


def _image_gaps(ours: Facts, theirs: Facts) -> list[float]:
    """How much higher each image scores in ours; none where that is not known of both, or of a single image."""
    mine, other = (find_numbers(net, "image_scores") for net in (ours, theirs))
    if len(mine) != len(other) or len(mine) < 2:
        return []
    return [a - b for a, b in zip(mine, other, strict=True)]


def _count_wrong_alone(ours: Facts, theirs: Facts) -> tuple[int, int] | None:
    """The images that only ours gets wrong, and only theirs; None where that is not known of both."""
    mine, other = ours.get("wrong"), theirs.get("wrong")
    if mine is None or other is None or not ours.get("images") or ours["images"] != theirs.get("images"):
        return None
    return len(set(mine) - set(other)), len(set(other) - set(mine))


def join_errors(ours: float | None, theirs: float | None) -> float | None:
    """Half the width of the 95 % confidence interval of a difference, of the standard errors of both scores.

    >>> round(join_errors(0.3, 0.4), 2), join_errors(0.3, None)
    (0.98, None)
    """
    return None if ours is None or theirs is None else NORMAL * math.hypot(ours, theirs)


def _pair(differences: Sequence[float], seeds: Sequence[int], least: float = 0.0) -> Comparison:
    """`least` is a score that one image more or less makes: two seeds of the same difference do not prove it."""
    count, spread = len(differences), None
    if count > 1:
        spread = student(count) * max(stdev(differences), least) / math.sqrt(count)
    return replace(_told(differences, spread, seeds), in_points=least > 0)


def _told(differences: Sequence[float], spread: float | None, seeds: Sequence[int]) -> Comparison:
    gap = round(mean(differences), 9)
    verdict = None if spread is None else judge(gap, spread, len(seeds))
    return Comparison(gap, spread, verdict, tuple(seeds), tuple(differences))


def compare_records(ours: Any, theirs: Any) -> Comparison:
    """Records of two methods, paired by seed; each is one record, or a list of those that have a seed each."""
    mine, other = (records_by_seed(read_records(side)) for side in (ours, theirs))
    first, second = (next(iter(side.values())) for side in (mine, other))
    if shown := say_other_tests(first, second):
        raise MemboundError(f"these networks were judged on {shown}: give both fits the same test_data")
    found = compare_networks(join_records(mine), join_records(other))
    if found is None:
        raise MemboundError(
            f"these networks have no judged seed in common (seeds {list(mine)} and {list(other)}): give both "
            "fits the same seed, and test_data"
        )
    unequal = [each for seed in found.seeds for each in find_unequal(mine[seed], other[seed])]
    return replace(found, unequal=tuple(dict.fromkeys(unequal)))
