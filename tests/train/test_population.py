"""A population: every member ends with the weights that it would have alone."""

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from profiles import full
from torch import nn

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.train import population, stepping
from membound.train.loop import Interrupted, take_steps, train
from membound.train.population import train_all
from membound.train.recipe import Recipe, modern
from membound.train.regularizer import Regularizer
from membound.train.run import Run, Settings
from membound.train.schedules import ramp
from membound.train.updates import Update, chain, l0_project, l1_shrink, l1_subgradient, l2_decay, palette

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
STEPS = 30


def digits(count: int = 400) -> ArraySplit:
    split = mb.data.load("mnist").train
    return ArraySplit(split.images[:count], split.labels[:count])


def lenet(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return mb.zoo.lenet()


def batch_normed(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 12 * 12, 10)
    )


def recipe(number: int) -> Recipe:
    if number % 3 == 2:
        return modern("adamw", STEPS, 16, lr=1e-3, warmup=3)
    return modern("sgd", STEPS, 16, lr=0.02 * (1 + number), warmup=3)


def rules_of(number: int) -> dict[str, Update]:
    """Counts of a member's own; every second one has few values from half of training on."""
    bound = l0_project(ramp(1.0, 0.1 + 0.1 * number, 0.1, 0.7), every=5)
    return {"*": chain(bound, palette(8, every=4, begin=0.5)) if number % 2 else bound}


def begin(make, number: int, split: ArraySplit, device: torch.device, precision: str, run_dir=None) -> Run:
    """A member with a seed, a learning rate, a data order and counts of its own."""
    rules = rules_of(number)
    settings = Settings(seed=number, device=device.type, precision=precision, run_dir=run_dir)
    return Run(make(number), split, recipe(number), Preprocess(scale=1 / 256), settings, device, rules=rules)


def alone(make, number: int, split: ArraySplit, device: str, precision: str) -> dict:
    model = make(number)
    rules = rules_of(number)
    settings = Settings(seed=number, device=device, precision=precision)
    train(model, split, recipe(number), rules, preprocess=Preprocess(scale=1 / 256), settings=settings)
    return model.state_dict()


@pytest.mark.parametrize("make", [full(lenet), batch_normed])
@pytest.mark.parametrize("device", DEVICES)
def test_members_end_with_the_weights_that_they_would_have_alone(make, device):
    split = digits()
    where = torch.device(device)
    members = [partial(begin, make, number, split, where, "float64") for number in range(4)]
    found = {number: run.model.state_dict() for number, run in train_all(members, where)}
    assert sorted(found) == [0, 1, 2, 3]
    for number, state in found.items():
        for name, value in alone(make, number, split, device, "float64").items():
            np.testing.assert_allclose(state[name].cpu(), value.cpu(), rtol=0, atol=1e-10, err_msg=name)
    different = {
        float(state["0.weight" if make is batch_normed else "conv1.weight"].sum()) for state in found.values()
    }
    assert len(different) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", [0, 2])  # sgd and adamw
