"""capture() against torch: the same outputs for every architecture and for batches of any size."""

import pytest
import torch
from architectures import ARCHITECTURES, build
from interpreter import interpret
from profiles import chiefly

from membound import zoo
from membound.capture import capture
from membound.store.shapes import infer_shapes


def agree(module, model, shape, batches=(1, 3, 5)):
    for batch in batches:
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            found = interpret(model.graph, model.tensors, x, model.scales)
            torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", chiefly([*[*ARCHITECTURES][::4], "mixer", "unet"], ARCHITECTURES))
@pytest.mark.one_in(2)
def test_architectures(name):
    module, shape = build(name)
    model = capture(module, torch.zeros(1, *shape))
    agree(module, model, shape)
    inferred = infer_shapes(model.graph, {name: array.shape for name, array in model.tensors.items()})
    assert inferred[model.graph.output] == tuple(module(torch.zeros(2, *shape)).shape[1:])


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick"])
def test_zoo(name):
    net = zoo.build(name).eval()
    agree(net, capture(net, torch.zeros(1, *net.input_shape)), net.input_shape)


@pytest.mark.full
def test_alexnet():
    net = zoo.alexnet(classes=7).eval()
    model = capture(net, torch.zeros(1, *net.input_shape))
    agree(net, model, net.input_shape, batches=(2,))
    assert [node.op for node in model.graph.nodes].count("lrn") == 2
