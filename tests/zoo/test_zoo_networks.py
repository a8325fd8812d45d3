"""The networks: their sizes, their fillers, and that they can be stacked and exported."""

import copy
import math

import pytest
import torch
from profiles import full
from torch.func import functional_call, stack_module_state

from membound import zoo
from membound.errors import MemboundError

COUNTS = {
    zoo.lenet: {"conv1": 520, "conv2": 25_050, "fc1": 400_500, "fc2": 5_010},
    zoo.cifar10_quick: {"conv1": 2_432, "conv2": 25_632, "conv3": 51_264, "fc1": 65_600, "fc2": 650},
    zoo.alexnet: {
        "conv1": 34_944,
        "conv2": 307_456,
        "conv3": 885_120,
        "conv4": 663_936,
        "conv5": 442_624,
        "fc6": 37_752_832,
        "fc7": 16_781_312,
        "fc8": 4_097_000,
    },
}
TOTALS = {zoo.lenet: 431_080, zoo.cifar10_quick: 145_578, zoo.alexnet: 60_965_224}


@pytest.fixture(scope="module")
def alexnet():
    torch.manual_seed(3)
    return zoo.alexnet().eval()


@pytest.mark.parametrize("make", COUNTS)
def test_parameter_counts(make):
    with torch.device("meta"):
        net = make()
    counts = {name: sum(p.numel() for p in layer.parameters()) for name, layer in net.named_children()}
    assert {name: n for name, n in counts.items() if n} == COUNTS[make]
    assert sum(counts.values()) == TOTALS[make]


@pytest.mark.parametrize(
    ("make", "name", "fan_in"),
    [(zoo.lenet, "conv1", 25), (zoo.lenet, "conv2", 500), (zoo.lenet, "fc1", 800), (zoo.lenet, "fc2", 500)],
)
def test_xavier_is_uniform_up_to_its_bound(make, name, fan_in):
    weight = make(generator=torch.Generator().manual_seed(1)).get_submodule(name).weight
    bound, n = math.sqrt(3 / fan_in), weight.numel()
    assert weight.abs().max() <= bound
    assert weight.abs().max() > bound * (1 - 10 / n)
    # Variance of a uniform is bound^2 / 3 = 1 / fan_in; its estimate has a relative spread sqrt(0.8 / n).
    assert weight.var().item() == pytest.approx(1 / fan_in, rel=5 * math.sqrt(0.8 / n))
    assert abs(weight.mean().item()) < 5 * math.sqrt(1 / fan_in / n)


GAUSSIANS = {
    "cifar10_quick": {"conv1": 1e-4, "conv2": 0.01, "conv3": 0.01, "fc1": 0.1, "fc2": 0.1},
    "alexnet": {f"conv{i}": 0.01 for i in range(1, 6)} | {"fc6": 0.005, "fc7": 0.005, "fc8": 0.01},
}


@pytest.mark.parametrize("name", GAUSSIANS)
def test_gaussian_fillers(name, alexnet):
    net = alexnet if name == "alexnet" else zoo.cifar10_quick(generator=torch.Generator().manual_seed(2))
    for layer, std in GAUSSIANS[name].items():
        weight = net.get_submodule(layer).weight
        n = weight.numel()
        assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * n)), layer
        assert abs(weight.mean().item()) < 5 * std / math.sqrt(n), layer
        assert weight.abs().max() > 2.5 * std  # not uniform


def test_constant_biases(alexnet):
    for net in (zoo.lenet(), zoo.cifar10_quick(), alexnet):
        for name, layer in net.named_children():
            if getattr(layer, "bias", None) is not None:
                one = net is alexnet and name in ("conv2", "conv4", "conv5", "fc6", "fc7")
                assert torch.equal(layer.bias, torch.full_like(layer.bias, 0.1 if one else 0.0)), name


@pytest.mark.parametrize("make", [zoo.lenet, zoo.cifar10_quick])
def test_weights_follow_the_seed(make):
    def weights(**options):
        return torch.cat([p.flatten() for p in make(**options).parameters()])

    torch.manual_seed(5)
    first, later = weights(), weights()
    torch.manual_seed(5)
    assert torch.equal(weights(), first)
    assert not torch.equal(first, later)
    before = torch.get_rng_state()
    own = weights(generator=torch.Generator().manual_seed(7))
    assert torch.equal(own, weights(generator=torch.Generator().manual_seed(7)))
    assert torch.equal(torch.get_rng_state(), before)


def test_order_of_layers_in_lenet():
    net = zoo.lenet().double()
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    y = torch.nn.functional.conv2d(x, net.conv1.weight, net.conv1.bias)
    y = y.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
    y = torch.nn.functional.conv2d(y, net.conv2.weight, net.conv2.bias)
    y = y.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
    y = (y.reshape(3, -1) @ net.fc1.weight.T + net.fc1.bias).clamp(min=0)
    torch.testing.assert_close(net(x), y @ net.fc2.weight.T + net.fc2.bias)


@pytest.mark.parametrize("name", [full("lenet"), "cifar10_quick", full("alexnet")])
def test_stacks_and_exports(name, alexnet):
    nets = [alexnet] if name == "alexnet" else [zoo.build(name).eval() for _ in range(3)]
    x = torch.randn(2, *nets[0].input_shape)
    with torch.no_grad():
        expected = torch.stack([net(x) for net in nets])
        parameters, buffers = stack_module_state(nets)
        shell = copy.deepcopy(nets[0]).to("meta")
        stacked = torch.vmap(lambda p, b: functional_call(shell, (p, b), (x,)))(parameters, buffers)
        torch.testing.assert_close(stacked, expected)
        batch = torch.export.Dim("batch", min=1, max=64)
        exported = torch.export.export(nets[0], (x,), dynamic_shapes=({0: batch},)).module()
        more = torch.cat([x, x[:1]])
        torch.testing.assert_close(exported(more), nets[0](more))


def test_alexnet_drops_only_in_training(alexnet):
    x = torch.randn(1, 3, 227, 227)
    with torch.no_grad():
        assert torch.equal(alexnet(x), alexnet(x))
        alexnet.train()
        assert not torch.equal(alexnet(x), alexnet(x))
        alexnet.eval()


@pytest.mark.parametrize("make", [zoo.lenet, zoo.cifar10_quick])
def test_number_of_classes(make):
    assert make(classes=7)(torch.zeros(1, *make().input_shape)).shape == (1, 7)
    with pytest.raises(MemboundError, match="at least one class"):
        make(classes=0)
