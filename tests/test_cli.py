"""The command line as a user meets it: one line for what is wrong, and the right exit code."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from membound.cli import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code


TRAIN = ("train", "lenet", "--data", "mnist", "--device", "cpu")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "nonsense"),
        (("train", "lenet"), "--data"),
        ((*TRAIN, "--iterations", "0"), "--iterations"),
        ((*TRAIN, "--batch-size", "1000000000000"), "there are 60,000"),
        ((*TRAIN, "--seed", "-1"), "--seed"),
        (("train", "lenet", "--data", "minst"), "mnist"),
        (("train", "lenett", "--data", "mnist"), "lenet"),
        (("train", "no.such:net", "--data", "mnist"), "no module"),
        ((*TRAIN, "--keep", "fc1"), "NAME=VALUE"),
        ((*TRAIN, "--keep", "fc1=lots"), "not a number"),
        ((*TRAIN, "--keep", "fc1=1.5"), "between 0 and 1"),
        ((*TRAIN, "--keep", "fc1=-3"), "at least 0"),
        ((*TRAIN, "--keep", "fc7=0.1"), "there are conv1, conv2, fc1, fc2"),
        ((*TRAIN, "--keep", "fc1=0.1", "--keep", "fc1=0.2"), "twice"),
        ((*TRAIN, "--keep", "fc1=9999999"), "400000"),
        ((*TRAIN, "--shrink", "fc1=-1"), "l1_shrink"),
        ((*TRAIN, "--l1", "fc1=nan"), "l1_subgradient"),
        ((*TRAIN, "--lr", "0.1"), "its own schedule"),
        ((*TRAIN, "--solver", "lion"), "lion"),
        ((*TRAIN, "--precision", "fp4"), "fp4"),
        ((*TRAIN, "--init", "nowhere.safetensors"), "nowhere.safetensors"),
        ((*TRAIN, "--out", "no/such/folder/net.safetensors"), "no folder"),
        ((*TRAIN, "--subsample", "99999999"), "60000"),
        ((*TRAIN, "--mean", "median"), "median"),
        (("train", "lenet", "--data", "mnist", "--device", "tpu"), "tpu"),
        (("evaluate", "lenet", "--data", "mnist"), "--init"),
        (("evaluate", "lenet", "--data", "mnist", "--init", "x.safetensors", "--split", "dev"), "dev"),
        (("data", "nowhere.npz"), "nowhere.npz"),
    ],
)
def test_bad_input_is_one_line_and_exit_1(arguments, words, capsys):
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("membound: error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_help_and_version(capsys):
    assert run("--help") == 0
    assert "train" in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out == "0.1.0\n"


def test_data_as_json(capsys):
    assert run("data", "mnist", "--json") == 0
    assert json.loads(capsys.readouterr().out)["images"] == {"train": 60000, "test": 10000}


NETS = """
from torch import nn
def small():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4, 2))
def broken():
    raise RuntimeError("out of cheese")
"""


def test_your_own_network_and_arrays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (80, 10, 12, 3)).astype(np.uint8)
    y = rng.integers(0, 2, 80)
    x[y == 1] += 100
    np.savez("own.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    command = ("cli_nets:small", "--data", "own.npz", "--device", "cpu")
    options = ("--iterations", "60", "--batch-size", "20", "--keep", "*=0.5", "--every", "5")
    assert run("train", *command, *options, "--out", "own.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["accuracy"] > 90
    assert [layer["nonzeros"] for layer in facts["layers"]] == [54, 4]
    assert run("evaluate", *command, "--init", "own.safetensors", "--json") == 0
    assert json.loads(capsys.readouterr().out)["errors"] == facts["errors"]
    assert run("train", "cli_nets:broken", "--data", "own.npz") == 1
    assert "out of cheese" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m membound data mnist | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=os.environ
    )
    assert done.stderr == ""
