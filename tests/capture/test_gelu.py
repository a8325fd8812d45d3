"""GELU written out with erf is captured as one operator; what is not GELU is refused, not guessed."""

import math

import numpy as np
import pytest
import torch
from profiles import chiefly
from torch import nn

from membound.capture import capture
from membound.errors import ModelError
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

HALF_ROOT = 1 / math.sqrt(2)
GELUS = {
    "as BERT has it": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "as ONNX has it": lambda x: x * (torch.erf(x / math.sqrt(2.0)) + 1) * 0.5,
    "a half last but one": lambda x: (1 + torch.erf(x * HALF_ROOT)) * 0.5 * x,
    "divided by two": lambda x: x * (1 + torch.erf(HALF_ROOT * x)) / 2,
    "halves on the right": lambda x: (torch.erf(x * HALF_ROOT) + 1) * (x / 2),
}
OTHERS = {
    "another scale": lambda x: x * 0.5 * (1 + torch.erf(x)),
    "another half": lambda x: x * 0.4 * (1 + torch.erf(x * HALF_ROOT)),
    "plus two": lambda x: x * 0.5 * (2 + torch.erf(x * HALF_ROOT)),
    "erf alone": lambda x: torch.erf(x * HALF_ROOT),
    "x twice": lambda x: x * x * (1 + torch.erf(x * HALF_ROOT)),
    "erf used twice": lambda x: (lambda e: x * 0.5 * (1 + e) + e)(torch.erf(x * HALF_ROOT)),
    "of something else": lambda x: (x + 1) * 0.5 * (1 + torch.erf(x * HALF_ROOT)),
}


class Written(nn.Module):
    def __init__(self, formula, ends=False):
        super().__init__()
        self.first, self.formula, self.last = nn.Linear(6, 8), formula, nn.Linear(8, 3)
        self.ends = ends

    def forward(self, x):
        y = self.formula(self.first(x))
        return y if self.ends else self.last(y)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("name", chiefly(["as BERT has it", "halves on the right"], GELUS))
def test_gelu_written_out(name, ends):
    torch.manual_seed(0)
    net = Written(GELUS[name], ends)
    model = capture(net, torch.zeros(1, 6))
    assert "gelu" in str(model.graph)
    x = torch.randn(7, 6) * 3
    with torch.no_grad():
        wanted = net.double()(x.double()).numpy()
    found = Net(read_bytes(to_bytes(model)))(x.numpy())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", chiefly(["another scale", "erf used twice"], OTHERS))
def test_what_is_no_gelu_is_refused(name):
    with pytest.raises(ModelError, match="the operator erf is not supported"):
        capture(Written(OTHERS[name]), torch.zeros(1, 6))


def test_numbers_that_are_trained_are_no_constants():
    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.number = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return x * self.number * (1 + torch.erf(x * HALF_ROOT))

    with pytest.raises(ModelError, match="erf"):
        capture(nn.Sequential(nn.Linear(6, 8), Trained(), nn.Linear(8, 3)), torch.zeros(1, 6))
