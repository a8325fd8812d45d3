"""Sparse networks captured with what cannot matter left out: the counts that are known, and torch's outputs."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import ARCHITECTURES, build
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from interpreter import interpret
from profiles import chiefly, examples
from torch import nn

from membound import zoo
from membound.capture import capture

ROOT = Path(__file__).parents[2]


def agree(module, model, shape):
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = module(x)
    scale = max(float(expected.abs().max()), 1)
    found = interpret(model.graph, model.tensors, x, model.scales)
    torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=1e-5)


def thin_(module, density, seed):
    """Set all but a fraction of the weights to zero, and some biases."""
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            kept = density if parameter.dim() > 1 else 0.7
            parameter *= torch.rand(parameter.shape, generator=numbers) < kept


def caffemodel(name):
    folders = [
        Path(os.environ.get("MEMBOUND_DATA", ROOT / "data")),
        ROOT / "data",
        ROOT.parent / "shared" / "data",
    ]
    for folder in folders:
        if (folder / "caffemodels" / name).is_file():
            return folder / "caffemodels" / name
    pytest.skip(f"no caffemodels/{name} in MEMBOUND_DATA or ../shared/data")


def test_the_pruned_lenet_has_8_19_and_57_channels_alive():
    net = zoo.lenet().eval()
    zoo.load_caffemodel(net, caffemodel("lenet_dns_sparse.caffemodel"))
    model = capture(net, torch.zeros(1, 1, 28, 28))
    assert {name: model.tensors[f"{name}.weight"].shape for name in ("conv1", "conv2", "fc1", "fc2")} == {
        "conv1": (8, 1, 5, 5),
        "conv2": (19, 8, 5, 5),
        "fc1": (57, 19 * 16),
        "fc2": (10, 57),
    }
    assert model.original_shapes["fc1.weight"] == (500, 800)
    agree(net, model, (1, 28, 28))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", chiefly([*ARCHITECTURES][1::3], ARCHITECTURES))
@pytest.mark.one_in(3)
def test_sparse_architectures(name):
    module, shape = build(name)
    thin_(module, 0.1, seed=len(name))
    agree(module, capture(module, torch.zeros(1, *shape)), shape)


class Drawn(nn.Module):
    """A network of blocks as drawn: plain, residual or concatenated convolutions, then linear layers."""

    def __init__(self, blocks, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.blocks, channels = blocks, 3
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for kind, width, kernel, padding, stride, grouped, _ in blocks:
            outputs = channels if kind == "residual" else width
            groups = channels if grouped and outputs % channels == 0 else 1
            padding = kernel // 2 if kind != "plain" else padding
            stride = stride if kind == "plain" else 1
            self.convs.append(nn.Conv2d(channels, outputs, kernel, stride, padding, groups=groups))
            self.norms.append(nn.BatchNorm2d(outputs))
            nn.init.normal_(self.norms[-1].bias)
            channels = channels + outputs if kind == "concat" else outputs
        self.fc1, self.fc2 = nn.LazyLinear(9), nn.Linear(9, 4)

    def forward(self, x):
        for (kind, *_, pool), conv, norm in zip(self.blocks, self.convs, self.norms, strict=True):
            out = F.relu(norm(conv(x)))
            x = x + out if kind == "residual" else torch.cat([x, out], 1) if kind == "concat" else out
            x = (
                F.avg_pool2d(x, 3, 1, 1)
                if pool == "average"
                else F.max_pool2d(x, 3, 1, 1)
                if pool == "max"
                else x
            )
        return self.fc2(F.silu(self.fc1(x.flatten(1))))


BLOCK = st.tuples(
    st.sampled_from(["plain", "plain", "residual", "concat"]),
    st.integers(1, 8),
    st.sampled_from([1, 3]),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(["", "", "average", "max"]),
)


@examples(12, few=4, suppress_health_check=list(HealthCheck))
@given(
    st.lists(BLOCK, min_size=1, max_size=5), st.sampled_from([0.01, 0.05, 0.2, 0.5]), st.integers(0, 2**31)
)
def test_random_networks(blocks, density, seed):
    module = Drawn(blocks, seed)
    try:
        module(torch.zeros(2, 3, 11, 10))
    except RuntimeError:  # too small for its kernels
        return
    thin_(module, density, seed)
    model = capture(module.eval(), torch.zeros(1, 3, 11, 10))
    agree(module, model, (3, 11, 10))
    assert all(np.isfinite(array).all() for array in model.tensors.values())
