"""Ensembles as one network: torch, the file and the runtime agree."""

import numpy as np
import pytest
import torch
from profiles import full
from torch import nn

import membound as mb
from membound import zoo
from membound.capture.capture import Tracer
from membound.errors import ModelError
from membound.run.net import Net
from membound.search.ensemble import Ensemble, join_states
from membound.search.measure import FileBytes, Nonzeros

AVERAGES = ["scores", "probabilities"]
KEPT = {"conv1": 60, "conv2": 300, "fc1": 400, "fc2": 200}


def sparse_lenet(seed):
    """About a thousand nonzeros, in channels of which each member has lost others."""
    numbers = torch.Generator().manual_seed(seed)
    net = zoo.lenet(generator=numbers)
    with torch.no_grad():
        for name, kept in KEPT.items():
            layer = getattr(net, name)
            layer.bias.normal_(0, 0.1, generator=numbers)
            layer.weight[torch.rand(len(layer.weight), generator=numbers) < 0.4] = 0
            flat = layer.weight.view(-1)
            flat[flat.abs().argsort()[:-kept]] = 0
    return net.eval()


def with_norms(seed, width, classes=10):
    """Another architecture, with batch norms that do something."""
    torch.manual_seed(seed)
    parts = [nn.Conv2d(1, width, 5, stride=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(width * 64, classes))
    net.train()(torch.randn(16, 1, 28, 28))
    return net.eval()


def images(count=5):
    return torch.randn(count, 1, 28, 28, generator=torch.Generator().manual_seed(9))


def expected(members, average, x):
    with torch.no_grad():
        outputs = torch.stack([member(x) for member in members])
    return (outputs.softmax(2) if average == "probabilities" else outputs).mean(0).numpy()


@pytest.fixture(scope="module")
def lenets():
    return [sparse_lenet(seed) for seed in range(5)]


@pytest.mark.parametrize("average", AVERAGES)
def test_one_file_gives_the_average_of_its_members(lenets, average, tmp_path):
    ensemble = Ensemble(lenets, average)
    mb.save(ensemble, tmp_path / "net.safetensors", images(1))
    found = mb.load(tmp_path / "net.safetensors", threads=1)(images().numpy())
    assert found.shape == (5, 10)
    np.testing.assert_allclose(found, expected(lenets, average, images()), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ensemble(images()).detach(), expected(lenets, average, images()), atol=1e-6)
    if average == "probabilities":
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


def test_members_lose_their_own_channels(lenets):
    model = Tracer(Ensemble(lenets), images(1)).model()
    for name in ("conv1", "conv2", "fc1"):
        alone = [Tracer(net, images(1)).model().tensors[f"{name}.weight"].shape for net in lenets[:2]]
        assert [model.tensors[f"{number}.{name}.weight"].shape for number in (0, 1)] == alone
    assert len({model.tensors[f"{number}.conv1.weight"].shape for number in range(5)}) > 1
    assert [node.op for node in model.graph.nodes].count("mul") == 1


@pytest.mark.parametrize("average", AVERAGES)
def test_members_of_different_kinds_with_norms(lenets, average):
    members = [with_norms(1, 6), lenets[0], with_norms(2, 3)]
    measure = FileBytes(Tracer(Ensemble(members, average), images(1)))
    found = Net(measure.stored(), threads=1)(images().numpy())
    np.testing.assert_allclose(found, expected(members, average, images()), rtol=1e-5, atol=1e-5)


def test_the_states_of_members_make_the_state_of_the_ensemble(lenets):
    tracer = Tracer(Ensemble([zoo.lenet() for _ in range(3)]), images(1))
    state = join_states([net.state_dict() for net in lenets[:3]])
    assert state.keys() == Ensemble(lenets[:3]).state_dict().keys()
    measure = FileBytes(tracer)
    found = Net(measure.stored(state), threads=1)(images().numpy())
    np.testing.assert_allclose(found, expected(lenets[:3], "scores", images()), rtol=1e-5, atol=1e-5)
    nonzeros = Nonzeros(Ensemble(lenets[:3]))
    assert nonzeros(state) == sum(Nonzeros(net)() for net in lenets[:3]) == nonzeros()


@pytest.mark.parametrize(("average", "more"), [("scores", 0), ("probabilities", 1)])
def test_one_member_is_the_member_itself(lenets, average, more):
    model, alone = (Tracer(net, images(1)).model() for net in (Ensemble(lenets[:1], average), lenets[0]))
    assert len(model.graph.nodes) == len(alone.graph.nodes) + more
    for name, array in alone.tensors.items():
        assert np.array_equal(model.tensors[f"0.{name}"], array)


@pytest.mark.parametrize("values", [full("f32"), "f16"])
def test_the_file_is_hardly_larger_than_those_of_the_members(lenets, values):
    """Names are two characters longer and the sums are new; one header's frame serves all."""
    facts = {"values": values, "classes": [f"the digit {number}" for number in range(10)]}
    tracer = Tracer(lenets[0], images(1))
    apart = sum(FileBytes(tracer, **facts)(net.state_dict()) for net in lenets)
    assert FileBytes(Tracer(Ensemble(lenets), images(1)), **facts)() < apart


def test_a_member_that_works_in_place_leaves_the_input_to_the_others():
    members = [nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(784, 3)) for _ in range(3)]
    members.append(nn.Sequential(nn.Flatten(), nn.Linear(784, 3)))
    x = images()
    ensemble = Ensemble(members).eval()
    total = sum(member(x.clone()) for member in members) / 4
    np.testing.assert_allclose(ensemble(x).detach(), total.detach(), atol=1e-6)
    assert torch.equal(x, images())
    stored = FileBytes(Tracer(ensemble, images(1))).stored()
    np.testing.assert_allclose(Net(stored, threads=1)(x.numpy()), total.detach(), atol=1e-5)


def test_a_member_given_twice_is_stored_once_and_counts_twice(lenets):
    first, second = lenets[:2]
    ensemble = Ensemble([first, first, second])
    stored = FileBytes(Tracer(ensemble, images(1))).stored()
    found = Net(stored, threads=1)(images().numpy())
    np.testing.assert_allclose(found, expected([first, first, second], "scores", images()), atol=1e-5)
    assert not any(name.startswith("1.") for name in stored.tensors)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ensemble([]), "needs at least one member"),
        (lambda: Ensemble([nn.ReLU(), torch.relu]), "member 1 is a builtin_function_or_method"),
        (lambda: Ensemble([nn.ReLU()], "votes"), "no average of 'votes'"),
        (lambda: Ensemble([nn.Linear(3, 2), nn.Linear(3, 1)])(torch.zeros(1, 3)), r"\[\(1,\), \(2,\)\]"),
    ],
)
def test_what_cannot_be_averaged(make, message):
    with pytest.raises(ModelError, match=message):
        make()
