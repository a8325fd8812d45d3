"""The paired test behind `within`: networks are compared on the same images."""

import pytest

from membound.search.within import is_within

DENSE = {"accuracy": 98.0, "images": 1000, "wrong": list(range(20))}


def candidate(lost: int, won: int) -> dict:
    """A network that gets `lost` images wrong that dense gets right, and `won` the other way around."""
    wrong = [*range(won, 20), *range(100, 100 + lost)]
    return {"accuracy": 100 - len(wrong) / 10, "images": 1000, "wrong": wrong}


@pytest.mark.parametrize(
    ("lost", "won", "points", "good"),
    [
        (0, 0, 0.0, True),
        (1, 0, 0.0, True),  # one image is luck
        (5, 2, 0.0, False),  # three more wrong, give or take 2.6
        (5, 3, 0.0, True),  # two more, give or take 2.8
        (12, 2, 0.5, False),  # ten more where five are allowed, give or take 3.7
        (8, 2, 0.5, True),
        (18, 18, 0.0, True),  # as accurate, on other images
    ],
)
def test_a_loss_within_one_standard_error_of_what_is_allowed_is_good_enough(lost, won, points, good):
    assert is_within(candidate(lost, won), DENSE, points) is good


def test_networks_without_right_and_wrong_are_compared_by_their_scores():
    dense = {"accuracy": 0.75}
    assert is_within({"accuracy": 0.5}, dense, 0.25)
    assert not is_within({"accuracy": 0.49}, dense, 0.25)
    assert not is_within({"accuracy": None}, dense, 0.25)
