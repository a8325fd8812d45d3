"""A bound on latency: the time of a file that fit writes, on this machine, is within it."""

import numpy as np
import pytest
from torch import nn

import membound as mb
from membound.errors import MemboundError
from membound.run.inspection import inspect
from membound.search import latency
from membound.search.latency import parse_latency

X = np.random.default_rng(0).normal(size=(80, 32)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
QUICK = {"steps": 20, "batch_size": 20, "device": "cpu", "dense": False, "progress": False}


def network():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))


@pytest.fixture
def clock(monkeypatch):
    """Time as it would be on a machine that takes a microsecond for each nonzero: tests measure no time."""

    def taken(net):
        return sum(layer["nonzeros"] for layer in inspect(net.model)["layers"]) / 1000

    monkeypatch.setattr(latency, "measure_latency", taken)


def test_the_file_is_as_fast_as_asked_for_and_as_large_as_that_allows(clock):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", **QUICK)
    about = fitted.facts["latency_bound"]
    assert about["measured_ms"] == fitted.facts["nonzeros"] / 1000 <= 1
    assert about["measured_ms"] > 0.2, "it is used"
    assert "where 1 ms are allowed" in fitted.facts["tried"][-1]


def test_a_budget_beside_it_holds_as_well(clock):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), budget="1.5 KB", latency="1 s", **QUICK)
    assert fitted.file_bytes <= 1500
    assert fitted.limit == 1500, "time does not bind"


@pytest.mark.full
def test_a_run_that_goes_on_keeps_what_it_measured(clock, tmp_path, monkeypatch):
    first = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", run_dir=tmp_path / "run", **QUICK)
    monkeypatch.setattr(latency, "find_size", None)
    again = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", run_dir=tmp_path / "run", **QUICK)
    assert again.file_bytes == first.file_bytes


def test_what_cannot_be_met_is_said_before_training(clock):
    with pytest.raises(MemboundError, match="cannot be met here: with 1% of its weights"):
        mb.fit(network, (X, Y), test_data=(X, Y), latency="0.001 ms", **QUICK)


@pytest.mark.parametrize("given", ["5 parsecs", "0 ms", "-3", ""])
def test_times_that_are_none(given):
    with pytest.raises(MemboundError, match="write a time above 0"):
        parse_latency(given)


def test_it_goes_with_one_budget():
    with pytest.raises(MemboundError, match="goes with one budget"):
        mb.fit(network, (X, Y), test_data=(X, Y), latency="5 ms", ram="1 MB")
    with pytest.raises(MemboundError, match="goes with one budget"):
        mb.fit(network, (X, Y), test_data=(X, Y), latency="5 ms", budget=["1 KB", "2 KB"])
