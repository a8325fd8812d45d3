"""Scores of the user's own that are not finite: never chosen as the best, and said in one line."""

import json

import numpy as np
import pytest
from torch import nn

import membound as mb
from membound.search.place import Watch

X = np.random.default_rng(0).normal(size=(80, 12)).astype(np.float32)
DATA = X, (X[:, 0] > 0).astype(int)
OTHERS = tuple(each[:-1] for each in DATA)


def two_layers(width=16):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 2))


@pytest.mark.parametrize("more", [{"strategy": "greedy"}, {"widths": "1,2"}, {"budget": None, "within": 1}])
def test_a_score_that_is_never_finite_chooses_nothing(more):
    how = {
        "budget": "70%",
        "steps": 4,
        "batch_size": 8,
        "candidate_steps": 2,
        "device": "cpu",
        "progress": False,
    }
    how |= {"loss": nn.functional.cross_entropy, "score": lambda outputs, targets: float("nan")} | more
    with pytest.raises(
        mb.MemboundError, match="has no finite validation score, so nothing can be chosen by it: fix"
    ):
        mb.fit(two_layers, DATA, test_data=DATA, **how)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_not_measured_and_takes_no_other_network(value):
    said = []
    fitted = mb.fit(
        two_layers, DATA, "70%", test_data=OTHERS, steps=4, batch_size=8, device="cpu", seeds=2,
        loss=nn.functional.cross_entropy, score=lambda outputs, targets: value, watch=Watch(warn=said.append),
    )  # fmt: skip
    assert (fitted.accuracy, fitted.verdict, fitted.mean) == (None, None, None)
    assert not fitted.facts["is_dense_in_8_bits"]
    assert said == [
        f"before training, the score of the first test batch is {value}: scores that are not finite count as not "
        "measured",
        f"the score of a network is {value} on test examples: it counts as not measured; fix the score function",
    ]  # once, and not with each seed
    assert json.loads(json.dumps(fitted.to_dict()))["accuracy"] is None


def test_a_candidate_without_a_finite_score_is_never_the_best():
    calls = iter([1.0, float("nan"), 0.5, float("nan"), 0.4] * 40)  # of widths by turns
    fitted = mb.fit(
        two_layers, DATA, "70%", test_data=DATA, steps=4, batch_size=8, device="cpu", widths="1,2", progress=False,
        loss=nn.functional.cross_entropy, score=lambda outputs, targets: next(calls), dense=False,
    )  # fmt: skip
    won = [each for each in fitted.history if each["won"]]
    assert all(each["accuracy"] is not None for each in won)
