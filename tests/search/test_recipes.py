"""Effort, widths and two bounds at once: what is tried, what it may cost, and that both promises hold."""

import itertools
import json

import pytest
import torch
from profiles import full
from small import Small, digits
from torch import nn

import membound as mb
from membound.data import Preprocess
from membound.errors import MemboundError
from membound.search.bounds import Bound
from membound.search.effort import TIMES, usual_steps, with_effort
from membound.search.request import Choices
from membound.search.widths import SHARE, rounds
from membound.train.recipe import modern
from membound.train.run import Run, Settings
from membound.train.stepping import make_stepper

QUICK = {"steps": 20, "batch_size": 20, "device": "cpu", "values": "f16"}


def wide(width=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, width, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(width * 64, 10))


@pytest.mark.parametrize("count", range(1, 12))
def test_trials_cost_at_most_what_is_said(count):
    found = rounds(count)
    assert sum(size * part for size, part in found) <= SHARE + 1e-9
    assert [size for size, _ in found][:1] == ([count] if count > 1 else [])
    assert all(later > earlier for (_, earlier), (_, later) in itertools.pairwise(found))


@pytest.mark.parametrize("budgets", [["3KB"], full(["3KB", "1500"])])
def test_widths_are_tried_at_the_same_bytes(budgets, tmp_path):
    asked = {**QUICK, "widths": "1,2,4", "run_dir": tmp_path, "validation": 40}
    fitted = mb.fit(wide, digits(0, 160), budgets, test_data=digits(200, 240), **asked)
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert lines
    for result, limit in zip(fitted, (3000, 1500), strict=False):
        assert result.file_bytes <= limit
        factor = result.facts["width"]
        assert result.model[0].out_channels == 3 * factor
        mine = [each for each in result.history if each["budget"] == result.name]
        assert {each["width"] for each in mine if each["round"] == 1} == {1.0, 2.0, 4.0}
        assert all(each["size"] <= limit for each in mine)
        last = max(each["round"] for each in mine)
        final = [each for each in mine if each["round"] == last]
        assert factor == max(final, key=lambda each: each["accuracy"])["width"]
        assert sum(each["steps"] for each in mine) <= SHARE * 20
        assert any(note.startswith(f"width {factor:g} was taken") for note in result.facts["tried"])
    first = fitted[0]
    assert first.dense["nonzeros"] == sum(p.numel() for p in wide().parameters())
    again = mb.fit(wide, digits(0, 160), budgets, test_data=digits(200, 240), **asked)
    assert "begins" in (tmp_path / "log.txt").read_text()
    for one, other in zip(fitted, again, strict=True):
        assert torch.equal(one.model[0].weight, other.model[0].weight)
    with pytest.raises(MemboundError, match="widths"):
        mb.fit(wide, digits(0, 160), budgets, test_data=digits(200, 240), **asked | {"widths": [1, 2]})


def test_a_width_that_cannot_be_met_is_left_out():
    def deep(width=3):
        return nn.Sequential(
            nn.Conv2d(1, width, 5, stride=3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(width * 64, 8),
            nn.Linear(8, 10),
        )

    asked = {"widths": [1, 64], "protect": ["0", "3"], "validation": 20, "dense": False, **QUICK}
    fitted = mb.fit(deep, digits(0, 80), 8000, test_data=digits(200, 240), **asked)
    assert fitted.facts["width"] == 1
    assert "width 1, the only one that fits" in fitted.facts["tried"]


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        (Small, {"widths": [1, 2]}, "no width to vary"),
        (wide(), {"widths": [1, 2]}, "has one width"),
        (wide, {"widths": "1,x"}, "different factors"),
        (wide, {"widths": [1, 1]}, "different factors"),
        (wide, {"widths": []}, "different factors"),
        (wide, {"widths": [0]}, "different factors"),
        (wide, {"widths": [1, 2], "strategy": "greedy"}, "leave out"),
        (wide, {"effort": "much"}, "no effort"),
        (wide, {"smoothing": 1}, "from 0 to below 1"),
        (wide, {"precision": "float16"}, "choose float32, bf16"),
    ],
)
def test_what_cannot_be_asked_for(model, more, message):
    with pytest.raises(MemboundError, match=message) as error:
        mb.fit(model, digits(0, 80), 3000, **QUICK, **more)
    assert "\n" not in str(error.value)


