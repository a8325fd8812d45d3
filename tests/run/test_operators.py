"""Operators without a weight, of random shapes, against torch in float64, on every instruction set."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from interpreter import ACTIVATIONS
from nets import ISAS, check, distance, expected, normal, one_node, stored
from profiles import examples

from membound.run import Net
from membound.run.plan import plan
from membound.store.graph import ACTIVATIONS as NUMBERS
from membound.store.graph import Graph, Node
from membound.store.model import Model

SEEDS = st.integers(0, 10_000)
BATCHES = {"batch": st.integers(1, 5), "max_batch": st.integers(1, 4)}
shapes = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)
images = st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(1, 20))


def run(op, shape, seed, batch, max_batch, attributes, tolerance=1e-6, **more):
    model = stored(one_node(op, shape, attributes, **more))
    x = normal(seed, batch, *shape)
    # Sums of both signs may cancel, and then say nothing about the rounding.
    check(model, np.abs(x) if op in ("mean", "avgpool", "adaptive") else x, tolerance, max_batch=max_batch)


@st.composite
def windows(draw, dilated):
    """An image and a window on it, each of which reaches the image."""
    shape = draw(images)
    kernel, stride = draw(st.tuples(*[st.integers(1, 6)] * 2)), draw(st.tuples(*[st.integers(1, 7)] * 2))
    dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)) if dilated else (1, 1)
    reach = [dilation[i] * (kernel[i] - 1) for i in (0, 1)]
    before = [draw(st.integers(0, reach[i])) for i in (0, 1)]
    after = [draw(st.integers(0, reach[i])) for i in (0, 1)]
    over = [0 if dilated else draw(st.integers(0, reach[i] - after[i])) for i in (0, 1)]
    for i in (0, 1):
        room = shape[1 + i] + before[i] + after[i] + over[i]
        assume(room > reach[i])
        assume((room - reach[i] - 1) // stride[i] * stride[i] - before[i] < shape[1 + i])
    attributes = {"kernel": kernel, "stride": stride, "pad": (*before, *after)}
    if dilated:
        attributes["dilation"] = dilation
    elif any(over):
        attributes["over"] = tuple(over)
    return shape, attributes


@examples(250)
@given(window=windows(dilated=True), seed=SEEDS, **BATCHES)
def test_max_pools(window, seed, batch, max_batch):
    """Exactly; a dilated window may meet padding alone, which is minus infinity."""
    model = stored(one_node("maxpool", window[0], window[1]))
    x = normal(seed, batch, *window[0])
    for isa in ISAS:
        found = Net(model, isa=isa, max_batch=max_batch, threads=2)(x)
        np.testing.assert_array_equal(found, expected(model, x))


@examples(250)
@given(
    window=windows(dilated=False),
    count=st.sampled_from(["all", "valid", 1, 7, 1000, 2.5, -3, 0.125, 1e10]),
    seed=SEEDS,
    **BATCHES,
)
def test_average_pools(window, count, seed, batch, max_batch):
    run("avgpool", window[0], seed, batch, max_batch, {**window[1], "count": count})


@examples(100)
@given(
    shape=images,
    kind=st.sampled_from(["avg", "max"]),
    size=st.tuples(st.integers(1, 25), st.integers(1, 25)),
    seed=SEEDS,
    **BATCHES,
)
def test_adaptive_pools(shape, kind, size, seed, batch, max_batch):
    run("adaptive", shape, seed, batch, max_batch, {"kind": kind, "size": size})


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pools_to_one_and_of_many(kind):
    for shape in ((3, 1, 1), (2, 97, 61), (1, 300, 500)):
        for size in ((1, 1), (1, 3), (7, 1), (2, 2)):
            run("adaptive", shape, 1, 2, 1, {"kind": kind, "size": size}, tolerance=1e-5)


@examples(100)
@given(shape=images, factor=st.tuples(st.integers(1, 9), st.integers(1, 45)), seed=SEEDS, **BATCHES)
def test_upsampling(shape, factor, seed, batch, max_batch):
    run("upsample", shape, seed, batch, max_batch, {"factor": factor}, tolerance=0)


def test_upsampling_is_cut_among_threads():
    run("upsample", (16, 33, 31), 1, 3, 2, {"factor": (3, 2)}, tolerance=0)


@examples(100)
@given(
    channels=st.integers(1, 40),
    rest=st.lists(st.integers(1, 20), max_size=2),
    size=st.integers(1, 50),
    alpha=st.sampled_from([1e-4, 0.5, 2.0]),
    beta=st.sampled_from([0.75, 0.5, 1.0, 0.3, 2.0, 0.0, -0.75]),
    k=st.sampled_from([1.0, 2.0, 0.1]),
    seed=SEEDS,
    **BATCHES,
)
def test_lrn(channels, rest, size, alpha, beta, k, seed, batch, max_batch):
    attributes = {"size": size, "alpha": alpha, "beta": beta, "k": k}
    run("lrn", (channels, *rest), seed, batch, max_batch, attributes, tolerance=2e-6)


@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    last=st.integers(1, 3),
    eps=st.sampled_from([1e-5, 1e-12, 1.0]),
    roles=st.sampled_from(["", "w", "b", "wb"]),
    seed=SEEDS,
    **BATCHES,
)
def test_layer_norm(shape, last, eps, roles, seed, batch, max_batch):
    last = min(last, len(shape))
    tensors = {role: normal(seed + 1, *shape[-last:]) for role in roles}
    # Of one element nothing is left, of two close ones little that is exact.
    tolerance = 1e-5 if math.prod(shape[-last:]) > 2 else 1e-2
    run(
        "layernorm",
        tuple(shape),
        seed,
        batch,
        max_batch,
        {"last": last, "eps": eps},
        tensors=tensors,
        tolerance=tolerance,
    )


def test_layer_norm_is_cut_among_threads():
    for last in (1, 2, 3):
        run("layernorm", (16, 65, 67), 1, 3, 2, {"last": last}, tolerance=1e-5)


def test_lrn_of_large_images():
    run("lrn", (7, 61, 59), 1, 2, 2, {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0})


@st.composite
def operands(draw):
    """Two shapes that broadcast in any pattern: each axis is shared, or 1 on one side or both."""
    axes = draw(st.lists(st.tuples(st.integers(1, 6), st.sampled_from("slrb")), max_size=5))
    left = tuple(1 if kind in "lb" else size for size, kind in axes)
    right = tuple(1 if kind in "rb" else size for size, kind in axes)
    return left, right


ACTS = st.sampled_from([None, ("relu",), ("sigmoid",), ("clip", -0.5, 0.5)])
KINDS = st.sampled_from(["add", "sub", "mul", "div", "maximum", "minimum"])


def with_act(act, **attributes):
    return attributes if act is None else {**attributes, "act": act}


@examples(200)
@given(kind=KINDS, pair=operands(), swap=st.booleans(), act=ACTS, seed=SEEDS, **BATCHES)
def test_arithmetic_with_a_constant(kind, pair, swap, act, seed, batch, max_batch):
    left, right = pair
    constant = np.abs(normal(seed + 1, *right)) + 0.5
    x = np.sign(normal(seed, batch, *left)) * (np.abs(normal(seed, batch, *left)) + 0.5)
    model = one_node(kind, left, with_act(act, **({"swap": True} if swap else {})), {"c": constant})
    check(stored(model), x.astype(np.float32), 1e-6, max_batch=max_batch)


@examples(60)
@given(kind=KINDS, shape=shapes, value=st.floats(0.1, 9), swap=st.booleans(), act=ACTS, seed=SEEDS, **BATCHES)
def test_arithmetic_with_a_number(kind, shape, value, swap, act, seed, batch, max_batch):
    value = float(np.float32(value))
    attributes = with_act(act, value=value, **({"swap": True} if swap else {}))
    x = normal(seed, batch, *shape)
    x = np.where(np.abs(x) < 0.1, np.float32(0.5), x)
    check(stored(one_node(kind, shape, attributes)), x, 1e-6, max_batch=max_batch)


@examples(200)
@given(kind=KINDS, pair=operands(), flip=st.booleans(), act=ACTS, seed=SEEDS, **BATCHES)
def test_arithmetic_of_two_values(kind, pair, flip, act, seed, batch, max_batch):
    """Both operands are parts of one input."""
    sizes = [int(np.prod(shape)) for shape in pair]
    parts = [
        Node("slice", (0,), {"axis": 0, "start": 0, "stop": sizes[0]}),
        Node("slice", (0,), {"axis": 0, "start": sizes[0], "stop": sum(sizes)}),
        Node("reshape", (1,), {"shape": pair[0]}),
        Node("reshape", (2,), {"shape": pair[1]}),
    ]
    inputs = (4, 3) if flip else (3, 4)
    model = one_node(kind, (sum(sizes),), with_act(act), inputs=inputs, others=parts)
    x = np.abs(normal(seed, batch, sum(sizes))) + 0.5
    check(stored(model), x, 1e-6, max_batch=max_batch)


def test_arithmetic_of_a_value_and_itself():
    run("add", (5, 3), 1, 3, 2, {}, inputs=(0, 0))


@examples(100)
@given(shape=shapes, data=st.data(), seed=SEEDS, **BATCHES)
def test_concat_and_slice(shape, data, seed, batch, max_batch):
    axis = data.draw(st.integers(0, len(shape) - 1))
    nodes = []
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, shape[axis] - 1))
        stop = data.draw(st.integers(start + 1, shape[axis]))
        step = data.draw(st.integers(1, 5))
        nodes.append(Node("slice", (0,), {"axis": axis, "start": start, "stop": stop, "step": step}))
    inputs = data.draw(st.lists(st.integers(0, len(nodes)), min_size=1, max_size=5).map(tuple))
    run("concat", shape, seed, batch, max_batch, {"axis": axis}, 0, inputs=inputs, others=nodes)


@examples(100)
@given(shape=shapes, data=st.data(), seed=SEEDS, **BATCHES)
def test_permute(shape, data, seed, batch, max_batch):
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    run("permute", shape, seed, batch, max_batch, {"axes": axes}, 0)


@examples(100)
@given(shape=shapes, data=st.data(), value=st.sampled_from([0, -2.5, 1e30]), seed=SEEDS, **BATCHES)
def test_pad(shape, data, value, seed, batch, max_batch):
    pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
    pad = tuple(data.draw(pairs) for _ in shape)
    run("pad", shape, seed, batch, max_batch, {"pad": pad, "value": value})


@examples(100)
@given(shape=shapes, data=st.data(), keep=st.booleans(), seed=SEEDS, **BATCHES)
def test_mean(shape, data, keep, seed, batch, max_batch):
    axes = st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)
    run("mean", shape, seed, batch, max_batch, {"axes": tuple(data.draw(axes)), "keep": keep})


@examples(100)
@given(
    shape=shapes,
    data=st.data(),
    log=st.booleans(),
    size=st.sampled_from([1, 1e-3, 80]),
    seed=SEEDS,
    **BATCHES,
)
def test_softmax(shape, data, log, size, seed, batch, max_batch):
    axis = data.draw(st.integers(0, len(shape) - 1))
    model = stored(one_node("softmax", shape, {"axis": axis, "log": log}))
    check(model, normal(seed, batch, *shape) * np.float32(size), 1e-6, max_batch=max_batch)


@examples(60)
@given(shape=shapes, data=st.data(), keep=st.booleans(), seed=SEEDS, **BATCHES)
def test_max(shape, data, keep, seed, batch, max_batch):
    axes = st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)
    run("max", shape, seed, batch, max_batch, {"axes": tuple(data.draw(axes)), "keep": keep}, 0)


@examples(60)
@given(shape=shapes, data=st.data(), seed=SEEDS, **BATCHES)
def test_gather(shape, data, seed, batch, max_batch):
    axis = data.draw(st.integers(0, len(shape) - 1))
    indices = data.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=9).map(tuple))
    run("gather", shape, seed, batch, max_batch, {"axis": axis, "indices": indices}, 0)


@examples(150)
@given(
    shape=images,
    kind=st.sampled_from(["nearest", "exact", "linear", "cubic"]),
    size=st.tuples(st.integers(1, 45), st.integers(1, 45)),
    corners=st.booleans(),
    seed=SEEDS,
    **BATCHES,
)
def test_resize(shape, kind, size, corners, seed, batch, max_batch):
    corners = corners and kind in ("linear", "cubic")
    attributes = {"kind": kind, "size": size, "corners": corners}
    run("resize", shape, seed, batch, max_batch, attributes, 1e-5 if kind in ("linear", "cubic") else 0)


@examples(100)
@given(
    before=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("slrb")), max_size=3),
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    transpose=st.booleans(),
    scale=st.sampled_from([1, 0.125, -2.0]),
    seed=SEEDS,
    **BATCHES,
)
def test_matmul(before, sizes, transpose, scale, seed, batch, max_batch):
    """Both operands are parts of one input."""
    m, n, k = sizes
    left = (*(1 if kind in "lb" else size for size, kind in before), m, k)
    right = (*(1 if kind in "rb" else size for size, kind in before), *((n, k) if transpose else (k, n)))
    first, second = math.prod(left), math.prod(right)
    parts = [
        Node("slice", (0,), {"axis": 0, "start": 0, "stop": first}),
        Node("slice", (0,), {"axis": 0, "start": first, "stop": first + second}),
        Node("reshape", (1,), {"shape": left}),
        Node("reshape", (2,), {"shape": right}),
    ]
    attributes = {"transpose": transpose, "scale": scale}
    model = one_node("matmul", (first + second,), attributes, inputs=(3, 4), others=parts)
    check(stored(model), np.abs(normal(seed, batch, first + second)), 1e-5, max_batch=max_batch)


def test_products_of_values_are_cut_among_threads():
    run("matmul", (1, 130, 130), 1, 1, 1, {"transpose": True}, tolerance=1e-4, inputs=(0, 0))
    run("softmax", (64, 130), 1, 3, 2, {"axis": 1})


def test_a_constant_is_the_same_for_every_image():
    tokens = Node("constant", (), {}, {"c": "token"})
    model = Model(Graph((3, 4), (tokens, Node("concat", (1, 0), {"axis": 0})), 2), {"token": normal(1, 2, 4)})
    check(stored(model), normal(2, 5, 3, 4), 0, max_batch=2)


@pytest.mark.parametrize("op", ["permute", "pad", "reshape", "act", "add", "mul"])
def test_values_without_axes(op):
    """A number for each input of the batch: shapes may be empty."""
    attributes = {
        "permute": {"axes": ()},
        "pad": {"pad": ()},
        "reshape": {"shape": (1, 1)},
        "act": {"act": ("relu",)},
        "add": {"value": 2.0},
        "mul": {"value": 2.0, "swap": True},
    }
    run(op, (), 1, 3, 2, attributes[op])


def test_large_values_are_cut_among_threads():
    """Enough elements that the work is worth a second thread."""
    for op, attributes in (
        ("act", {"act": ("gelu",)}),
        ("maxpool", {"kernel": (3, 3), "stride": (2, 2)}),
        ("avgpool", {"kernel": (3, 3), "stride": (2, 2)}),
        ("lrn", {"size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}),
        ("adaptive", {"kind": "avg", "size": (3, 3)}),
        ("mul", {"value": 3.0, "act": ("silu",)}),
    ):
        run(op, (16, 65, 67), 1, 3, 2, attributes)


# --- activations ---

PARAMETERS = {"leaky": (0.2,), "clip": (-1.5, 2.5), "elu": (0.7,)}
POINTS = np.concatenate(
    [
        np.linspace(-12, 12, 40_001),
        np.linspace(-130, 130, 5_001),
        10.0 ** np.arange(-44, 5),
        -(10.0 ** np.arange(-44, 5)),
        [0.0, -0.0, 100, -100, 87, -87, 88, -88, 89, -89, 103.9, -103.9, 0.625, -0.625, 3, -3, 6],
    ]
).astype(np.float32)


def activated(name, x, isa, numbers=None):
    act = (name, *(PARAMETERS.get(name, ()) if numbers is None else numbers))
    return Net(stored(one_node("act", x.shape[1:], {"act": act})), isa=isa, threads=1)(x)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NUMBERS)
def test_activations(name, isa):
    points = np.abs(POINTS) if name == "sqrt" else POINTS
    found = activated(name, points[None], isa)[0]
    wanted = ACTIVATIONS[name](torch.from_numpy(points).double(), *PARAMETERS.get(name, ())).numpy()
    off = np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))
    assert off.max() <= 1e-6, (name, points[off.argmax()], found[off.argmax()], wanted[off.argmax()])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NUMBERS)
def test_activations_of_infinite_and_no_numbers(name, isa):
    """What is not a number stays so; infinity goes where the function goes."""
    x = np.array([np.inf, np.nan, 1.0] * 7, np.float32)
    found = activated(name, x[None], isa)[0]
    wanted = ACTIVATIONS[name](torch.from_numpy(x).double(), *PARAMETERS.get(name, ())).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["relu", "leaky", "clip", "sigmoid", "tanh", "hardsigmoid", "elu"])
def test_activations_of_minus_infinity(name, isa):
    x = np.full((1, 9), -np.inf, np.float32)
    wanted = ACTIVATIONS[name](torch.from_numpy(x).double(), *PARAMETERS.get(name, ())).numpy()
    np.testing.assert_allclose(activated(name, x, isa), wanted, atol=1e-37)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NUMBERS)
def test_activations_do_not_depend_on_neighbours(name, isa):
    """The same values whether they are in full vectors or in what is left over."""
    x = normal(3, 1, 67)
    whole = activated(name, x, isa)
    for count in (1, 2, 3, 5, 15, 16, 17, 33):
        part = activated(name, x[:, :count].copy(), isa)
        np.testing.assert_allclose(part, whole[:, :count], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_max_pools_carry_what_is_not_a_number_of_long_rows(stride, isa):
    """In whole vectors and in what is left of a row, whichever of two numbers it is."""
    x = normal(1, 1, 2, 9, 83)
    x[0, 0, 4, ::7] = np.nan
    x[0, 1, 3:6, 40:] = -np.inf
    node = Node("maxpool", (0,), {"kernel": (3, 3), "stride": (2, stride), "pad": (1, 1, 1, 1)})
    found = Net(stored(Model(Graph((2, 9, 83), (node,), 1), {})), isa=isa, threads=1)(x)
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, (2, stride), 1).numpy()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("isa", ISAS)
def test_pools_carry_what_is_not_a_number(isa):
    x = normal(1, 1, 1, 9, 9)
    x[0, 0, 4, 4] = np.nan
    graph = (
        Node("maxpool", (0,), {"kernel": (3, 3), "stride": (1, 1)}),
        Node("adaptive", (0,), {"kind": "max", "size": (1, 1)}),
        Node("reshape", (1,), {"shape": (49,)}),
        Node("reshape", (2,), {"shape": (1,)}),
        Node("concat", (3, 4), {"axis": 0}),
    )
    found = Net(stored(Model(Graph((1, 9, 9), graph, 5), {})), isa=isa, threads=1)(x)[0]
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, 1).numpy().reshape(-1)
    np.testing.assert_array_equal(found, [*wanted, np.nan])


# --- the arena ---


@examples(60)
@given(data=st.data(), seed=SEEDS, **BATCHES)
def test_values_live_as_long_as_they_are_used(data, seed, batch, max_batch):
    """Random graphs of cheap operators: a value that loses its place too early shows in the output."""
    nodes, sizes, tensors = [], [6], {}
    for number in range(data.draw(st.integers(1, 25))):
        first = data.draw(st.integers(0, number))
        kind = data.draw(st.sampled_from(["act", "reshape", "add", "concat", "slice", "permute", "linear"]))
        if kind == "linear":  # from the first one on, operators take a whole batch
            size = data.draw(st.integers(1, 9))
            tensors[f"w{number}"] = normal(seed + number, size, sizes[first]) / np.float32(
                sizes[first] ** 0.5
            )
            node = Node("linear", (first,), {"act": ("tanh",)}, {"w": f"w{number}"})
        elif kind == "act":
            node, size = Node("act", (first,), {"act": ("tanh",)}), sizes[first]
        elif kind == "reshape":
            node, size = Node("reshape", (first,), {"shape": (sizes[first],)}), sizes[first]
        elif kind == "permute":
            node, size = Node("permute", (first,), {"axes": (0,)}), sizes[first]
        elif kind == "slice" and sizes[first] > 1:
            stop = data.draw(st.integers(2, sizes[first]))
            node, size = Node("slice", (first,), {"axis": 0, "start": 1, "stop": stop}), stop - 1
        else:
            second = data.draw(st.integers(0, number))
            if kind == "add" and sizes[first] == sizes[second]:
                node, size = Node("add", (first, second)), sizes[first]
            elif sizes[first] + sizes[second] < 200:
                node, size = Node("concat", (first, second), {"axis": 0}), sizes[first] + sizes[second]
            else:
                node, size = Node("slice", (first,), {"axis": 0, "start": 0, "stop": 1}), 1
        nodes.append(node)
        sizes.append(size)
    output = data.draw(st.integers(1, len(nodes)))
    model = stored(Model(Graph((6,), tuple(nodes), output), tensors))
    check(model, normal(seed, batch, 6), 1e-5, threads=(1, 2), max_batch=max_batch, usual=0.1)


PADDING = {"pad": ((0, 0), (0, 1), (2, 1)), "value": 0.0}


@pytest.mark.parametrize(
    ("padding", "more", "output", "folded"),
    [
        ({}, (), 2, True),
        ({}, (Node("conv", (1,), {"pad": (3, 0, 0, 1), "stride": (2, 2)}, {"w": "w"}),), 3, True),
        ({}, (Node("mean", (1,), {"axes": (1, 2)}),), 3, False),  # it reads the zeros, too
        ({}, (), 1, False),  # they are the output
        ({"value": 2.0}, (), 2, False),
        ({"pad": ((1, 1), (1, 1), (1, 1))}, (), 2, False),  # channels
    ],
)
def test_zeros_around_an_image_are_folded_into_convolutions(padding, more, output, folded):
    given = PADDING | padding
    channels = 3 + sum(given["pad"][0])
    nodes = (
        Node("pad", (0,), given),
        Node("conv", (1,), {"pad": (0, 1, 0, 0), "stride": (1, 2)}, {"w": "w"}),
        *more,
    )
    model = stored(Model(Graph((3, 7, 8), nodes, output), {"w": normal(1, 5, channels, 3, 3)}))
    assert (plan(model)[0].op == "folded") is folded
    check(model, normal(2, 2, 3, 7, 8))


def test_batches_of_every_size_agree():
    """A batch gives what its images give one by one, whatever the slices."""
    weight = normal(1, 8, 3, 3, 3)
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1), "act": ("relu",)}, {"w": "w"}),
        Node("mean", (1,), {"axes": (1, 2)}),
        Node("linear", (2,), {}, {"w": "v"}),
    )
    model = stored(Model(Graph((3, 9, 9), nodes, 3), {"w": weight, "v": normal(2, 5, 8)}))
    x = normal(3, 11, 3, 9, 9)
    for isa in ISAS:
        alone = np.concatenate([Net(model, isa=isa)(x[i : i + 1]) for i in range(len(x))])
        for max_batch in (1, 2, 3, 7, 11, 16):
            assert distance(Net(model, isa=isa, max_batch=max_batch)(x), alone.astype(np.float64)) < 1e-6


def test_an_empty_batch():
    model = stored(one_node("act", (3,), {"act": ("relu",)}))
    assert Net(model)(np.empty((0, 3), np.float32)).shape == (0, 3)
