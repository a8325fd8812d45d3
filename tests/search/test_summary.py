"""The summary of a fit: plain JSON that the report draws, whatever the budget counts."""

import hashlib
import json
from pathlib import Path

import pytest
from torch import nn

from membound.report import make_page
from membound.search.deployed import Fitted
from membound.search.summary import Dense, summarise, without_curves

CURVE = [
    {"iteration": step, "loss": 1 / step, "accuracy": 90.0 + step, "nonzeros": 500} for step in (1, 2, 3)
]
LAYERS = [
    {"name": "fc.weight", "shape": [10, 64], "size": 640, "nonzeros": 90, "format": "delta", "bytes": 270}
]
STORED = {
    "file_bytes": 1000, "header_bytes": 700, "memory_bytes": 3000, "latency_ms": 0.02, "parameters": 650,
    "nonzeros": 100, "weight_nonzeros": 90, "layers": LAYERS, "curves": CURVE, "seconds": 2.0,
}  # fmt: skip
DENSE = {**STORED, "accuracy": 97.5, "errors": 5, "images": 200, "accuracy_on": "test", "file_bytes": 4000}
HISTORY = [
    {"key": "dense-part", "round": 0, "accuracy": 97.0, "size": 4000, "nonzeros": 650, "seconds": 1.0, "won": True},
    {
        "key": "r001-fc", "round": 1, "layer": "fc.weight", "accuracy": 96.5, "size": 3000, "nonzeros": 400,
        "seconds": 1.0, "won": True,
    },
]  # fmt: skip
ABOUT = {
    "network": "lenet", "data": "mnist", "strategy": "greedy", "seed": 3, "seconds": 12.3456,
    "command": "membound fit lenet --budget 1KB",
}  # fmt: skip


def fitted(name="1KB", limit=1000, size=990, **changes) -> Fitted:
    fields = {
        "model": nn.Identity(), "limit": limit, "size": size, "file_bytes": 1000, "values": "f16", "accuracy": 97.0,
        "accuracy_on": "test", "errors": 6, "images": 200, "members": [], "history": HISTORY, "dense": DENSE,
        "facts": STORED, "name": name,
    }  # fmt: skip
    return Fitted(**(fields | changes))


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.safetensors").write_bytes(b"a network")


@pytest.mark.usefixtures("written")
def test_one_budget():
    summary = summarise([fitted()], **ABOUT, files=["net.safetensors"])
    assert json.loads(json.dumps(summary)) == summary
    assert summary["budget"] == {"kind": "file", "limit": 1000, "text": "1KB"}
    (final,) = summary["finals"]
    assert final["file"] == "net.safetensors"
    assert final["sha256"] == hashlib.sha256(b"a network").hexdigest()
    assert (final["members"], final["verdict"], final["mean"], final["std"]) == (
        [],
        "within the spread",
        None,
        None,
    )
    assert (final["size"], final["limit"], final["curves"]) == (990, 1000, CURVE)
    assert summary["dense"] == DENSE
    assert [row["bytes"] for row in summary["candidates"]] == [4000, 3000]
    assert summary["candidates"][1]["layer"] == "fc"
    assert summary["seconds"] == 12.35
    assert summary["environment"]["versions"].keys() >= {"python", "torch"}


@pytest.mark.usefixtures("written")
def test_the_report_draws_all_of_it():
    page = make_page(summarise([fitted()], **ABOUT, files=["net.safetensors"]))
    for words in ("lenet on mnist in 1KB", "97.00 %", "6", "What each layer keeps", "Training", "The search",
                  "membound fit lenet", "mb.load(", "greedy"):  # fmt: skip
        assert words in page


def test_several_budgets_have_limits_of_their_own():
    summary = summarise([fitted("1KB"), fitted("2KB", 2000)], **ABOUT)
    assert summary["budget"] == {"kind": "file", "limit": None, "text": "1KB, 2KB"}
    assert [(final["name"], final["limit"]) for final in summary["finals"]] == [("1KB", 1000), ("2KB", 2000)]
    assert [final["file"] for final in summary["finals"]] == [None, None]
    assert "2 networks" in make_page(summary)


def test_a_percentage_is_named_as_a_budget():
    """Alone, it looks like progress."""
    summary = summarise([fitted("10%"), fitted("2KB", 2000)], **ABOUT)
    assert [final["name"] for final in summary["finals"]] == ["budget 10%", "2KB"]
    assert "<h1>lenet on mnist in 10% of its bytes, 2KB, strategy greedy<" in make_page(summary)
    (of_memory,) = summarise([fitted("10%")], **ABOUT, budget_kind="ram")["finals"]
    assert of_memory["name"] == "10% of memory"


@pytest.mark.parametrize(("kind", "name"), [("ram", "1KB of memory"), ("nonzeros", "1KB nonzeros")])
def test_sizes_that_are_no_files_are_not_drawn_beside_files(kind, name):
    summary = summarise([fitted()], **ABOUT, budget_kind=kind)
    assert summary["finals"][0]["name"] == name
    assert [row["bytes"] for row in summary["candidates"]] == [None, None]
    assert [row["size"] for row in summary["candidates"]] == [4000, 3000]
    make_page(summary)


def test_within_some_points_of_dense_an_ensemble_or_a_score_of_ones_own():
    summary = summarise([fitted("1234")], **ABOUT, within=0.5)
    assert "lenet on mnist: the smallest within 0.5 points of dense" in make_page(summary)
    assert summary["finals"][0]["name"] == "smallest"
    ensemble = fitted(members=[96.0, None], dense=None, history=[])
    (final,) = (summary := summarise([ensemble], **ABOUT))["finals"]
    assert final["members"] == [96.0, None]
    assert summary["dense"] is None
    assert "2 networks together" in make_page(summary)
    own = summarise([fitted(accuracy=0.5, errors=None)], **ABOUT, score_name="F1")
    assert "F1 0.5" in make_page(own)


def test_curves_are_left_out_of_what_is_printed():
    summary = summarise([fitted(), fitted("2KB", 2000)], **ABOUT)
    short = without_curves(summary)
    assert "curves" not in json.dumps(short)
    assert "curves" in summary["finals"][0], "the summary itself stays"
    assert without_curves(summarise([fitted(dense=None)], **ABOUT))["dense"] is None


def test_the_dense_network_prints_as_its_size_and_accuracy():
    facts = {"file_bytes": 2376, "accuracy": 98.0, "errors": 4, "accuracy_on": "test"}
    assert repr(Dense(facts)).startswith("Dense(2,376 bytes, accuracy 98.00 % on test; keys: file_bytes, ")
    seeds = {"seeds": [0, 1], "accuracies": [98.0, 99.0], "mean": 98.5, "std": 0.7071}
    assert "accuracy 98.50 ± 0.71 % over 2 seeds on test" in repr(Dense(facts | {"seeds": seeds}))
    assert "score 0.8125 on test" in repr(Dense(facts | {"accuracy": 0.8125, "errors": None}))
    assert "accuracy not measured" in repr(Dense(facts | {"accuracy": None}))
    assert str(Dense(facts)).startswith("dense network: 2,376 bytes, accuracy 98.00 % on test")
    micro = facts | {"micro": {"flash_bytes": 5_000, "ram_bytes": 900}}
    assert str(Dense(facts | {"int8": micro})).endswith(
        "; in 8 bits: 5,000 bytes of flash, 900 of RAM, accuracy 98.00 % on test"
    )
    assert json.loads(json.dumps(Dense(facts))) == facts
