"""Gradients of convolutions by products of matrices, beside torch's own."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from torch import nn
from torch.nn.functional import conv2d
from torch.utils.checkpoint import checkpoint

from membound.train import convolution
from membound.train.convolution import ByProducts, Convolution, fast_gradients

SIDES = st.integers(1, 7)


def gradients(x, weight, bias, padding, mode):
    """What is computed, and the gradients of all that takes part."""
    given = [None if each is None else each.clone().requires_grad_() for each in (x, weight, bias)]
    with mode:
        found = conv2d(*given, padding=padding)
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape)
    (found * weights).sum().backward()
    return [found, *(each.grad for each in given if each is not None)]


@given(
    images=st.integers(1, 5),
    channels=st.integers(1, 6),
    units=st.integers(1, 5),
    side=st.tuples(SIDES, SIDES),
    kernel=st.tuples(SIDES, SIDES),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    biased=st.booleans(),
    last=st.booleans(),
    together=st.sampled_from([1, 1000, 4 << 20]),
)
@examples(200, few=25)
def test_gradients_are_those_of_torch(images, channels, units, side, kernel, padding, biased, last, together):
    if any(n + 2 * more < taps for n, taps, more in zip(side, kernel, padding, strict=True)):
        return
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(images, channels, *side, generator=draw)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    weight = torch.randn(units, channels, *kernel, generator=draw)
    bias = torch.randn(units, generator=draw) if biased else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "TOGETHER", together)
        mine = gradients(x, weight, bias, padding, ByProducts())
    theirs = gradients(x, weight, bias, padding, torch.enable_grad())
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 6, 3, stride=2), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 1), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 3), (4, 8, 8)),
        (nn.Conv2d(4, 6, 3).double(), (2, 4, 8, 8)),
        (nn.Conv2d(4, 6, 3).requires_grad_(False), (2, 4, 8, 8)),
    ],
)
def test_others_are_left_to_torch(layer, shape, monkeypatch):
    monkeypatch.setattr(Convolution, "apply", None)
    x = torch.randn(shape, dtype=layer.weight.dtype)
    with ByProducts():
        assert torch.equal(layer(x), layer.forward(x))


def test_what_torch_refuses_is_refused_as_ever():
    with ByProducts(), pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        nn.Conv2d(1, 1, 5)(torch.zeros(1, 1, 3, 3))


def test_nothing_changes_where_nothing_is_trained(monkeypatch):
    monkeypatch.setattr(Convolution, "apply", None)
    with ByProducts(), torch.no_grad():
        nn.Conv2d(1, 1, 3)(torch.zeros(1, 1, 3, 3))


def test_a_network_under_the_mode_learns_the_same(monkeypatch):
    """Several steps, channels last, as a run takes them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.Flatten(), nn.Linear(128, 4)
    )  # fmt: skip
    other = copy.deepcopy(network)
    x = torch.randn(16, 1, 12, 12).contiguous(memory_format=torch.channels_last)
    y = torch.arange(16) % 4
    for slow, each in ((True, network), (False, other)):
        monkeypatch.setattr(convolution, "gradients_are_slow", lambda slow=slow: slow)
        optimizer = torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9)
        for _ in range(10):
            optimizer.zero_grad()
            with fast_gradients(torch.device("cpu")):
                scores = each(x)
            nn.functional.cross_entropy(scores, y).backward()
            optimizer.step()
    for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_only_cpus_are_helped(monkeypatch):
    monkeypatch.setattr(convolution, "gradients_are_slow", lambda: True)
    assert isinstance(fast_gradients(torch.device("cpu")), ByProducts)
    assert not isinstance(fast_gradients(torch.device("cuda")), ByProducts)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_may_be_computed_again(reentrant):
    """torch.utils.checkpoint goes forward once more in the backward pass, which is outside the mode."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    layers(x).square().sum().backward()
    expected = [weight.grad for weight in layers.parameters()]
    layers.zero_grad()
    with ByProducts():
        found = checkpoint(layers, x, use_reentrant=reentrant)
    found.square().sum().backward()
    for weight, other in zip(layers.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, other, rtol=1e-4, atol=1e-4)
