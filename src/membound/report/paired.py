"""Network against network: the mean difference of their scores, seed by seed, and how far it may be off."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, stdev
from typing import Any

from membound.errors import MemboundError
from membound.report.eight_bits import uncertainty
from membound.report.text import Score, find_number, find_part, say_cut

Facts = Mapping[str, Any]
BETTER, WORSE, WITHIN, TOO_FEW = "better", "worse", "within the spread", "too few seeds to tell"
NOT_EQUAL = "does not mean equal"  # said once wherever WITHIN leads
FITTED, IN_8_BITS = "fitted", "dense in 8 bits"
ALIKE = 1.01  # times the smallest budget that the largest may be, where budgets count as equal
NORMAL = 1.959964  # standard errors to either side that hold 95 % of a normal distribution
TRAINING = (  # that should be alike
    "steps", "batch_size", "optimizer", "peak_lr", "momentum", "weight_decay", "every", "augment", "smoothing",
    "precision", "teacher", "temperature", "teacher_part",
)  # fmt: skip
TEACHING = ("teacher", "temperature", "teacher_part")


@dataclass(frozen=True)
class Comparison:
    """How much higher one network scores than another, and whether that is more than chance.

    `difference` is the mean over the seeds that both have of our score less theirs, seed by seed: in points where
    scores are percentages. `uncertainty` is half the width of its 95 % confidence interval,

        t(n - 1) s / sqrt(n),    s the standard deviation of the n differences, t Student's quantile

    with s of at least what one test image makes, and `verdict` is 'better', 'worse', or 'within the spread' where the
    interval holds 0: that is no proof that both are equal. With two seeds the interval is so wide that it is 'too few
    seeds to tell' instead. Pairs cancel what a seed does to both. All are judged on the same test images: of other
    images this says nothing.

    With one seed in common, and one in each fit, `uncertainty` is 1.96 sqrt(a^2 + b^2), of the standard errors a and b
    over test images, and says nothing of another seed. Where there are none (a score of your own, or `of` one pair of
    numbers), it is None, and so is `verdict`: one seed has no interval.
    """

    difference: float
    uncertainty: float | None
    verdict: str | None
    seeds: tuple[int, ...]  # that both have
    differences: tuple[float, ...]  # of each of these seeds
    unequal: tuple[str, ...] = ()  # other differences, ours first: with any, the comparison is not fair

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the verdict, for JSON."""
        names = ("difference", "uncertainty", "verdict", "seeds", "differences")
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
        """Of scores that are paired by their place: the first of `ours` and of `theirs` have the same seed.

        `images` are those that accuracies in percent were counted on: then the standard deviation of differences counts
        as no less than one of these, as when fits are compared. Without it, seeds that differ alike prove a difference.

        >>> found = Comparison.of([86.9, 87.6, 86.9], [85.1, 84.0, 84.5])
        >>> print(found)
        better by 2.60 ± 2.28
        >>> print(Comparison.of([86.9], [85.1]))
        higher by 1.80 (one seed: no interval)
        >>> print(Comparison.of([90.0, 90.2, 89.9], [90.1, 90.0, 90.0], images=100))
        within the spread (0.00 ± 2.48), which does not mean equal
        >>> print(Comparison.of([90.0, 90.0], [91.0, 91.0], images=100))
        too few seeds to tell (1.00 ± 8.98 below)
        """
        if images is not None and images < 1:
            raise MemboundError(f"images={images}: give how many there were, from 1 up", about="images")
        known = list(range(len(ours)) if seeds is None else seeds)
        if not len(ours) == len(theirs) == len(known) or not known:
            raise MemboundError(
                f"{len(ours)} scores against {len(theirs)}, for {len(known)} seeds: give one of both for each seed"
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

    def __str__(self) -> str:
        told = say_verdict(self) + (f", which {NOT_EQUAL}" if self.verdict == WITHIN else "")
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
    ('within the spread of dense (2.25 ± 4.50 points below)', 'within the spread (2.25 points below)')
    >>> say_verdict(Comparison(0.5, 0.3, BETTER, (0,), (0.5,)), Score(), "dense")
    'better than dense by 0.50 ± 0.30 points'
    >>> say_verdict(Comparison(0.5, 9.0, TOO_FEW, (0, 1), (0.4, 0.6)), Score(), "dense")
    'too few seeds to tell (0.50 ± 9.00 points above dense)'
    """
    gap, verdict = found.difference, found.verdict
    percent = score is not None and score.percent
    short = f"{abs(gap):.2f}" if percent else f"{abs(gap):.3g}"
    plain = short if brief or (than and verdict is None) else show_difference(abs(gap), found.uncertainty)
    is_zero, amount = not float(plain.split()[0]), f"{plain} points" if percent else plain
    side = "above" if gap > 0 else "below"
    where = amount if is_zero else f"{amount} {side}"
    if verdict in (BETTER, WORSE):
        return f"{verdict}{f' than {than}' if than else ''} by {amount}"
    if verdict == WITHIN:
        return f"{WITHIN}{f' of {than}' if than else ''} ({where})"
    if verdict == TOO_FEW:
        return f"{TOO_FEW} ({where}{f' {than}' if than and not is_zero else ''})"
    if than or brief:
        return f"as good as {than}" if is_zero and than else f"{where} {than}".rstrip()
    return f"{'higher' if gap >= 0 else 'lower'} by {amount} (one seed: no interval)"


def say_rule_of(verdicts: Collection[str | None]) -> str:
    """What the words of these verdicts mean, said once where they appear."""
    if TOO_FEW in verdicts:
        few = (
            " Two seeds are too few to tell: their interval holds nearly every difference. Use three or more."
        )
    else:
        few = ""
    return (
        "Better and worse mean that the 95 % confidence interval of the difference leaves out 0; all else is within "
        f"the spread, which {NOT_EQUAL}: the data show neither a difference nor equality.{few}"
    )


def find_unequal(ours: Facts, theirs: Facts) -> tuple[str, ...]:
    """What two fits differ in besides their method; what a record does not say is not claimed.

    That is: budgets by more than a percent, the network, its training data, values, how it was trained and taught, and
    whether dense in 8 bits took the place of what was fitted.

    >>> find_unequal({"limit": 3000, "training": {"steps": 9}}, {"limit": 2000, "training": {"steps": 5}})
    ('budgets 3,000 and 2,000', 'steps 9 and 5')
    >>> find_unequal({"is_dense_in_8_bits": True, "asked": {"values": "auto"}}, {"asked": {"values": "f16"}})
    ('file dense in 8 bits and fitted', 'values auto and f16')
    >>> find_unequal({"cut_after_training": 0.13}, {})
    ('weights cut after training 13 % and 0 %',)
    """
    limits = [find_number(net, "limit") or 0.0 for net in (ours, theirs)]
    found = [f"budgets {limits[0]:,.0f} and {limits[1]:,.0f}"] if max(limits) > ALIKE * min(limits) else []
    files = [_say_file(net) for net in (ours, theirs)]
    replaced = files != [FITTED, FITTED]
    if replaced:
        found.append(f"file {files[0]} and {files[1]}")
    if say_cut(ours) or say_cut(theirs):
        cuts = [100 * (find_number(net, "cut_after_training") or 0.0) for net in (ours, theirs)]
        found.append(f"weights cut after training {cuts[0]:.0f} % and {cuts[1]:.0f} %")
    for part, keys in (
        ("asked", ("values",)),
        ("digests", ("network", "training_data")),
        ("training", TRAINING),
    ):
        mine, other = (find_part(net, part) for net in (ours, theirs))
        for key in keys:
            if replaced and key in TEACHING:  # nobody teaches dense
                continue
            if key in mine and key in other and mine[key] != other[key]:
                found.append(f"{key.replace('_', ' ')} {mine[key]} and {other[key]}")
    return tuple(found)


def say_other_tests(ours: Facts, theirs: Facts) -> str | None:
    """What two networks were judged on, where that is not the same: then their scores cannot be compared.

    >>> say_other_tests({"images": 40, "accuracy_on": "test"}, {"images": 9, "accuracy_on": "test"})
    '40 test images and 9 test images'
    >>> nets = [{"images": 40, "accuracy_on": "test", "digests": {"test_data": each}} for each in ("1a", "2b")]
    >>> say_other_tests(*nets), say_other_tests(nets[0], {"images": 40, "accuracy_on": "test"})
    ('other test images, 40 each (digests 1a and 2b)', None)
    """
    counts = [(net.get("images"), net.get("accuracy_on")) for net in (ours, theirs)]
    if counts[0] != counts[1]:
        return " and ".join(f"{images} {on} images" for images, on in counts)
    first, second = (find_part(net, "digests").get("test_data") for net in (ours, theirs))
    if first is None or second is None or first == second:
        return None
    images, on = counts[0]
    return f"other {on} images, {images} each (digests {first} and {second})"


def _say_file(net: Facts) -> str:
    """Whether it is what was fitted, with every seed.

    >>> _say_file({"seeds": {"seeds": [3, 4, 5], "is_dense_in_8_bits": [True, False, True]}})
    'dense in 8 bits with seeds 3, 5'
    """
    seeds = find_part(net, "seeds")
    taken = seeds.get("is_dense_in_8_bits") or [bool(net.get("is_dense_in_8_bits"))]
    if not any(taken):
        return FITTED
    if all(taken):
        return IN_8_BITS
    which = [str(seed) for seed, is_taken in zip(seeds.get("seeds") or (), taken, strict=False) if is_taken]
    return f"{IN_8_BITS} with {'seeds' if len(which) > 1 else 'seed'} {', '.join(which)}"


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
    mine, other = _by_seed(ours), _by_seed(theirs)
    shared = [seed for seed in mine if seed in other]
    if not shared:
        return None
    if len(shared) > 1:
        differences = [round(mine[seed] - other[seed], 9) for seed in shared]
        images = [find_number(net, "images") for net in (ours, theirs)]
        counted = find_number(ours, "errors") is not None and all(images)
        return _pair(differences, shared, 100 / min(each or 1 for each in images) if counted else 0.0)
    errors = [uncertainty(net) if _first_seed(net) == shared[0] else None for net in (ours, theirs)]
    spread = join_errors(*errors)
    return _told([round(mine[shared[0]] - other[shared[0]], 9)], spread, shared)


def join_errors(ours: float | None, theirs: float | None) -> float | None:
    """Half the width of the 95 % confidence interval of a difference, of the standard errors of both scores.

    >>> round(join_errors(0.3, 0.4), 2), join_errors(0.3, None)
    (0.98, None)
    """
    return None if ours is None or theirs is None else NORMAL * math.hypot(ours, theirs)


def _pair(differences: Sequence[float], seeds: Sequence[int], least: float = 0.0) -> Comparison:
    """`least` is a score that one image more or less makes: two seeds of the same difference do not prove it."""
    count = len(differences)
    if count < 2:
        return _told(differences, None, seeds)
    return _told(differences, student(count) * max(stdev(differences), least) / math.sqrt(count), seeds)


def _told(differences: Sequence[float], spread: float | None, seeds: Sequence[int]) -> Comparison:
    gap = round(mean(differences), 9)
    verdict = None if spread is None else judge(gap, spread, len(seeds))
    return Comparison(gap, spread, verdict, tuple(seeds), tuple(differences))


def _by_seed(net: Facts) -> dict[int, float]:
    """The score of each seed; of a network that was trained once, that of its own."""
    seeds = find_part(net, "seeds")
    if not seeds:
        value = find_number(net, "accuracy")
        return {} if value is None else {_first_seed(net): value}
    pairs = zip(seeds.get("seeds") or (), seeds.get("accuracies") or (), strict=False)
    return {int(seed): value for seed, each in pairs if (value := find_number({"": each}, "")) is not None}


def _first_seed(net: Facts) -> int:
    """That of the network itself, whose errors are counted."""
    seeds = find_part(net, "seeds").get("seeds")
    if seeds:
        return int(seeds[0])
    return int(find_number(find_part(net, "asked"), "seed") or 0)
