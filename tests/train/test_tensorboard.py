"""Curves for TensorBoard, read back from the event files: of train, of fit, and of anybody's loop."""

import sys
import time

import numpy as np
import pytest
import torch

pytest.importorskip("tensorboard")
from event_files import curves
from torch.utils.tensorboard import SummaryWriter

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.errors import MemboundError
from membound.search.cluster import Cluster
from membound.search.jobs import Job, Order
from membound.store.sizes import best_format
from membound.train.loop import Interrupted, train
from membound.train.recipe import modern
from membound.train.run import Settings
from membound.train.tensorboard import log_report

LABELS = np.arange(120) % 3
IMAGES = np.random.default_rng(0).integers(0, 80, (120, 1, 8, 8)) + 50 * LABELS[:, None, None, None]
SPLIT = ArraySplit(IMAGES.astype(np.uint8), LABELS)
PREPROCESS = Preprocess(scale=1 / 256)
RECIPE = modern("sgd", 40, 20, lr=0.05, warmup=5)
TAGS = {f"{what}{where}" for what in ("nonzeros", "bytes") for where in ("", "/1.weight", "/3.weight")}


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3)
    )


def rules():
    return {"1": mb.l0_project(mb.ramp(1.0, 0.2), every=8), "3": mb.l1_shrink(1e-3)}


def train_small(folder, **options):
    settings = Settings(run_dir=folder, tensorboard=True, evaluate_every=10, device="cpu")
    return train(
        network(), SPLIT, RECIPE, rules(), preprocess=PREPROCESS, held_out=SPLIT, settings=settings, **options
    )


def test_what_training_writes(tmp_path):
    history = train_small(tmp_path).history
    found = curves(tmp_path / "tensorboard")
    assert found.keys() == TAGS | {"loss", "accuracy", "test_loss", "learning_rate"}
    for tag in ("loss", "accuracy", "test_loss", "nonzeros"):
        wanted = {entry["iteration"]: entry[tag] for entry in history}
        assert found[tag] == pytest.approx(wanted, rel=1e-6)
    assert found["learning_rate"] == pytest.approx({step: RECIPE.lr(step - 1) for step in (10, 20, 30, 40)})


def test_layers_are_drawn_at_their_bound_and_add_up(tmp_path):
    train_small(tmp_path)
    found = curves(tmp_path / "tensorboard")
    size, kept = 64 * 30, mb.ramp(1.0, 0.2)
    bounded = found["nonzeros/1.weight"]  # at step 10 it is dense: the projection before was at step 8
    assert bounded == {step: pytest.approx(kept(step / 40) * size, abs=1) for step in (10, 20, 30, 40)}
    for step, total in found["nonzeros"].items():
        assert total == bounded[step] + found["nonzeros/3.weight"][step]
        assert found["bytes"][step] == found["bytes/1.weight"][step] + found["bytes/3.weight"][step]
        assert found["bytes/1.weight"][step] == best_format(size, int(bounded[step]))[1]


def test_a_run_that_goes_on_draws_no_step_twice(tmp_path):
    train_small(tmp_path / "whole")

    def stop(progress):
        if progress.step == 30:
            raise Interrupted

    first = Settings(run_dir=tmp_path / "run", tensorboard=True, evaluate_every=10, checkpoint_seconds=0)
    options = {"preprocess": PREPROCESS, "held_out": SPLIT, "settings": first}
    with pytest.raises(Interrupted):  # after the curves of step 30, before its checkpoint
        train(network(), SPLIT, RECIPE, rules(), show=stop, **options)
    assert curves(tmp_path / "run" / "tensorboard")["loss"].keys() == {10, 20, 30}
    time.sleep(1)  # the names of event files, by which they are ordered, are of whole seconds
    assert train(network(), SPLIT, RECIPE, rules(), **options).resumed == 20
    assert curves(tmp_path / "run" / "tensorboard") == curves(tmp_path / "whole" / "tensorboard")


def test_it_is_missed_before_training(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    seen = []
    with pytest.raises(MemboundError, match=r"pip install '\.\[tensorboard\]'"):
        train_small(tmp_path, show=seen.append)
    assert not seen
    with pytest.raises(MemboundError, match=r"pip install '\.\[tensorboard\]'"):
        mb.fit(network, (SPLIT.images, LABELS), "2 KiB", run_dir=tmp_path / "fit", tensorboard=True)
    assert not (tmp_path / "fit").exists()


def test_a_report_in_a_loop_of_ones_own(tmp_path):
    model = network()
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    reg = mb.attach(adam, model, rules(), total_steps=20)
    with SummaryWriter(str(tmp_path)) as writer:
        for _ in range(20):
            adam.zero_grad()
            model(torch.randn(16, 64)).square().mean().backward()
            adam.step()
            log_report(writer, reg.report(), reg.step)
        reg.finish()
        log_report(writer, reg.report(), 21)
    found = curves(tmp_path)
    assert found.keys() == TAGS
    assert list(found["bytes"]) == list(range(1, 22))
    assert found["nonzeros/1.weight"][21] == int(model[1].weight.count_nonzero()) == 64 * 30 // 5
    assert found["nonzeros"][21] == reg.report().nonzeros
    assert found["bytes"][21] == reg.report().bytes
    falling = list(found["nonzeros/1.weight"].values())
    assert falling == sorted(falling, reverse=True)


def test_every_network_of_a_fit_has_its_curves(tmp_path):
    options = {"steps": 40, "batch_size": 20, "test_data": (SPLIT.images, LABELS), "device": "cpu"}
    result = mb.fit(network, (SPLIT.images, LABELS), "1 KiB", run_dir=tmp_path, tensorboard=True, **options)
    keys = {path.name for path in (tmp_path / "tensorboard").iterdir()}
    assert keys == {"dense", "final-1KiB-0"}
    dense, final = (curves(tmp_path / "tensorboard" / key) for key in ("dense", "final-1KiB-0"))
    assert dense.keys() == {"loss", "accuracy", "test_loss", "learning_rate"}
    assert final.keys() == dense.keys() | TAGS
    assert final["nonzeros"][2] == 64 * 30 + 30 * 3
    assert final["nonzeros/1.weight"][40] == int(result.model[1].weight.count_nonzero())
    wanted = {entry["iteration"]: entry["nonzeros"] for entry in result.facts["curves"]}
    assert final["nonzeros"] == wanted


def test_curves_that_nobody_would_write_are_refused(tmp_path):
    with pytest.raises(MemboundError, match="name one as run_dir"):
        mb.fit(network, (SPLIT.images, LABELS), "2 KiB", tensorboard=True)
    orders = [Order(Job("one", 0), curves=tmp_path)]
    with pytest.raises(MemboundError, match="the workers of a cluster write no curves"):
        next(Cluster.__call__(object.__new__(Cluster), None, orders))
