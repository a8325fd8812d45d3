"""Batches: images side by side and one after another, values that wait for the whole batch, and room for few images."""

import numpy as np
import pytest
from nets import ISAS, check, distance, expected, normal, stored, thinned

from membound.run import Net
from membound.store.graph import Graph, Node
from membound.store.model import Model, StoredModel


def around_a_linear() -> Model:
    """Values of images, the input and one made early, are used after the first linear layer; others are not."""
    pad = {"pad": (1, 1, 1, 1), "act": ("relu",)}
    nodes = (
        Node("conv", (0,), pad, {"w": "a.w", "b": "a.b"}),  # 1: waits for the batch
        Node("conv", (1,), pad, {"w": "b.w"}),
        Node("maxpool", (2,), {"kernel": (2, 2)}),
        Node("conv", (3,), pad, {"w": "c.w"}),  # 4
        Node("reshape", (4,), {"shape": (8 * 3 * 3,)}),
        Node("linear", (5,), {"act": ("relu",)}, {"w": "d.w"}),  # 6: as large as value 1
        Node("reshape", (6,), {"shape": (4, 6, 6)}),
        Node("add", (7, 1), {}),
        Node("conv", (8,), pad, {"w": "e.w"}),
        Node("mul", (9, 0), {}),  # the input waits, too
    )
    shapes = {"a.w": (4, 4, 3, 3), "a.b": (4,), "b.w": (8, 4, 3, 3), "c.w": (8, 8, 3, 3), "d.w": (144, 72)}
    shapes["e.w"] = (4, 4, 3, 3)
    tensors = {name: normal(n, *shape) * np.float32(0.3) for n, (name, shape) in enumerate(shapes.items())}
    return Model(Graph((4, 6, 6), nodes, len(nodes)), tensors)


def convolutions() -> Model:
    """Layers of many shapes of image, each laid out in its own way, and none that takes a batch at once."""
    nodes, tensors, channels = [], {}, 3

    def add(outputs, kernel, **attributes):
        nonlocal channels
        name = f"conv{len(nodes)}"
        each = channels // attributes.get("groups", 1)
        tensors[name] = thinned(normal(len(nodes), outputs, each, kernel, kernel), "0.4") * np.float32(0.5)
        attributes["act"] = ("clip", 0.0, 6.0)
        nodes.append(Node("conv", (len(nodes),), attributes, {"w": name}))
        channels = outputs

    add(32, 3, stride=(2, 2), pad=(1, 1, 1, 1))  # 14 x 14
    add(32, 3, pad=(1, 1, 1, 1), groups=32)
    add(48, 1)
    add(48, 3, stride=(2, 2), pad=(1, 1, 1, 1), groups=48)  # 7 x 7
    add(40, 1)
    nodes.append(Node("maxpool", (len(nodes),), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)}))
    return Model(Graph((3, 28, 28), tuple(nodes), len(nodes)), tensors)


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("max_batch", [1, 3, 8])
def test_values_that_wait_for_the_batch(batch, max_batch):
    check(stored(around_a_linear()), normal(9, batch, 4, 6, 6), max_batch=max_batch, threads=(1, 2, 3, 5))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_an_image_has_the_same_bits_alone_and_in_a_batch(threads, isa):
    model = stored(convolutions(), "csr")
    x = normal(5, 7, 3, 28, 28)
    alone = np.concatenate([Net(model, threads=1, isa=isa)(image[None]) for image in x])
    assert distance(alone, expected(model, x)) <= 1e-5
    for max_batch in (2, 7, 16):
        assert np.array_equal(Net(model, threads=threads, max_batch=max_batch, isa=isa)(x), alone)


def small_maps() -> StoredModel:
    """Layers that, of a batch on one thread, take as many images at once as a vector of AVX-512 has lanes."""
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1), "stride": (2, 2)}, {"w": "first"}),  # 8 x 8
        Node("conv", (1,), {"pad": (2, 2, 2, 2), "act": ("relu",)}, {"w": "wide"}),
        Node("add", (1, 2), {}),
        Node("conv", (3,), {"act": ("silu",)}, {"w": "inner"}),  # 6 x 6
        Node("conv", (4,), {}, {"w": "last"}),  # 4 x 4
    )
    shapes = {"first": (20, 3, 3, 3), "wide": (20, 20, 5, 5), "inner": (30, 20, 3, 3), "last": (9, 30, 3, 3)}
    tensors = {
        name: thinned(normal(len(name), *shape), "0.2") * np.float32(0.3) for name, shape in shapes.items()
    }
    return stored(Model(Graph((3, 16, 16), nodes, len(nodes)), tensors), "csr")


@pytest.mark.parametrize("isa", ISAS)
def test_images_that_lie_side_by_side_have_the_same_bits(isa):
    """Small maps of a batch: as many images as a vector has lanes are one, the rest are taken alone."""
    model = small_maps()
    x = normal(5, 37, 3, 16, 16)
    alone = np.concatenate([Net(model, threads=1, isa=isa)(image[None]) for image in x])
    assert distance(alone, expected(model, x)) <= 1e-5
    for threads in (1, 2, 3, 4):
        for max_batch in (16, 20, 37):
            net = Net(model, threads=threads, max_batch=max_batch, isa=isa)
            for batch in (1, 2, 3, 5, 16, 17, 33, 37):
                assert np.array_equal(net(x[:batch]), alone[:batch])


