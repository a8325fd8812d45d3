"""What the races call quantized training is what it says: few values, the gradients of the equation, honest bytes."""

import argparse
import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from _networks import narrow_lenet, narrow_quick
from _quantized import bits_of, fake_quantized, quantize_, stored_bytes
from training_peers import KNOWN, known_methods, summarize

from membound import zoo
from membound.zoo.efficientnet_lite0 import Same


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_take_few_values_and_the_largest_is_kept(bits):
    weight = torch.randn(6, 5, 3, 3, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    stored = fake_quantized(weight, bits, training=False)
    for channel, row in zip(weight, stored, strict=True):
        assert len(row.unique()) <= 2**bits - 1
        step = channel.abs().max() / (2 ** (bits - 1) - 1)
        assert (row - channel).abs().max() <= step / 2 * (1 + 1e-5)
        torch.testing.assert_close(row.abs().max(), channel.abs().max())
    torch.testing.assert_close(fake_quantized(weight, bits, training=True), stored)


def test_gradients_go_through_the_rounding_and_to_the_largest():
    weight = torch.tensor([[0.5, -2.0, 1.3]], requires_grad=True)
    scale, factors = 2 / 7, torch.tensor([[1.0, 10.0, 100.0]])
    (fake_quantized(weight, 4, training=True) * factors).sum().backward()
    missing = (weight.detach() / scale).round() - weight.detach() / scale
    expected = factors.clone()
    expected[0, 1] += (
        -(missing * factors).sum() / 7
    )  # the scale follows |w| of the largest, which is negative
    torch.testing.assert_close(weight.grad, expected)


@pytest.mark.filterwarnings("ignore")  # Brevitas's own
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 8, 3, 2, 1), (2, 3, 9, 9)),
        (nn.Conv2d(8, 8, 3, groups=8, bias=False), (2, 8, 9, 9)),
        (Same(4, 6, 3, 2), (2, 4, 10, 10)),
        (nn.Linear(20, 7), (3, 20)),
    ],
    ids=["conv", "depthwise", "same", "linear"],
)
@pytest.mark.parametrize("bits", [4, 8])
def test_brevitas_does_the_same(bits, layer, shape, training):
    pytest.importorskip("brevitas", reason="Brevitas is not installed")
    images, found = torch.randn(shape, generator=torch.Generator().manual_seed(1)), []
    for by_brevitas in (False, True):
        own = copy.deepcopy(layer).train(training)
        ends = nn.Sequential(nn.Conv2d(1, 1, 1), own, nn.Linear(1, 1)).train(training)  # these keep 8 bits
        mine = quantize_(ends, bits, by_brevitas)[1]
        scores = mine(images)
        scores.square().sum().backward()
        found.append((scores.detach(), mine.weight.grad))
    (ours, gradient), (theirs, other) = found
    torch.testing.assert_close(ours, theirs)
    if training:
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-4)


def test_ends_and_depthwise_layers_keep_8_bits():
    lite0 = bits_of(zoo.efficientnet_lite0(10), 4)
    assert {lite0["conv_stem"], lite0["blocks.3.depthwise_conv"], lite0["fc"]} == {8}
    assert {lite0["blocks.3.expand_conv"], lite0["conv_head"]} == {4}


def test_bytes_are_counted_by_hand():
    """ResNet-8 has the 77,360 weights and 346 biases of MLPerf Tiny's."""
    net = zoo.resnet8()
    assert stored_bytes(net, None) == 4 * (77_360 + 346)
    assert stored_bytes(net, 8) == 77_360 + 6 * 346
    ends = 3 * 16 * 9 + 64 * 10
    assert stored_bytes(net, 4) == ends + (77_360 - ends) // 2 + 6 * 346
    assert stored_bytes(quantize_(net, 4), 4) == stored_bytes(zoo.resnet8(), 4)
    odd = nn.Sequential(nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1))
    assert stored_bytes(odd, 4) == 3 + 2 + 3 + 3 * 6  # three codes of 4 bits take two bytes


@pytest.mark.parametrize(
    ("make", "plain", "shape"),
    [(narrow_lenet, zoo.lenet, (1, 28, 28)), (narrow_quick, zoo.cifar10_quick, (3, 32, 32))],
)
def test_narrow_networks_are_the_zoos_at_full_width(make, plain, shape):
    def sizes(net):
        return {name: tuple(weight.shape) for name, weight in net.named_parameters()}

    assert sizes(make(1.0)) == sizes(plain())
    assert make(0.25)(torch.zeros(1, *shape)).shape == (1, 10)
    assert stored_bytes(make(0.5), 8) < stored_bytes(plain(), 8) / 3


def test_one_seed_has_no_standard_deviation():
    rows = [
        {"method": name, "accuracy": 98.0 + seed, "ms_a_step": 3.0 - seed} for name in "ab" for seed in (0, 1)
    ]
    assert summarize(rows[:1], rows[:1]) == {"a": {"accuracy": 98.0, "std": None, "ms_a_step": 3.0}}
    both = summarize(rows, [{**row, "ms_a_step": None} for row in rows])
    assert list(both) == ["a", "b"]
    assert both["b"] == {"accuracy": 98.5, "std": pytest.approx(0.7071, abs=1e-4), "ms_a_step": None}


def test_methods_are_checked_before_anything_is_trained():
    assert known_methods(";".join(KNOWN)) == ";".join(KNOWN)
    with pytest.raises(
        argparse.ArgumentTypeError, match="no method 'membound, few bit': did you mean 'membound, few bits'"
    ):
        known_methods("torch prune;membound, few bit")
    with pytest.raises(argparse.ArgumentTypeError, match=r"choose from one shot; .*; torch prune;"):
        known_methods("")
