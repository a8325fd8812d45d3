"""Networks saved in few bits, through capture: exact where there are few values, near where they are rounded."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import build
from interpreter import interpret
from profiles import full
from torch import nn

import membound as mb
from membound.capture import capture
from membound.capture.calibrate import calibrate, inputs_for
from membound.capture.rounding import round_weight
from membound.export.hub_folder import write_folder
from membound.export.onnx import to_onnx
from membound.store.choice import value_types
from membound.store.file import encode_tensors, write
from membound.store.formats import decode
from membound.store.quantize import quantize
from membound.store.values import value_type


def decoded(tensor):
    """A tensor of a file as float64, from the definitions of codes, palettes, scales and layouts alone."""
    bits = tensor.value_type.bits
    if tensor.palette is None:
        values = tensor.values.astype(np.float64)
    else:
        stream = bits_of(tensor.values)
        codes = [
            sum(bit << place for place, bit in enumerate(stream[first : first + bits]))
            for first in range(0, tensor.count * bits, bits)
        ]
        if tensor.palette.kind == "linear":
            values = np.array([(code - 2 ** (bits - 1)) * tensor.palette.step for code in codes])
        else:
            values = tensor.palette.table.astype(np.float64)[codes] * tensor.palette.step
    whole = np.zeros(tensor.size)
    whole[positions(tensor)] = values
    rows = whole.reshape(tensor.shape[0], -1)
    if tensor.scales is not None:
        rows = rows * tensor.scales.astype(np.float64)[:, None]
    return rows.reshape(tensor.shape)


def bits_of(array):
    return [byte >> place & 1 for byte in array.tolist() for place in range(8)]


def positions(tensor):
    arrays, columns = tensor.arrays, tensor.size // tensor.shape[0]
    if tensor.format == "dense":
        return np.arange(tensor.size)
    if tensor.format == "bitmask":
        return np.flatnonzero(bits_of(arrays[0]))
    if tensor.format == "indexed":
        return arrays[0].astype(np.int64)
    if tensor.format == "csr":
        starts, inside = (array.astype(np.int64) for array in arrays)
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * columns + inside
    assert tensor.format == "rice", tensor
    high, low = map(bits_of, arrays)
    k, at, gap, found = tensor.parameter, -1, 0, []
    for bit in high:
        if len(found) == tensor.count:
            break
        if not bit:
            gap += 1
            continue
        first = len(found) * k
        at += 1 + (gap << k) + sum(low[first + place] << place for place in range(k))
        found.append(at)
        gap = 0
    return np.array(found, np.int64)


def off(found, wanted):
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-9))


def inputs(shape, count=64, seed=0):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "keep", "values"),
    [
        ("resnet", 1, "p4"),
        ("mobilenet", 0.3, "p8"),
        ("mlp", 0.1, "p4"),  # with a weight that has no nonzeros
        ("conv1d", 0.5, "p1"),
        full("resnet", 1, "p1"),
        full("mobilenet", 0.3, "p4"),
        full("shufflenet", 0.1, "p3"),
    ],
)
@pytest.mark.one_in(3)
def test_the_runtime_computes_with_what_is_stored(name, keep, values, tmp_path):
    module, shape = build(name)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight *= torch.rand(weight.shape, generator=torch.Generator().manual_seed(1)) < keep
    x = inputs(shape, 8)
    for more in ({}, {"calibrate": inputs(shape)}):
        stored = mb.save(module, tmp_path / "net.safetensors", x, values=values, **more)
        tensors = {tensor: decoded(each) for tensor, each in stored.tensors.items()}
        wanted = interpret(stored.graph, tensors, x.double()).numpy()
        assert off(mb.load(tmp_path / "net.safetensors")(x.numpy()), wanted) < 1e-4
        coded = {tensor: each.value_type.name for tensor, each in stored.tensors.items() if each.palette}
        assert set(coded.values()) == {values, "p8"}


class Trained(nn.Module):
    """As training leaves it: a few values in each weight, and norms that scale each row by another number."""

    def __init__(self, keep=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 9, 3), nn.BatchNorm2d(9)
        self.fc = nn.Linear(9, 5)
        palette = torch.tensor([-1.5, -0.75, -0.25, -0.125, 0.0625, 0.3125, 0.5, 1.25])
        with torch.no_grad():
            for layer in (self.conv1, self.conv2, self.fc):
                layer.weight.copy_(palette[torch.randint(8, layer.weight.shape)])
                layer.weight *= torch.rand(layer.weight.shape) < keep
            for norm in (self.norm1, self.norm2):
                norm.weight.uniform_(0.1, 2), norm.bias.normal_(), norm.running_var.uniform_(0.2, 3)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        return self.fc(torch.relu(self.norm2(self.conv2(x))).mean((2, 3)))


@pytest.mark.parametrize("keep", [1.0, 0.2])
@pytest.mark.parametrize("values", ["p3", {"conv1.weight": "p4", "conv2.weight": "p3", "fc.weight": "f32"}])
def test_trained_palettes_survive_their_norms(keep, values, tmp_path):
    module, x = Trained(keep).eval(), inputs((3, 8, 8), 5)
    stored = mb.save(module, tmp_path / "net.safetensors", x, values=values)
    for name in ("conv1", "conv2"):
        tensor = stored.tensors[f"{name}.weight"]
        unscaled = decoded(replace(tensor, scales=None))
        assert np.array_equal(unscaled, getattr(module, name).weight.detach().numpy())
    with torch.no_grad():
        wanted = module(x).numpy()
    assert (
        off(mb.load(tmp_path / "net.safetensors")(x.numpy()), wanted) < 2e-2
    )  # scales and biases have 8 bits


def test_a_mapping_says_the_types_of_tensors(tmp_path):
    net = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 20))
    values = {"0.weight": "p5", "2.bias": "f32"}
    stored = mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 40), values=values)
    assert {name: tensor.value_type.name for name, tensor in stored.tensors.items()} == {
        "0.weight": "p5",
        "0.bias": "f32",  # in 8 bits, as it lies in the file
        "2.weight": "f16",
        "2.bias": "f32",
    }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("p9", "no value type 'p9'"),
        ({"3.weight": "p4"}, "no tensor '3.weight'"),
        ({"0.weight": "p0"}, "no value type 'p0'"),
    ],
)
def test_values_that_are_refused(values, says, tmp_path):
    with pytest.raises(mb.ModelError, match=says):
        mb.save(nn.Sequential(nn.Linear(4, 3)), tmp_path / "n.safetensors", torch.zeros(1, 4), values=values)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("calibration", "says"),
    [
        (torch.zeros(5, 3), r"have shape \(5, 3\): give \(batch, 4\)"),
        (torch.zeros(0, 4), r"have shape \(0, 4\)"),
        (torch.full((2, 4), torch.nan), "not all finite"),
    ],
)
def test_inputs_to_calibrate_with_that_are_refused(calibration, says, tmp_path):
    net, x = nn.Sequential(nn.Linear(4, 3)), torch.zeros(1, 4)
    with pytest.raises(mb.ModelError, match=says):
        mb.save(net, tmp_path / "n.safetensors", x, values="p4", calibrate=calibration)
    assert list(tmp_path.iterdir()) == []


def test_pixels_to_calibrate_with_are_prepared(tmp_path):
    """uint8 images calibrate as the floats that `preprocess` makes of them; without it, they are refused."""
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)), torch.zeros(1, 3, 8, 8)
    images = np.random.default_rng(0).integers(0, 256, (32, 3, 8, 8), dtype=np.uint8)
    how = mb.data.Preprocess(scale=1 / 255, mean=[123.675, 116.28, 103.53], std=[0.229, 0.224, 0.225])
    floats = how(images)
    for name, given in (("floats", floats), ("array", images), ("tensor", torch.from_numpy(images))):
        mb.save(net, tmp_path / f"{name}.safetensors", x, values="p3", preprocess=how, calibrate=given)
    files = {each.read_bytes() for each in tmp_path.iterdir()}
    assert len(files) == 1
    with pytest.raises(
        mb.ModelError, match=r"^calibrate is uint8, and the network takes float32: .* preprocess="
    ):
        mb.save(net, tmp_path / "none.safetensors", x, values="p3", calibrate=torch.from_numpy(images))
    assert not (tmp_path / "none.safetensors").exists()


# Calibration


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("resnet", "p4"),
        full("shufflenet", "p2"),
        full("mobilenet", "p8"),
        full("resnet", "p2"),
        full("mobilenet", "p4"),
    ],
)
def test_calibration_brings_outputs_nearer_also_of_other_inputs(name, values):
    module, shape = build(name)
    model = capture(module, torch.zeros(1, *shape))
    x = inputs(shape, 100, seed=7)
    with torch.no_grad():
        wanted = module(x)
    errors = []
    for each in (model, calibrate(model, values, inputs(shape, 200))):
        tensors = {tensor: decode(found) for tensor, found in encode_tensors(each, values).items()}
        errors.append(float((interpret(each.graph, tensors, x) - wanted).square().mean().sqrt()))
    assert errors[1] < errors[0] / 2


def test_large_images_are_calibrated_by_all_of_their_columns():
    """Not by their left edge alone, where a padded window has zeros that say nothing of its left column."""
    torch.manual_seed(0)
    net = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    images = torch.nn.functional.avg_pool2d(inputs((3, 34, 34), count=256).abs(), 3, stride=1)  # all above 0
    model = capture(net, images[:1])
    few = calibrate(model, "p8", images).scaled().tensors["weight"]
    nearest = quantize(model.tensors["weight"].reshape(8, -1), value_type("p8"), None, False)
    plain = (nearest.u * nearest.scales[:, None]).reshape(few.shape)

    def error(weight):  # but for the mean, which goes into the bias
        found = torch.nn.functional.conv2d(images, torch.from_numpy(weight.astype(np.float32)), padding=1)
        return float((found - net(images)).detach().flatten(2).transpose(0, 1).flatten(1).var(1).mean())

    assert error(few) < error(plain)


def test_what_calibration_gives_is_stored_exactly(tmp_path):
    module, shape = build("mobilenet")
    model = calibrate(capture(module, torch.zeros(1, *shape)), "p3", inputs(shape))
    stored = write(tmp_path / "net.safetensors", model, "p3")
    products = model.scaled().tensors
    coded = [name for name, tensor in stored.tensors.items() if tensor.palette is not None]
    assert len(coded) == sum(node.op in ("conv", "linear") for node in model.graph.nodes)
    for name in coded:
        np.testing.assert_array_equal(decoded(stored.tensors[name]).astype(np.float32), products[name])


def test_zeros_stay_and_biases_are_corrected_to_the_mean():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False), nn.ReLU(), nn.Conv2d(6, 4, 3))
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.weight *= torch.rand(layer.weight.shape) < 0.4
    x = inputs((2, 9, 8), 50) + 1
    before = capture(net, x)
    after = calibrate(before, {"0.weight": "p2", "2.weight": "p2"}, x)
    for name in ("0.weight", "2.weight"):
        assert np.array_equal(after.tensors[name] != 0, before.tensors[name] != 0)
        assert len(np.unique(after.tensors[name])) <= 5
    assert after.graph.nodes[0].tensors["b"] == "0.bias"
    means = [
        interpret(each.graph, each.tensors, x.double(), each.scales).mean((0, 2, 3)).numpy()
        for each in (before, after)
    ]
    np.testing.assert_allclose(means[1], means[0], atol=1e-5)


def test_a_trained_palette_is_left_alone():
    module = Trained().eval()
    model = capture(module, torch.zeros(1, 3, 8, 8))
    found = calibrate(model, {"conv1.weight": "p3", "conv2.weight": "p3"}, inputs((3, 8, 8)))
    for name, array in model.tensors.items():
        if name.endswith(".weight"):
            assert np.array_equal(found.tensors[name], array)
    assert found.scales.keys() == model.scales.keys()
    for name, scales in model.scales.items():  # but for what 8 bits have of them
        np.testing.assert_allclose(found.scales[name], scales, rtol=0.04)


def test_floats_and_the_module_are_left_alone():
    module, shape = build("resnet")
    state = copy.deepcopy(module.state_dict())
    model = capture(module, torch.zeros(1, *shape))
    found = calibrate(model, "f16", inputs(shape, 16))
    assert found.graph == model.graph
    assert all(found.tensors[name] is array for name, array in model.tensors.items())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("groups", [1, 3])
def test_rounding_is_never_worse_than_the_nearest_values(bits, groups):
    """By the very measure: the mean square of what the outputs are off by."""
    chance = np.random.default_rng(bits)
    weight = chance.normal(size=(12, 20)).astype(np.float32)
    mixed = torch.from_numpy(chance.normal(size=(groups, 20, 20)))
    x = torch.from_numpy(chance.normal(size=(groups, 500, 20))) @ mixed
    moments = (x.transpose(1, 2) @ x / 500).float()

    def error(u, scales):
        gone = torch.from_numpy((weight - u * scales.astype(np.float64)[:, None]).reshape(groups, -1, 20))
        return float((gone.double() @ x.transpose(1, 2)).square().mean())

    kind = value_type(f"p{bits}")
    plain, rounded = quantize(weight, kind, None, False), round_weight(weight, kind, moments, False)
    assert error(rounded.u, rounded.scales) < 0.9 * error(plain.u, plain.scales)
    assert len(np.unique(rounded.u)) <= 2**bits


def test_wide_layers_are_rounded_by_the_squares_of_their_inputs():
    torch.manual_seed(0)
    net = nn.Linear(5000, 3)
    x = inputs((5000,), 40) * (1 + 5 * (torch.arange(5000) < 50))
    after = calibrate(capture(net, x), {"weight": "p2"}, x)
    assert len(np.unique(after.tensors["weight"])) == 4


def test_fewer_inputs_of_large_networks():
    module, shape = build("resnet")
    assert inputs_for(capture(module, torch.zeros(1, *shape))) == 512
    wide = capture(nn.Sequential(nn.Conv2d(1, 64, 1)), torch.zeros(1, 1, 200, 200))
    assert inputs_for(wide) == 2**28 // (4 * 64 * 200 * 200)
    assert set(value_types(wide, "p4").values()) == {"p8", "f16"}


# ONNX


@pytest.mark.parametrize(
    ("values", "keep", "sparse"),
    [
        full("p8", 1, False),
        ("p4", 0.05, True),
        full("p8", 0.05, True),
        full("p4", 0.3, False),
        full("p2", 1, False),
    ],
)
def test_onnx_computes_what_the_runtime_does(values, keep, sparse, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    module, shape = build("mobilenet")
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight *= torch.rand(weight.shape, generator=torch.Generator().manual_seed(1)) < keep
    x = inputs(shape, 4)
    stored = mb.save(module, tmp_path / "net.safetensors", x, values=values, calibrate=inputs(shape))
    content = b"".join(to_onnx(stored, sparse))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x.numpy()})
    assert off(found, mb.load(tmp_path / "net.safetensors")(x.numpy())) < 1e-5


def test_onnx_has_whole_numbers_where_they_are_exact(tmp_path):
    onnx = pytest.importorskip("onnx")
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 40, 3), nn.ReLU(), nn.Conv2d(40, 40, 3))
    values = {"0.weight": "p8", "2.weight": "p7", "4.weight": "p4"}
    stored = mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 3, 9, 9), values=values)
    found = onnx.load_from_string(b"".join(to_onnx(stored)))
    onnx.checker.check_model(found, full_check=True)
    assert not any(":" in node.name for node in found.graph.node)
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in found.graph.initializer}
    whole = [node for node in found.graph.node if node.op_type == "DequantizeLinear"]
    assert [node.input[0] for node in whole] == ["0.weight:int8", "2.weight:int8"]
    for node, name in zip(whole, ("0.weight", "2.weight"), strict=True):
        number, step = (arrays[part] for part in node.input)
        assert number.dtype == np.int8
        product = number.astype(np.float32) * step[:, None, None, None]
        assert np.array_equal(product, decode(stored.tensors[name]))
    assert np.array_equal(arrays["4.weight"], decode(stored.tensors["4.weight"]))


# What is said about a file


def test_inspect_says_what_each_byte_is_for(tmp_path):
    module = Trained(0.3).eval()
    mb.save(module, tmp_path / "net.safetensors", torch.zeros(1, 3, 8, 8), values="p3")
    facts = mb.inspect(tmp_path / "net.safetensors")
    parts = dict(facts["parts"])
    parts.pop("position_entropy_bytes")
    assert sum(parts.values()) == facts["file_bytes"] == (tmp_path / "net.safetensors").stat().st_size
    layers = {layer["name"]: layer for layer in facts["layers"]}
    conv = layers["conv2.weight"]
    weight = module.conv2.weight.detach().numpy()
    kept = np.count_nonzero(weight)
    assert (conv["values"], conv["distinct"]) == ("p3", len(np.unique(weight[weight != 0])))
    assert conv["value_bytes"] == -(-3 * kept // 8)
    assert conv["scale_bytes"] == 2 + 9
    share = kept / weight.size
    entropy = -weight.size * (share * np.log2(share) + (1 - share) * np.log2(1 - share)) / 8
    assert conv["position_entropy_bytes"] == pytest.approx(entropy)
    assert conv["position_bytes"] < 1.15 * entropy
    assert layers["conv2.bias"]["distinct"] is None
    assert parts["bias_bytes"] == 2 * 8 + (2 + 9) + (2 + 5)  # beside 8 bits, and beside 3
    assert conv["bytes"] == sum(conv[f"{part}_bytes"] for part in ("value", "position", "scale", "palette"))
    assert "p3, 8 values" in facts._repr_html_()


def test_a_card_says_the_types_of_values(tmp_path):
    mb.save(Trained(0.3).eval(), tmp_path / "net.safetensors", torch.zeros(1, 3, 8, 8), values="p3")
    write_folder(tmp_path / "hub", tmp_path / "net.safetensors")
    card = (tmp_path / "hub" / "README.md").read_text()
    parts = mb.inspect(tmp_path / "net.safetensors")["parts"]
    assert "p3, 8 values |" in card
    assert f"{parts['value_bytes']:,} values, {parts['position_bytes']:,} positions" in card


def _of_a_palette(net, levels=16, keep=0.1):
    """The network as training with l0_project and palette leaves it."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rules = {"*": mb.chain(mb.l0_project(keep=keep, every=1), mb.palette(levels=levels))}
    regularizer = mb.attach(optimizer, net, rules, total_steps=1)
    net(torch.randn(8, 3, 12, 12)).square().mean().backward()
    optimizer.step()
    with warnings.catch_warnings():  # of statistics that one step leaves behind
        warnings.simplefilter("ignore", UserWarning)
        regularizer.finish()
    return net.eval()