def stretch(values: str) -> StoredModel:
    """All that a stretch of images side by side may hold, and values from before it and for behind it."""
    same = {"pad": (1, 1, 1, 1), "act": ("relu",)}
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1)}, {"w": "first"}),  # dense: each image for itself
        Node("conv", (1,), same, {"w": "a"}),
        Node("add", (2, 1), {"act": ("relu",)}),
        Node("conv", (3,), {**same, "groups": 40}, {"w": "depthwise"}),
        Node("maxpool", (4,), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)}),
        Node("conv", (5,), {**same, "groups": 2}, {"w": "grouped"}),
        Node("act", (6,), {"act": ("silu",)}),
        Node("conv", (7,), {"stride": (2, 2)}, {"w": "points"}),
        Node("avgpool", (7,), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)}),
        Node("add", (8, 9), {}),
        Node("conv", (10,), {"pad": (2, 2, 2, 2), "dilation": (2, 2), "act": ("tanh",)}, {"w": "wide"}),
        Node("reshape", (11,), {"shape": (48 * 5 * 4,)}),
        Node("linear", (12,), {}, {"w": "last"}),
    )
    shapes = {
        "first": (40, 3, 3, 3), "a": (40, 40, 3, 3), "depthwise": (40, 1, 3, 3), "grouped": (48, 20, 3, 3),
        "points": (48, 48, 1, 1), "wide": (48, 48, 3, 3), "last": (7, 960),
    }  # fmt: skip
    tensors = {}
    for number, (name, shape) in enumerate(shapes.items()):
        full = normal(number, *shape) * np.float32(0.2)
        tensors[name] = full if name in ("first", "depthwise") else thinned(full, "0.2")
    return stored(Model(Graph((3, 17, 13), nodes, len(nodes)), tensors), "csr", values)


@pytest.mark.parametrize("values", ["f32", "f16", "p4"])
@pytest.mark.parametrize("isa", ISAS)
def test_a_stretch_of_operators_takes_images_side_by_side(isa, values):
    model = stretch(values)
    x = normal(6, 35, 3, 17, 13)
    alone = np.concatenate([Net(model, threads=1, isa=isa)(image[None]) for image in x])
    assert distance(alone, expected(model, x)) <= 1e-4
    arenas = [Net(model, threads=1).memory("avx512", max_batch=images).arena for images in (15, 16)]
    assert arenas[1] > 3 * arenas[0]  # room for values of 16 images
    for threads in (1, 2, 3):
        for max_batch in (16, 35):
            net = Net(model, threads=threads, max_batch=max_batch, isa=isa)
            for batch in (16, 35):
                assert (
                    distance(net(x[:batch]), alone[:batch]) <= 2e-6
                )  # linear layers of a batch sum in parts


def test_threads_that_have_an_image_each_need_no_room_for_the_batch():
    """Small networks on AVX-512: one thread takes 16 images at once, several take their own one by one."""
    net = Net(small_maps(), threads=1)

    def arena(max_batch, threads):
        return net.memory("avx512", threads=threads, max_batch=max_batch).arena

    one, output = arena(1, 1), 9 * 4 * 4 * 4  # bytes
    assert arena(16, 1) > 6 * one
    for threads in (2, 4, 16):
        assert arena(16, threads) <= threads * one + 16 * output + 1024
    assert arena(16, 17) > 6 * one  # there is not one for each


def test_room_for_a_batch_is_room_for_its_output_and_few_images():
    model = stored(convolutions())

    def arena(max_batch, threads):
        return Net(model, threads=threads, max_batch=max_batch).memory().arena

    one, output = arena(1, 1), 64 * 40 * 4 * 4 * 4  # bytes
    assert arena(64, 1) <= one + output + 1024
    assert arena(64, 2) <= 2 * one + output + 2048
    assert arena(1, 8) <= arena(2, 8)  # two images do not keep eight threads busy: they go one by one


def test_one_image_needs_no_more_room_for_having_a_linear_layer_in_the_middle():
    """What is alive before the linear layer and what is alive behind it take the same places."""
    nodes = (
        Node("conv", (0,), {"act": ("relu",)}, {"w": "a"}),
        Node("reshape", (1,), {"shape": (4096,)}),
        Node("linear", (2,), {}, {"w": "b"}),
        Node("linear", (3,), {}, {"w": "c"}),
        Node("reshape", (4,), {"shape": (16, 16, 16)}),
        Node("conv", (5,), {}, {"w": "d"}),
    )
    tensors = {
        "a": normal(0, 16, 1, 1, 1),
        "b": normal(1, 4, 4096),
        "c": normal(2, 4096, 4),
        "d": normal(3, 1, 16, 1, 1),
    }
    model = stored(Model(Graph((1, 16, 16), nodes, 6), tensors))
    check(model, normal(4, 5, 1, 16, 16), max_batch=4, tolerance=1e-4)
    assert Net(model, threads=1).memory().arena < 2 * 4096 * 4
