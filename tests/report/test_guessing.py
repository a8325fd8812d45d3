"""A network that only guesses: said first, whatever dense does, and only where it is true."""

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.report.guessing import is_guessing, share_of_one_class
from membound.report.page import make_page
from membound.report.text import Score
from membound.report.verdict import make_lines
from membound.search.summary import summarise

FOUR = [
    {"name": str(each), "images": images, "errors": 0} for each, images in enumerate((129, 125, 125, 121))
]


def judged(right: int, **more: object) -> dict[str, object]:
    """So many of 500 right."""
    return {"accuracy": right / 5, "errors": 500 - right, "images": 500, "classes": FOUR, **more}


@pytest.mark.parametrize(
    ("right", "guesses"), [(100, True), (125, True), (148, True), (155, False), (480, False)]
)
def test_an_accuracy_within_two_standard_errors_of_the_most_common_class_is_a_guess(right, guesses):
    assert is_guessing(judged(right)) is guesses


def test_where_there_is_nothing_to_guess_or_no_accuracy_nothing_is_said():
    assert not is_guessing(judged(125, classes=None))
    assert not is_guessing(judged(500, classes=FOUR[:1]))
    assert not is_guessing(judged(125, errors=None))
    assert not is_guessing({})
    assert share_of_one_class({"classes": FOUR[:1]}) is None


def test_several_seeds_are_judged_by_their_mean():
    assert not is_guessing(judged(125, seeds={"mean": 60.0}))
    assert is_guessing(judged(300, seeds={"mean": 26.0}))


@pytest.mark.parametrize("dense", [None, {"accuracy": 25.4}, {"accuracy": 99.0, "errors": 5, "images": 500}])
def test_it_is_said_first_with_the_steps_whatever_dense_does(dense):
    training = {"steps": 10, "usual_steps": 2000}
    final = judged(125, training=training, input_shape=[10, 49, 1], name="7KB")
    result = {"finals": [final], "dense": dense, "command": "membound fit x"}
    first, second, *_ = make_lines(result, Score())
    assert first.startswith(
        "No better than guessing (26 % of the test examples are of one class): 25.00 ± 1.94 %"
    )
    assert "spread of dense" not in " ".join([first, second])
    assert second == "Why: it was trained for 10 steps, and 2,000 are usual. Train longer: --steps 2000."
    page = make_page(result)
    assert page.count("No better than guessing") == 1
    assert "within the spread of dense" not in page
    if dense is not None:
        assert "no better than guessing</strong> 26 % of the test examples" in page
        assert '<div class="tiles guessing">' in page
    used = make_page({**result, "finals": [final | {"file": "n.safetensors"}]}).split("How to use it")[1]
    assert used.startswith(
        "</h2><p><strong>Train longer first:</strong> this network is no better than guessing.</p>"
    )
    assert "Train longer first" not in make_page({"finals": [judged(480, file="n.safetensors")]})


@pytest.mark.parametrize(
    ("steps", "dense", "says"),
    [
        (2000, {"accuracy": 99.0}, "this budget is too small"),
        (2000, {"accuracy": 25.0}, "Look at the labels"),
        (500, {"accuracy": 25.0}, "500 steps are few: 2,000 are usual"),
    ],
)
def test_the_reason_is_not_always_the_steps(steps, dense, says):
    final = judged(125, training={"steps": steps, "usual_steps": 2000})
    assert says in make_lines({"finals": [final], "dense": dense}, Score())[1]


def test_of_several_networks_those_that_guess_are_named():
    good, bad = judged(480, name="9KB", file_bytes=9000), judged(125, name="5KB", file_bytes=5000)
    lines = make_lines({"finals": [good, bad]}, Score())
    assert lines[0].startswith(
        "No better than guessing (26 % of the test images are of one class): 5KB. 2 networks"
    )
    assert lines[1].startswith("Why: ")
    assert "guessing: all" in make_lines({"finals": [bad, bad]}, Score())[0].replace(
        " (26 % of the test images are of one class)", ""
    )


def test_a_fit_of_noise_says_it_in_its_record_too():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(120, 8)).astype(np.float32), np.arange(120) % 4

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))

    fitted = mb.fit(net, (x, y), 2000, test_data=(x[:40] * 0, y[:40]), steps=2, dense=False, device="cpu")
    assert fitted.no_better_than_guessing
    assert "no better than guessing" in repr(fitted)
    assert fitted.to_dict()["no_better_than_guessing"] is True
    summary = summarise([fitted], network="net", data="noise", strategy="x", seed=0, seconds=1.0)
    assert summary["finals"][0]["no_better_than_guessing"] is True
    told = np.eye(4, 8, dtype=np.float32)[y] * 4
    learned = mb.fit(
        net, (told, y), 2000, test_data=(told[:40], y[:40]), steps=200, lr=0.1, dense=False, device="cpu"
    )
    assert not learned.no_better_than_guessing


@pytest.mark.parametrize(
    ("dense", "says"),
    [
        (-0.04, "the dense network did no better. Standardize targets and inputs"),
        (None, "Standardize targets and inputs (mean 0, deviation 1), or try another --lr."),
        (0.7, "this budget is too small"),
    ],
)
def test_a_regression_that_explains_nothing_is_not_praised(dense, says):
    training = {"steps": 2000, "usual_steps": 2000}
    final = {"name": "8KB", "accuracy": -0.04, "score_name": "R²", "training": training, "file_bytes": 8000}
    beside = None if dense is None else {"accuracy": dense}
    result = {"finals": [final | {"is_dense_in_8_bits": True}], "dense": beside, "score_name": "R²"}
    result["command"] = "membound fit x"
    lines = make_lines(result, Score("R²", percent=False))
    assert lines[0].startswith(
        "No better than predicting the mean (which has an R² of 0): R² -0.04000 in 8,000 bytes."
    )
    assert says in lines[1]
    assert "pays off" not in " ".join(lines)
    page = make_page(result)
    assert "No better than predicting the mean" in page
    assert "pays off" not in page
    if dense is not None:
        assert "no better than predicting the mean</strong> which has an R² of 0" in page


@pytest.mark.parametrize(("score", "guesses"), [(-1.0, True), (0.0, True), (0.05, False), (None, False)])
def test_numbers_are_guessed_where_their_mean_explains_as_much(score, guesses):
    assert is_guessing({"accuracy": score, "score_name": "R²"}) is guesses
    assert not is_guessing({"accuracy": score, "score_name": "F1"})
