"""Recipes: Caffe's solver against its equations, groups, schedules, and what is refused."""

import math

import pytest
import torch
from torch import nn

from membound import zoo
from membound.errors import MemboundError
from membound.train.caffe_sgd import CaffeSGD
from membound.train.job import choose_recipe
from membound.train.recipe import Recipe, annealed, caffe, make_optimizer, modern, set_learning_rate_


def test_caffes_sgd_against_its_equations():
    """V <- mu V + lr (g + wd W); W <- W - V, over learning rates that change."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(5, dtype=torch.float64))
    by_hand, velocity = weight.detach().clone(), torch.zeros(5, dtype=torch.float64)
    optimizer = CaffeSGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
    for lr in (0.1, 0.1, 0.01, 0.5, 0.0):
        gradient = torch.randn(5, dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        velocity = 0.9 * velocity + lr * (gradient + 0.01 * by_hand)
        by_hand = by_hand - velocity
        torch.testing.assert_close(weight.detach(), by_hand, rtol=1e-14, atol=1e-14)
        assert torch.equal(weight.grad, gradient)  # the gradient itself is left alone


def test_caffes_and_torchs_sgd_agree_until_the_rate_changes():
    def run(optimizer_of, rates):
        weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = optimizer_of([weight])
        for lr in rates:
            weight.grad = weight.detach() * 2
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        return float(weight.detach())

    def in_torch(weights):
        return torch.optim.SGD(weights, lr=0.1, momentum=0.9)

    def in_caffe(weights):
        return CaffeSGD(weights, lr=0.1, momentum=0.9)

    assert run(in_torch, [0.1] * 5) == pytest.approx(run(in_caffe, [0.1] * 5), rel=1e-12)
    assert run(in_torch, [0.1, 0.1, 0.01]) != pytest.approx(run(in_caffe, [0.1, 0.1, 0.01]), rel=1e-3)


def test_a_closure_is_called_with_gradients_on():
    weight = nn.Parameter(torch.ones(3))
    optimizer = CaffeSGD([weight], lr=0.1)

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 3.0
    assert float(weight.detach()[0]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("net", "bias_decay"), [(zoo.lenet, 5e-4), (zoo.cifar10_quick, 0.004)], ids=["lenet", "quick"]
)
def test_biases_learn_twice_as_fast_and_decay_too(net, bias_decay):
    model = net()
    optimizer = make_optimizer(model, caffe(model.caffe_solver))
    set_learning_rate_(optimizer, 0.01)
    of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        group = of[id(parameter)]
        assert group["lr"] == pytest.approx(0.02 if name.endswith("bias") else 0.01)
        assert group["weight_decay"] == pytest.approx(bias_decay)


def test_weights_under_a_decay_rule_are_left_to_it():
    model = zoo.lenet()
    optimizer = make_optimizer(model, caffe(model.caffe_solver), undecayed=[model.fc1.weight])
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays[id(model.fc1.weight)] == 0
    assert decays[id(model.fc2.weight)] == 5e-4


def test_batch_norm_and_biases_do_not_decay_in_modern_recipes():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    for kind in ("sgd", "adamw"):
        optimizer = make_optimizer(model, modern(kind, 100))
        for group in optimizer.param_groups:
            assert (group["weight_decay"] == 0) == all(p.dim() < 2 for p in group["params"])


def test_warm_up_and_cosine():
    lr = modern("sgd", 1000, lr=0.4, warmup=100).lr
    assert lr(0) == pytest.approx(0.004)
    assert lr(99) == pytest.approx(0.4)
    assert lr(100) == pytest.approx(0.4)
    assert lr(550) == pytest.approx(0.2)
    assert lr(1000) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"optimizer": "lion"}, "lion"),
        ({"steps": 0}, "steps"),
        ({"batch_size": 0}, "batch size"),
        ({"weight_decay": -1}, "weight decay"),
        ({"momentum": math.nan}, "momentum"),
        ({"lr": lambda step: math.nan}, "learning rate"),
        ({"lr": lambda step: -0.1}, "learning rate"),
    ],
)
def test_what_cannot_be_is_refused(change, word):
    good = {"optimizer": "sgd", "steps": 10, "batch_size": 4, "lr": lambda step: 0.1}
    Recipe(**good)
    with pytest.raises(MemboundError, match=word):
        Recipe(**good | change)


def test_options_choose_the_recipe():
    assert choose_recipe(zoo.lenet()).optimizer == "caffe"
    assert choose_recipe(nn.Linear(2, 2)).optimizer == "sgd"
    assert choose_recipe(zoo.lenet(), "adamw", steps=7, lr=0.5, warmup=0).lr(0) == 0.5
    with pytest.raises(MemboundError, match="networks of the zoo"):
        choose_recipe(nn.Linear(2, 2), "caffe")
    with pytest.raises(MemboundError, match="its own schedule"):
        choose_recipe(zoo.lenet(), lr=0.1)


def test_a_rate_of_zero_is_zero():
    """It was taken for none given, and the solver's own rate came instead."""
    assert annealed(zoo.lenet().caffe_solver, 100, lr=0.0).lr(50) == 0
