"""Weights sharded over processes: the same bits as in one process, whatever their number."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from ranks import start
from safetensors.torch import load_file
from sharded_ranks import (
    everything,
    go_on_sharded,
    network,
    project_many,
    rules,
    tensors,
    train,
    train_run,
    train_sharded,
)

from membound.errors import MemboundError
from membound.train.checkpoint import read_tensors, write_tensors


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes left behind; to start them takes longer than what they do."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("project", "train", "refuse", "run"):
        (folder / name).mkdir()
    start(everything, args=(2, str(folder)), nprocs=2)
    return folder


def check_projections(folder, size):
    for rank in range(size):
        assert int((folder / f"{rank}.txt").read_text()) >= 5 * len(tensors())


def test_a_sharded_projection_is_the_projection_of_the_whole_bit_for_bit(two):
    check_projections(two / "project", 2)


def check_training(folder):
    """Penalties, shrinkage and projections; 30 steps in float64: 1e-10."""
    alone = network()
    reg = train(alone, slice(None))
    found = torch.load(folder / "sharded.pt", weights_only=True)
    assert found["nonzeros"] == {layer.name: layer.nonzeros for layer in reg.report().layers}
    assert len(found["weights"]["2.weight"].unique()) <= 9
    for name, value in alone.state_dict().items():
        assert (value - found["weights"][name]).abs().max() < 1e-10, name
        assert torch.equal(value == 0, found["weights"][name] == 0), name
    assert len(rules()) == 3


def test_fully_sharded_training_is_training_in_one_process(two):
    check_training(two / "train")


@pytest.mark.full
@pytest.mark.parametrize("size", [3])
def test_three_processes_do_as_two(size, tmp_path):
    """With more processes than some weights have rows."""
    (tmp_path / "train").mkdir()
    start(project_many, args=(size, str(tmp_path)), nprocs=size)
    check_projections(tmp_path, size)
    start(train_sharded, args=(size, str(tmp_path / "train")), nprocs=size)
    check_training(tmp_path / "train")


def test_a_layout_that_cannot_be_is_refused(two):
    assert "'weight' is sharded as" in (two / "refuse" / "0.txt").read_text()
    assert "first axis" in (two / "refuse" / "1.txt").read_text()


def same(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (value - found[name]).abs().max() < 1e-10, name
        assert torch.equal(value == 0, found[name] == 0), name


def test_a_sharded_run_is_the_run_of_one_process_and_goes_on_in_one(two, tmp_path):
    """With parts of batches added up; from the checkpoint at a third of the way."""
    alone, result = train_run(None)
    found = torch.load(two / "run" / "sharded.pt", weights_only=True)
    same(found["weights"], alone.state_dict())
    assert found["errors"] == result.score.errors
    names = sorted(path.name for path in (two / "run" / "halfway").glob("*.safetensors"))
    assert names == [
        "checkpoint-10-0-of-2.safetensors",
        "checkpoint-10-1-of-2.safetensors",
        "checkpoint.safetensors",
    ]
    shutil.copytree(two / "run" / "halfway", tmp_path / "alone")
    went_on, result = train_run(tmp_path / "alone")
    assert result.resumed == 10
    same(went_on.state_dict(), alone.state_dict())
    assert [path.name for path in (tmp_path / "alone").glob("*.safetensors")] == ["checkpoint.safetensors"]


@pytest.mark.full
def test_a_run_of_two_processes_goes_on_in_three(two, tmp_path):
    alone, _ = train_run(None)
    shutil.copytree(two / "run" / "halfway", tmp_path / "halfway")
    start(go_on_sharded, args=(3, str(tmp_path)), nprocs=3)
    found = torch.load(tmp_path / "went-on.pt", weights_only=True)
    assert found["resumed"] == 10
    same(found["weights"], alone.state_dict())


def test_parts_that_do_not_fit_together_are_said(tmp_path):
    """Of a checkpoint whose parts are of another kind, or lack a tensor; a name never leads out of the folder."""
    write_tensors(tmp_path / "a-0-of-2.safetensors", {"x": torch.zeros(2)}, {})
    write_tensors(tmp_path / "a-1-of-2.safetensors", {"y": torch.zeros(2)}, {})
    for parts in (5, [3], ["a-0-of-2.safetensors", "a-1-of-2.safetensors"]):
        write_tensors(tmp_path / "a.safetensors", {}, {"membound": {"parts": parts}})
        with pytest.raises(MemboundError, match="do not fit together"):
            read_tensors(tmp_path / "a.safetensors")
    write_tensors(tmp_path / "a.safetensors", {}, {"membound": {"parts": ["../../a-0-of-2.safetensors"]}})
    assert read_tensors(tmp_path / "a.safetensors")[0]["x"].tolist() == [0, 0]


def test_one_process_has_nothing_to_shard(tmp_path):
    with pytest.raises(MemboundError, match=r"several processes, and there is one: start them with torchrun"):
        train_run(None, shard=True)


def torchrun(processes: int, *arguments: object) -> subprocess.Popen:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, "-m", "membound", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


@pytest.mark.full
def test_a_killed_process_ends_the_run_with_one_line_and_the_run_goes_on(tmp_path):
    run, out = tmp_path / "run", tmp_path / "net.safetensors"
    command = [
        "train", "lenet", "--data", "mnist", "--subsample", 500, "--steps", 60, "--batch-size", 20,
        "--device", "cpu", "--precision", "float64", "--keep", "fc*=0.1", "--evaluate-every", 20,
        "--checkpoint-seconds", 0,
    ]  # fmt: skip
    going = torchrun(2, *command, "--shard", "--run-dir", run)
    deadline = time.monotonic() + 200
    while not (run / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    workers = subprocess.run(["pgrep", "-P", str(going.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    said = going.communicate(timeout=200)[0]
    assert going.returncode == 1
    assert "membound: error: another process of this run is gone, at step" in said
    assert "the same command goes on from the last checkpoint" in said

    going = torchrun(3, *command, "--shard", "--run-dir", run, "--out", out, "--json")
    said = going.communicate(timeout=400)[0]
    assert going.returncode == 0, said
    facts = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert facts["resumed"] >= 20
    alone = tmp_path / "alone.safetensors"
    going = torchrun(1, *command, "--out", alone)
    said = going.communicate(timeout=400)[0]
    assert going.returncode == 0, said
    same(load_file(out), load_file(alone))
