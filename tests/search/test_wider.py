"""Of a network in few bits and one in wider values, the one that learned more stays; reports name each."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from small import Small, digits

import membound as mb
from membound.search import wider
from membound.search.place import Watch
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
    # The title says the shared budget once, and each network has its own name alone.
    assert "Small in 4 KB<" in named and "4 KB, by" not in named  # noqa: PT018
    by_strategy = {**fitted.facts["asked"], "strategy": "taylor"}
    better = replace(fitted, accuracy=92.39, facts={**fitted.facts, "asked": by_strategy})
    worse = replace(fitted, accuracy=87.91)
    mb.write_report([better, worse], tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    assert re.search(r"taylor 92.39[^,]*, global 87.91", page)
    assert '<th scope="col">taylor</th>' in page


def test_a_second_training_is_announced_and_goes_without_dense(monkeypatch):
    monkeypatch.setattr(
        "membound.search.fitting.rounding_hurts", lambda problem, files, state: files.values != "f16"
    )
    said, trained = [], []
    watch = Watch(say=said.append, note=said.append, done=lambda job, facts: trained.append(job.key))
    train = digits(0, 100)
    mb.fit(Small, (train.images, train.labels), "4 KB", test_data=(LAST.images, LAST.labels), steps=4,
           batch_size=16, device="cpu", watch=watch)  # fmt: skip
    assert (
        "2 networks, 4 steps of 16 each; one more training, in 16 bits, follows if few bits cost"
        in "\n".join(said)
    )
    assert [key for key in trained if key == "dense"] == ["dense"]
    assert sum("training the dense network" in text for text in said) == 1
    assert sum("training again in f16" in text for text in said) == 1
