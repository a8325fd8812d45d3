"""One network against another, paired by seed: the interval, the verdict, and what cannot be compared."""

from math import comb
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membound.errors import MemboundError
from membound.report import make_page
from membound.report.paired import Comparison, compare_networks, student
from membound.report.text import Score
from membound.report.verdict import make_legend, make_lines

SCORES = st.floats(0, 100)


def net(scores, seeds=None, **more):
    found = {"seeds": list(range(len(scores))) if seeds is None else seeds, "accuracies": scores}
    return {"accuracy": scores[0], "seeds": found} | more


# From a table of Student's t: the two-sided 95 % quantile by degrees of freedom.
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (99, 1.984)],
)
def test_the_quantile_is_that_of_the_table(freedom, quantile):
    assert student(freedom + 1) == pytest.approx(quantile, rel=2e-3)


def test_the_interval_is_that_of_the_differences_not_of_the_scores():
    ours, theirs = [80.0, 85.0, 90.0], [79.0, 84.1, 88.9]  # seeds matter more than methods
    found = compare_networks(net(ours), net(theirs))
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert found.difference == pytest.approx(mean(differences))
    assert found.uncertainty == pytest.approx(4.303 * stdev(differences) / 3**0.5, rel=1e-3)
    assert (found.verdict, found.seeds) == ("better", (0, 1, 2))
    assert str(found) == "better by 1.00 ± 0.25"
    assert Comparison.of(ours, theirs) == found
    assert str(Comparison.of([1], [2])) == "lower by 1.00 (one seed: no interval, so it may be chance)"


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=6))
def test_the_other_way_round_it_is_the_opposite(pairs):
    ours, theirs = map(list, zip(*pairs, strict=True))
    one, other = compare_networks(net(ours), net(theirs)), compare_networks(net(theirs), net(ours))
    assert (one.difference, one.uncertainty) == (-other.difference, other.uncertainty)
    swapped = {"better": "worse", "worse": "better"}
    assert one.verdict == swapped.get(other.verdict, other.verdict)
    neither = "too few seeds to tell" if len(pairs) == 2 else "within the spread"
    assert (one.verdict == neither) == (abs(one.difference) <= one.uncertainty)


def test_two_seeds_of_one_image_more_prove_nothing():
    ours, theirs = net([90.1, 90.3], errors=99, images=1000), net([90.0, 90.2], errors=100, images=1000)
    found = compare_networks(ours, theirs)
    assert found.differences == (0.1, 0.1)
    assert found.uncertainty == pytest.approx(12.706 * 0.1 / 2**0.5, rel=1e-3)
    assert found.verdict == "too few seeds to tell"


def test_only_seeds_that_both_have_are_paired():
    found = compare_networks(net([90.0, 91.0, 92.0], [0, 1, 2]), net([80.0, 81.5, 99.0], [1, 2, 7]))
    assert (found.seeds, found.differences) == ((1, 2), (11.0, 10.5))
    assert compare_networks(net([90.0, 91.0], [0, 1]), net([90.0, 91.0], [2, 3])) is None


def test_one_seed_has_the_error_of_images_and_a_score_of_its_own_has_none():
    one = {"accuracy": 90.0, "errors": 100, "images": 1000}
    found = compare_networks(one, one | {"accuracy": 95.0, "errors": 50})
    assert found.difference == -5.0
    assert found.uncertainty == pytest.approx(1.96 * (0.9 + 0.475) ** 0.5, rel=1e-3)
    assert found.verdict == "worse"
    own = compare_networks({"accuracy": 0.81}, {"accuracy": 0.79})
    assert (own.difference, own.uncertainty, own.verdict) == (0.02, None, None)
    assert str(own) == "higher by 0.020 (one seed: no interval, so it may be chance)"


def of_images(wrong, images=1000):
    return {
        "accuracy": 100 - 100 * len(wrong) / images,
        "errors": len(wrong),
        "images": images,
        "wrong": wrong,
    }


def test_networks_of_one_seed_are_paired_by_image():
    """Both are wrong on the same hard images, so that few others tell them apart."""
    hard = list(range(100))
    ours, theirs = of_images([*hard, 500]), of_images([*hard, *range(600, 612)])
    found = compare_networks(ours, theirs)
    assert (found.difference, found.verdict, found.wrong_alone) == (1.1, "better", (1, 12))
    assert found.uncertainty == pytest.approx(0.196 * (15 - 121 / 1002) ** 0.5, rel=1e-3)
    assert found.to_dict()["wrong_alone"] == [1, 12]
    assert str(found) == (
        "better by 1.10 ± 0.76 points; one seed in common (0): ± covers other test examples (1 that only ours gets "
        "wrong, 12 that only theirs does), not another seed"
    )
    unknown = compare_networks({**ours, "wrong": None}, theirs)
    assert (unknown.verdict, unknown.wrong_alone) == ("within the spread", None)
    assert unknown.uncertainty > 2.5
    summary = {"finals": [ours | {"name": "8KB"}], "dense": theirs}
    assert "better than dense by 1.10 ± 0.76 points" in make_lines(summary, Score())[0]
    assert "With one seed, the two are paired by test example." in make_page(summary)
    assert make_legend(summary, Score()) == [
        "after a score: standard error; after a difference: half its 95 % interval, paired by test example; another "
        "seed may differ"
    ]


