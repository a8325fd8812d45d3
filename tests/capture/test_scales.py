"""Scales of rows stay apart from the weights: the weights keep their few values, and files their bits."""

import itertools

import numpy as np
import pytest
import torch
from architectures import build
from interpreter import interpret
from test_sparse import thin_
from torch import nn

from membound.capture import capture
from membound.store.file import to_bytes

# Every norm of these follows a layer, and no other product does.
FOLDED = ("resnet", "mobilenet", "conv1d")


def folded(conv, norm):
    """The weight of a layer with a batch norm, by torch: one rounding of the scale, one of the product."""
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    return torch.einsum("r...,r->r...", conv.weight, scale.float()).detach().numpy()


def pairs(module):
    """The layers of a module that a batch norm follows, by name."""
    parts = list(module.named_modules())
    for (name, layer), (_, norm) in itertools.pairwise(parts):
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) and isinstance(
            layer, nn.Conv1d | nn.Conv2d | nn.Linear
        ):
            yield name, layer, norm


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", FOLDED)
def test_weights_are_the_modules_own_and_their_products_what_folding_gives(name):
    module, shape = build(name)
    model = capture(module, torch.zeros(1, *shape), simplify=False)
    products, found = model.scaled().tensors, list(pairs(module))
    assert found
    for layer, conv, norm in found:
        weight = f"{layer}.weight"
        own = conv.weight.detach().numpy().reshape(model.tensors[weight].shape)
        assert model.tensors[weight].tobytes() == own.tobytes()
        assert products[weight].tobytes() == folded(conv, norm).tobytes()
    assert set(model.scales) == {f"{layer}.weight" for layer, _, _ in found}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", [*FOLDED, "shufflenet"])
@pytest.mark.parametrize("density", [1, 0.1])
@pytest.mark.one_in(3)
def test_files_of_floats_are_those_of_the_products(name, density):
    """Some scales are 0 here, with and without a sign, and so is what is left of their rows."""
    module, shape = build(name)
    if density < 1:
        thin_(module, density, seed=len(name))
    model = capture(module, torch.zeros(1, *shape))
    assert model.scales
    for values in ("f32", "f16"):
        assert to_bytes(model, values) == to_bytes(model.scaled(), values)


def few(*shape):
    """A weight of four values, zero among them."""
    chance = torch.Generator().manual_seed(len(shape))
    return torch.tensor([-0.5, 0.0, 0.25, 1.0])[torch.randint(4, shape, generator=chance)]


