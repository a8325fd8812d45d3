"""Whether a network beats always saying the most common class, or the mean: where it does not, that is said first."""

import math
from collections.abc import Mapping
from typing import Any

from membound.report.eight_bits import uncertainty
from membound.report.text import find_number, find_part, find_rows, find_text, name_of_examples
from membound.units import R_SQUARED

Facts = Mapping[str, Any]
BEYOND_CHANCE = 2  # standard errors
FAR = 5.0  # points below dense, of what is counted right
CERTAIN = 5  # standard errors of the difference, as if the two were tested apart


def share_of_one_class(net: Facts) -> float | None:
    """The percentage that is right without looking: of the most common class of what was tested.

    None where one class is all there is, or where the score is no accuracy.

    >>> share_of_one_class({"classes": [{"images": 30}, {"images": 50}, {"images": 20}]})
    50.0
    """
    counts = [find_number(each, "images") or 0.0 for each in find_rows(net, "classes")]
    return 100 * max(counts) / sum(counts) if sum(map(bool, counts)) > 1 else None


def predicts_numbers(net: Facts) -> bool:
    """Whether it is judged by how much of their variance it explains."""
    return find_text(net, "score_name") == R_SQUARED


def is_guessing(net: Facts) -> bool:
    """Whether the accuracy, the mean of several seeds, is no more than chance above that share.

    A network that predicts numbers guesses where always predicting their mean is as good.

    >>> classes = [{"images": 250}, {"images": 250}]
    >>> is_guessing({"accuracy": 53.0, "errors": 235, "images": 500, "classes": classes})
    True
    >>> is_guessing({"accuracy": 58.0, "errors": 210, "images": 500, "classes": classes})
    False
    >>> is_guessing({"accuracy": -0.04, "score_name": "R²"}), is_guessing({"accuracy": 0.2, "score_name": "R²"})
    (True, False)
    """
    share, error = share_of_one_class(net), uncertainty(net)
    accuracy = find_number(find_part(net, "seeds"), "mean")
    if accuracy is None:
        accuracy = find_number(net, "accuracy")
    if predicts_numbers(net):
        return accuracy is not None and accuracy <= 0
    if share is None or error is None or accuracy is None:
        return False
    return accuracy <= share + BEYOND_CHANCE * error


def points_far_below(net: Facts, dense: Facts) -> float | None:
    """How many points a network is below dense, where that is far and no chance; None where it is not.

    >>> dense = {"accuracy": 98.0, "errors": 10, "images": 500}
    >>> points_far_below({"accuracy": 80.0, "errors": 100, "images": 500}, dense)
    18.0
    >>> points_far_below({"accuracy": 94.0, "errors": 30, "images": 500}, dense) is None
    True
    >>> points_far_below({"accuracy": 80.0, "errors": 4, "images": 20}, dense) is None
    True
    """
    ours, theirs = find_number(net, "accuracy"), find_number(dense, "accuracy")
    counted = [find_number(each, "errors") is not None for each in (net, dense)]
    errors = [uncertainty(each) for each in (net, dense)]
    if ours is None or theirs is None or not all(counted) or errors[0] is None or errors[1] is None:
        return None
    gap = theirs - ours
    return gap if gap > max(FAR, CERTAIN * math.hypot(errors[0], errors[1])) else None


def say_guess(net: Facts) -> str:
    """What it does not beat, for a sentence.

    >>> say_guess({}), say_guess({"score_name": "R²"})
    ('no better than guessing', 'no better than predicting the mean')
    """
    return f"no better than {'predicting the mean' if predicts_numbers(net) else 'guessing'}"


def say_share(net: Facts) -> str:
    """How good that is.

    >>> say_share({"accuracy_on": "test", "classes": [{"images": 129}, {"images": 371}], "input_shape": [40]})
    '74 % of the test examples are of one class'
    >>> say_share({"score_name": "R²"})
    'which has an R² of 0'
    """
    if predicts_numbers(net):
        return f"which has an {R_SQUARED} of 0"
    on = find_text(net, "accuracy_on") or "test"
    return f"{share_of_one_class(net) or 0:.0f} % of the {on} {name_of_examples(net)} are of one class"
