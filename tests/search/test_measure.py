"""Measures against what they speak of: the file that save() writes, the network that is loaded, torch's counts."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import small_problem
from torch import nn

import membound as mb
from membound import _core, zoo
from membound.capture.capture import Tracer
from membound.data import Preprocess
from membound.errors import ModelError
from membound.run.net import Net, known_isas
from membound.search.measure import FileBytes, Nonzeros, RamBytes

LENET_WEIGHTS = ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
EXAMPLE = torch.zeros(1, 1, 28, 28)
PREPROCESS = Preprocess(scale=1 / 256, mean=np.full((1, 28, 28), 33, np.float32))


@pytest.fixture(scope="module")
def lenet():
    """A network and its tracer."""
    net = zoo.lenet(generator=torch.Generator().manual_seed(0)).eval()
    return net, Tracer(net, EXAMPLE)


class Small(nn.Module):
    """A convolution with a norm, and one weight in two layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(torch.relu(self.norm(self.conv(x))).flatten(1))))


def thinned(module, density, seed=0):
    """A copy of the module with most of its weights at zero."""
    other = copy.deepcopy(module)
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in other.parameters():
            value.normal_(0, 0.1, generator=numbers)
            value *= torch.rand(value.shape, generator=numbers) < density
    return other.eval()


@pytest.mark.parametrize("values", ["f32", "f16"])
@pytest.mark.parametrize("prefer", ["bytes", "speed"])
@pytest.mark.parametrize(
    "facts", [{}, {"preprocess": PREPROCESS, "classes": [f"digit {n}" for n in range(10)]}]
)
@pytest.mark.one_in(3)
def test_a_file_is_as_large_as_was_said_and_is_what_save_writes(lenet, tmp_path, values, prefer, facts):
    net, tracer = lenet
    measure = FileBytes(tracer, values, prefer=prefer, **facts)
    other = thinned(net, 0.02)
    saved = mb.save(other, tmp_path / "saved.safetensors", EXAMPLE, values=values, prefer=prefer, **facts)
    stored = measure.write(tmp_path / "measured.safetensors", other.state_dict())
    data = (tmp_path / "saved.safetensors").read_bytes()
    assert (tmp_path / "measured.safetensors").read_bytes() == data
    assert measure(other.state_dict()) == len(data) == saved.file_bytes == stored.file_bytes
    assert measure.stored(other.state_dict()).file_bytes == len(data)


def test_sizes_follow_the_state_and_nothing_is_remembered(lenet):
    net, tracer = lenet
    measure = FileBytes(tracer)
    states = [thinned(net, density).state_dict() for density in (0.01, 0.3, 1.0)]
    sizes = [measure(state) for state in states]
    assert sizes == sorted(set(sizes))
    assert [measure(state) for state in reversed(states)] == sizes[::-1]
    assert measure() == measure(net.state_dict())


def test_a_mean_image_and_the_names_of_classes_count(lenet):
    _, tracer = lenet
    plain = FileBytes(tracer)()
    assert FileBytes(tracer, preprocess=PREPROCESS)() - plain >= 4 * 28 * 28
    names = [f"a class with a long name, {number}" for number in range(10)]
    assert FileBytes(tracer, classes=names)() - plain >= 10 * 26 - 64


def test_what_rounds_to_zero_in_f16_takes_no_bytes(lenet):
    net, tracer = lenet
    state = thinned(net, 0.2).state_dict()
    tiny = state | {"fc1.weight": torch.where(state["fc1.weight"] == 0, 1e-9, state["fc1.weight"])}
    more = [FileBytes(tracer, values)(tiny) - FileBytes(tracer, values)(state) for values in ("f32", "f16")]
    assert more == [more[0], 0]
    assert more[0] > 1_000_000


