"""A fit over several seeds: each is the fit of that seed alone, and the spread is told everywhere."""

import json
import re
from importlib.util import find_spec
from statistics import mean, stdev

import numpy as np
import pytest
from torch import nn

import membound as mb
from membound.cli import main
from membound.data import Augment
from membound.errors import MemboundError
from membound.report.paired import show_difference
from membound.search.bounds import Bound
from membound.search.place import Watch
from membound.search.request import Choices, Examples
from membound.search.seeds import describe_call

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 12)).astype(np.float32)
Y = (X[:, 0] + 0.7 * RANDOM.normal(size=80) > 0).astype(int)
# Choosing the bits takes half of the time of so short a fit: the first test does.
HOW = {"budget": "70%", "values": "f16", "steps": 12, "batch_size": 16, "device": "cpu", "progress": False}


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))


def fit(**more):
    return mb.fit(make, (X[:40], Y[:40]), test_data=(X[40:], Y[40:]), **(HOW | more))


def test_the_network_is_the_first_seeds_and_the_spread_is_that_of_all(tmp_path):
    alone = [fit(seed=seed, values="auto") for seed in (3, 4)]
    together = fit(seed=3, values="auto", seeds=2, run_dir=tmp_path / "run")
    found, accuracies = together.facts["seeds"], [each.accuracy for each in alone]
    assert found["seeds"] == [3, 4]
    assert found["accuracies"] == accuracies
    assert (found["mean"], found["std"]) == (mean(accuracies), stdev(accuracies))
    assert (together.mean, together.std) == (found["mean"], found["std"])
    assert (together.seeds, together.accuracies) == ([3, 4], accuracies)
    assert together.verdict in ("better", "worse", "too few seeds to tell")
    told = json.loads(json.dumps(together.to_dict()))
    assert [told[name] for name in ("mean", "std", "seeds", "verdict")] == [
        together.mean, together.std, [3, 4], together.verdict
    ]  # fmt: skip
    assert (alone[1].mean, alone[1].std, alone[1].seeds) == (None, None, [4])
    assert alone[1].accuracies == accuracies[1:2]
    assert found["file_bytes"] == [each.file_bytes for each in alone]
    dense = [each.dense["accuracy"] for each in alone]
    assert together.dense["seeds"]["accuracies"] == dense
    assert together.dense["int8"]["seeds"]["count"] == 2
    assert (together.accuracy, together.file_bytes) == (alone[0].accuracy, alone[0].file_bytes)
    for name, weight in together.model.state_dict().items():
        assert weight.equal(alone[0].model.state_dict()[name])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["seed-3", "seed-4"]
    assert "seeds" not in alone[0].facts


def test_each_seed_has_its_layers_and_all_of_them_are_printed():
    fitted = fit(seeds=2)
    layers = fitted.facts["seeds"]["layers"]
    assert layers == [fitted.facts["layers"], fit(seed=1).facts["layers"]]
    dense = fitted.dense["seeds"]
    shown = f"accuracy {fitted.mean:.2f} ± {fitted.std:.2f} % on test over 2 seeds"
    guesses = ", no better than guessing" if fitted.no_better_than_guessing else ""
    assert f", {shown}{guesses}, dense {dense['mean']:.2f} ± {dense['std']:.2f} %" in str(fitted)
    assert shown in fitted._repr_html_()
    one = fit(dense=False)
    assert f"accuracy {one.accuracy:.2f} % on test" in str(one)
    own = fit(seeds=2, loss=nn.functional.cross_entropy, score=nn.functional.cross_entropy, dense=False)
    assert str(own).endswith(f"score {own.mean:.4g} ± {own.std:.2g} on test over 2 seeds)")


