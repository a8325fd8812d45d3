"""One trace serves every state of the weights: what it gives is what capture() of those weights gives."""

import copy
import warnings

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from profiles import chiefly
from torch import nn
from torch.nn.utils import parametrizations

from membound import zoo
from membound.capture import capture
from membound.capture.capture import Tracer
from membound.errors import ModelError


def same(found, expected):
    """The very same network, to the last bit."""
    assert list(found.scales) == list(expected.scales)
    for name, scales in found.scales.items():
        assert scales.dtype == np.float32
        assert scales.tobytes() == expected.scales[name].tobytes(), name
    assert found.graph == expected.graph
    assert found.original_shapes == expected.original_shapes
    assert list(found.tensors) == list(expected.tensors)
    for name, array in found.tensors.items():
        assert array.dtype == np.float32
        assert array.tobytes() == expected.tensors[name].tobytes(), name


def changed(module, density, seed):
    """A module like this one with other weights, most of them zero, and other statistics."""
    other = copy.deepcopy(module)
    numbers = torch.Generator().manual_seed(seed)
    buffers = {name for name, _ in other.named_buffers()}
    with torch.no_grad():
        for name, value in other.state_dict().items():
            if not value.is_floating_point():
                continue
            if name in buffers:  # a variance stays positive
                value *= 0.5 + torch.rand(value.shape, generator=numbers)
            else:
                kept = density if value.dim() > 1 else 0.7
                value.normal_(generator=numbers).mul_(torch.rand(value.shape, generator=numbers) < kept)
    return other


def small():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", chiefly(["resnet", "tokens"], ARCHITECTURES))
def test_every_architecture_with_other_weights(name):
    module, shape = build(name)
    example = torch.zeros(1, *shape)
    tracer = Tracer(module, example)
    other = changed(module, 0.1, seed=len(name))
    state, expected = other.state_dict(), capture(other, example)
    same(tracer.model(state), expected)
    tracer.model()
    same(tracer.model(state), expected)
    same(tracer.model(tracer.state()), tracer.model())


def test_without_simplification_and_without_a_state():
    module, shape = build("shufflenet")
    example = torch.zeros(1, *shape)
    tracer, other = Tracer(module, example), changed(module, 0.1, seed=2)
    same(tracer.model(other.state_dict(), simplify=False), capture(other, example, simplify=False))
    same(tracer.model(), capture(module, example))


def test_weights_computed_from_others_follow():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(), nn.Conv2d(4, 5, 1)).eval()
    parametrizations.weight_norm(module[0])
    parametrizations.orthogonal(module[2])
    example = torch.zeros(1, 3, 6, 6)
    other = changed(module, 1.0, seed=1)
    same(Tracer(module, example).model(other.state_dict()), capture(other, example))


def test_lenet_shrinks_as_its_state_does():
    net = zoo.lenet()
    tracer = Tracer(net, torch.zeros(1, 1, 28, 28))
    state = net.state_dict() | {"conv1.weight": torch.zeros(20, 1, 5, 5)}
    state["conv1.weight"][3] = 1
    assert tracer.model(state).tensors["conv1.weight"].shape == (1, 1, 5, 5)
    assert tracer.model().tensors["conv1.weight"].shape == (20, 1, 5, 5)


def test_what_comes_back_shares_nothing_with_the_state_or_the_tracer():
    module = small()
    tracer = Tracer(module, torch.zeros(1, 3, 6, 6))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    before, first = copy.deepcopy(state), copy.deepcopy(tracer.model(state).tensors)
    for given in (state, None):
        for simplify in (True, False):
            for array in tracer.model(given, simplify=simplify).tensors.values():
                array[...] = 7
    for value in tracer.state().values():
        value.fill_(7)
    assert all(torch.equal(value, before[name]) for name, value in state.items())
    for given in (state, None):
        assert all(np.array_equal(array, first[name]) for name, array in tracer.model(given).tensors.items())