def test_the_stored_network_runs_as_the_file_does(lenet, tmp_path):
    net, tracer = lenet
    other = thinned(net, 0.05)
    measure = FileBytes(tracer, "f16", preprocess=PREPROCESS)
    measure.write(tmp_path / "net.safetensors", other.state_dict())
    x = np.random.default_rng(0).standard_normal((3, 1, 28, 28)).astype(np.float32)
    found = Net(measure.stored(other.state_dict()), threads=1)(x)
    assert np.array_equal(found, mb.load(tmp_path / "net.safetensors", threads=1)(x))
    np.testing.assert_allclose(found, other(torch.from_numpy(x)).detach(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("batch", [1, 16])
def test_memory_is_that_of_the_loaded_network(lenet, tmp_path, batch):
    net, tracer = lenet
    other = thinned(net, 0.02)
    measure = RamBytes(tracer, "f16", batch=batch)
    measure.write(tmp_path / "net.safetensors", other.state_dict())
    loaded = mb.load(tmp_path / "net.safetensors", max_batch=batch, threads=1, concurrency=1)
    here = RamBytes(tracer, "f16", batch=batch, isa=_core.isa())
    assert here(other.state_dict()) == loaded.memory().total
    assert measure(other.state_dict()) == max(loaded.memory(isa).total for isa in known_isas())
    assert measure(other.state_dict()) < measure.dense()
    assert measure.least(LENET_WEIGHTS) < measure(other.state_dict())


def test_a_larger_batch_needs_more_memory(lenet):
    _, tracer = lenet
    assert RamBytes(tracer, batch=64)() > RamBytes(tracer, batch=1)() > FileBytes(tracer)()


@pytest.mark.parametrize("values", ["f32", "f16"])
def test_dense_is_the_size_without_zeros_whatever_was_traced(values):
    net = zoo.lenet()
    sparse = thinned(net, 0.01)
    measure = FileBytes(Tracer(sparse, EXAMPLE), values)
    expected = FileBytes(Tracer(thinned(net, 2.0), EXAMPLE), values)()
    assert measure.dense() == expected > 431_080 * (4 if values == "f32" else 2)
    assert measure() < expected / 10


def test_least_is_what_one_nonzero_a_layer_and_the_header_take(lenet):
    _, tracer = lenet
    measure = FileBytes(tracer)
    state = tracer.state()
    for name in LENET_WEIGHTS:
        state[name].zero_().view(-1)[0] = 5
    assert measure.least(LENET_WEIGHTS) == measure(state) < 1500
    weights = measure.stored(state).decode().tensors
    assert [np.count_nonzero(weights[name]) for name in LENET_WEIGHTS] == [1, 1, 1, 1]
    output = Net(measure.stored(state))(np.ones((1, 1, 28, 28), np.float32))
    assert output[0, 0] == 5**4  # the input reaches the output


def test_least_leaves_what_is_not_named(lenet):
    _, tracer = lenet
    convolutions = LENET_WEIGHTS[:2]
    # One channel of 4 x 4 pixels is left to fc1; less of the other's row and column, and a header's entries.
    left = (500 * 16 + 10 * 500) * 4
    more = FileBytes(tracer).least(convolutions) - FileBytes(tracer).least(LENET_WEIGHTS)
    assert left - 300 < more < left
    sparser = tracer.state() | {"fc2.weight": torch.eye(10, 500)}
    assert FileBytes(tracer).least(convolutions, sparser) < FileBytes(tracer).least(convolutions) - 10_000


def test_measures_of_norms_and_tied_weights(tmp_path):
    module = Small().eval()
    measure = FileBytes(Tracer(module, torch.zeros(1, 1, 6, 6)))
    other = thinned(module, 0.1)
    saved = mb.save(other, tmp_path / "net.safetensors", torch.zeros(1, 1, 6, 6))
    assert measure(other.state_dict()) == saved.file_bytes
    assert 64 * 64 * 4 < measure.dense() < 2 * 64 * 64 * 4
    # Either name of the tied weight means both.
    assert measure.least(["first.weight"]) == measure.least(["second.weight"]) < measure.dense() - 64 * 64 * 4


def test_weights_in_another_order_of_memory():
    module = Small().eval()
    module.conv.weight.data = module.conv.weight.data.to(memory_format=torch.channels_last)
    measure = FileBytes(Tracer(module, torch.zeros(1, 1, 6, 6)))
    state = {name: value.contiguous() for name, value in module.state_dict().items()}
    assert (
        measure.least(["conv.weight"]) == measure.least(["conv.weight"], state) < measure() == measure(state)
    )


def test_nonzeros_are_those_of_parameters():
    module = Small().eval()
    count = Nonzeros(nn.DataParallel(module))
    other = thinned(module, 0.3)
    expected = sum(int(value.count_nonzero()) for value in other.parameters())
    assert count(other.state_dict()) == expected
    assert count({f"module.{name}": value for name, value in other.state_dict().items()}) == expected
    assert (
        count.dense() == sum(value.numel() for value in module.parameters()) == 36 + 4 + 4 + 64 * 64 + 64 + 64
    )
    assert count() == sum(int(value.count_nonzero()) for value in module.parameters())
    biases = sum(int(other.state_dict()[name].count_nonzero()) for name in ("first.bias", "second.bias"))
    rest = ["conv.weight", "norm.weight", "norm.bias", "second.weight"]
    assert count.least(rest, other.state_dict()) == biases + 4
    state = other.state_dict()
    del state["first.weight"]  # it is there under its other name
    assert count(state) == expected


def test_lenet_has_the_papers_count():
    assert Nonzeros(zoo.lenet()).dense() == 431_080


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: FileBytes(t, "f8"), "no value type 'f8'"),
        (lambda t: FileBytes(t, prefer="luck"), "no preference 'luck'"),
        (lambda t: FileBytes(t, classes="cat"), "give a list of names"),
        (lambda t: FileBytes(t, classes=["a"] * 2), "give each its own"),
        (lambda t: FileBytes(t, classes=[str(n) for n in range(11)]), "11 names for 10 outputs"),
        (lambda t: FileBytes(t, preprocess={"scale": 2}), r"give a membound\.data\.Preprocess"),
        (lambda t: FileBytes(t, preprocess=Preprocess(crop=20)), "crops images to 20 pixels"),
        (lambda t: RamBytes(t, batch=0), "max_batch=0: a whole"),
        (lambda t: RamBytes(t, batch=1, threads=-1), "threads=-1: a whole"),
        (
            lambda t: FileBytes(t).least(["fc3.weight"]),
            r"no parameter 'fc3\.weight': there are conv1\.weight",
        ),
        (lambda t: FileBytes(t)({}), r"it lacks conv1\.weight"),
        (lambda t: FileBytes(t).write("net.pt"), r"let its name end in \.safetensors"),
        (lambda t: Nonzeros(zoo.lenet())({}), r"it lacks conv1\.weight"),
        (lambda t: Nonzeros(zoo.lenet()).least(["fc3"]), "no parameter 'fc3'"),
    ],
)
def test_what_cannot_be_is_refused_at_once(lenet, make, message):
    with pytest.raises(ModelError, match=message):
        make(lenet[1])


def test_memory_is_measured_in_the_types_that_are_given(lenet):
    net, tracer = lenet
    measure, state = RamBytes(tracer, "f32", batch=1), thinned(net, 0.1).state_dict()
    types = dict.fromkeys(LENET_WEIGHTS, "p4")
    assert measure(state, types) == replace(measure, types=types)(state) < measure(state)


def test_a_changed_problem_traces_the_same_network_no_second_time():
    problem = small_problem(values="auto")
    tracer = problem.files.tracer
    wider = problem.changed(target=replace(problem.target, values="f32"))
    assert wider.files.tracer is tracer
    assert wider.files.values == "f32"
    assert wider.least() > problem.least()
    assert problem.changed(make=lambda seed: problem.make(seed)).files.tracer is not tracer
    assert pickle.loads(pickle.dumps(problem)).files.tracer is not tracer
