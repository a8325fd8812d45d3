"""Pooling and normalisation against Caffe's rules, spelled out in numpy."""

import importlib.util
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from torch import nn

from membound.zoo.layers import average_pool, lrn, max_pool, xavier_


def pool_as_caffe(x, kernel, stride, pad, kind):
    """Caffe's PoolingLayer for one image [H, W], window by window."""
    height, width = x.shape

    def windows(size):
        count = math.ceil((size + 2 * pad - kernel) / stride) + 1
        if pad and (count - 1) * stride >= size + pad:
            count -= 1
        return count

    out = np.zeros((windows(height), windows(width)))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            top, left = i * stride - pad, j * stride - pad
            bottom, right = min(top + kernel, height + pad), min(left + kernel, width + pad)
            area = (bottom - top) * (right - left)
            window = x[max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
            out[i, j] = window.max() if kind == "max" else window.sum() / area
    return out


@st.composite
def pooling(draw):
    kernel = draw(st.integers(1, 5))
    stride = draw(st.integers(1, kernel))  # Caffe's own windows fall outside the image with a longer stride
    pad = draw(st.integers(0, kernel // 2))
    height, width = draw(st.integers(kernel, 14)), draw(st.integers(kernel, 14))
    return kernel, stride, pad, height, width, draw(st.integers(0, 2**31))


@examples(300)
@given(pooling())
def test_pooling_is_caffes(case):
    kernel, stride, pad, height, width, seed = case
    x = np.random.default_rng(seed).standard_normal((height, width)) - 3
    for kind, make in (("max", max_pool), ("average", average_pool)):
        found = make(kernel, stride, pad)(torch.from_numpy(x)[None, None])[0, 0].numpy()
        np.testing.assert_allclose(found, pool_as_caffe(x, kernel, stride, pad, kind), rtol=1e-12, atol=1e-12)


def test_average_of_a_clipped_window_by_hand():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    # Windows of 3 at 0 and 2; the second is clipped to 2 wide, and divided by what is left of it.
    assert average_pool(3, 2)(x).flatten().tolist() == [5.0, 6.5, 11.0, 12.5]
    # With padding 1 on 3 pixels there are 2 windows of 3; the corner sums 0+1+3+4 over 9.
    y = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert average_pool(3, 2, 1)(y).flatten().tolist() == pytest.approx([8 / 9, 12 / 9, 20 / 9, 24 / 9])


def test_a_last_window_outside_the_image_is_dropped():
    # ceil((2 + 2 - 2) / 2) + 1 = 2 windows; ceil((3 + 2 - 2) / 2) + 1 = 3, but the last starts at 4 - 1 = 3.
    assert max_pool(2, 2, 1)(torch.zeros(1, 1, 2, 3)).shape == (1, 1, 2, 2)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 9])
def test_lrn_is_caffes(channels):
    x = np.random.default_rng(channels).standard_normal((2, channels, 3, 4)) * 30
    expected = np.empty_like(x)
    for c in range(channels):
        around = x[:, max(c - 2, 0) : c + 3]
        expected[:, c] = x[:, c] / (1 + 1e-4 / 5 * (around**2).sum(1)) ** 0.75
    found = lrn(5, 1e-4, 0.75)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_xavier_counts_the_inputs_of_a_group():
    weight = xavier_(torch.empty(256, 48, 5, 5), torch.Generator().manual_seed(0))
    assert weight.abs().max().item() == pytest.approx(math.sqrt(3 / 1200), rel=1e-3)


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_lrn_has_torchs_gradient(channels):
    torch.manual_seed(channels)
    x = (20 * torch.randn(2, channels, 3, 3, dtype=torch.float64)).requires_grad_()
    ours, torchs = lrn(5, 0.05, 0.75), nn.LocalResponseNorm(5, 0.05, 0.75, 1.0)
    outside = torch.randn_like(x)
    (mine,) = torch.autograd.grad(ours(x), x, outside)
    (theirs,) = torch.autograd.grad(torchs(x), x, outside)
    assert torch.allclose(ours(x), torchs(x), rtol=1e-12)
    assert torch.allclose(mine, theirs, rtol=1e-10)
    assert torch.autograd.gradcheck(ours, x)


def test_lrn_of_16_bit_values_is_computed_in_32():
    x = 300 * torch.randn(2, 9, 4, 4)
    halves = x.half().requires_grad_()
    found = lrn(5, 1e-4, 0.75)(halves)
    assert found.dtype == torch.float16
    assert torch.allclose(found.float(), lrn(5, 1e-4, 0.75)(halves.float()), rtol=1e-3)
    found.sum().backward()
    assert halves.grad.isfinite().all()


TRITON = """
import contextlib, sys, torch
from torch import nn
from membound.zoo.lrn_triton import gradient, normalise
device = sys.argv[1]
if device == "cpu":
    torch.cuda.device = contextlib.nullcontext
torch.manual_seed(0)
for shape, size in (((2, 7, 40, 30), 5), ((3, 2, 5), 5), ((1, 1, 3, 3), 3), ((2, 9, 1), 1)):
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x = (3 * torch.randn(shape, device=device)).to(dtype)
        g = torch.randn(shape, device=device).to(dtype)
        wide = x.double().requires_grad_()
        expected = nn.LocalResponseNorm(size, 0.5, 0.75, 2.0)(wide)
        (slope,) = torch.autograd.grad(expected, wide, g.double())
        y, d = normalise(x, size, 0.5 / size, 0.75, 2.0)
        assert y.dtype == dtype
        found = gradient(x, d, g, size, 0.5 / size, 0.75)
        torch.testing.assert_close(y.double(), expected, rtol=near, atol=near)
        torch.testing.assert_close(found.double(), slope, rtol=near, atol=near)
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is absent: only torch builds for GPUs bring it"
)
def test_the_gpu_kernels_of_lrn():
    """On a GPU, or in Triton's interpreter where there is none."""
    gpu = torch.cuda.is_available()
    result = subprocess.run(
        [sys.executable, "-c", TRITON, "cuda" if gpu else "cpu"],
        env=dict(os.environ) if gpu else {**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
