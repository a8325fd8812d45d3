"""The recipe on the command line: augmentation, a teacher, widths, two bounds; and one line for what cannot be."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from deployed import images, refused, run

import membound as mb

NETS = """
from torch import nn
def wide(classes=2, channels=1, width=6):
    return nn.Sequential(nn.Conv2d(channels, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * width, classes))
def plain(classes=2):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, classes))
"""
FIT = (
    "fit",
    "recipe_nets:wide",
    "--data",
    "own.npz",
    "--device",
    "cpu",
    "--batch-size",
    "20",
    "--steps",
    "12",
)
OUT = ("--out", "net.safetensors", "--no-report")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipe_nets.py").write_text(NETS)
    x, y = images(120)
    np.savez("own.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    yield
    sys.modules.pop("recipe_nets", None)


def test_everything_at_once(capsys):
    asked = ("--budget", "1500", "--widths", "1,2", "--teacher", "auto", "--augment", "shift=1")
    assert run(*FIT, *OUT, *asked, "--smoothing", "0.1", "--no-dense", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    (final,) = said["finals"]
    assert final["file_bytes"] == Path("net.safetensors").stat().st_size <= 1500
    assert final["width"] in (1, 2)
    for word in ("12 steps", "shift=1", "smoothed by 0.1", "teacher of", "was taken"):
        assert any(word in note for note in final["tried"]), word
    # The file teaches another one.
    teacher = ("--teacher", "net.safetensors", "--teacher-part", "0.9", "--temperature", "2")
    assert run(*FIT, "--out", "pupil.safetensors", "--budget", "1200", *teacher, "--no-dense") == 0
    out = capsys.readouterr().out
    assert "a teacher that was given" in out
    assert "pupil.report.html" in out
    assert "what was tried" in Path("pupil.report.html").read_text()


def test_a_teacher_with_weights_of_its_own(capsys):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(64, 2))
    torch.save(net.state_dict(), "large.pt")
    classes = len(mb.data.load("own.npz").classes)
    assert classes == 2
    teacher = ("--teacher", "recipe_nets:plain", "--teacher-init", "large.pt")
    assert run(*FIT, *OUT, "--budget", "1500", "--no-dense", *teacher, "--json") == 0
    assert "a teacher that was given" in json.loads(capsys.readouterr().out)["finals"][0]["tried"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("--augment flip", "there is no 'flip'; write none, standard, mirror"),
        ("--augment mirror,shfit=2", "there is no 'shfit=2'; did you mean shift?"),
        ("--augment shift=99", "shift=99 is too much for images of 6 x 6 pixels: write less than 6"),
        ("--teacher large", "is not a file"),
        ("--teacher recipe_nets:plain", "is not a file"),
        ("--teacher-init large.pt", "--teacher NET"),
        ("--teacher auto --teacher-init large.pt", "leave --teacher-init out"),
        ("--teacher none --temperature 2", "without a teacher"),
        ("--teacher dense --teacher-init large.pt", "leave --teacher-init out"),
        ("--widths 1,1", "different factors"),
        ("--effort much", "no effort"),
        ("--ram 200", "allow at least these two"),
        ("--ram 20KB --ram 30KB", "give --budget and --ram once each, and run fit once for each pair"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(asked, message, capsys):
    before = sorted(Path().iterdir())
    assert message in refused(capsys, *FIT, *OUT, "--budget", "1500", *asked.split())
    assert [path for path in sorted(Path().iterdir()) if path.name != "__pycache__"] == before


def test_train_augments_where_it_is_asked_to(capsys):
    train = ("train", "recipe_nets:wide", "--data", "own.npz", "--steps", "3", "--device", "cpu", "--json")
    said = []
    for how in ("none", "standard"):
        assert run(*train, "--batch-size", "10", "--augment", how) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert [each["augment"] for each in said] == ["none", "turn=10,zoom=0.1"]
    assert said[0]["history"][-1]["loss"] != said[1]["history"][-1]["loss"]
    assert said[0]["training_data"] == said[1]["training_data"]
    assert said[0]["training"]["batch_size"] == 10
    assert said[0]["rules"] == {}
    assert {"command", "date", "hardware", "versions"} <= set(said[0])


def test_train_says_under_which_rules(capsys):
    train = ("train", "recipe_nets:wide", "--data", "own.npz", "--steps", "3", "--device", "cpu", "--json")
    assert run(*train, "--batch-size", "10", "--keep", "*=0.5", "--every", "2", "--run-dir", "runs") == 0
    said = capsys.readouterr()
    assert "will not be kept" not in said.err
    assert all("l0_project(0.5, 2)" in rule for rule in json.loads(said.out)["rules"].values())
