"""Fits that are compared: whatever else they differ in is noticed, and other test images are refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import membound as mb
from membound.report.alike import find_unequal
from membound.report.page import make_page
from membound.report.text import json_values
from membound.search.place import Watch
from membound.search.summary import summarise
from membound.train.fingerprints import data_digest
from membound.train.user_data import as_split

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 12)).astype(np.float32)
Y = (X[:, 0] + 0.7 * RANDOM.normal(size=120) > 0).astype(int)
TRAIN, TEST, OTHER = (X[:40], Y[:40]), (X[40:80], Y[40:80]), (X[80:], Y[80:])
HOW = {
    "budget": "90%", "values": "f16", "teacher": "none", "dense": False, "steps": 3, "batch_size": 16, "device": "cpu",
    "progress": False,
}  # fmt: skip


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))


def make_other() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 2))


def fit(model=make, train=TRAIN, test=TEST, **more):
    return mb.fit(model, train, test_data=test, **(HOW | more))


@pytest.fixture(scope="module")
def first():
    return fit()


def test_another_strategy_is_a_fair_race(first):
    assert first.compare(fit(strategy="uniform")).unequal == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"values": "p8"}, "values f16 and p8"),
        ({"smoothing": 0.1}, "smoothing 0.0 and 0.1"),
        ({"every": 2}, "every 5 and 2"),
        ({"lr": 0.3}, "peak lr "),
        ({"model": make_other}, "network Sequential "),
        ({"train": (X[:40] + 1, Y[:40])}, "training data "),
        ({"train": (X[:40], 1 - Y[:40])}, "training data "),
    ],
)
def test_what_is_not_alike_is_said(first, more, said, tmp_path):
    other = fit(**more)
    found = first.compare(other)
    assert [each for each in found.unequal if each.startswith(said)], found.unequal
    assert len(found.unequal) == 1
    assert f"; not alike: {said}" in str(found)
    mb.write_report({"mine": first, "theirs": other}, tmp_path / "r.html")
    assert f"Not alike: mine and theirs: {said}" in (tmp_path / "r.html").read_text()


def test_the_examples_that_are_wrong_are_known_and_pair_networks_of_one_seed(first):
    other = fit(strategy="uniform", dense=True)
    for net, found in ((first, first.facts), (other, other.facts)):
        with torch.no_grad():
            guessed = net.model(torch.from_numpy(TEST[0])).argmax(1).numpy()
        assert found["wrong"] == np.flatnonzero(guessed != TEST[1]).tolist()
        assert len(found["wrong"]) == net.errors
    mine, theirs = set(first.facts["wrong"]), set(other.facts["wrong"])
    assert first.compare(other).wrong_alone == (len(mine - theirs), len(theirs - mine))
    dense = set(other.dense["wrong"])
    assert other.against_dense.wrong_alone == (len(theirs - dense), len(dense - theirs))


def test_other_test_images_of_the_same_number_are_refused(first, tmp_path):
    other = fit(test=OTHER)
    assert (other.images, other.accuracy_on) == (first.images, first.accuracy_on)
    with pytest.raises(
        mb.MemboundError, match=r"other test images, 40 each .* give both fits the same test_data"
    ):
        first.compare(other)
    with pytest.raises(mb.MemboundError, match="other test images, 40 each"):
        mb.write_report({"mine": first, "theirs": other}, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_held_out_images_are_of_the_same_training_data():
    """They differ from seed to seed; fits that share a seed are compared."""
    ours, theirs = (fit(test=None, seed=0, seeds=2), fit(test=None, seed=1, seeds=2))
    assert ours.facts["is_estimate"]
    assert ours.compare(theirs).seeds == (1,)
    with pytest.raises(mb.MemboundError, match="other validation images"):
        ours.compare(fit(train=OTHER, test=None))


def test_dense_in_8_bits_is_no_fitted_network(first):
    assert first.facts["is_dense_in_8_bits"] is False
    taken = replace(first, facts=first.facts | {"is_dense_in_8_bits": True})
    assert first.compare(taken).unequal == ("file fitted and dense in 8 bits",)
    seeds = {"seeds": [0, 1], "accuracies": [1.0, 2.0], "is_dense_in_8_bits": [False, True]}
    some = replace(first, facts=first.facts | {"seeds": seeds})
    assert first.compare(some).unequal == ("file fitted and dense in 8 bits with seed 1",)


def test_a_record_without_digests_claims_nothing(first, tmp_path):
    known = {key: value for key, value in first.facts.items() if key not in ("digests", "is_dense_in_8_bits")}
    known["asked"] = {key: value for key, value in known["asked"].items() if key != "values"}
    old, other = replace(first, facts=known), fit(test=OTHER, values="p8")
    assert find_unequal(old.facts, other.facts) == ()
    assert old.compare(other).unequal == ()
    mb.write_report([old, other], tmp_path / "r.html")
    finals = [{"name": name, "accuracy": 98.0, "file_bytes": 1000} for name in "ab"]
    assert "Not alike" not in make_page({"finals": finals})


def test_the_difference_to_dense_is_in_the_record():
    fitted = fit(dense=True, seeds=3)
    found = fitted.to_dict()["against_dense"]
    gaps = [
        ours - dense
        for ours, dense in zip(fitted.accuracies, fitted.dense["seeds"]["accuracies"], strict=True)
    ]
    assert found["differences"] == pytest.approx(gaps)
    assert found["difference"] == pytest.approx(np.mean(gaps))
    # One image is 2.5 points: no standard deviation counts as less.
    assert found["uncertainty"] == pytest.approx(4.30265 * max(np.std(gaps, ddof=1), 2.5) / 3**0.5)
    assert (found["verdict"], found["seeds"]) == (fitted.verdict, [0, 1, 2])
    assert fit().to_dict()["against_dense"] is None


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What four processes left: two methods, each with two seeds."""
    folder, fits = tmp_path_factory.mktemp("records"), {}
    for strategy in ("global", "uniform"):
        for seed in (0, 1):
            fits[strategy, seed] = fit(strategy=strategy, seed=seed)
            text = json.dumps(fits[strategy, seed].to_dict())
            (folder / f"{strategy}-{seed}.json").write_text(text)
    return folder, fits


