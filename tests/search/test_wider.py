"""Of a network in few bits and one in wider values, the one that learned more stays; reports name each."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small import Small, digits

import membound as mb
from membound.search import wider
from membound.train.evaluation import Score

LAST = digits(300, 400)


@pytest.fixture(scope="module")
def fitted():
    train = digits(0, 100)
    return mb.fit(Small, (train.images, train.labels), "4 KB", test_data=(LAST.images, LAST.labels), steps=4,
                  batch_size=16, device="cpu", values="f16", dense=False, teacher="none")  # fmt: skip


@pytest.mark.parametrize(("right", "values"), [(90, "f16"), (70, "p4")])
def test_the_network_that_has_learned_more_stays(fitted, monkeypatch, right, values):
    scores = [Score(100, 80, 0.1), Score(100, right, 0.1)]
    monkeypatch.setattr(wider, "score_on_training", lambda stored, problem: scores)
    said, world = [], SimpleNamespace(agree=bool)
    narrow = replace(fitted, values="p4")
    found = wider.better_of(narrow, fitted, None, world, SimpleNamespace(say=said.append))
    assert found.values == values
    assert "fewer weights fit" in found.facts["tried"][-1]
    assert wider.better_of(narrow, None, None, world, None) is narrow


def test_a_report_of_several_names_each(fitted, tmp_path):
    mb.write_report({"by hand": fitted, "by chance": fitted}, tmp_path / "r.html")
    mb.write_report([fitted, fitted], tmp_path / "n.html")
    named, numbered = ((tmp_path / name).read_text() for name in ("r.html", "n.html"))
    assert "by hand" in named and "by chance" in named  # noqa: PT018
    assert "4 KB (1)" in numbered and "4 KB (2)" in numbered  # noqa: PT018