def test_two_methods_are_compared_seed_by_seed(tmp_path):
    same = {"values": "f16", "teacher": "none", "seeds": 2}
    fits = {"global": fit(**same), "uniform": fit(strategy="uniform", dense=False, **same)}
    found = fits["global"].compare(fits["uniform"])
    pairs = zip(fits["global"].accuracies, fits["uniform"].accuracies, strict=True)
    assert found.differences == pytest.approx([a - b for a, b in pairs])
    assert found.difference == pytest.approx(fits["global"].mean - fits["uniform"].mean)
    assert found.seeds == (0, 1)
    assert found.unequal == ()
    short = fits["global"].compare(fit(**same, steps=3, dense=False))
    assert any(each.startswith("steps ") for each in short.unequal)
    assert "; not alike: steps " in str(short)
    assert found.verdict in ("better", "worse", "too few seeds to tell")
    mb.write_report(fits, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "global: global; uniform: uniform" in text
    assert re.search(r"seeds</th><td[^>]*>0, 1<", text)
    assert "<h2>Method against method</h2>" in text
    assert show_difference(found.difference, found.uncertainty, "+") in text
    with pytest.raises(mb.MemboundError, match=r"no judged seed in common \(seeds \[0, 1\] and \[7\]\)"):
        fits["global"].compare(fit(seed=7, dense=False))
    other = mb.fit(make, (X, Y), test_data=(X[:9], Y[:9]), dense=False, **HOW)
    with pytest.raises(mb.MemboundError, match="judged on 40 test images and 9 test images"):
        fits["global"].compare(other)
    with pytest.raises(mb.MemboundError, match="not a float"):
        fits["global"].compare(99.0)


def test_without_a_teacher_the_dense_network_beside_changes_nothing():
    same = {"values": "f16", "teacher": "none"}
    beside, alone = fit(**same), fit(dense=False, **same)
    assert (beside.accuracy, beside.file_bytes) == (alone.accuracy, alone.file_bytes)
    for name, weight in alone.model.state_dict().items():
        assert weight.equal(beside.model.state_dict()[name])


def test_more_seeds_go_on_from_those_that_are_there(tmp_path):
    trained = []
    watch = Watch(done=lambda job, facts: trained.append(job.seed))
    first = fit(seeds=2, run_dir=tmp_path / "run", watch=watch)
    assert set(trained) == {0, 1}
    trained.clear()
    more = fit(seeds=3, run_dir=tmp_path / "run", watch=watch)
    assert set(trained) == {2}
    assert more.facts["seeds"]["accuracies"][:2] == first.facts["seeds"]["accuracies"]


def test_a_report_from_python_says_how_it_was_made(tmp_path):
    fitted = fit(seed=2, seeds=2, values="auto")
    fitted.report(tmp_path / "r.html")
    text = re.sub(r"<[^>]*>", "", (tmp_path / "r.html").read_text()).replace("&#x27;", "'")
    assert (
        "mb.fit(make, train_data, budget='70%', steps=12, batch_size=16, seed=2, seeds=2, test_data=test_data)"
        in text
    )
    assert "Mean ± standard deviation over 2 seeds" in text
    assert "Seed 2 (the saved file; standard error over" in text
    assert "dense, 8 bits" in text


def test_several_budgets_have_their_own_spread():
    small, large = fit(budget=["60%", "90%"], seeds=2, values="f16")
    assert small.facts["seeds"]["file_bytes"][0] < large.facts["seeds"]["file_bytes"][0]


@pytest.mark.full
def test_the_command_says_mean_and_spread(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images = RANDOM.integers(0, 255, (60, 28, 28), dtype=np.uint8)
    np.savez(
        "digits.npz", x_train=images, y_train=np.arange(60) % 10, x_test=images, y_test=np.arange(60) % 10
    )
    asked = "fit lenet --data digits.npz --budget 20KiB --steps 2 --device cpu --seeds 2 --out n.safetensors"
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as stopped:
            main([*asked.split(), *more])
        assert stopped.value.code == 0
        said = capsys.readouterr()
        if not more:
            assert re.search(r"over 2 seeds: [\d.]+ ± [\d.]+ %, dense", " ".join(said.out.split()))
            assert said.out.lstrip().startswith("Seed 0 (the saved file). Means over seeds follow.")
            assert "seed 1, 2 of 2" in said.err
    facts = json.loads(said.out)
    assert len(facts["finals"][0]["seeds"]["accuracies"]) == 2
    if find_spec("onnxruntime") and find_spec("onnx"):
        assert 0 < facts["dense"]["int8"]["latency_ms"] < 1000


def test_a_number_of_seeds_is_a_whole_number():
    with pytest.raises(mb.MemboundError, match="seeds"):
        fit(seeds=0)


def test_a_call_names_what_is_not_there_by_default():
    def loss(outputs, targets): ...

    data = Examples(train_data=X, test_data=(X, Y), classes=["a", "b"])
    how = Choices(loss=loss, teacher=make(), layers="fc*", dense=False)
    assert describe_call(make, data, Bound(ram=["1MB", 5000]), how) == (
        "mb.fit(make, train_data, ram=['1MB', 5000], teacher=<Sequential>, layers=['fc*'], dense=False, loss=loss, "
        "test_data=test_data, classes=classes)"
    )
    how = Choices(strategy=lambda name, weight: weight, score=nn.MSELoss(), augment=Augment(mirror=True))
    assert describe_call(make(), Examples(train_data=X), Bound(budget="1KB"), how) == (
        "mb.fit(<Sequential>, train_data, budget='1KB', strategy=<lambda>, augment='mirror', score=<MSELoss>)"
    )


def test_one_seed_does_not_go_on_in_the_run_directory_of_several(tmp_path):
    fit(seeds=2, run_dir=tmp_path / "run")
    with pytest.raises(MemboundError, match="holds a fit of several seeds: give as many seeds"):
        fit(run_dir=tmp_path / "run")
