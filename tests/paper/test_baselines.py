"""Baselines: what they leave, against numpy; and what they refuse."""

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.errors import RuleError
from membound.paper.baselines import density_threshold, factorise, prune_, threshold_


def network() -> nn.Module:
    torch.manual_seed(0)
    return mb.zoo.lenet()


def test_thresholding_zeroes_what_is_small_and_nothing_else():
    model, before = network(), network().state_dict()
    left = threshold_(model, 0.03, ["fc*"])
    for name, value in model.state_dict().items():
        want = before[name].numpy()
        if name in ("fc1.weight", "fc2.weight"):
            want = np.where(np.abs(want) < 0.03, 0, want)
            assert left[name] == np.count_nonzero(want)
        np.testing.assert_array_equal(value.numpy(), want, err_msg=name)


@pytest.mark.parametrize("density", [0.9, 0.5, 0.013])
def test_a_density_has_a_threshold(density):
    model = network()
    names = ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    left = threshold_(model, density_threshold(model.state_dict(), names, density))
    assert sum(left.values()) == pytest.approx(density * 430_500, rel=1e-3)


def test_pruning_keeps_the_largest_of_each_layer():
    model, before = network(), network().state_dict()
    left = prune_(model, {"conv1": 40, "fc*": 0.1})
    assert left == {"conv1.weight": 40, "fc1.weight": 40_000, "fc2.weight": 500}
    kept = model.conv1.weight.detach().abs()
    assert float(kept[kept > 0].min()) >= np.sort(before["conv1.weight"].abs().flatten().numpy())[-40]
    assert torch.equal(model.conv2.weight, before["conv2.weight"])


@pytest.mark.parametrize("rank", [1, 7, 10])
def test_a_factorised_layer_is_the_best_approximation_of_its_rank(rank):
    model = network()
    thin = factorise(model, "fc2", rank)
    first, second = thin.fc2
    u, s, v = np.linalg.svd(model.fc2.weight.detach().numpy().astype(np.float64), full_matrices=False)
    best = (u[:, :rank] * s[:rank]) @ v[:rank]
    np.testing.assert_allclose((second.weight @ first.weight).detach().numpy(), best, atol=1e-5)
    assert torch.equal(second.bias, model.fc2.bias)
    assert isinstance(model.fc2, nn.Linear)  # the network that was given is as it was
    if rank == 10:
        x = torch.rand(3, 1, 28, 28)
        np.testing.assert_allclose(thin(x).detach(), model(x).detach(), atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold_(network(), -1.0), "at least 0"),
        (lambda: threshold_(network(), float("nan")), "at least 0"),
        (lambda: threshold_(network(), 0.1, ["fc9"]), "fc9"),
        (lambda: prune_(network(), {"fc1": 1_000_000}), "there are 400000"),
        (lambda: factorise(network(), "conv1", 2), "there are fc1, fc2"),
        (lambda: factorise(network(), "fc2", 11), "from 1 to 10"),
        (lambda: factorise(network(), "fc2", 0), "from 1 to 10"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(RuleError, match=message):
        call()
