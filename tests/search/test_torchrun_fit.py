"""A fit under torchrun: the processes train each network together and come to what one process comes to."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from fit_ranks import Ranks, fit_case
from small import digits

import membound as mb
from membound.errors import MemboundError

# Of the largest output: what a different order of sums has come to after these few steps, and what it comes to where it
# changes which of few values a weight takes. Another seed is 0.5 away.
CLOSE, CLOSE_OF_FEW = 1e-3, 0.1


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    found = Ranks(tmp_path_factory.mktemp("ranks"))
    yield found
    found.close()


def alone(case, folder):
    """The same fit in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fit_case(case, folder / "alone")
    finally:
        torch.set_num_threads(threads)
    return folder / "alone-0.safetensors"


def assert_alike(one, other, close=CLOSE):
    nets = [mb.load(path) for path in (one, other)]
    images = digits(300, 400).images
    first, second = (net(net.preprocess(images)) for net in nets)
    np.testing.assert_allclose(first, second, rtol=0, atol=close * np.abs(first).max())
    counts = [
        {layer["name"]: layer["nonzeros"] for layer in mb.inspect(path)["layers"]} for path in (one, other)
    ]
    assert counts[0] == counts[1]


def test_a_killed_process_ends_the_fit_and_the_same_call_ends_where_one_process_does(ranks, tmp_path):
    """At the ninth checkpoint of 24 steps the last process is gone; the first says so, and what to do."""
    assert ranks.run("plain", 2, "plain", resumable=True, kill=9) == [1, -9], ranks.errors.read_text()[-2000:]
    said = ranks.errors.read_text()
    assert "another process of this run is gone, at step" in said
    assert "the same command goes on from the last checkpoint" in said
    assert ranks.run("plain", 2, "plain", resumable=True) == [0, 0], ranks.errors.read_text()[-2000:]
    assert "final-4000-0 goes on from step" in ranks.errors.read_text()
    both = [ranks.folder / f"plain-{rank}.safetensors" for rank in range(2)]
    assert both[0].read_bytes() == both[1].read_bytes()
    assert both[0].stat().st_size <= 4000
    assert_alike(alone("plain", tmp_path), both[0])


@pytest.mark.full
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(("case", "close"), [("taught", CLOSE), ("few bits", CLOSE_OF_FEW)])
def test_what_the_dense_network_teaches_is_learned_as_in_one_process(ranks, tmp_path, processes, case, close):
    name = f"{case}-{processes}"
    assert ranks.run(case, processes, name) == [0] * processes
    assert_alike(alone(case, tmp_path), ranks.folder / f"{name}-0.safetensors", close)


@pytest.mark.full
def test_a_search_goes_on_from_what_the_first_process_has_finished(ranks):
    """A greedy one, of a network with batch norm, killed in its second round; then as if nothing had happened."""
    assert ranks.run("searched", 2, "peace", resumable=True) == [0, 0]
    assert ranks.run("searched", 2, "killed", resumable=True, kill=33) == [1, -9]
    assert ranks.run("searched", 2, "killed", resumable=True) == [0, 0]
    assert "3 networks are finished, r002-conv goes on from step" in ranks.errors.read_text()
    files = [ranks.folder / f"{name}-{rank}.safetensors" for name in ("peace", "killed") for rank in range(2)]
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.full
def test_processes_that_were_asked_for_different_fits_are_refused(ranks):
    assert ranks.run("unalike", 2, "unalike") == [1, 1]
    said = ranks.errors.read_text()
    assert "choices.steps is 10 in the first and 11 in this one" in said


@pytest.mark.full
def test_the_command_under_torchrun_writes_and_tells_once(tmp_path):
    images = digits(0, 300)
    np.savez(
        tmp_path / "few.npz",
        x_train=images.images,
        y_train=images.labels,
        x_test=images.images,
        y_test=images.labels,
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "membound"]
    command = ["fit", "lenet", "--data", str(tmp_path / "few.npz"), "--budget", "20KiB", "--steps", "20"]
    rest = ["--batch-size", "20", "--device", "cpu", "--json", "--out", str(tmp_path / "net.safetensors")]
    done = subprocess.run(
        [sys.executable, *launcher, *command, *rest], capture_output=True, text=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dense"] is not None  # one object, of one process
    assert (tmp_path / "net.safetensors").stat().st_size <= 20 * 1024
    assert (tmp_path / "net.report.html").exists()


def test_a_cluster_under_torchrun_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(MemboundError, match="a Ray cluster under torchrun"):
        mb.ray_cluster("local")