def test_effort_chooses_what_is_not_given():
    budget = Bound(budget=3000)
    best = with_effort(Choices(effort="best"), wide, budget)
    assert (best.teacher, best.widths) == ("auto", (1.0, 1.5, 2.0))
    assert with_effort(Choices(effort="best", widths=[1, 3]), wide, budget).widths == (1.0, 3.0)
    assert with_effort(Choices(effort="best"), Small, budget).widths is None
    assert with_effort(Choices(effort="best"), wide, Bound(within=1.0)).widths is None
    assert with_effort(Choices(effort="best", loss=nn.functional.mse_loss), wide, budget).teacher is None
    for effort in (None, "quick", "normal"):
        assert with_effort(Choices(effort=effort), wide, budget) == Choices(effort=effort)
    solver = mb.zoo.lenet().caffe_solver
    for effort, times in TIMES.items():
        assert usual_steps(effort, solver, 60_000, 64) == times * 10_000
        assert usual_steps(effort, None, 128_000, 128) == times * 30_000
        assert usual_steps(effort, None, 100, 10) == times * 5_000


def test_a_small_set_takes_fewer_images_a_step():
    asked = {"steps": 2, "dense": False, "device": "cpu", "teacher": "none"}
    for count, batch in ((80, 8), (160, 16), (300, 32)):
        fitted = mb.fit(Small, digits(0, count), 6000, test_data=digits(400, 420), **asked)
        assert fitted.facts["training"]["batch_size"] == batch
    fitted = mb.fit(Small, digits(0, 80), 6000, test_data=digits(400, 420), batch_size=40, **asked)
    assert fitted.facts["training"]["batch_size"] == 40


def test_bf16_is_autocast_and_keeps_the_promises():
    asked = {**QUICK, "steps": 8, "dense": False, "teacher": "auto"}
    fitted = mb.fit(wide, digits(0, 80), 6000, test_data=digits(200, 240), precision="bf16", **asked)
    plain = mb.fit(wide, digits(0, 80), 6000, test_data=digits(200, 240), **asked)
    assert fitted.file_bytes <= 6000
    weights = [next(iter(each.model.parameters())) for each in (fitted, plain)]
    assert not torch.equal(*weights)


def test_smoothed_labels_are_torchs():
    torch.manual_seed(0)
    model = Small()
    recipe = modern("sgd", 3, 20, lr=0.05, warmup=0)
    run = Run(
        model, digits(0, 60), recipe, Preprocess(scale=1 / 256), Settings(device="cpu"), torch.device("cpu"),
        smoothing=0.2,
    )  # fmt: skip
    stepper = make_stepper(run).__self__
    x, y = stepper.next_batch()
    soft = torch.full((len(y), 10), 0.02).scatter(1, y[:, None], 0.82)
    expected = -(soft * model(x).log_softmax(1)).sum(1).mean()
    by_hand = torch.autograd.grad(expected, list(model.parameters()))
    stepper.backward(x, y)
    for weight, wanted in zip(model.parameters(), by_hand, strict=True):
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ram", [full(14_000), 12_500])
def test_both_promises_hold(ram):
    """The first leaves the budget to decide, the second the memory: the smaller of them binds."""
    asked = {**QUICK, "steps": 8, "dense": False}
    fitted = mb.fit(Small, digits(0, 80), 6000, ram=ram, test_data=digits(200, 240), **asked)
    assert fitted.file_bytes <= 6000
    assert fitted.size == fitted.file_bytes
    assert fitted.facts["memory_limit"] == ram
    net = mb.run.net.Net(fitted.files.stored(fitted.model.state_dict()), max_batch=1, threads=1)
    for isa in ("scalar", "avx2", "avx512", "neon"):
        assert net.memory(isa).total <= ram
    assert max(fitted.file_bytes / 6000, max(net.memory(isa).total for isa in ("avx512", "neon")) / ram) > 0.9


def test_a_pair_that_cannot_be_met_is_said_as_a_pair():
    for budget, ram in ((6000, 3000), (300, 100_000)):
        with pytest.raises(MemboundError, match="allow at least these two") as error:
            mb.fit(Small, digits(0, 80), budget, ram=ram, **QUICK)
        assert "bytes of memory" in str(error.value)
    with pytest.raises(MemboundError, match="do not pair up"):
        mb.fit(Small, digits(0, 80), [6000, 5000], ram=50_000, **QUICK)
    with pytest.raises(MemboundError, match="give one bound"):
        mb.fit(Small, digits(0, 80), 6000, ram=50_000, nonzeros=100, **QUICK)
