"""Files of packed layers as they run: every layout and type of values, against torch on what numpy decodes of them."""

import numpy as np
import pytest
import stored
import torch
from architectures import build
from nets import check, normal, thin

from membound.capture import capture
from membound.run import Net
from membound.store.file import read_bytes, to_bytes
from membound.store.graph import Graph, Node
from membound.store.model import Model

FILES = stored.packed_files()


@pytest.mark.parametrize("share", range(6))
def test_every_layout_and_type_with_scales_and_biases(share):
    for number in range(share, len(FILES), 6):
        model = read_bytes(FILES[number])
        check(model, normal(number, 3, *model.shapes[0]), 1e-5)


@pytest.mark.parametrize("prefer", ["bytes", "speed"])
@pytest.mark.parametrize("values", ["p1", "p4", "p8"])
@pytest.mark.parametrize("name", ["resnet", "depthwise", "tied", "mixer"])
@pytest.mark.one_in(5)
def test_whole_networks(name, values, prefer):
    module, shape = build(name)
    model = thin(capture(module, torch.zeros(1, *shape)), "0.3")
    check(read_bytes(to_bytes(model, values, prefer)), normal(1, 2, *shape), 1e-4)


def test_memory_counts_what_a_packed_layer_needs():
    """Tables of rows are made at load: those of a network of few bits are more than those of its floats."""
    weight = stored.few_valued((500, 800), 20_000, [1, 2, -3, 5])
    model = Model(Graph((800,), (Node("linear", (0,), {}, {"w": "a.weight"}),), 1), {"a.weight": weight})
    net = Net(read_bytes(to_bytes(model, {"a.weight": "p2"})), threads=1)
    assert net.model.tensors["a.weight"].format == "rice"
    assert net.memory().weights == net.model.file_bytes < 20_000
    assert 500 * 4 <= net.memory().tables <= 500 * 4 * 4 + 8192
    x = normal(0, 1, 800)
    assert np.allclose(net(x), x @ weight.T, atol=1e-3)
