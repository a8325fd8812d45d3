"""The C runtime, through the extension, against numpy in integers, and against the network in floating point."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_networks import NETWORKS, Builder, micro, prepared, random_network, random_residual, some_images
from micro_reference import run_reference
from profiles import chiefly, examples

from membound.errors import MemboundError, ModelError
from membound.micro.layers import READERS
from membound.micro.tables import KNOWN_AS
from membound.micro.ways_out import WAYS_OUT
from membound.run import Net
from membound.run.micro_net import MicroNet, describe_plan
from membound.store.graph import ACTIVATIONS
from membound.store.operators import OPERATORS

# What a random network may have that the runtime says no to.
REFUSED = ("computes nothing", "takes a flattened", "pads only before a convolution")


@given(seed=st.integers(0, 2**32 - 1))
@examples(1000, deadline=None)
def test_random_networks_give_the_bits_of_the_reference(seed):
    model = (random_network, random_residual)[seed % 2](seed)
    try:
        rows = micro(model, "rows")
    except ModelError as error:
        if not any(known in str(error) for known in REFUSED):
            raise
        return
    images = some_images(model, 2, seed)
    wanted = run_reference(rows.plan.net, images).reshape(2, -1)
    assert np.array_equal(rows.integers(images).reshape(2, -1), wanted)
    assert np.array_equal(micro(model, "whole").integers(images).reshape(2, -1), wanted)


@pytest.mark.parametrize("name", chiefly(["lenet", "dscnn", "concat"], NETWORKS))
def test_known_networks_give_the_bits_of_the_reference(name):
    model = NETWORKS[name]()
    net, images = micro(model), some_images(model, 1)
    if model.preprocess is None:
        images = prepared(model, images)
        q = net.plan.net.quantizations[0].round(images).astype(np.int64) + 128
        wanted = run_reference(net.plan.net, q, pixels=False)
    else:
        wanted = run_reference(net.plan.net, images)
    assert np.array_equal(net.integers(images).reshape(-1), wanted.reshape(-1))


@pytest.mark.parametrize("name", chiefly(["resnet8", "concat"], NETWORKS))
def test_rows_and_whole_maps_agree_and_rows_take_less(name):
    model = NETWORKS[name]()
    rows, whole = micro(model, "rows"), micro(model, "whole")
    images = prepared(model, some_images(model))
    assert np.array_equal(rows.integers(images), whole.integers(images))
    assert rows.memory().ram < whole.memory().ram
    assert micro(model).memory().ram == rows.memory().ram


@pytest.mark.parametrize("name", NETWORKS)
def test_integers_are_near_the_network_in_floating_point(name):
    model = NETWORKS[name]()
    x = prepared(model, some_images(model, 8))
    wanted, found = Net(model, max_batch=8)(x), micro(model)(x)
    off = np.sqrt(((found - wanted) ** 2).mean()) / wanted.std()
    assert off < 0.12


def test_pixels_and_prepared_numbers_agree_where_the_input_is_exact():
    model = NETWORKS["lenet"]()
    net, images = micro(model), some_images(model)
    assert np.array_equal(net.integers(images), net.integers(prepared(model, images)))


@given(seed=st.integers(0, 2**32 - 1))
@examples(200, deadline=None)
def test_scales_of_any_size_are_refused_or_computed_with(seed):
    """A file may say anything: no scale makes the runtime do what C leaves undefined, or the planner fail otherwise."""
    model = random_network(seed % 50)
    draw = np.random.default_rng(seed)
    wide = float(draw.choice([1, 5, 30]))
    scales = {
        value: (float(np.float32(10 ** draw.uniform(-wide, wide))), int(draw.integers(-128, 128)))
        for value in range(len(model.shapes))
    }
    try:
        net = MicroNet(model, activations=scales)
    except ModelError:
        return
    images = some_images(model, 1, seed)
    assert np.array_equal(net.integers(images).reshape(-1), run_reference(net.plan.net, images).reshape(-1))


@pytest.mark.parametrize(
    ("op", "given", "said"),
    [
        ("lrn", {"size": 3, "alpha": 1.0, "beta": 0.75, "k": 1.0}, "has no lrn: train the network without"),
        ("permute", {"axes": (0, 2, 1)}, "has no permute: train a network that keeps channels first"),
        ("upsample", {"factor": (2, 2)}, "has no upsample: end the network before it"),
        (
            "reshape",
            {"shape": (3, 4, 16)},
            "only to a vector: flatten all of it, or leave out the layer that reshapes",
        ),
        ("maxpool", {"kernel": (2, 2), "dilation": (2, 2)}, "has no dilated pools"),
        ("adaptive", {"kind": "avg", "size": (3, 3)}, "only to sizes that divide it"),
        ("concat", {"axis": 1}, "joins channels only"),
    ],
)
def test_what_the_runtime_does_not_have_is_refused_by_name(op, given, said):
    net = Builder((2, 8, 8), 0)
    net.conv(net.add(op, (net.conv(0, 3),), **given), 2)
    with pytest.raises(ModelError, match=said):
        micro(net.store())


def test_every_operator_that_is_refused_has_a_way_out():
    assert set(OPERATORS) - set(READERS) - {"input", "embedding"} <= set(WAYS_OUT)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_near_its_function(name):
    numbers = {"leaky": (0.1,), "elu": (1.0,), "clip": (-0.5, 2.0)}.get(name, ())
    net = Builder((4, 8, 8), 0)
    inner = net.conv(0, 4, act=("softplus",) if name == "sqrt" else None)  # which has no root of less than 0
    net.conv(net.add("act", (inner,), act=(name, *numbers)), 3)
    model = net.store("f32")
    x = prepared(model, some_images(model, 8))
    device = micro(model)
    wanted, found = Net(model, max_batch=8)(x), device(x)
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.05 * wanted.std()
    tables = describe_plan(device.plan).get("tables", {})
    assert (KNOWN_AS.get(name, name) in tables) is (name not in ("relu", "clip"))


def test_an_empty_batch_gives_an_empty_one():
    net = micro(NETWORKS["lenet"]())
    assert (
        net(np.empty((0, 1, 28, 28), np.uint8)).shape
        == net.integers(np.empty((0, 1, 28, 28), np.uint8)).shape
    )
    assert net(np.empty((0, 1, 28, 28), np.float32)).shape == (0, *net.output_shape)


def test_numbers_that_are_not_prepared_are_warned_of():
    model = NETWORKS["resnet8"]()
    net, images = micro(model), some_images(model, 2)
    raw = images.astype(np.float32)
    with pytest.warns(UserWarning, match=r"% of the input is beyond .* give net.preprocess\(x\)"):
        net(raw)
    prepared_ones = np.asarray(net.preprocess(images), np.float32)
    assert net(prepared_ones).shape == net(images).shape  # and without a warning, which would be an error


def test_numbers_that_int8_rounds_away_are_warned_of():
    net = micro(NETWORKS["resnet8"]())
    step = net.plan.net.quantizations[0].scale
    with pytest.warns(UserWarning, match="the input goes up to .* give them as they were in training"):
        net(np.full((1, *net.input_shape), step, np.float32))
    net(np.zeros((1, *net.input_shape), np.float32))  # nothing is lost of zeros


def test_time_is_estimated_for_two_ways_to_compile():
    net = micro(NETWORKS["lenet"]())
    assert net.speed("-O2").ms("80 MHz") < net.speed().ms(80e6) == pytest.approx(2 * net.speed().ms("160MHz"))
    with pytest.raises(MemboundError, match=r"choose Os \(the least flash\) or O2"):
        net.speed("-O3")
    memory = net.memory("-O2")
    assert repr(memory).startswith(f"MicroMemory(flash={memory.flash}, ram={memory.ram}, ")
    assert repr(memory).endswith("level='-O2')")
    assert memory.compiled is (memory.to_json()["code_from"] != "recorded sizes")


def test_huge_values_are_refused():
    net = Builder((70_000,), 0, 0.001)
    net.flat_linear(0, 2)
    with pytest.raises(ModelError, match="too large for a microcontroller"):
        MicroNet(net.store("f32"), activations={})


def test_calls_do_not_depend_on_what_was_run_before():
    model = NETWORKS["concat"]()
    net, images = micro(model), some_images(model, 4)
    together = net.integers(images)
    assert np.array_equal(
        np.concatenate([net.integers(image[None]) for image in images[::-1]])[::-1], together
    )