def _small_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1600, 10)
    )


def test_save_keeps_a_palette_without_being_asked(tmp_path):
    net = _of_a_palette(_small_net())
    example = torch.zeros(1, 3, 12, 12)
    stored = mb.save(net, tmp_path / "auto.safetensors", example)
    plain = mb.save(net, tmp_path / "f32.safetensors", example, values="f32")
    for name, array in plain.decode().tensors.items():
        np.testing.assert_array_equal(
            stored.decode().tensors[name], array
        )  # with scales of batch norm folded in
        np.testing.assert_array_equal(decoded(stored.tensors[name]).astype(np.float32), array)
    assert all(value_type(stored.tensors[name].type_name).bits <= 5 for name in ("0.weight", "4.weight"))
    assert stored.file_bytes < plain.file_bytes / 2
    images = torch.randn(4, 3, 12, 12)
    found = mb.load(tmp_path / "auto.safetensors")(images.numpy())
    np.testing.assert_allclose(found, net(images).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_save_of_many_values_is_the_file_of_f32(tmp_path):
    net, example = _small_net().eval(), torch.zeros(1, 3, 12, 12)
    mb.save(net, tmp_path / "auto.safetensors", example, calibrate=torch.randn(8, 3, 12, 12))
    mb.save(net, tmp_path / "f32.safetensors", example, values="f32")
    assert (tmp_path / "auto.safetensors").read_bytes() == (tmp_path / "f32.safetensors").read_bytes()