def test_recorded_updates_are_the_updates_as_they_are(number, monkeypatch):
    split, where = digits(), torch.device("cuda")

    def member() -> Run:
        return begin(lenet, number, split, where, "float32")

    ((_, recorded),) = train_all([member], where)
    assert recorded.reg is not None
    assert recorded.reg.step == STEPS
    monkeypatch.setattr("membound.train.stepping.draws_random_numbers", lambda model: True)
    ((_, eager),) = train_all([member], where)
    for name, value in eager.model.state_dict().items():
        np.testing.assert_allclose(recorded.model.state_dict()[name].cpu(), value.cpu(), rtol=0, atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_palettes_are_palettes(monkeypatch):
    """The steps are recorded anew when they begin; a weight between two entries may end on the other side."""
    split, where = digits(), torch.device("cuda")
    recordings = []
    record = stepping.record
    monkeypatch.setattr(
        stepping, "record", lambda *a, **k: recordings.append(record(*a, **k)) or recordings[-1]
    )
    ((_, recorded),) = train_all([lambda: begin(lenet, 1, split, where, "float32")], where)
    assert len(recordings) == 2
    assert None not in recordings
    monkeypatch.setattr("membound.train.stepping.draws_random_numbers", lambda model: True)
    ((_, eager),) = train_all([lambda: begin(lenet, 1, split, where, "float32")], where)
    assert len(recordings) == 2
    for name, value in eager.model.state_dict().items():
        found = recorded.model.state_dict()[name]
        if value.dim() > 1:
            assert len(found[found != 0].unique()) <= 8
            assert ((found - value).abs() < 2e-3).float().mean() > 0.99, name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_step_is_the_step_as_it_is(monkeypatch):
    split, where = digits(), torch.device("cuda")
    recorded = {
        n: r.model.state_dict()
        for n, r in train_all([partial(begin, lenet, 0, split, where, "float64")], where)
    }
    monkeypatch.setattr("membound.train.stepping.draws_random_numbers", lambda model: True)
    eager = {
        n: r.model.state_dict()
        for n, r in train_all([partial(begin, lenet, 0, split, where, "float64")], where)
    }
    for name, value in eager[0].items():
        np.testing.assert_allclose(recorded[0][name].cpu(), value.cpu(), rtol=0, atol=1e-10, err_msg=name)


def test_an_interrupted_population_goes_on_where_it_was(tmp_path, monkeypatch):
    split, where = digits(), torch.device("cpu")
    expected = alone(lenet, 1, split, "cpu", "float32")

    def member(number: int) -> Run:
        return begin(lenet, number, split, where, "float32", tmp_path / str(number))

    def stopped(run: Run, interrupted: Callable[[], bool]) -> Iterator[None]:
        return take_steps(run, lambda: run.step == 17)

    with monkeypatch.context() as patched:
        patched.setattr(population, "take_steps", stopped)
        with pytest.raises(Interrupted):
            list(train_all([partial(member, 1)], where))
    ((_, run),) = train_all([partial(member, 1)], where)
    assert run.resumed == 17
    assert all(torch.equal(value, expected[name]) for name, value in run.model.state_dict().items())


def test_a_member_that_diverges_does_not_disturb_the_others():
    split, where = digits(), torch.device("cpu")

    def hopeless() -> Run:
        run = begin(lenet, 1, split, where, "float64")
        run.recipe = modern("sgd", STEPS, 16, lr=1e6, warmup=1)
        return run

    members = [partial(begin, lenet, 0, split, where, "float64"), hopeless]
    good, bad = (run for _, run in sorted(train_all(members, where), key=lambda found: found[0]))
    assert good.failure is None
    assert "diverged" in str(bad.failure)
    for name, value in alone(lenet, 0, split, "cpu", "float64").items():
        np.testing.assert_allclose(good.model.state_dict()[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_penalties_are_recorded_with_the_step(monkeypatch):
    split, where = digits(), torch.device("cuda")

    def member(optimizer: str = "sgd") -> Run:
        rules = {
            "conv1": chain(l2_decay(1e-3), l1_shrink(1.0)),
            "fc1": l1_subgradient(1e-3),
            "fc2": l0_project(0.5, every=5),
        }
        settings = Settings(seed=3, device="cuda")
        chosen = modern(optimizer, STEPS, 16, lr=0.05, weight_decay=0.0, warmup=3)
        return Run(lenet(3), split, chosen, Preprocess(scale=1 / 256), settings, where, rules=rules)

    run = member()
    assert run.reg is not None
    assert run.reg.recordable
    ((_, recorded),) = train_all([lambda: run], where)
    monkeypatch.setattr(Regularizer, "recordable", False)
    ((_, eager),) = train_all([member], where)
    for name, value in eager.model.state_dict().items():
        np.testing.assert_allclose(
            recorded.model.state_dict()[name].cpu(), value.cpu(), rtol=0, atol=2e-4, err_msg=name
        )
        if name in ("conv1.weight", "fc2.weight"):
            assert int((recorded.model.state_dict()[name] == 0).sum()) > 0


@pytest.mark.full
def test_a_member_that_is_done_is_let_go_before_the_next_ones_memory_is_counted(monkeypatch):
    """On a CPU they come one after another: of those before, no network is left."""
    split, cpu = digits(64), torch.device("cpu")
    models: list[weakref.ref] = []
    there = []

    def member(number: int) -> Run:
        run = begin(batch_normed, number, split, cpu, "float32")
        models.append(weakref.ref(run.model))
        return run

    def count_memory(chunk: object) -> int:
        gc.collect()
        there.append([model() is not None for model in models])
        return 0

    monkeypatch.setattr(population._Chunk, "_free", count_memory)
    for _, run in train_all([partial(member, number) for number in range(3)], cpu):
        del run
    assert there == [[], [False], [False, False]]