class Folds(nn.Module):
    """A layer of few values and what follows it."""

    def __init__(self, *after, outputs=6, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(6, outputs, 3, groups=groups)
        self.after = nn.ModuleList(after)
        self.head = nn.Conv2d(outputs, 2, 1)
        with torch.no_grad():
            self.conv.weight.copy_(few(*self.conv.weight.shape))
            for norm in after:
                if isinstance(norm, nn.BatchNorm2d):
                    norm.weight.copy_(torch.linspace(-1, 2, outputs))
                    norm.bias.copy_(torch.linspace(1, -1, outputs))
                    norm.running_var.copy_(torch.linspace(0.5, 3, outputs))

    def forward(self, x):
        x = self.conv(x)
        for part in self.after:
            x = part(x)
        return self.head(torch.relu(x))


class Product(nn.Module):
    def __init__(self, numbers, divide=False):
        super().__init__()
        self.numbers, self.divide = nn.Parameter(torch.as_tensor(numbers)), divide

    def forward(self, x):
        numbers = self.numbers.reshape(-1, 1, 1)
        return x / numbers if self.divide else x * numbers


def captured(module, **options):
    """A module of few values, captured; it computes what torch does."""
    model = capture(module.eval(), torch.zeros(1, 6, 7, 7), **options)
    x = torch.randn(2, 6, 7, 7, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        torch.testing.assert_close(
            interpret(model.graph, model.tensors, x, model.scales), module(x), rtol=1e-4, atol=1e-5
        )
    assert [node.op for node in model.graph.nodes] == ["conv", "conv"]
    return model


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_few_values_stay_few(groups):
    model = captured(Folds(nn.BatchNorm2d(6), groups=groups))
    assert set(np.unique(model.tensors["conv.weight"])) == {-0.5, 0, 0.25, 1}
    assert model.scales["conv.weight"].shape == (6,)
    assert len(np.unique(model.scaled().tensors["conv.weight"])) > 4


def test_several_products_are_one_scale():
    numbers = torch.tensor([1.0, 2, 3, 0.3, -1, 0.1])
    model = captured(Folds(Product(numbers), nn.BatchNorm2d(6), Product(numbers, divide=True)))
    assert set(np.unique(model.tensors["conv.weight"])) == {-0.5, 0, 0.25, 1}
    norm = torch.linspace(-1, 2, 6) / torch.sqrt(torch.linspace(0.5, 3, 6) + 1e-5)
    np.testing.assert_allclose(model.scales["conv.weight"], norm.numpy(), rtol=1e-6)


def test_one_factor_for_all_rows_goes_into_the_weight():
    model = captured(Folds(Product(torch.full((6,), 3.0), divide=True)))
    assert not model.scales
    assert len(np.unique(model.tensors["conv.weight"])) == 4


def test_a_row_with_a_scale_of_0_is_empty_and_its_scale_1():
    model = captured(Folds(Product([1.0, 0.0, 2.0, -0.0, 1.0, 3.0])), simplify=False)
    assert not model.tensors["conv.weight"][[1, 3]].any()
    assert model.tensors["conv.weight"][[0, 2, 4, 5]].any((1, 2, 3)).all()
    assert model.scales["conv.weight"].tolist() == [1, 1, 2, 1, 1, 3]


def test_scales_go_with_their_channels():
    """The first channel is dead by its scale, the next constant by its weights; the last is not read."""
    module = Folds(Product([0.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    with torch.no_grad():
        module.conv.weight[1] = 0
        module.conv.bias[1] = 0.7
        module.head.weight[:, 5] = 0
    model = captured(module)
    assert model.scales["conv.weight"].tolist() == [3, 4, 5]
    assert model.original_shapes["conv.weight"][0] == 6
    np.testing.assert_allclose(
        model.tensors["head.bias"],
        (module.head.bias + module.head.weight[:, 1, 0, 0] * 1.4).detach().numpy(),
        rtol=1e-5,
    )


def test_a_constant_channel_weighs_as_much_as_its_readers_rows_are_scaled_by():
    module = Folds(nn.BatchNorm2d(6))
    module.head = nn.Sequential(module.head, nn.BatchNorm2d(2))
    with torch.no_grad():
        module.head[1].weight.copy_(torch.tensor([3.0, -2.0]))
        module.conv.weight[:2] = 0
        module.after[0].bias[:2] = 2.0
    model = captured(module)
    assert model.tensors["head.0.weight"].shape == (2, 4, 1, 1)
    assert model.scales["head.0.weight"].shape == (2,)


@pytest.mark.parametrize("name", ["tied", "resnet"])
def test_a_weight_of_two_layers_has_no_scale_of_one(name):
    module, shape = build(name)
    model = capture(module, torch.zeros(1, *shape))
    uses = [tensor for node in model.graph.nodes for tensor in node.tensors.values()]
    assert all(uses.count(tensor) == 1 for tensor in model.scales)


def test_scales_of_a_depthwise_layer_go_with_their_channels():
    module = nn.Sequential(
        nn.Conv2d(6, 5, 1), Product([1.0, 2, 3, 4, 5]), nn.ReLU(), nn.Conv2d(5, 5, 3, groups=5, bias=False)
    )
    module += nn.Sequential(Product([5.0, 4, 3, 2, 1]), nn.ReLU(), nn.Conv2d(5, 2, 1))
    with torch.no_grad():
        module[0].weight[0], module[0].bias[0] = 0, -1
        module[6].weight[:, 3] = 0
    model = capture(module, torch.zeros(1, 6, 7, 7))
    x = torch.randn(2, 6, 7, 7, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        found = interpret(model.graph, model.tensors, x, model.scales)
        torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-5)
    assert {name: scales.tolist() for name, scales in model.scales.items()} == {
        "0.weight": [2, 3, 5],
        "3.weight": [4, 3, 1],
    }


LARGE, SMALL = [1e30] * 5 + [1e-30], [1e-30] * 5 + [1.0]
BACK = [1e-30] * 5 + [1e30]


@pytest.mark.parametrize("factors", [(LARGE, BACK), (SMALL, SMALL), (LARGE, SMALL, SMALL)])
def test_products_beyond_float32(factors):
    """Scales that would overflow or vanish: what is left is still what torch computes."""
    module = Folds(*map(Product, factors)).eval()
    model = capture(module, torch.zeros(1, 6, 7, 7))
    x = torch.randn(2, 6, 7, 7, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        found = interpret(model.graph, model.tensors, x, model.scales)
        torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-5)
    assert all(np.isfinite(scales).all() and scales.all() for scales in model.scales.values())