def test_the_verdict_by_images_is_nearly_that_of_mcnemars_exact_test():
    for alone in range(1, 40):
        for lost in range(alone // 2 + 1):
            found = compare_networks(
                of_images([*range(lost)], 9999), of_images([*range(100, 100 + alone - lost)], 9999)
            )
            chance = min(1.0, 2 * sum(comb(alone, k) for k in range(lost + 1)) / 2**alone)
            assert (
                found.verdict == ("better" if chance < 0.05 else "within the spread") or 0.03 < chance < 0.09
            )


def test_a_seed_in_common_that_is_not_the_first_has_its_own_errors():
    wrong = [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]
    ours = net([97.0, 90.0], [0, 1], images=100, errors=3)
    ours["seeds"] |= {"errors": [3, 10], "wrong": wrong}
    theirs = of_images([], 100) | {"asked": {"seed": 1}}
    found = compare_networks(ours, theirs)
    assert (found.seeds, found.difference, found.wrong_alone) == ((1,), -10.0, (10, 0))
    assert found.verdict == "worse"


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ([1.0], [1.0, 2.0], "1 scores against 2"),
        ([], [], "0 scores against 0"),
        ([1.0, None], [1.0, 2.0], "missing or not finite"),
        ([1.0, float("nan")], [1.0, 2.0], "missing or not finite"),
    ],
)
def test_what_is_no_pair_is_refused(ours, theirs, says):
    with pytest.raises(MemboundError, match=says):
        Comparison.of(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([90.0, 91.0], "too few seeds to tell"),
        ([90.0, 91.0, 90.0], "within the spread"),
        ([99.0, 99.1, 99.0], "better"),
        ([80.0, 80.1, 80.0], "worse"),
    ],
)
def test_the_verdict_is_in_the_same_words_everywhere(ours, verdict):
    theirs = [90.5, 90.4, 90.6][: len(ours)]
    found = compare_networks(net(ours), net(theirs))
    assert (found.verdict, found.to_dict()["verdict"]) == (verdict, verdict)
    summary = {"finals": [net(ours, name="8KB", file_bytes=8000)], "dense": net(theirs, file_bytes=90_000)}
    terminal = " ".join(make_lines(summary, Score()))
    page = make_page(summary)
    assert all(verdict in text for text in (str(found), terminal, page))
    others = {"better", "worse", "within the spread", "too few seeds to tell"} - {verdict}
    told = make_lines(summary, Score())[0]
    assert not any(other in text for other in others for text in (str(found), told))


def test_within_the_spread_is_said_not_to_be_equality():
    ours, theirs = [90.0, 91.0, 90.0], [90.5, 90.4, 90.6]
    summary = {"finals": [net(ours, name="8KB", file_bytes=8000)], "dense": net(theirs, file_bytes=90_000)}
    texts = [str(Comparison.of(ours, theirs)), " ".join(make_legend(summary, Score())), make_page(summary)]
    assert "does not mean equal" in texts[0]
    assert [text.count("neither a difference nor equality") for text in texts] == [0, 1, 1]
    assert "does not mean equal" not in str(Comparison.of([99.0, 99.1, 99.0], theirs))


@pytest.mark.parametrize(
    ("ours", "more", "says"),
    [
        ([90.1, 90.2, 90.3], {"seeds": [0, 1, 1]}, "seed 1 is there 2 times"),
        (
            [9010.0, 9020.0, 9035.0],
            {"images": 10_000},
            "for accuracies in percent, from 0 to 100, and there is 9035",
        ),
    ],
)
def test_scores_that_cannot_be_paired_are_refused(ours, more, says):
    with pytest.raises(MemboundError, match=says):
        Comparison.of(ours, [90.0, 90.1, 90.2], **more)


def test_fractions_are_not_taken_for_percentages():
    with pytest.raises(
        MemboundError, match=r"images=1000 is for accuracies in percent, .* highest is 0\.92: multiply"
    ):
        Comparison.of([0.90, 0.91, 0.92], [0.85, 0.86, 0.872], images=1000)
    assert Comparison.of([0.90, 0.91, 0.92], [0.85, 0.86, 0.872]).verdict == "better"


def test_students_quantile_holds_the_level():
    for count, level, known in ((2, 0.95, 12.7062), (5, 0.95, 2.77645), (6, 0.99, 4.0321), (31, 0.9, 1.6973)):
        assert student(count, level) == pytest.approx(known, rel=1e-4)


def test_a_lambda_that_moved_to_another_line_is_the_same_method():
    def record(line, seed, source="12ab"):
        asked = {"strategy": f"lambda in line {line}", "strategy_source": source, "seed": seed}
        return {"accuracy": 90.0 + seed, "asked": asked}

    found = Comparison.of_records([record(4, 0), record(9, 1)], [record(4, 0), record(4, 1)])
    assert found.seeds == (0, 1)
    with pytest.raises(MemboundError, match=r"strategies lambda in line 4 .* and lambda in line 9"):
        Comparison.of_records([record(4, 0), record(9, 1, "34cd")], [record(4, 0), record(4, 1)])
