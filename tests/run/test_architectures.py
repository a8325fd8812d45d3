"""Whole networks against torch: every format, value type, instruction set, number of threads and batch."""

import functools
import itertools
import random

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from nets import FORMATS, ISAS, VALUES, distance, expected, normal, stored, thin, thinned
from profiles import chiefly, full

from membound import zoo
from membound.capture import capture
from membound.run import Net

TOLERANCE = 1e-4  # of the largest output
THIN = ("1", "0.5", "0.1", "0.02", "rows", "zero")
CHOICES = {
    "thin": THIN,
    "format": FORMATS,
    "values": VALUES,
    "isa": ISAS,
    "threads": (1, 2),
    "batch": (1, 3, 16),
    "max_batch": (1, 4, 16),
}
SMALL = ("lenet", "cifar10_quick")
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def pairwise(choices, seed):
    """Combinations among which every pair of values of two choices occurs."""
    rng = random.Random(seed)
    names = list(choices)
    missing = {
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in choices[a] for y in choices[b]
    }
    while missing:
        wanted = dict(rng.choice(sorted(missing, key=repr)))
        tries = [{name: rng.choice(values) for name, values in choices.items()} | wanted for _ in range(20)]
        best = max(tries, key=lambda one: len(missing & set(itertools.combinations(one.items(), 2))))
        missing -= set(itertools.combinations(best.items(), 2))
        yield best


def everything(choices):
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


@functools.lru_cache(maxsize=2)
def network(name):
    """The module, the shape of its input, and the network captured from it."""
    if name in SMALL:
        module = zoo.build(name).eval()
        return module, module.input_shape, capture(module, torch.zeros(1, *module.input_shape))
    module, shape = build(name)
    return module, shape, capture(module, torch.zeros(1, *shape))


def check_combinations(name, combinations):
    _, shape, model = network(name)
    inputs = {batch: normal(batch, batch, *shape) for batch in CHOICES["batch"]}
    thinner = {kind: thin(model, kind) for kind in THIN}
    wanted = {}
    for one in combinations:
        saved = stored(thinner[one["thin"]], one["format"], one["values"])
        # What is right does not depend on the format, but of codes: some formats need one for 0.
        coded = one["values"].startswith("p")
        key = one["thin"], one["values"], one["batch"], one["format"] if coded else None
        if key not in wanted:
            wanted[key] = expected(saved, inputs[one["batch"]])
        net = Net(saved, threads=one["threads"], max_batch=one["max_batch"], isa=one["isa"])
        off = distance(net(inputs[one["batch"]]), wanted[key])
        assert off <= TOLERANCE, f"{one}: {off:g} off"


def check_module(name):
    """Against the module as the user has it, in float32, batch norms and all."""
    module, shape, model = network(name)
    for batch, isa in itertools.product((1, 5), ISAS):
        x = normal(batch, batch, *shape)
        with torch.no_grad():
            wanted = module(torch.from_numpy(x)).numpy()
        assert distance(Net(stored(model, "csr"), isa=isa)(x), wanted.astype(np.float64)) <= TOLERANCE


@pytest.mark.parametrize(
    "name", chiefly([*[*ARCHITECTURES][::6], "mixer", "unet", "lenet"], [*ARCHITECTURES, *SMALL])
)
@pytest.mark.one_in(3)
def test_pairs_of_choices(name):
    check_module(name)  # in the same test, because capturing takes the longest
    check_combinations(name, pairwise(CHOICES, name))


@pytest.mark.full
@pytest.mark.parametrize("name", [*ARCHITECTURES, *SMALL])
def test_all_choices(name):
    check_combinations(name, everything(CHOICES))


@pytest.mark.parametrize("name", SMALL)
def test_a_sparse_module(name):
    """A trained network's zeros, dead channels among them, through capture."""
    module = zoo.build(name).eval()
    with torch.no_grad():
        for number, (_, weight) in enumerate(module.named_parameters()):
            kind = ("0.1", "0.5", "rows")[number % 3]
            weight.copy_(torch.from_numpy(thinned(weight.numpy(), kind, number)))
    shape = module.input_shape
    model = capture(module, torch.zeros(1, *shape))
    x = normal(1, 4, *shape)
    with torch.no_grad():
        wanted = module.double()(torch.from_numpy(x).double()).numpy()
    for format, isa in itertools.product(FORMATS, ISAS):
        assert distance(Net(stored(model, format), isa=isa, max_batch=4)(x), wanted) <= TOLERANCE


# The share of each layer's weights that is kept: the paper's in the linear layers; it leaves convolutions dense.
ALEXNET = {"conv1": "0.8", "conv2": "0.4", "conv3": "0.1", "conv4": "1", "conv5": "0.35"}
ALEXNET |= {"fc6": "0.08", "fc7": "0.18", "fc8": "0.1"}


@functools.lru_cache(maxsize=1)
def alexnet():
    module = zoo.alexnet(classes=50).eval()
    with torch.no_grad():
        for number, (name, weight) in enumerate(module.named_parameters()):
            if weight.dim() > 1:
                share = ALEXNET[name.split(".")[0]]
                weight.copy_(torch.from_numpy(thinned(weight.numpy(), share, number)))
    return module, capture(module, torch.zeros(1, *module.input_shape))


@pytest.mark.parametrize(("turn", "values"), [full(0, "f32"), full(2, "f16")])
def test_alexnet(turn, values):
    """Each layer in another format; the second time in yet another."""
    module, model = alexnet()
    formats = {name: FORMATS[(number + turn) % len(FORMATS)] for number, name in enumerate(model.tensors)}
    saved = stored(model, formats, values)
    x = normal(1, 2, *module.input_shape)
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).double().numpy() if values == "f32" else expected(saved, x)
    combinations = [(ISAS[0], 2, 1), (ISAS[-1], 1, 2), (ISAS[-1], 2, 1)]
    for isa, threads, max_batch in dict.fromkeys(combinations):
        net = Net(saved, isa=isa, threads=threads, max_batch=max_batch)
        assert distance(net(x), wanted) <= TOLERANCE
