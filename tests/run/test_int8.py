"""The engine int8: convolutions in 8-bit integers, held to the same arithmetic in numpy and to the floats around it."""

import json
import shutil

import numpy as np
import pytest
import torch
from cpp_library import Library, build_library, kernels
from hypothesis import assume, given
from hypothesis import strategies as st
from nets import FORMATS, ISAS, VALUES, normal, one_node, stored, thinned
from profiles import examples
from test_products import convolutions
from torch import nn

import membound as mb
from membound.cli import main
from membound.errors import ModelError
from membound.run import Net
from membound.store.formats import decode

LEAST_OF_WINDOWS, LEAST_OF_POINTS = 0.04, 0.015


def least(shape) -> float:
    """The share of a weight that must be left for integers to take less time."""
    return LEAST_OF_POINTS if shape[2:] == (1, 1) else LEAST_OF_WINDOWS


def gains(weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a layer has weights enough that integers take less time, also if floats become bytes for it."""
    turned = 9 * x[0].size
    return (np.count_nonzero(weight) - least(weight.shape) * weight.size) * y[0, 0].size >= turned


def quantized(image: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """An image as whole numbers and their scale: 256 steps from its least to its largest number, 0 exact."""
    low, high = min(image.min(), np.float32(0)), max(image.max(), np.float32(0))
    scale = np.float32(high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    steps = image.astype(np.float64) * np.float64(np.float32(1) / scale) + (
        zero - 128
    )  # as fused: not rounded between
    return np.clip(np.rint(steps), -128, 127) + 128 - zero, scale


def expected(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, attributes) -> np.ndarray:
    """The convolution of whole numbers, exact in float64, then scaled."""
    rows = np.abs(weight).max(axis=(1, 2, 3))
    inverse = np.divide(np.float32(127), rows, out=np.zeros_like(rows), where=rows > 0)
    whole = np.rint(weight * inverse[:, None, None, None])
    top, left, bottom, right = attributes["pad"]
    found = []
    for image in x:
        steps, scale = quantized(image)
        padded = np.pad(steps, ((0, 0), (top, bottom), (left, right)))
        sums = nn.functional.conv2d(
            torch.from_numpy(padded[None].astype(np.float64)),
            torch.from_numpy(whole.astype(np.float64)),
            stride=attributes["stride"],
            dilation=attributes["dilation"],
        )
        scales = (scale * (rows / np.float32(127))).astype(np.float64)
        found.append(sums[0].numpy() * scales[:, None, None] + bias[:, None, None])
    return np.stack(found)


def layer(conv, seed=0, thin="0.5", format="dense", values="f32", act=None):
    shape, weight, attributes = conv
    tensors = {"w": thinned(normal(seed, *weight), thin, seed), "b": normal(seed + 1, weight[0])}
    attributes = {**attributes, **({} if act is None else {"act": act})}
    return stored(one_node("conv", shape, attributes, tensors), format, values), attributes


def is_in_bytes(model) -> bool:
    """Whether the engine takes this layer: nothing is calibrated, so that its memory is the only thing that tells."""
    return Net(model, threads=1, engine="int8").memory().tables != Net(model, threads=1).memory().tables


@examples(150)
@given(
    conv=convolutions(most_channels=20, side=st.integers(1, 40)),
    seed=st.integers(0, 1000),
    thin=st.sampled_from(["1", "0.5", "0.15", "0.07", "rows"]),
    format=st.sampled_from(FORMATS),
    values=st.sampled_from(VALUES),
    batch=st.integers(1, 3),
    offset=st.sampled_from([-3.0, 0.0, 3.0]),
)
def test_it_is_integer_arithmetic(conv, seed, thin, format, values, batch, offset):
    shape, _, attributes = conv
    assume(attributes["groups"] == 1 and shape[0] >= 3)
    model, _ = layer(conv, seed, thin, format, values)
    dense = decode(model.tensors["node.w"])
    assume(np.count_nonzero(dense) >= least(dense.shape) * dense.size)
    x = normal(seed + 2, batch, *shape) + np.float32(offset)
    wanted = expected(x, dense, decode(model.tensors["node.b"]), attributes)
    if not gains(dense, x, wanted):  # it does with a bound: then outputs might stay bytes
        model, _ = layer(conv, seed, thin, format, values, act=("clip", 0.0, 1e30))
        wanted = np.maximum(wanted, 0)
    nets = [
        Net(model, threads=threads, isa=isa, engine="int8", max_batch=2) for isa in ISAS for threads in (1, 3)
    ]
    found = [net(x) for net in nets]
    assert np.allclose(found[0], wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    for other in found[1:]:  # whole numbers have no order of summing: not a bit differs
        assert np.array_equal(found[0], other)


@pytest.mark.parametrize("stride", [1, 2])
def test_sums_go_on_from_block_to_block_of_channels(stride):
    """An image of so many channels does not stay near: rows of few weights are summed block by block."""
    attributes = {"stride": (stride, stride), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    model, _ = layer(((300, 20, 20), (85, 300, 3, 3), attributes), thin="0.1", format="csr")
    x = normal(2, 1, 300, 20, 20)
    wanted = expected(x, decode(model.tensors["node.w"]), decode(model.tensors["node.b"]), attributes)
    for isa in ISAS:
        found = Net(model, threads=1, isa=isa, engine="int8")(x)
        assert np.allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("act", [("relu",), ("clip", -1.0, 1.0), ("leaky", 0.1), ("hardswish",)])
def test_activations_follow(act):
    conv = (
        (8, 9, 13),
        (12, 8, 3, 3),
        {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1},
    )
    plain, activated = layer(conv)[0], layer(conv, act=act)[0]
    x = normal(5, 2, *conv[0])
    between = Net(plain, engine="int8")(x)
    wanted = stored(one_node("act", between.shape[1:], {"act": act}))
    assert np.array_equal(Net(activated, engine="int8")(x), Net(wanted)(between))


def test_an_image_gives_the_same_alone_and_in_any_batch():
    conv = (
        (16, 15, 15),
        (24, 16, 3, 3),
        {"stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1},
    )
    model, _ = layer(conv)
    x = normal(1, 7, *conv[0]) * np.arange(1, 8, dtype=np.float32)[:, None, None, None]
    alone = np.concatenate([Net(model, engine="int8", threads=1)(image[None]) for image in x])
    for max_batch in (1, 4, 7):
        for threads in (1, 2, 4):
            assert np.array_equal(Net(model, engine="int8", threads=threads, max_batch=max_batch)(x), alone)


CONV = ((8, 6, 6), (8, 8, 3, 3), {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1})


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("isa", ISAS)
def test_what_is_no_number_spoils_its_image_alone(wrong, isa):
    model, _ = layer(CONV)
    x = normal(1, 3, *CONV[0])
    right = Net(model, engine="int8", isa=isa)(x)
    x[1, 2, 3, 4] = wrong
    found = Net(model, engine="int8", isa=isa)(x)
    assert np.isnan(found[1]).all()
    assert np.array_equal(found[[0, 2]], right[[0, 2]])


def test_images_of_zeros_and_of_one_number():
    model, _ = layer(CONV)
    bias = decode(model.tensors["node.b"])
    net = Net(model, engine="int8")
    assert np.array_equal(
        net(np.zeros((1, *CONV[0]), np.float32))[0], np.broadcast_to(bias[:, None, None], (8, 6, 6))
    )
    tiny = np.full((1, *CONV[0]), 1e-35, np.float32)
    assert np.allclose(net(tiny)[0], bias[:, None, None])
    same = np.full((1, *CONV[0]), 2.5, np.float32)
    assert np.allclose(net(same), Net(model)(same), rtol=0.02, atol=0.02 * np.abs(Net(model)(same)).max())


def test_layers_that_keep_few_weights_or_have_groups_stay_in_floats():
    assert is_in_bytes(layer(CONV)[0])
    few = layer(CONV, thin="0.02", format="csr")[0]
    grouped = layer(((8, 6, 6), (8, 4, 3, 3), {**CONV[2], "groups": 2}))[0]
    depthwise = layer(((8, 6, 6), (8, 1, 3, 3), {**CONV[2], "groups": 8}))[0]
    gray = layer(((1, 6, 6), (8, 1, 3, 3), CONV[2]))[0]
    for model in (few, grouped, depthwise, gray):
        assert not is_in_bytes(model)
        x = normal(1, 2, *model.shapes[0])
        assert np.array_equal(Net(model, engine="int8")(x), Net(model)(x))


def test_points_become_bytes_at_fewer_weights_than_windows_and_where_bytes_are_soon_made():
    def point(rows, keep, act=None):
        weight = np.zeros((rows, 100, 1, 1), np.float32)
        weight.reshape(rows, 100)[:, :keep] = 1.0
        attributes = {**CONV[2], "pad": (0, 0, 0, 0)} | ({} if act is None else {"act": act})
        return stored(one_node("conv", (100, 6, 6), attributes, {"w": weight}), "csr")

    assert is_in_bytes(point(600, 3))
    assert not is_in_bytes(point(600, 2))
    assert not is_in_bytes(point(20, 46))
    assert is_in_bytes(point(20, 47))
    assert is_in_bytes(point(20, 2, ("clip", 0.0, 6.0)))  # what has a bound may stay bytes
    assert not is_in_bytes(layer(CONV, thin="0.03", format="csr")[0])


def test_its_memory_is_told_and_planned():
    model, _ = layer(((64, 30, 30), (64, 64, 3, 3), CONV[2]))
    net = Net(model, engine="int8", threads=1)
    assert 64 * 64 * 9 <= net.memory().tables <= 1.1 * 64 * 64 * 9  # a byte for each weight, zeros too
    for isa in ("scalar", "avx2", "avx512", "neon"):
        assert net.memory(isa).tables == net.memory().tables


def test_words_of_zeros_take_no_memory():
    """Of a tenth of the weights, two bytes for each that is left: itself, and where it is."""
    conv = ((64, 30, 30), (64, 64, 3, 3), CONV[2])
    model, _ = layer(conv, thin="0.1", format="csr")
    net = Net(model, engine="int8", threads=1)
    kept = np.count_nonzero(decode(model.tensors["node.w"]))
    for isa in ("scalar", "avx2", "avx512", "neon"):
        assert kept < net.memory(isa).tables < 2 * kept + 64 * 64


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small residual network that keeps half of its weights."""
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x):
            return (x + self.second(self.first(x).relu())).relu()

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU6(),
        Block(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    with torch.no_grad():
        for weight in net.parameters():
            weight *= torch.rand(weight.shape) < 0.5 if weight.ndim > 1 else 1
    path = tmp_path_factory.mktemp("int8") / "net.safetensors"
    pixels = mb.data.Preprocess(scale=1 / 255)
    mb.save(net.eval(), path, torch.zeros(1, 3, 25, 25), preprocess=pixels, classes=list("abcdefghij"))
    return path


def test_a_network_is_close_to_its_floats(file):
    x = normal(3, 20, 3, 25, 25)
    net = mb.load(file, engine="int8", max_batch=4)
    floats = mb.load(file)(x)
    assert net.engine == "int8"
    assert "int8" in repr(net)
    assert 0 < np.abs(net(x) - floats).max() < 0.05 * np.abs(floats).max()
    with pytest.raises(ModelError, match="no engine 'int4': choose float, int8 or micro"):
        mb.load(file, engine="int4")


def test_a_pickled_network_keeps_its_engine(file):
    import pickle

    x = normal(3, 2, 3, 25, 25)
    net = mb.load(file, engine="int8")
    again = pickle.loads(pickle.dumps(net))
    assert again.engine == "int8"
    assert np.array_equal(again(x), net(x))


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    return int(left.value.code or 0)


def test_the_commands(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 3, 25, 25), np.uint8), rng.integers(0, 10, 40)
    np.savez("data.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.save("x.npy", images)
    for engine in ("float", "int8"):
        assert command("evaluate", file, "--data", "data.npz", "--engine", engine, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        net = mb.load(file, engine=engine)
        scores = net(net.preprocess(images))
        assert found["accuracy"] == 100 * np.mean(scores.argmax(1) == labels)
        assert (
            command("run", file, "x.npy", "--engine", engine, "--out", f"{engine}.npy", "--threads", "1") == 0
        )
        assert np.array_equal(np.load(f"{engine}.npy"), scores)
        capsys.readouterr()
    assert command("run", file, "x.npy", "--engine", "micro") == 1
    said = f"membound export {file} --int8 NEW.safetensors --data DATA"
    assert said in capsys.readouterr().err  # it is not calibrated
    assert command("run", file, "x.npy", "--engine", "int4") == 1
    assert "there is no engine 'int4': choose float, int8 or micro" in capsys.readouterr().err
    assert command("export", file, "--cpp", "cpp", "--engine", "micro") == 1
    assert "is for membound evaluate and membound run" in capsys.readouterr().err
    assert command("export", file, "--cpp", "cpp", "--engine", "int4") == 1
    assert "there is no engine 'int4': choose float or int8" in capsys.readouterr().err
    assert command("export", file, "--onnx", "net.onnx", "--engine", "int8") == 1
    assert "--engine goes with --cpp or --cpp-file, not with --onnx" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_an_app_computes_the_same(file, tmp_path):
    mb.export_cpp(file, tmp_path / "cpp", engine="int8")
    mb.export_cpp(mb.load(file, engine="int8"), tmp_path / "same")
    assert (tmp_path / "cpp" / "net.cpp").read_bytes() == (tmp_path / "same" / "net.cpp").read_bytes()
    mb.export_cpp_file(file, tmp_path / "newer.net", engine="int8")
    mb.export_cpp_file(file, tmp_path / "floats.net")
    assert (tmp_path / "newer.net").read_bytes() != (tmp_path / "floats.net").read_bytes()
    x = normal(1, 3, 3, 25, 25)
    library = Library(build_library(tmp_path / "cpp", kernels()))
    assert np.array_equal(library.run(x, (10,), 1, 1), mb.load(file, engine="int8", threads=1)(x))
    with pytest.raises(ModelError, match="no engine 'micro': choose float or int8"):
        mb.export_cpp(file, tmp_path / "no", engine="micro")
