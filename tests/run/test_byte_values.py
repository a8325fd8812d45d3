"""Images that stay bytes from one convolution to the next: the engine int8 where activations have a bound."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from nets import ISAS, RELU6, chain, conv, normal, stored
from profiles import examples
from test_int8 import quantized
from torch import nn

import membound as mb
from membound.run import Net
from membound.store.formats import decode
from membound.store.graph import Graph, Node
from membound.store.model import Model, StoredModel

BOUND = np.float32(6)
WHOLE_BIAS, START = 2.0**21, 2.0**20  # how far a bias goes in bytes, and what is left of it in sums


def in_integers(model: StoredModel, layers, x: np.ndarray) -> np.ndarray:
    """What bytes and sums of them give, each layer's output bytes where it has a bound and is not the last."""
    found = []
    for image in x:
        steps, scale = quantized(image)
        for number, (_, attributes) in enumerate(layers):
            weight, bias = (decode(model.tensors[f"{number}.{role}"]) for role in ("w", "b"))
            rows = np.abs(weight).max(axis=(1, 2, 3))
            inverse = np.divide(np.float32(127), rows, out=np.zeros_like(rows), where=rows > 0)
            whole = np.rint(weight * inverse[:, None, None, None])
            top, left, bottom, right = attributes["pad"]
            sums = nn.functional.conv2d(
                torch.from_numpy(
                    np.pad(steps, ((0, 0), (top, bottom), (left, right)))[None].astype(np.float64)
                ),
                torch.from_numpy(whole.astype(np.float64)),
                stride=attributes["stride"],
                groups=attributes["groups"],
            )[0].numpy()
            of_sums = np.float32(scale) * (rows / np.float32(127))
            if attributes.get("act") != RELU6 or number + 1 == len(layers):
                steps = sums * of_sums[:, None, None].astype(np.float64) + bias[:, None, None]
                assert number + 1 == len(layers)
                continue
            scale = BOUND / np.float32(255)
            per_byte = np.float32(1) / scale
            bytes_of_bias = (bias.astype(np.float64) * per_byte - 128).astype(np.float32)
            of_bytes = np.clip(np.rint(bytes_of_bias), -WHOLE_BIAS, WHOLE_BIAS)
            of_sums = (of_sums * per_byte).astype(np.float32)
            rest = np.divide(bytes_of_bias - of_bytes, of_sums, out=np.zeros_like(of_sums), where=of_sums > 0)
            sums = sums + np.clip(np.rint(rest), -START, START)[:, None, None]
            bytes_ = np.rint(sums * of_sums[:, None, None].astype(np.float64) + of_bytes[:, None, None])
            steps = np.clip(bytes_, -128, 127) + 128
        found.append(steps)
    return np.stack(found)