def test_saved_records_are_compared_as_the_fits_are(saved):
    folder, fits = saved
    ours, theirs = fits["global", 0], fits["uniform", 0]
    found = ours.compare(theirs)
    files = folder / "global-0.json", str(folder / "uniform-0.json")
    assert mb.Comparison.of_records(*files) == found
    assert (
        mb.Comparison.of_records(ours, json.loads(files[0].with_name("uniform-0.json").read_text())) == found
    )
    assert ours.compare(files[1]) == found
    assert found.wrong_alone is not None
    about = {"network": "", "data": "", "strategy": "uniform", "seed": 0, "seconds": 1.0}
    command = json.loads(json.dumps(json_values(summarise([theirs], **about))))
    assert ours.compare(command) == found


def test_a_list_of_records_is_one_method_with_a_seed_each(saved):
    folder, fits = saved
    ours, theirs = ([folder / f"{way}-{seed}.json" for seed in (0, 1)] for way in ("global", "uniform"))
    found = mb.Comparison.of_records(ours, theirs)
    pairs = [fits["global", seed].accuracy - fits["uniform", seed].accuracy for seed in (0, 1)]
    assert (found.seeds, found.unequal) == ((0, 1), ())
    assert found.differences == pytest.approx(pairs)
    assert found.uncertainty == pytest.approx(12.706 * max(np.std(pairs, ddof=1), 2.5) / 2**0.5, rel=1e-3)
    (one,) = mb.Comparison.of_records(ours, theirs[1]).seeds
    assert one == 1
    assert "one seed in common (1): ± covers other test examples" in str(
        mb.Comparison.of_records(ours, theirs[1])
    )
    assert mb.Comparison.of_records(ours, theirs[1]) == fits["global", 1].compare(fits["uniform", 1])


def test_what_is_no_record_is_refused_in_a_line(saved, tmp_path):
    folder, _ = saved
    good, other = folder / "global-0.json", folder / "uniform-0.json"
    (tmp_path / "text.json").write_text("no JSON")
    (tmp_path / "number.json").write_text("3")
    for ours, says in (
        (tmp_path / "none.json", "cannot read .*none.json: No such file"),
        (tmp_path / "text.json", "text.json is not JSON: give what fitted.to_dict"),
        (tmp_path / "number.json", "number.json holds an int, not a record of a fit: give"),
        ({"loss": 3}, "this dict is not a record of a fit: give what"),
        ([], "the list is empty"),
        (3, "not of an int"),
        ({"finals": [{}, {}]}, "this record has 2 networks: give the one"),
        ([good, good], "seed 0 is in two records of one side"),
        ([good, folder / "uniform-1.json"], "are of the strategies global and uniform: give a list for each"),
        (folder / "global-1.json", r"no judged seed in common \(seeds \[1\] and \[0\]\)"),
    ):
        with pytest.raises(mb.MemboundError, match=says):
            mb.Comparison.of_records(ours, other)


class Noisy(Dataset):
    def __init__(self, noise: float) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        return torch.from_numpy(X[index]) + self.noise * torch.rand(12), int(Y[index])


def test_examples_that_vary_at_random_have_the_digest_of_their_labels():
    assert data_digest(as_split(Noisy(1.0))) == data_digest(as_split(Noisy(2.0)))
    assert data_digest(as_split(Noisy(0.0))) != data_digest(as_split(Noisy(1.0)))


def test_a_greedy_search_says_its_total(capsys):
    fitted = fit(strategy="greedy", candidate_steps=1, budget="60%", progress=True)
    said = capsys.readouterr().err
    rounds, candidates = re.search(r"the search took (\d+) rounds, (\d+) candidates in all", said).groups()
    least = re.search(r"the search takes at least (\d+) rounds? of up to 2 candidates, 1 step each", said)
    assert 0 < int(least[1]) <= int(rounds) == max(each["round"] for each in fitted.history)
    assert int(candidates) == sum(each["round"] > 0 for each in fitted.history)
    assert "60%, greedy: trained, accuracy" in said


def test_a_greedy_search_says_its_rates_and_what_it_cut(first):
    search = {"strategy": "greedy", "candidate_steps": 2, "values": "p4"}
    fitted = fit(**search)
    training = fitted.to_dict()["training"]
    assert training["peak_lr"] == training["search_peak_lr"] / 2
    assert first.facts["training"]["search_peak_lr"] is None
    facts = {**fitted.facts, "cut_after_training": 0.126}
    cut = replace(fitted, facts=facts)
    assert str(cut).endswith("; 13 % of the weights were cut after training)")
    assert "weights cut after training 13 % and 0 %" in str(cut.compare(fit(**search)))
    assert cut.to_dict()["facts"]["cut_after_training"] == 0.126
    assert "cut after training" not in str(first)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"every": 4}, "every=4 is more than steps=3: weights are projected only once, at the end"),
        ({"every": 3, "strategy": "greedy", "candidate_steps": 2}, "every=3 is more than candidate_steps=2"),
        ({"every": 3}, None),
        ({}, None),
    ],
)
def test_a_projection_that_only_the_end_brings_is_said_to_be_one_shot(more, said):
    told = []
    fit(**more, watch=Watch(warn=told.append))
    assert [text.startswith(said or "") for text in told] == [True] * (said is not None)
