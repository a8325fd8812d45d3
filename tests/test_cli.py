"""The command line as a user meets it: one line for what is wrong, and the right exit code."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from profiles import full
from safetensors import safe_open
from safetensors.torch import load_file

from membound.__main__ import start
from membound.cli import main
from membound.cli.options import reading
from membound.data import load


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
        ((*TRAIN, "--steps", "0"), "--steps"),
        ((*TRAIN, "--batch-size", "1000000000000"), "there are only 60,000"),
        ((*TRAIN, "--seed", "-1"), "--seed"),
        (("train", "lenet", "--data", "minst"), "mnist"),
        (("train", "lenett", "--data", "mnist"), "lenet"),
        (("train", "no.such:net", "--data", "mnist"), "no module"),
        ((*TRAIN, "--keep", "fc1"), "NAME=VALUE"),
        ((*TRAIN, "--keep", "fc1=lots"), "not a number"),
        ((*TRAIN, "--keep", "fc1=1.5"), "a fraction above 0, up to 1"),
        ((*TRAIN, "--keep", "fc1=-3"), "write 1 or more"),
        (
            (*TRAIN, "--keep", "fc7=0.1"),
            "there are conv1 (Conv2d), conv2 (Conv2d), fc1 (Linear), fc2 (Linear)",
        ),
        ((*TRAIN, "--keep", "fc1=0.1", "--keep", "fc1=0.2"), "twice"),
        ((*TRAIN, "--keep", "fc1=9999999"), "400000"),
        ((*TRAIN, "--keep", "*=0.1", "--keep", "fc1=0.05"), "'fc1' never applies: rules before it ('*')"),
        ((*TRAIN, "--keep", "*=0.1", "--keep", "fc1=0.05"), "give the specific one first"),
        ((*TRAIN, "--ramp"), "--ramp tightens --keep, and there is none"),
        ((*TRAIN, "--every", "50", "--shrink", "fc1=1e-4"), "--every is for --keep, and there is none"),
        ((*TRAIN, "--name", "ip1=fc1"), "--name says where layers of --init go, and there is none"),
        ((*TRAIN, "--levels", "fc1=0.5"), "--levels takes a whole number from 1 to 256"),
        ((*TRAIN, "--levels", "fc1=300"), "got '300'"),
        ((*TRAIN, "--shrink", "fc1=-1"), "l1_shrink"),
        ((*TRAIN, "--l1", "fc1=nan"), "l1_subgradient"),
        ((*TRAIN, "--lr", "0.1"), "its own schedule"),
        ((*TRAIN, "--solver", "lion"), "lion"),
        ((*TRAIN, "--precision", "fp4"), "fp4"),
        ((*TRAIN, "--init", "nowhere.safetensors"), "nowhere.safetensors"),
        ((*TRAIN, "--out", "no/such/folder/net.safetensors"), "no folder"),
        ((*TRAIN, "--out", "/dev"), "/dev is a folder: name a file, such as /dev/net.safetensors"),
        ((*TRAIN, "--out", "net.pt"), "so name the file net.safetensors"),
        ((*TRAIN, "--out", "/dev/null"), "so name the file null.safetensors"),
        ((*TRAIN, "--subsample", "99999999"), "60000"),
        ((*TRAIN, "--mean", "median"), "median"),
        (("train", "lenet", "--data", "mnist", "--device", "tpu"), "no device 'tpu'"),
        (("train", "lenet", "--data", "mnist", "--device", "cuda:x"), "no device 'cuda:x'"),
        (("train", "lenet", "--data", "mnist", "--device", "cuda:99"), "device 'cuda:99': "),
        ((*TRAIN, "--seed", "4294967296"), "--seed"),
        ((*TRAIN, "--size", "0"), "--size"),
        ((*TRAIN, "--size", "32"), "mnist"),
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


def test_out_that_is_no_regular_file_is_refused_before_training(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert run(*TRAIN, "--out", str(tmp_path / "pipe.safetensors")) == 1
    assert "is not a regular file: choose another name" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder that nobody can write in is needed")
def test_out_in_a_folder_that_cannot_be_written_is_refused_before_training(capsys):
    assert run(*TRAIN, "--out", "/proc/net.safetensors") == 1  # permissions would not stop a superuser
    assert "/proc/net.safetensors: nothing can be written in /proc" in capsys.readouterr().err


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_ctrl_c_is_a_line_and_exit_130_from_the_first_import_on(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["membound", "data", "mnist"])
    for place in ("membound.data.load", "membound.cli._commands", "membound.cli.main"):
        monkeypatch.setattr(place, interrupt)
        with pytest.raises(SystemExit) as stopped:
            start()
        assert stopped.value.code == 130
        assert capsys.readouterr() == ("", "membound: interrupted\n")


def test_a_log_says_at_once_that_torch_is_loaded(capsys, monkeypatch):
    with reading():
        assert capsys.readouterr().err == ""
    monkeypatch.delitem(sys.modules, "torch")
    with reading():
        assert capsys.readouterr().err == "loading torch, the network and the data\n"
    monkeypatch.setenv("RANK", "1")
    with reading():
        assert capsys.readouterr().err == ""


def test_the_command_alone_prints_help(capsys):
    assert run() == 0
    captured = capsys.readouterr()
    assert "Usage: membound" in captured.out
    assert "evaluate" in captured.out
    assert captured.err == ""


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
def for_classes(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, classes))
def broken():
    raise RuntimeError("out of cheese")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """In a folder with networks in cli_nets.py, arrays in own.npz and the same images in photos/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (80, 10, 12, 3)).astype(np.uint8)
    y = rng.integers(0, 2, 80)
    x[y == 1] += 100
    np.savez("own.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    for number, (image, label) in enumerate(zip(x, y, strict=True)):
        (tmp_path / "photos" / f"class {label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "photos" / f"class {label}" / f"{number}.png")
    yield
    sys.modules.pop("cli_nets", None)


def test_your_own_network_and_arrays(own, capsys):
    command = ("cli_nets:small", "--data", "own.npz", "--device", "cpu")
    options = ("--steps", "60", "--batch-size", "20", "--keep", "*=0.5", "--every", "5")
    assert run("train", *command, *options, "--out", "own.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["accuracy"] > 90
    assert [layer["nonzeros"] for layer in facts["layers"]] == [54, 4]
    assert run("evaluate", *command, "--init", "own.safetensors", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["errors"], found["collapsed"]) == (facts["errors"], None)
    torch.save({name: 0 * each for name, each in load_file("own.safetensors").items()}, "zeros.pt")
    assert run("evaluate", *command, "--init", "zeros.pt") == 0
    assert "warning: it predicts class 0 for every image: train longer" in capsys.readouterr().err
    assert run("train", "cli_nets:broken", "--data", "own.npz") == 1
    assert "out of cheese" in capsys.readouterr().err


QUICK = ("--device", "cpu", "--steps", "5", "--batch-size", "20")


def test_your_own_network_is_told_the_classes(own, capsys):
    assert run("train", "cli_nets:for_classes", "--data", "own.npz", *QUICK, "--json") == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 48 * 2 + 2


def test_resuming_is_said(own, capsys):
    command = ("train", "cli_nets:small", "--data", "own.npz", *QUICK, "--run-dir", "run")
    assert run(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out)["resumed"] is None
    assert run(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 5
    assert run(*command) == 0
    assert "resumed from step 5\n" in capsys.readouterr().out


def test_mean_is_honoured_together_with_init(own, capsys):
    command = ("train", "cli_nets:small", "--data", "own.npz", *QUICK)
    assert run(*command, "--mean", "image", "--out", "first.safetensors") == 0
    assert run(*command, "--init", "first.safetensors", "--out", "kept.safetensors") == 0
    assert run(*command, "--init", "first.safetensors", "--mean", "none", "--out", "other.safetensors") == 0
    means = [saved_about(name)["preprocess"].get("mean") for name in ("first", "kept", "other")]
    assert means == ["image", "image", None]


def saved_about(name):
    with safe_open(f"{name}.safetensors", framework="numpy") as file:
        return json.loads(file.metadata()["membound"])


@pytest.mark.parametrize("weights", ["net.safetensors", "run"])
def test_a_folder_is_evaluated_as_it_was_split_and_read_for_training(own, capsys, weights):
    """Another seed would test on images that were trained on; another size would not fit the network."""
    command = ("cli_nets:for_classes", "--data", "photos", "--device", "cpu")
    options = ("--seed", "3", "--size", "8", "--steps", "3", "--batch-size", "20", "--run-dir", "run")
    assert run("train", *command, *options, "--out", "net.safetensors", "--json") == 0
    capsys.readouterr()
    assert saved_about("net")["seed"] == 3
    assert saved_about("net")["image_size"] == 8
    with patch("membound.data.load", wraps=load) as loaded:
        assert run("evaluate", *command, "--init", weights, "--json") == 0
        assert run("evaluate", *command, "--init", weights, "--seed", "4", "--size", "9") == 0
    assert [(call.kwargs["seed"], call.kwargs["size"]) for call in loaded.mock_calls] == [(3, 8), (4, 9)]


def test_a_size_saved_with_the_weights_is_for_folders_only(own, capsys):
    command = ("cli_nets:small", "--data", "own.npz", "--device", "cpu")
    assert run("train", *command, "--steps", "3", "--out", "net.safetensors") == 0
    assert run("evaluate", *command, "--init", "net.safetensors") == 0


def test_a_corrupt_image_is_told_with_the_option_that_leaves_it_out(own, capsys):
    Path("photos/class 1/bad.png").write_bytes(b"no image")
    command = ("cli_nets:for_classes", "--data", "photos", "--device", "cpu")
    assert run("train", *command, "--size", "8", "--steps", "100") == 1
    said = capsys.readouterr().err
    assert "bad.png cannot be decoded as an image" in said
    assert said.endswith("repair or remove it, or leave out all such files with --skip-corrupt\n")
    assert run("data", "photos") == 1
    assert capsys.readouterr().err.endswith("leave out all such files with --skip-corrupt\n")


def test_json_has_no_nan(own, capsys):
    torch.save({"2.weight": torch.full((2, 48), 3e38), "2.bias": torch.zeros(2)}, "huge.pt")
    command = ("cli_nets:for_classes", "--init", "huge.pt", "--data", "own.npz", "--device", "cpu")
    assert run("evaluate", *command, "--json") == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["loss"] is None
    assert facts["images"] == 20


def test_a_full_disk_at_the_end_is_said_with_the_name(own, capsys, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert run("train", "cli_nets:small", "--data", "own.npz", *QUICK, "--out", "net.safetensors") == 1
    said = capsys.readouterr().err
    assert said == "membound: error: net.safetensors cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("reader", "options"),
    [
        ("head -c 1", ""),
        full("true", "--json"),
        full("head -1", ""),
        full("true", ""),
        full("head -c 1", "--json"),
        full("head -1", "--json"),
    ],
)
def test_a_reader_that_goes_away_is_no_error(reader, options):
    command = f"{sys.executable} -m membound data mnist {options} | {reader}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("encoding", [full("ascii"), "latin-1", full("utf-8")])
def test_output_that_the_terminal_cannot_show_is_escaped(own, encoding):
    Path("photos/class 0").rename("photos/Straße 東")
    done = subprocess.run(
        [sys.executable, "-m", "membound", "data", "photos"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0
    assert done.stderr.startswith(b"images are resized")
    assert done.stderr.count(b"\n") == 1
    assert "Straße 東".encode(encoding, "backslashreplace") in done.stdout


def test_features_are_trained_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "feature_net.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Linear(6, 3))\n"
    )
    x = np.eye(6, dtype=np.float32)[np.arange(60) % 6]
    y = x.argmax(1) % 3
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    options = ("--steps", "40", "--batch-size", "20", "--lr", "0.5", "--device", "cpu")
    assert run("train", "feature_net:net", "--data", "t.npz", *options, "--out", "w.safetensors") == 0
    assert "100.00 % on 60 test images" in capsys.readouterr().out
    with safe_open("w.safetensors", "numpy") as file:
        assert "image_size" not in json.loads(file.metadata()["membound"])