@st.composite
def networks(draw):
    """An expansion, a depthwise layer and a projection: what mobile networks are made of."""
    channels, wide, rows = (draw(st.integers(low, 13)) for low in (3, 3, 1))
    kernel, stride = draw(st.sampled_from([3, 5, 7])), draw(st.sampled_from([1, 2]))
    first = draw(st.sampled_from([1, 3]))
    pad = tuple(draw(st.integers(0, kernel - 1)) for _ in range(4))
    side = st.integers(max(first, kernel), 37)
    shape = (channels, draw(side), draw(side))
    layers = [
        conv(wide, channels, first, draw(st.sampled_from([1, 2])), (first // 2,) * 4, act=RELU6),
        conv(wide, wide, kernel, stride, pad, groups=wide, act=draw(st.sampled_from([RELU6, None]))),
    ]
    if layers[1][1].get("act") == RELU6:
        last = draw(st.sampled_from([1, 3]))
        layers.append(conv(rows, wide, last, draw(st.sampled_from([1, 2])), (last // 2,) * 4))
    high, across = shape[1:]
    for weight, attributes in layers:
        top, left, bottom, right = attributes["pad"]
        high = (high + top + bottom - weight[2]) // attributes["stride"][0] + 1
        across = (across + left + right - weight[3]) // attributes["stride"][1] + 1
        assume(high > 0 and across > 0)
    return shape, layers


@examples(150)
@given(
    network=networks(),
    seed=st.integers(0, 1000),
    thin=st.sampled_from(["1", "0.6", "0.2", "rows"]),
    bias=st.sampled_from([1.0, 1e-6, 1e4]),
    size=st.sampled_from([1.0, 1e-5, 30.0]),
    batch=st.integers(1, 3),
)
def test_bytes_between_layers_are_integer_arithmetic(network, seed, thin, bias, size, batch):
    shape, layers = network
    model = chain(shape, layers, seed, thin, bias)
    for node in model.graph.nodes[::2]:  # layers that keep fewer of their weights stay in floats
        weight = decode(model.tensors[node.tensors["w"]])
        assume(np.count_nonzero(weight) >= 0.12 * weight.size)
    x = normal(seed + 9, batch, *shape) * np.float32(size)
    wanted = in_integers(model, layers, x)
    found = [
        Net(model, threads=threads, isa=isa, engine="int8", max_batch=2)(x)
        for isa in ISAS
        for threads in (1, 3)
    ]
    assert np.allclose(found[0], wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    for other in found[1:]:  # not a bit differs
        assert np.array_equal(found[0], other)


BLOCK = [
    conv(48, 8, act=RELU6),
    conv(48, 48, 3, 1, (1, 1, 1, 1), groups=48, act=RELU6),
    conv(8, 48),
]


def test_a_block_takes_a_quarter_of_the_memory():
    model = chain((8, 56, 56), BLOCK)
    floats, integers = (Net(model, threads=1, engine=engine).memory().arena for engine in ("float", "int8"))
    assert integers < 0.4 * floats  # its input and output are floats


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layers", [BLOCK, BLOCK[:2]], ids=["to a convolution", "to the output"])
def test_what_is_no_number_spoils_its_image_alone(isa, wrong, layers):
    model = chain((8, 9, 9), layers)
    net = Net(model, engine="int8", isa=isa, max_batch=3)
    x = normal(1, 3, 8, 9, 9)
    right = net(x)
    x[1, 2, 3, 4] = wrong
    found = net(x)
    assert np.isnan(found[1]).all()
    assert np.array_equal(found[[0, 2]], right[[0, 2]])


def test_what_others_read_too_stays_floats():
    """A sum reads what the first layer makes: no bytes are kept of it."""
    layers = [conv(16, 8, act=RELU6), conv(16, 16, 3, 1, (1, 1, 1, 1), groups=16, act=RELU6)]
    plain = chain((8, 20, 20), layers)
    nodes = (*plain.graph.nodes, Node("add", (1, 2), {}, {}))
    tensors = {name: decode(tensor) for name, tensor in plain.tensors.items()}
    summed = stored(Model(Graph((8, 20, 20), nodes, 3), tensors))
    x = normal(3, 2, 8, 20, 20)
    first = stored(
        Model(Graph((8, 20, 20), plain.graph.nodes[:1], 1), {name: tensors[name] for name in ("0.w", "0.b")})
    )
    between = Net(first, engine="int8")(x)
    alone = chain((16, 20, 20), layers[1:], seed=1)
    kept = {"0.w": tensors["1.w"], "0.b": tensors["1.b"]}
    alone = stored(Model(alone.graph, kept))
    assert np.array_equal(Net(summed, engine="int8")(x), between + Net(alone)(between))


def test_a_mobile_network_is_close_to_its_floats(tmp_path):
    torch.manual_seed(0)

    def block(channels, wide, rows, kernel, stride):
        return nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.ReLU6(), nn.Conv2d(wide, rows, 1, bias=False), nn.BatchNorm2d(rows),
        )  # fmt: skip

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), block(16, 64, 24, 3, 2), block(24, 96, 24, 5, 1), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip
    with torch.no_grad():
        for _ in range(10):
            net.train()(torch.randn(16, 3, 40, 40))
    mb.save(net.eval(), tmp_path / "net.safetensors", torch.zeros(1, 3, 40, 40))
    x = normal(1, 20, 3, 40, 40)
    integers, floats = (mb.load(tmp_path / "net.safetensors", engine=engine) for engine in ("int8", "float"))
    wanted = net(torch.from_numpy(x)).detach().numpy()
    assert np.abs(floats(x) - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert 0 < np.abs(integers(x) - wanted).max() < 0.05 * np.abs(wanted).max()
