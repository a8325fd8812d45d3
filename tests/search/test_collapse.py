"""Networks that say one class of everything: found, and told with a reason."""

import numpy as np
import pytest
import torch
from small import Small, digits
from torch import nn

import membound as mb
from membound.report.advice import say_advice
from membound.report.page import make_page
from membound.report.text import Score
from membound.report.verdict import make_lines
from membound.search.summary import summarise

QUICK = {"steps": 3, "dense": False, "batch_size": 8, "device": "cpu", "teacher": "none"}


class Stuck(Small):
    """Its outputs do not depend on the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0 * super().forward(x) + torch.arange(10.0) * (1 + self.fc2.bias.sum() * 0)


class StuckPixels(nn.Module):
    """Class 1 of every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        with torch.no_grad():
            self.conv.bias.copy_(torch.tensor([0.0, 1e6, 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def test_one_class_of_every_image_is_told_with_a_reason():
    fitted = mb.fit(Stuck, digits(0, 80), 6000, test_data=digits(200, 240), **QUICK)
    assert fitted.facts["collapsed"] == 9
    assert fitted.facts["training"]["usual_steps"] == 5000
    summary = summarise(
        [fitted], network="Stuck", data="digits", strategy="x", seed=0, seconds=1.0, command="membound fit x"
    )
    lines = make_lines(summary, Score())
    assert lines[0] == "It predicts class 9 for every image: it has not learned to tell classes apart."
    assert "Why: it was trained for 3 steps, and 5,000 are usual. Train longer: --steps 5000." in lines
    page = make_page(summary)
    assert '<p class="verdict">It predicts class 9 for every image' in page
    assert page.index("It predicts class 9 for every image") < page.index("% in ")


def test_one_class_of_every_pixel_is_told_too():
    random = np.random.default_rng(0)
    x, y = random.integers(0, 255, (24, 1, 6, 6), np.uint8), random.integers(0, 3, (24, 6, 6), np.uint8)
    fitted = mb.fit(StuckPixels, (x, y), 3000, test_data=(x[:8], y[:8]), values="f32", lr=1e-9, **QUICK)
    assert fitted.facts["collapsed"] == 1


def test_a_network_that_learns_is_no_such_case():
    fitted = mb.fit(
        Small, digits(0, 200), 20_000, test_data=digits(200, 260), **{**QUICK, "steps": 60, "lr": 0.05}
    )
    assert "collapsed" not in fitted.facts


@pytest.mark.parametrize(
    ("dense", "says"),
    [
        ({"accuracy": 90.0}, "this budget is too small"),
        ({"accuracy": 10.0}, "Look at the labels"),
        (None, "trained beside it, would tell"),
    ],
)
def test_the_reason_depends_on_the_dense_network(dense, says):
    training = {"steps": 5000, "usual_steps": 5000}
    final = {"name": "a", "accuracy": 10.0, "collapsed": 3, "training": training}
    result = {"finals": [final], "dense": dense}
    said, why = say_advice(result)
    assert said.startswith("It predicts class 3 for every image")
    assert says in why
    assert say_advice({"finals": [{"name": "b"}, final]})[0].startswith("a predicts class 3")


@pytest.mark.parametrize(("errors", "far"), [(400, True), (60, False)])
def test_far_below_dense_is_said_first_of_a_microcontroller(errors, far):
    micro = {"flash_bytes": 3852, "ram_bytes": 900, "compiled_with": "-Os"}
    final = {"accuracy": 100 - errors / 10, "errors": errors, "images": 1000, "limit": 3900, "micro": micro}
    result = {"finals": [final], "dense": {"accuracy": 98.0, "errors": 20, "images": 1000}}
    lines = make_lines(result, Score())
    assert lines[0].startswith("Far below dense: 60.00 ± 1.55 % in 3,852 bytes of flash") is far
    assert any(line.startswith("Try more room, since flash is the limiting bound") for line in lines) is far
    if far:
        assert " ".join(lines).count("38.0") == 1  # said by the verdict alone
        final["training"] = {
            "steps": 600,
            "usual_steps": 5000,
        }  # a longer training helps more than more flash
        (said,) = say_advice(result)
        assert said.startswith(
            "It was trained for 600 steps, and 5,000 are usual. Train longer: steps=5000. If that"
        )
        assert "try more room, since flash is the limiting bound" in said
    del final["micro"]
    assert not make_lines(result, Score())[0].startswith("Far below dense")


def test_the_class_has_its_name_and_a_tiny_file_may_be_too_small():
    training = {"steps": 100, "usual_steps": 5000}
    final = {"collapsed": 1, "class_names": ["apple", "pear"], "training": training, "file_bytes": 412}
    said, why = say_advice({"finals": [final]})
    assert said.startswith("It predicts class 1 (pear) for every image")
    assert why.endswith("Train longer: steps=5000. 412 bytes may also be too few: raise the budget.")
    assert "too few" not in say_advice({"finals": [final | {"file_bytes": 4120}]})[1]
    assert say_advice({"finals": [final | {"class_names": ["0", "1"]}]})[0].startswith(
        "It predicts class 1 for"
    )


@pytest.mark.parametrize(
    ("steps", "losses", "short"),
    [
        (400, [2.0, 1.5, 1.0, 0.5], True),
        (600, [2.0, 1.5, 1.0, 0.5], False),
        (400, [2.0, 0.5, 0.5, 0.48], False),
        (400, [], False),
    ],
)
def test_a_short_training_whose_loss_falls_should_be_longer(steps, losses, short):
    curves = [{"iteration": steps * (i + 1) // 4, "loss": loss} for i, loss in enumerate(losses)]
    final = {"training": {"steps": steps, "usual_steps": 5000}, "curves": curves}
    falls = any("still falling" in line for line in say_advice({"finals": [final]}))
    assert falls is short


@pytest.mark.parametrize("dense", [None, {"accuracy": 82.0, "errors": 18, "images": 100}])
@pytest.mark.parametrize(("steps", "right", "said"), [(60, 66, True), (60, 81, False), (5000, 66, False)])
def test_few_steps_are_named_unless_dense_is_no_better(dense, steps, right, said):
    training = {"steps": steps, "usual_steps": 5000}
    final = {"accuracy": float(right), "errors": 100 - right, "images": 100, "training": training}
    if dense is None and steps == 60:
        said = True  # nothing shows that it is good enough
    told = [
        line for line in say_advice({"finals": [final], "dense": dense}) if "trained for 60 steps" in line
    ]
    assert bool(told) is said
    assert ("below dense" in " ".join(told)) is (said and dense is not None)


SLOW = {"flash_bytes": 5000, "compiled_with": "-Os", "ms": 39.9}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"flash_bytes": 7950, "compiled_with": "-O2"}, "or compile for size (--compiled Os)."),
        (SLOW | {"at_O2": {"flash_bytes": 7200, "ms": 22.0}}, "or compile for speed (--compiled O2)."),
        (
            SLOW | {"at_O2": {"flash_bytes": 7300, "ms": 22.0}},
            "or compile for speed (--compiled O2, with a budget of 8.2KB or more).",
        ),
        (SLOW | {"at_O2": {"flash_bytes": 6000, "ms": 38.0}}, "or take a faster clock."),
        ({"flash_bytes": 5000, "compiled_with": "-Os"}, None),
    ],
)
def test_the_bound_that_leaves_a_network_below_dense_is_named(facts, said):
    final = {"accuracy": 90.0, "errors": 100, "images": 1000, "limit": 8000, "micro": facts}
    final["latency_bound"] = {"bound_ms": 40.0}
    result = {"finals": [final], "dense": {"accuracy": 93.0, "errors": 70, "images": 1000}}
    last = say_advice(result | {"command": "membound fit"})
    assert (last[-1].endswith(said) and "limiting bound" in last[-1]) if said else last == []
