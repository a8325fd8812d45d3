"""Numbers of numpy, and floats that are whole, are taken where a whole number is needed; results are plain data."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.errors import MemboundError
from membound.search.request import split_keywords


def records(**given):
    return split_keywords({"train_data": None, "budget": 4096, **given})


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float64, float])
def test_numbers_of_any_type_are_whole(kind):
    names = ("steps", "batch_size", "every", "candidate_steps", "seed", "seeds")
    _, choices, _, _ = records(**{name: kind(7) for name in names})
    assert all(type(getattr(choices, name)) is int and getattr(choices, name) == 7 for name in names)
    bound = records(budget=kind(200), members=kind(3))[0]
    assert bound.amounts == (200,)
    assert bound.members == 3


@pytest.mark.parametrize(
    "budgets", [np.array([2000, 4000]), [np.int64(2000), 4000.0], (2000, np.float64(4000))]
)
def test_arrays_and_lists_of_budgets(budgets):
    bound = records(budget=budgets)[0]
    assert bound.is_list
    assert bound.amounts == (2000, 4000)


def test_a_fraction_stays_one():
    assert records(validation=np.float64(0.5))[1].validation == 0.5
    with pytest.raises(MemboundError, match=r"validation=1\.0: a fraction between 0 and 1"):
        records(validation=1.0)
    assert records(validation=np.int64(500))[1].validation == 500


@pytest.mark.parametrize(
    "given", [{"steps": 10.5}, {"seed": np.float64(0.5)}, {"budget": 100.5}, {"steps": True}]
)
def test_what_is_not_whole_is_refused(given):
    with pytest.raises(MemboundError, match=next(iter(given))):
        records(**given)


def test_a_list_of_seeds_is_told_what_to_write():
    with pytest.raises(MemboundError, match="write seed=4, seeds=3"):
        records(seeds=[4, 5, 6])
    with pytest.raises(MemboundError, match="write seed=0, seeds=2"):
        records(seeds=np.arange(2))


def test_rules_take_them_too():
    net = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rule = mb.chain(
        mb.l2_decay(np.float32(1e-4)),
        mb.l0_project(mb.ramp(np.int64(200), np.int64(20)), every=np.int64(2)),
        mb.palette(levels=np.int64(4), every=10.0, begin=np.float64(0.5)),
    )
    regularizer = mb.attach(optimizer, net, {"*": rule}, total_steps=np.int64(4))
    for _ in range(4):
        net(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
    regularizer.finish()
    assert int(net.weight.count_nonzero()) <= 20
    assert len(net.weight[net.weight != 0].unique()) <= 4


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    x = torch.randn(200, 16)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    net = nn.Sequential(nn.Linear(16, 30), nn.ReLU(), nn.Linear(30, 4))
    return mb.fit(
        net, (x, y), np.array([700, 1000]), test_data=(x[:50], y[:50]), steps=np.int64(60), progress=False
    )


def test_a_result_as_json(fitted):
    first = fitted[0]
    found = json.loads(json.dumps(first.to_dict(), allow_nan=False))
    for name in (
        "mean",
        "std",
        "seeds",
        "verdict",
        "accuracy",
        "limit",
        "size",
        "file_bytes",
        "values",
        "accuracy_on",
        "errors",
        "images",
    ):
        assert found[name] == getattr(first, name)
    training = found["training"]
    assert {name: training[name] for name in ("steps", "batch_size", "peak_lr", "weight_decay", "seed")} == {
        "steps": 60, "batch_size": 16, "peak_lr": 0.05, "weight_decay": 5e-4, "seed": 0
    }  # fmt: skip
    assert training["ramp"] == {"begin": 0.05, "until": 0.5, "again": 0.85}
    assert training["every"] == 5
    assert found["dense"]["accuracy"] == first.dense["accuracy"]
    assert set(found["facts"]["curves"][-1]) == {
        "iteration", "loss", "seconds", "nonzeros", "accuracy", "test_loss"
    }  # fmt: skip
    assert all(f"`{name}`" in mb.Fitted.__doc__ for name in found["facts"])
    assert all(f"`{name}`" in mb.Fitted.__doc__ for name in training)


def test_a_report_of_several(fitted, tmp_path):
    mb.write_report(fitted, tmp_path / "all.html", network="net", data="noise")
    page = (tmp_path / "all.html").read_text()
    assert "Accuracy against size" in page
    assert "net on noise in 700, 1000" in page
    assert "peak learning rate 0.05, weight decay 0.0005" in page
    mb.write_report(fitted[0], tmp_path / "one.html")
    fitted[0].report(tmp_path / "same.html")
    assert "against size" not in (tmp_path / "one.html").read_text()


@pytest.mark.parametrize("wrong", [[], [1], "net", None])
def test_a_report_of_nothing_is_refused(wrong, tmp_path):
    with pytest.raises(MemboundError, match="give a Fitted, a list of them, or a dict such as"):
        mb.write_report(wrong, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
