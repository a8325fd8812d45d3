"""Stages: bounds are tightened while accuracy allows, with accuracies from a table; then a real fit; then bad files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from profiles import full
from small import Small, digits, small_problem
from test_greedy import Clerk

import membound as mb
from membound import data
from membound.cli import main
from membound.data import subsample
from membound.errors import MemboundError
from membound.run.net import load
from membound.search.ledger import open_run
from membound.search.problem import bounded_weights
from membound.search.stages import Stages, search_stages
from membound.search.workshop import Workshop

FC = {"fc1": 1_000, "fc2": 0.5}


def walked(stages, accuracy, stop_after=None, folder=None, said=None):
    """Stages with the accuracy of each training from a function of what it is about and its counts."""
    problem = small_problem(kind="nonzeros")
    clerk = Clerk(lambda about: (90.0, 0.1))
    clerk.stop_after = stop_after
    clerk.table = lambda about: (accuracy(about, clerk.orders[-1].job.counts or {}), 0.1)
    with open_run(folder, {}) as directory:
        workshop = Workshop(problem, directory, clerk)
        tell = ([] if said is None else said).append
        return search_stages(workshop, stages, 0, tell, tell), clerk


def test_steps_go_to_the_counts_of_every_stage_and_earlier_ones_stay():
    reached, clerk = walked(Stages([{"fc2": 100}, {"fc1": 1_000}]), lambda about, counts: 90.0)
    assert reached.counts == {"fc2.weight": 100, "fc1.weight": 1_000}
    assert [order.job.counts for order in clerk.orders[1:]] == [
        {"fc2.weight": 192},
        {"fc2.weight": 115},
        {"fc2.weight": 100},
        {"fc2.weight": 100, "fc1.weight": 3_686},
        {"fc2.weight": 100, "fc1.weight": 2_212},
        {"fc2.weight": 100, "fc1.weight": 1_327},
        {"fc2.weight": 100, "fc1.weight": 1_000},
    ]
    assert [order.job.start for order in clerk.orders] == [None, *clerk.keys[:-1]]


def test_a_step_that_costs_too_much_is_trained_on_then_taken_back():
    def accuracy(about, counts):
        return 90.0 if counts.get("fc1.weight", 6_144) >= 3_000 else 80.0

    said = []
    reached, clerk = walked(Stages([{"fc1": 1_000}], keep=0.6, tries=2), accuracy, said=said)
    assert 3_000 <= reached.counts["fc1.weight"] <= 3_400  # as far as smaller and smaller steps lead
    assert clerk.keys[1:5] == ["stage1-001-1", "stage1-002-1", "stage1-002-2", "stage1-003-1"]
    starts = {order.job.key: order.job.start for order in clerk.orders}
    assert starts["stage1-002-2"] == "stage1-002-1"  # trained on
    assert starts["stage1-003-1"] == "stage1-001-1"  # taken back
    assert "not 1,000" in said[0]
    accepted = [each for each in reached.candidates if each["won"]]
    assert accepted[-1]["key"] == reached.key


def test_a_search_that_is_killed_goes_on(tmp_path):
    stages = Stages([{"fc1": 1_000}])
    undisturbed, clerk = walked(stages, lambda about, counts: 90.0)
    with pytest.raises(KeyboardInterrupt):
        walked(stages, lambda about, counts: 90.0, stop_after=3, folder=tmp_path)
    reached, rest = walked(stages, lambda about, counts: 90.0, folder=tmp_path)
    assert reached.counts == undisturbed.counts
    assert rest.keys == clerk.keys[3:]


def test_a_fit_ends_at_the_counts_exactly(tmp_path):
    file = tmp_path / "stages.toml"
    file.write_text("tolerance = 90\nkeep = 0.5\n[[stage]]\nfc2 = 100\n[[stage]]\nfc1 = 0.1\nconv2 = 600\n")
    fitted = mb.fit(
        Small, (digits(0, 300).images / 256, digits(0, 300).labels), stages=file, steps=30, candidate_steps=8,
        test_data=(digits(300, 400).images / 256, digits(300, 400).labels), every=4, batch_size=20, device="cpu",
    )  # fmt: skip
    state = fitted.model.state_dict()
    counts = {name: int(state[name].count_nonzero()) for name in bounded_weights(Small())}
    assert counts == {"conv1.weight": 150, "conv2.weight": 600, "fc1.weight": 614, "fc2.weight": 100}
    fitted.save(tmp_path / "net.safetensors")
    assert (tmp_path / "net.safetensors").stat().st_size == fitted.file_bytes == fitted.limit
    x = (digits(300, 310).images / 256).astype("float32")
    want = fitted.model(torch.from_numpy(x)).detach().numpy()
    assert abs(load(tmp_path / "net.safetensors")(x) - want).max() < 0.05  # values of 16 bits
    assert {each.get("stage") for each in fitted.history} >= {1, 2}


@pytest.mark.full
def test_the_command_takes_a_file(tmp_path, capsys):
    (tmp_path / "stages.toml").write_text("tolerance = 100\nkeep = 0.1\n[[stage]]\n'fc*' = 0.1\n")
    mnist = data.load("mnist")
    train, test = subsample(mnist.train, 200), subsample(mnist.test, 50)
    arrays = {
        "x_train": train.images[:, 0],
        "y_train": train.labels,
        "x_test": test.images[:, 0],
        "y_test": test.labels,
    }
    file = tmp_path / "digits.npz"
    np.savez(file, **arrays)
    with pytest.raises(SystemExit) as exit:
        main(
            ["fit", "lenet", "--data", str(file), "--stages", str(tmp_path / "stages.toml"), "--steps", "4",
             "--candidate-steps", "2", "--batch-size", "8", "--no-dense", "--no-report", "--json", "--device", "cpu",
             "--out", str(tmp_path / "net.safetensors")]
        )  # fmt: skip
    assert exit.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    layers = {layer["name"]: layer["nonzeros"] for layer in facts["finals"][0]["layers"]}
    assert layers["fc1.weight"] <= 40_000
    assert layers["fc2.weight"] <= 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[stage]]\nfc9 = 100\n", "stage 1: the pattern 'fc9' matches no layer"),
        ("[[stage]]\nfc1 = 10_000\n", "stage 1: .*there are 6144"),
        ("[[stage]]\nfc1 = 100\n[[stage]]\n'fc*' = 0.5\n", "stage 2: 'fc1.weight' has a stage already"),
        ("[[stage]]\nfc1 = 0\n", "keep at least one"),
        ("[[stage]]\nfc1 = 'many'\n", "stage 1: "),
        ("[stage]\nfc1 = 100\n", "double brackets"),
        ("tolerance = 0.5\n", "there is none"),
        ("[[stage]]\n", "without layers"),
        ("keep = 2.0\n[[stage]]\nfc1 = 100\n", "keep must lie between .*, got 2.0"),
        ("tries = 0\n[[stage]]\nfc1 = 100\n", "tries must lie between .*, got 0"),
        ("speed = 1\n[[stage]]\nfc1 = 100\n", "has 'speed': there are tolerance, keep, tries"),
        ("fc1 = = 3", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_anything_is_trained(text, message, tmp_path):
    file = tmp_path / "stages.toml"
    file.write_text(text)
    split = digits(0, 60)
    with pytest.raises(MemboundError, match=message):
        mb.fit(Small, (split.images / 256, split.labels), stages=file, steps=2, device="cpu")


def test_stages_are_a_bound_of_their_own(tmp_path):
    split = digits(0, 60)
    data = (split.images / 256, split.labels)
    with pytest.raises(MemboundError, match="give one bound"):
        mb.fit(Small, data, "5 KiB", stages=Stages([FC]), device="cpu")
    with pytest.raises(MemboundError, match="stages takes a single network"):
        mb.fit(Small, data, stages=Stages([FC]), members=2, device="cpu")
    with pytest.raises(MemboundError, match="there is no file"):
        mb.fit(Small, data, stages=tmp_path / "nothing.toml", device="cpu")
    assert replace(Stages([FC]), keep=0.5).describe()["stages"] == [FC]


@pytest.mark.parametrize("keep", [full(0.9), full(0.94), 0.6])
def test_small_counts_are_reached_one_by_one(keep):
    reached, _ = walked(Stages([{"fc2": 3}], keep=keep), lambda about, counts: 90.0)
    assert reached.counts == {"fc2.weight": 3}


def test_a_stage_that_ends_early_says_so(tmp_path, capsys):
    split = digits(0, 200)
    mb.fit(
        Small, (split.images / 256, split.labels), stages=Stages([{"fc1": 2}], tolerance=0.0, keep=0.01, tries=1),
        steps=40, candidate_steps=1, batch_size=20, device="cpu", run_dir=tmp_path, dense=False, progress=False,
    )  # fmt: skip
    said = capsys.readouterr().err
    assert "stage 1: fc1 keeps" in said
    assert "not 2" in said
    assert said.strip() in (tmp_path / "log.txt").read_text()
