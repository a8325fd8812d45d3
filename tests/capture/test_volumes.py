"""Windows over volumes against torch in float64, through the runtime."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import examples
from torch import nn

from membound.capture import capture
from membound.errors import ModelError
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

THREE = st.tuples(*[st.integers(1, 3)] * 3)


def agree(net, *shape):
    net = net.eval()
    run = Net(read_bytes(to_bytes(capture(net, torch.zeros(1, *shape)))), max_batch=2, threads=1)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = copy.deepcopy(net).double()(x.double()).numpy()
    np.testing.assert_allclose(run(x.numpy()), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@examples(40)
@given(THREE, THREE, st.tuples(*[st.integers(0, 2)] * 3), THREE, st.sampled_from([1, 2]), st.booleans())
def test_convolutions(kernel, stride, padding, dilation, groups, bias):
    torch.manual_seed(0)
    agree(nn.Conv3d(4, 6, kernel, stride, padding, dilation, groups, bias), 4, 7, 8, 7)


@pytest.mark.full
@examples(40)
@given(THREE, THREE, st.tuples(*[st.integers(0, 1)] * 3), THREE, st.sampled_from([1, 2]), st.booleans())
def test_transposed_convolutions(kernel, stride, padding, dilation, groups, more):
    extra = tuple(int(more and max(s, d) > 1) for s, d in zip(stride, dilation, strict=True))
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip((2, 3, 4), stride, padding, dilation, kernel, extra, strict=True)
    ]
    assume(min(sizes) >= 1)
    torch.manual_seed(0)
    agree(nn.ConvTranspose3d(4, 6, kernel, stride, padding, extra, groups, True, dilation), 4, 2, 3, 4)


@pytest.mark.parametrize(
    "net",
    [nn.Conv3d(4, 6, (2, 3, 1), (2, 1, 2), (1, 0, 2), (2, 1, 1), 2), nn.ConvTranspose3d(4, 6, 3, 2, 1, 1, 2)],
    ids=["plain", "transposed"],
)
def test_one_of_each(net):
    agree(net, 4, 5, 6, 5)


def test_a_small_network():
    torch.manual_seed(0)
    norms = (nn.BatchNorm3d(4), nn.InstanceNorm3d(4, affine=True), nn.GroupNorm(2, 4), nn.PReLU(4))
    head = (nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))
    agree(nn.Sequential(nn.Conv3d(1, 4, 3, padding="same"), *norms, *head), 1, 8, 9, 10)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.MaxPool3d(3, 2), "must lie side by side"),
        (nn.MaxPool3d(2, ceil_mode=True), "must lie side by side"),
        (nn.AdaptiveAvgPool3d(3), "is not divided evenly"),
    ],
)
def test_what_is_refused(net, words):
    with pytest.raises(ModelError, match=words):
        capture(nn.Sequential(nn.Conv3d(1, 2, 1), net), torch.zeros(1, 1, 7, 8, 8))
