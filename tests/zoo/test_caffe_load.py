"""Caffe weights into a network: names, shapes, masks, and nothing changed on an error."""

import caffe_writer as w
import numpy as np
import pytest
import torch
from torch import nn

from membound import zoo
from membound.errors import WeightsError

RNG = np.random.default_rng(1)


def arrays(*shapes):
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


LAYERS = {"conv1": arrays((4, 1, 3, 3), (4,)), "ip1": arrays((2, 16), (2,))}
NAMES = {"conv1": "features.0", "ip1": "out"}


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        self.out = nn.Linear(16, 2)


def state(net):
    return {name: p.detach().clone() for name, p in net.named_parameters()}


@pytest.fixture
def load(tmp_path):
    def write_and_load(net, content, names=None):
        (tmp_path / "m.caffemodel").write_bytes(content)
        return zoo.load_caffemodel(net, tmp_path / "m.caffemodel", names)

    return write_and_load


@pytest.mark.parametrize("version", ["layer", "V1", "V0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_users_network(load, version, dtype):
    net = Own().to(dtype)
    load(net, w.model(LAYERS, version), NAMES)
    for array, parameter in zip(LAYERS["conv1"] + LAYERS["ip1"], net.parameters(), strict=True):
        assert parameter.dtype == dtype
        assert parameter.requires_grad
        assert torch.equal(parameter, torch.from_numpy(array).to(dtype))


@pytest.mark.parametrize("version", ["layer", "V1", "V0"])
def test_the_zoo_knows_its_names(load, version):
    source, net = zoo.lenet(), zoo.lenet()
    layers = {
        caffe: [
            source.get_submodule(name).weight.detach().numpy(),
            source.get_submodule(name).bias.detach().numpy(),
        ]
        for caffe, name in {"conv1": "conv1", "conv2": "conv2", "ip1": "fc1", "ip2": "fc2"}.items()
    }
    load(net, w.model(layers, version))
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), net.parameters(), strict=True))


def test_a_network_of_one_layer(load):
    net = nn.Linear(16, 2)
    load(net, w.model({"ip1": LAYERS["ip1"]}, "V1"), {"ip1": ""})
    assert torch.equal(net.weight, torch.from_numpy(LAYERS["ip1"][0]))


def test_masks_are_applied(load):
    weight, bias = LAYERS["ip1"]
    weight_mask = (RNG.random(weight.shape) < 0.3).astype(np.float32)
    bias_mask = np.array([0, 1], np.float32)
    for masks, kept_bias in (([weight_mask, bias_mask], bias * bias_mask), ([weight_mask], bias)):
        net = Own()
        load(net, w.model(LAYERS | {"ip1": [weight, bias, *masks]}), NAMES)
        np.testing.assert_array_equal(net.out.weight.detach(), weight * weight_mask)
        np.testing.assert_array_equal(net.out.bias.detach(), kept_bias)
        assert int((net.out.weight != 0).sum()) == int(weight_mask.sum())
    net = nn.Linear(16, 2, bias=False)
    load(net, w.model({"ip1": [weight, weight_mask]}), {"ip1": ""})
    np.testing.assert_array_equal(net.weight.detach(), weight * weight_mask)


WRONG = {
    "missing layer": (
        {"conv1": LAYERS["conv1"]},
        {"conv1": "features.0"},
        "nothing for the network's layer 'out'",
    ),
    "extra layer": (
        LAYERS | {"ip2": LAYERS["ip1"]},
        NAMES,
        "layer 'ip2' has no place in the network.*names=",
    ),
    "unmapped": (LAYERS, None, "layer 'conv1' has no place.*there are: features.0, out"),
    "map from nowhere": (
        LAYERS,
        NAMES | {"ip": "out"},
        "names maps 'ip', no layer of the file; did you mean 'ip1'",
    ),
    "map to nowhere": (
        LAYERS,
        NAMES | {"ip1": "outt"},
        "to 'outt', no layer of the network; did you mean 'out'",
    ),
    "map to a layer without weights": (LAYERS, NAMES | {"ip1": "features.1"}, "no layer of the network"),
    "two to one": (LAYERS, NAMES | {"conv1": "out"}, "'conv1' and 'ip1' both go to 'out'"),
    "shape": (
        LAYERS | {"ip1": arrays((2, 15), (2,))},
        NAMES,
        r"layer 'ip1' to 'out': weight is \[2, 15\] in the file and \[2, 16\] in the network",
    ),
    "transposed": (LAYERS | {"ip1": arrays((16, 2), (2,))}, NAMES, r"\[16, 2\] in the file"),
    "bias shape": (LAYERS | {"ip1": arrays((2, 16), (3,))}, NAMES, r"bias is \[3\] in the file and \[2\]"),
    "no bias": (LAYERS | {"ip1": arrays((2, 16))}, NAMES, "1 blobs where the module has weight and bias"),
    "too many blobs": (LAYERS | {"ip1": arrays((2, 16), (2,)) * 3}, NAMES, "6 blobs where"),
    "no mask": (LAYERS | {"ip1": arrays((2, 16), (2,)) * 2}, NAMES, "not a mask of 0 and 1"),
    "mask shape": (LAYERS | {"ip1": arrays((2, 16), (2,), (5,))}, NAMES, r"a mask of weight, is \[5\]"),
    "NaN": (
        LAYERS | {"ip1": [a * np.float32("nan") for a in LAYERS["ip1"]]},
        NAMES,
        "'ip1', blob 0 has values",
    ),
}


@pytest.mark.parametrize("version", ["layer", "V1", "V0"])
@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_changes_nothing(load, case, version):
    layers, names, message = WRONG[case]
    if version != "layer":
        message = message.replace(r"\[2, 15\] in", r"\[1, 1, 2, 15\] in").replace(
            r"\[16, 2\]", r"\[1, 1, 16, 2\]"
        )
        message = message.replace(r"\[3\] in", r"\[1, 1, 1, 3\] in").replace(r"\[5\]", r"\[1, 1, 1, 5\]")
    net = Own()
    before = state(net)
    with pytest.raises(WeightsError, match=message) as caught:
        load(net, w.model(layers, version), names)
    assert "m.caffemodel: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(before[name], p) for name, p in net.named_parameters())


def test_networks_that_take_no_values(load):
    with pytest.raises(WeightsError, match="float32 on meta takes no values"):
        load(Own().to("meta"), w.model(LAYERS), NAMES)
    big = LAYERS | {"ip1": [a * 1e6 for a in LAYERS["ip1"]]}
    with pytest.raises(WeightsError, match=r"beyond 65504, the greatest torch\.float16"):
        load(Own().half(), w.model(big), NAMES)
    attention = nn.MultiheadAttention(4, 2)
    with pytest.raises(WeightsError, match="only weight and bias can be loaded"):
        load(attention, w.model({"a": arrays((4, 4)), "b": arrays((4, 4), (4,))}), {"a": "", "b": "out_proj"})