def test_the_module_may_go_on_training_meanwhile():
    module = small()
    tracer = Tracer(module, torch.zeros(1, 3, 6, 6))
    expected = tracer.model()
    with torch.no_grad():
        for value in module.parameters():
            value.zero_()
    same(tracer.model(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(dtype):
    module = small()
    other = changed(module, 1.0, seed=3).to(dtype)
    tracer = Tracer(module, torch.zeros(1, 3, 6, 6))
    same(tracer.model(other.state_dict()), capture(other, torch.zeros(1, 3, 6, 6, dtype=dtype)))


def test_names_with_and_without_wrappers():
    module, example = small(), torch.zeros(1, 3, 6, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(nn.DataParallel(module))
        inner = nn.Sequential(nn.DataParallel(torch.compile(module)))
    other = changed(module, 0.3, seed=4)
    expected = capture(other, example)
    wrapped = {f"module._orig_mod.{name}": value for name, value in other.state_dict().items()}
    for traced in (module, compiled):
        same(Tracer(traced, example).model(other.state_dict()), expected)
        same(Tracer(traced, example).model(wrapped), expected)
    within = dict(zip(inner.state_dict(), other.state_dict().values(), strict=True))
    same(Tracer(inner, example).model(within), capture(nn.Sequential(other), example))


def test_tied_weights_need_one_of_their_names():
    module, shape = build("tied")
    tracer = Tracer(module, torch.zeros(1, *shape))
    other = changed(module, 0.5, seed=5)
    expected = capture(other, torch.zeros(1, *shape))
    for name in ("first.weight", "second.weight"):
        state = {key: value for key, value in other.state_dict().items() if key != name}
        same(tracer.model(state), expected)
    state["second.weight"] = other.state_dict()["first.weight"] + 1
    with pytest.raises(ModelError, match=r"second\.weight is tied to another weight"):
        tracer.model(other.state_dict() | {"second.weight": state["second.weight"]})


def test_parameters_are_what_is_trained():
    tracer = Tracer(nn.DataParallel(small()), torch.zeros(1, 3, 6, 6))
    names = ["0.weight", "1.weight", "1.bias", "4.weight", "4.bias"]
    assert tracer.parameters == tuple((name,) for name in names)
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert set(tracer.state()) == {*names, *statistics}
    module, shape = build("tied")
    assert ("first.weight", "second.weight") in Tracer(module, torch.zeros(1, *shape)).parameters


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda s: without(s, "4.bias"), r"it lacks 4\.bias$"),
        (lambda s: without(s, "1.num_batches_tracked"), r"it lacks 1\.num_batches_tracked$"),
        (lambda s: {}, r"it lacks 0\.weight, 1\.weight"),
        (lambda s: s | {"5.bias": torch.zeros(2)}, r"it has 5\.bias, which the network does not"),
        (lambda s: without(s, "4.bias") | {"fc.bias": torch.zeros(2)}, r"lacks 4\.bias and has fc\.bias"),
        (lambda s: s | {"4.bias": torch.zeros(3)}, r"4\.bias is \(3,\) in the state, in the network \(2,\)"),
        (lambda s: s | {"4.bias": [0.0, 0.0]}, r"4\.bias in the state is list"),
        (
            lambda s: s | {"4.bias": torch.zeros(2, dtype=torch.complex64)},
            r"4\.bias in the state is torch\.complex",
        ),
        (
            lambda s: s | {"4.bias": torch.zeros(2, device="meta")},
            r"4\.bias in the state is .* that has values",
        ),
        (lambda s: s | {"4.bias": torch.full((2,), torch.nan)}, r"4\.bias has values that are not finite"),
    ],
)
def test_states_that_do_not_fit(state, message):
    module = small()
    tracer = Tracer(module, torch.zeros(1, 3, 6, 6))
    with pytest.raises(ModelError, match=message):
        tracer.model(state(module.state_dict()))


def test_what_capture_refuses_is_refused_when_traced():
    class Alone(nn.Module):
        def forward(self, x):
            return x.mean((1, 2, 3)) if len(x) == 1 else x.sum((1, 2, 3))

    with pytest.raises(ModelError, match="gives another answer to a batch of 1"):
        Tracer(Alone(), torch.zeros(1, 3, 6, 6))
    with pytest.raises(ModelError, match="the batch must stay the first axis"):
        Tracer(nn.Unflatten(0, (1, -1)), torch.zeros(1, 3))
    with pytest.raises(ModelError, match=r"give a torch\.nn\.Module"):
        Tracer(lambda x: x, torch.zeros(1, 3))
    with pytest.raises(ModelError, match="computes nothing"):
        Tracer(nn.Identity(), torch.zeros(1, 3)).model()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_states_on_a_gpu():
    module = small()
    tracer = Tracer(module, torch.zeros(1, 3, 6, 6))
    same(tracer.model({name: value.cuda() for name, value in module.state_dict().items()}), tracer.model())
