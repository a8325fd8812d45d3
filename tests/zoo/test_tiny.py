"""MLPerf Tiny's networks: their published sizes, their shapes, and that they are stored and run as torch runs them."""

from functools import partial

import numpy as np
import pytest
import torch
from profiles import full

import membound as mb
from membound import zoo
from membound.errors import MemboundError
from membound.zoo.networks import build_for, widened

NETS = [
    (zoo.resnet8, (3, 32, 32), 10),
    (zoo.mobilenet_v1, (3, 96, 96), 2),
    (zoo.ds_cnn, (1, 49, 10), 12),
]


@pytest.mark.parametrize(("make", "shape", "classes"), [NETS[0], full(*NETS[1]), NETS[2]])
def test_deployed_as_in_torch(make, shape, classes, tmp_path):
    torch.manual_seed(0)
    net = make().eval()
    for part in net.modules():  # as if they had been trained
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 2.0)
    x = torch.randn(2, *shape)
    expected = net(x).detach().numpy()
    assert expected.shape == (2, classes)
    mb.save(net, tmp_path / "net.safetensors", x[:1])
    found = mb.load(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_strided_convolutions_pad_as_tensorflow_does():
    """'same' of a 32-pixel image with a 3x3 window and stride 2: nothing above and on the left, 1 below and right."""
    net = zoo.resnet8()
    conv = net.blocks[1].conv1[0]
    x = torch.randn(1, 16, 32, 32)
    by_hand = torch.nn.functional.conv2d(torch.nn.functional.pad(x, (0, 1, 0, 1)), conv.weight, stride=2)
    assert torch.equal(conv(x), by_hand)


@pytest.mark.parametrize(("make", "shape", "classes"), NETS)
def test_width_and_channels(make, shape, classes):
    usual = sum(p.numel() for p in make().parameters())
    width = 2 * make.__defaults__[1]
    wide = make(width=width, classes=5, channels=2)
    assert wide(torch.zeros(1, 2, *shape[1:])).shape == (1, 5)
    assert 3 * usual < sum(p.numel() for p in wide.parameters()) < 4.2 * usual


@pytest.mark.parametrize("bad", [{"classes": 0}, {"width": 0}, {"width": -1}])
def test_what_no_network_can_be(bad):
    with pytest.raises(MemboundError):
        zoo.resnet8(**bad)


def test_own_functions_are_told_the_channels_and_the_width(tmp_path, monkeypatch):
    (tmp_path / "own_widths.py").write_text(
        "from torch import nn\n"
        "def wide(classes, channels=3, width=10):\n    return nn.Conv2d(channels, width, 1)\n"
        "def plain(classes):\n    return nn.Conv2d(3, classes, 1)\n"
        "def odd(classes, width='much'):\n    return nn.Conv2d(3, classes, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert zoo.build_for("own_widths:wide", 4, channels=1, width=1.5).weight.shape[:2] == (15, 1)
    assert zoo.build_for("own_widths:wide", 4).weight.shape[:2] == (10, 3)
    assert zoo.build_for("own_widths:plain", 4, channels=1).weight.shape[:2] == (4, 3)
    for spec in ("own_widths:plain", "own_widths:odd"):
        with pytest.raises(MemboundError, match="has no width to vary"):
            zoo.build_for(spec, 4, width=2.0)
    with pytest.raises(MemboundError, match=r"^lenet has no width to vary"):
        widened(partial(build_for, "lenet", 10, 1), 0.5)
    with pytest.raises(MemboundError, match=r"^lenet has no width to vary"):
        widened(partial(zoo.lenet), 2.0)
