"""A training that diverges says so, however finite its end is; one that is merely bad does not."""

import math

import numpy as np
import pytest
import torch
from profiles import full
from torch import nn

import membound as mb
from membound.data import Preprocess
from membound.errors import Diverged, ModelError
from membound.train.batches import Feeder
from membound.train.divergence import LOST, WORSE, highest_loss, not_finite
from membound.train.loop import take_steps
from membound.train.recipe import Recipe
from membound.train.run import Run, Settings
from membound.train.task import Task
from membound.train.user_data import as_split

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 8)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(8, 1))).astype(np.float32)
SPLIT = as_split((X, Y))


def minus_error(outputs, targets):
    return -(outputs - targets).square().mean()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


def fit(**options):
    options = {"steps": 4, "solver": "sgd", "batch_size": 50, "dense": False, **options}
    return mb.fit(network, (X, Y), options.pop("budget", "60%"), loss=nn.functional.mse_loss, **options)


def run_of(model: nn.Module, task: Task, lr: float = 0.0, split=SPLIT, steps: int = 2) -> Run:
    recipe = Recipe("sgd", steps, 20, lambda step: lr, momentum=0.0)
    return Run(model, split, recipe, Preprocess(takes="float32"), Settings(), CPU, task=task)


def finish(run: Run) -> None:
    for _ in take_steps(run, lambda: False):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1.0},  # ends with a loss of 1e17
        {"lr": 1000.0, "steps": 2},  # all losses on the way are finite, that of the end is not
        full({"lr": 1.0, "score": minus_error}),
        full({"lr": 1.0, "members": 2, "budget": 1500}),
    ],
)
def test_a_regression_that_explodes_has_diverged(options):
    with pytest.raises(Diverged, match=r"training has diverged; lower the learning rate \(its peak is 1"):
        fit(**options)


def test_a_dense_network_that_explodes_has_diverged():
    with pytest.raises(Diverged, match="at the end"):
        finish(run_of(network(), Task(nn.functional.mse_loss), lr=1.0, steps=3))


def test_a_training_that_has_plainly_diverged_stops_before_its_end():
    """Its losses are finite to the last: targets far from 1 make gradients that a usual rate cannot take."""

    def capped(outputs, targets):
        return (outputs - targets).square().mean().clamp(max=1e30)

    run = run_of(network(), Task(capped), lr=10.0, steps=2000)
    with pytest.raises(
        Diverged, match=r"the loss is .* at step 50, over a billion times that at the start: training has"
    ):
        finish(run)
    assert run.step == 50
    assert LOST * WORSE == 1e9


def test_a_loss_that_rises_and_falls_again_goes_on():
    calls = []

    def spiked(outputs, targets):
        calls.append(1)
        return (outputs - targets).square().mean() * (1e6 if 10 < len(calls) < 40 else 1.0)

    run = run_of(network(), Task(spiked), steps=100)
    finish(run)
    assert run.step == 100


def test_weights_that_the_last_step_made_infinite_are_named():
    model = nn.Linear(8, 1)

    def steep(outputs, targets):
        return (outputs - targets).square().mean() + 1e30 * (model.bias - model.bias.detach()).sum()

    with pytest.raises(Diverged, match="'bias' has a value that is NaN or infinite"):
        finish(run_of(model, Task(steep), lr=1e10, steps=1))


def test_what_cannot_be_stored_because_it_is_infinite_has_diverged():
    """A bound measures the file while it trains, which an infinite bias does not get into."""
    model, calls = nn.Linear(8, 1), []

    def spoiled(outputs, targets):
        calls.append(1)
        if len(calls) > 4:  # before: what is looked at before training
            model.bias.data.fill_(math.inf)
            raise ModelError("tensor 'bias' has a value that is not finite")
        return (outputs - targets).square().mean()

    with pytest.raises(Diverged, match="'bias' has a value"):
        finish(run_of(model, Task(spoiled), steps=20))


def test_a_bad_start_and_a_lost_optimum_have_not_diverged():
    """Either reference alone would accuse one of these."""
    task = Task(nn.functional.mse_loss)
    huge, perfect = nn.Linear(8, 1), nn.Linear(8, 1)
    nn.init.constant_(huge.bias, 1e4)  # the loss is 1e8 and hardly gets lower
    finish(run_of(huge, task, lr=1e-6))
    with torch.no_grad():
        weight, *_ = np.linalg.lstsq(X, Y, rcond=None)
        perfect.weight.copy_(torch.from_numpy(weight.T)), perfect.bias.zero_()
    run = run_of(perfect, task)
    nn.init.zeros_(perfect.weight)  # as a tight bound would
    finish(run)


def test_the_reference_of_class_numbers_is_at_least_one():
    """Log-probabilities of zero have no loss at all, and a trained network next to none."""
    classes = as_split((X, (Y[:, 0] > 0).astype(np.int64)))
    feeder = Feeder(classes, Preprocess(takes="float32"), CPU, torch.float32)
    model = nn.Sequential(nn.Linear(8, 2), nn.LogSoftmax(1))
    with torch.no_grad():
        weight = np.linalg.lstsq(X, Y, rcond=None)[0][:, 0]
        model[0].weight.copy_(torch.from_numpy(np.stack([-weight, weight]) * 1e3)), model[0].bias.zero_()
    assert highest_loss(model, feeder, Task(nn.functional.nll_loss)) == WORSE


def test_a_loss_that_refuses_zeros_is_measured_by_the_start():
    feeder = Feeder(SPLIT, Preprocess(takes="float32"), CPU, torch.float32)

    def picky(outputs, targets):
        if not outputs.any():
            raise ValueError("zeros")
        return (outputs - targets).square().mean()

    model = network()
    with torch.no_grad():
        start = float(picky(model(torch.from_numpy(X[:64])), torch.from_numpy(Y[:64])))
    assert highest_loss(model, feeder, Task(picky)) == pytest.approx(WORSE * start)
    assert highest_loss(model, feeder, Task(lambda outputs, targets: 0 * outputs.sum())) == math.inf


def test_buffers_count_as_weights_do():
    norm = nn.BatchNorm1d(3)
    assert not_finite(norm) is None
    norm.running_var.fill_(math.nan)
    assert not_finite(norm) == "running_var"
