"""Layers whose weight is computed from other parameters: no rule passes over them silently."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import membound as mb

X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))


def pruned(*layers):
    model = network()
    for number in layers or (0,):
        prune.l1_unstructured(model[number], "weight", 0.5)
    return model


def parametrized():
    model = network()
    parametrizations.weight_norm(model[0])
    return model


def spectral():
    model = network()
    nn.utils.spectral_norm(model[0])
    return model


def attach(model, rules=None):
    rules = rules or {"*": mb.l0_project(0.5)}
    return mb.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, rules)


def fit(model, **more):
    how = {"budget": "70%", "steps": 4, "batch_size": 8, "device": "cpu", "progress": False}
    return mb.fit(model, (X, Y), test_data=(X, Y), **(how | more))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (pruned, r"layer '0' is pruned by torch.nn.utils.prune, .*prune.remove\(layer, 'weight'\)"),
        (
            parametrized,
            r"layer '0' is parametrized, .*parametrize.remove_parametrizations\(layer, 'weight'\)",
        ),
        (spectral, r"layer '0' is normalized by .*spectral_norm, .*remove_spectral_norm\(layer, 'weight'\)"),
        (lambda: pruned(0, 4), r"layers '0', '4' are pruned"),
    ],
)
@pytest.mark.parametrize("rules", [{"*": mb.l0_project(0.5)}, {"0": mb.l0_project(0.5)}])
def test_attach_and_fit_say_which_layers_and_what_to_do(make, says, rules):
    if len(rules) and "0" in rules:
        says = says.replace("layers '0', '4' are", "layer '0' is")
    with pytest.raises(mb.MemboundError, match=says):
        attach(make(), rules)
    if "*" in rules:
        with pytest.raises(mb.MemboundError, match=says):
            fit(make())
        with pytest.raises(mb.MemboundError, match=says):
            fit(make)


def test_what_no_rule_reaches_is_left_alone():
    assert attach(pruned(), {"2": mb.l0_project(0.5)}).step == 0
    rules = {"0.weight_orig": mb.l0_project(0.5), "*": mb.l0_project(0.5)}  # meant, as it has the exact name
    assert "weights under rules: 3" in repr(attach(pruned(), rules))
    assert fit(parametrized(), layers=["2", "4"]).file_bytes


def test_made_permanent_they_are_layers_like_all_others():
    model = pruned()
    prune.remove(model[0], "weight")
    assert "weights under rules: 3" in repr(attach(model))


def test_a_network_that_torch_cannot_copy_is_refused_in_a_line():
    with pytest.raises(mb.MemboundError, match=r"is pruned by torch\.nn\.utils\.prune"):
        fit(pruned(), layers="2")
    model = network()
    model.last = model(torch.from_numpy(X))
    with pytest.raises(mb.MemboundError, match=r"the network cannot be copied .*a function that makes"):
        fit(model)
