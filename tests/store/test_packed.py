"""Files of few bits: what gets which type, that packed layers come back as they were, and what they take."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import stored
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from profiles import examples

from membound.errors import ModelError
from membound.store.file import assemble, encode_tensors, file_size, read, read_bytes, to_bytes, write
from membound.store.formats import decode, encode, scale_rows
from membound.store.graph import Graph, Node
from membound.store.layouts import LAYOUTS
from membound.store.model import Model
from membound.store.packed import Layer, pack_layer, unpack_layer
from membound.store.short import as_short, expand, shorten


def same_tensor(found, expected):
    """All that there is of a stored tensor."""
    for name in ("shape", "format", "type_name", "count", "parameter", "nbytes"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.values.dtype == expected.values.dtype
    assert [(a.dtype, a.tobytes()) for a in found.arrays] == [(a.dtype, a.tobytes()) for a in expected.arrays]
    for one, other in ((found.scales, expected.scales),):
        assert (one is None) == (other is None)
        assert one is None or (one.dtype == other.dtype and one.tobytes() == other.tobytes())
    assert (found.palette is None) == (expected.palette is None)
    if found.palette is not None:
        assert (found.palette.kind, found.palette.step) == (expected.palette.kind, expected.palette.step)
        assert np.array_equal(found.palette.entries, expected.palette.entries)


@pytest.mark.parametrize("kind", stored.TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@examples(20)
@pytest.mark.one_in(4)
def test_a_packed_layer_comes_back(layout, kind, data):
    shape = data.draw(st.sampled_from([(), (9,), (1, 1), (5, 30), (3, 2, 2, 3), (2, 70_000)]))
    size = int(np.prod(shape))
    seed, keep = data.draw(st.integers(0, 99)), data.draw(st.integers(0, min(size, 40)))
    table = data.draw(st.sampled_from(list(stored.TABLES.values())))
    array = (
        stored.few_valued(shape, keep, table, seed)
        if data.draw(st.booleans())
        else stored.sparse(shape, keep, seed)
    )
    rows = shape[0] if len(shape) > 1 else 1
    scaled = kind[0] == "p" and data.draw(st.booleans())
    weight = encode(array, layout, kind, np.linspace(0.1, 3, rows, dtype=np.float32) if scaled else None)
    bias, original = None, None
    if shape and data.draw(st.booleans()):
        bias = encode(stored.sparse(shape[:1], 0, 1), "dense", data.draw(st.sampled_from(["f16", "f32"])))
    if shape and data.draw(st.booleans()):
        original = (shape[0] + 1, *shape[1:])
    layer = Layer(weight, bias, original, bias is None and data.draw(st.booleans()))
    packed = pack_layer(layer)
    assert len(packed) % 4 == 0
    found = unpack_layer("x", packed)
    same_tensor(found.weight, weight)
    assert (found.original, found.own_name) == (original, layer.own_name)
    assert (found.bias is None) == (bias is None)
    if bias is not None:
        same_tensor(found.bias, bias)
    assert found.tensors("x").keys() == (
        {"x"} if layer.own_name else {"x.weight"} | ({"x.bias"} if bias else set())
    )
    beside = 0 if bias is None else bias.nbytes
    assert weight.nbytes + beside < len(packed) <= weight.nbytes + beside + 45  # the prefix, and what aligns


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("prefer", ["bytes", "speed"])
@pytest.mark.parametrize("values", ["p1", "p4", "p8"])
def test_a_file_comes_back(tmp_path, values, prefer, mmap):
    path, model = tmp_path / "net.safetensors", stored.network()
    tensors = encode_tensors(model, values, prefer)
    written, found = write(path, model, values, prefer), read(path, mmap)
    for stored_model in (written, found):
        assert stored_model.tensors.keys() == tensors.keys()
        for name, tensor in tensors.items():
            same_tensor(stored_model.tensors[name], tensor)
    assert found.original_shapes == model.original_shapes
    assert (found.classes, found.preprocess) == (model.classes, model.preprocess)
    assert found.graph == model.graph
    assert found.file_bytes == path.stat().st_size == file_size(model, values, prefer)
    assert np.array_equal(decode(found.mean_image), model.mean_image)
    formats = {found.tensors[name].format for name in ("fc1.weight", "fc2.weight", "fc3.weight")}
    assert formats <= ({"csr", "dense"} if prefer == "speed" else set(LAYOUTS) - {"delta"})


def test_files_of_f32_and_f16_are_what_they_were():
    """By their digests from before there was a version 2."""
    found = [
        hashlib.sha256(to_bytes(stored.network(), kind, prefer)).hexdigest()[:16]
        for kind in ("f32", "f16")
        for prefer in ("bytes", "speed")
    ]
    assert found == ["aae894df5495a466", "25edf107ae1a150a", "bb1a6b04d8237d8f", "43a6eec05779fecf"]


def layered():
    """A first convolution, a depthwise one, an ordinary one with huge biases, a linear layer, a constant."""
    rng = np.random.default_rng(0)
    shapes = {
        "a.weight": (8, 3, 3, 3),
        "b.weight": (8, 1, 3, 3),
        "c.weight": (12, 8, 1, 1),
        "d.weight": (5, 12),
    }
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors |= {"c.bias": np.full(12, 1e5, np.float32), "d.bias": np.ones(5, np.float32)}
    tensors["shift"] = np.ones(12, np.float32)
    nodes = (
        Node("conv", (0,), {}, {"w": "a.weight"}),
        Node("conv", (1,), {"groups": 8}, {"w": "b.weight"}),
        Node("conv", (2,), {}, {"w": "c.weight", "b": "c.bias"}),
        Node("mean", (3,), {"axes": (1, 2)}),
        Node("add", (4,), {}, {"c": "shift"}),
        Node("linear", (5,), {}, {"w": "d.weight", "b": "d.bias"}),
    )
    return Model(Graph((3, 9, 9), nodes, 6), tensors)


def types(model, values):
    return {name: tensor.type_name for name, tensor in read_bytes(to_bytes(model, values)).tensors.items()}


def test_what_gets_which_type():
    model = layered()
    assert types(model, "p3") == {
        "a.weight": "p8", "b.weight": "p8", "c.weight": "p3", "d.weight": "p3",
        "c.bias": "f32", "d.bias": "f32", "shift": "f16",
    }  # fmt: skip
    assert types(model, {"d.weight": "p3", "d.bias": "f16"})["d.bias"] == "f16"
    given = {"c.weight": "p2", "d.weight": "f32", "shift": "p1"}
    assert types(model, given) == {
        "a.weight": "f16", "b.weight": "f16", "c.weight": "p2", "d.weight": "f32",
        "c.bias": "f32", "d.bias": "f16", "shift": "p1",
    }  # fmt: skip
    assert set(types(model, "f32").values()) == {"f32"}


def test_what_there_is_not_cannot_get_one():
    with pytest.raises(ModelError, match=r"no tensor 'x' to store as p4: there are a\.weight, b\.weight"):
        to_bytes(layered(), {"x": "p4"})
    for values in ("p9", {"a.weight": "p9"}):
        with pytest.raises(ModelError, match="no value type 'p9': the types are f32, f16, p1, p2"):
            to_bytes(layered(), values)


def test_scales_are_kept_apart_or_multiplied_in():
    model = layered()
    table = np.array([-1.5, 0.25, 3, 0.0999755859375], np.float32)
    array = np.random.default_rng(1).choice(table, (12, 8, 1, 1))
    scales = np.linspace(-2, 2, 12).astype(np.float16).astype(np.float32)
    model = replace(model, tensors=model.tensors | {"c.weight": array}, scales={"c.weight": scales})
    few = read_bytes(to_bytes(model, "p2")).tensors["c.weight"]
    assert sorted(few.palette.entries.tolist()) == sorted(table.tolist())
    assert np.allclose(few.scales, scales, rtol=0, atol=2 / 126 / 2)
    for values, kept in (("p2", few.scales), ("f32", scales)):
        found = read_bytes(to_bytes(model, values)).decode()
        assert np.array_equal(found.tensors["c.weight"], scale_rows(array, kept))
        assert found.scales == {}
    assert np.array_equal(model.scaled().tensors["c.weight"], scale_rows(array, scales))
    assert model.scaled().tensors["a.weight"] is model.tensors["a.weight"]
    assert model.scaled().scales == {}
    model.tensors["c.bias"] = np.zeros(12, np.float32)  # 1e5 is too much for f16
    half = read_bytes(to_bytes(model, "f16")).decode().tensors["c.weight"]
    assert np.array_equal(half, scale_rows(array, scales).astype(np.float16).astype(np.float32))


def test_scales_that_do_not_fit_are_refused():
    for values in ("p4", "f32"):
        with pytest.raises(
            ModelError, match=r"tensor 'd.weight': there are scales of shape \(4,\) for 5 rows"
        ):
            to_bytes(replace(layered(), scales={"d.weight": np.ones(4, np.float32)}), values)


def test_scales_of_activations_come_back():
    model = replace(layered(), activations={0: (0.0078125, 128), 3: (0.5, -3)})
    for values in ("f32", "p4"):
        found = read_bytes(to_bytes(model, values))
        assert found.activations == {0: (0.0078125, 128), 3: (0.5, -3)}
        assert found.decode().activations == found.activations
    assert read_bytes(to_bytes(layered(), "p4")).activations == {}


def test_names_that_could_be_mistaken():
    """A tensor with the name of a layer, a bias that another node uses, a weight that is no `.weight`, tied weights."""
    nodes = (
        Node("linear", (0,), {}, {"w": "a.weight"}),
        Node("linear", (1,), {}, {"w": "b.weight", "b": "a.bias"}),
        Node("linear", (2,), {}, {"w": "a", "b": "other"}),
        Node("linear", (1,), {}, {"w": "b.weight", "b": "a.bias"}),
        Node("linear", (4,), {}, {"w": "b.weight"}),
        Node("linear", (5,), {}, {"w": "c.weight", "b": "c.bias"}),
        Node("linear", (5,), {}, {"w": "c.bias.weight", "b": "a.bias"}),
    )
    tensors = {
        name: stored.few_valued((40, 40), 60, [1, 2, -1], number)
        for number, name in enumerate(("a.weight", "b.weight", "a", "c.weight", "c.bias.weight"))
    }
    tensors |= {name: stored.few_valued((40,), 9, [127, 2]) for name in ("a.bias", "other", "c.bias")}
    original = {"other": (50,), "a.weight": (41, 40), "a": (40, 41), "c.weight": (44, 40)}
    model = Model(Graph((40,), nodes, 7), tensors, original)
    found = read_bytes(to_bytes(model, "p4")).decode()
    assert found.graph == model.graph
    assert found.original_shapes == original
    assert found.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        assert np.array_equal(found.tensors[name], array), name


def test_every_format_of_every_tensor_can_be_packed():
    """Also biases and constants, if that is how they are encoded."""
    model = stored.network()
    for kind in ("f32", "p5"):
        for layout in LAYOUTS:
            if layout != "rice" and kind == "f32":
                continue
            tensors = {name: encode(array, layout, kind) for name, array in model.tensors.items()}
            parts, written = assemble(model, tensors)
            found = read_bytes(b"".join(parts))
            for name, tensor in tensors.items():
                same_tensor(found.tensors[name], tensor)
                same_tensor(written.tensors[name], tensor)


def resnet8():
    """The shape of a small residual network for images of 32 x 32: 9 convolutions, 3 sums, pooling, 1 linear layer."""
    nodes, tensors, last, width = [], {}, 0, 3

    def conv(name, source, channels, kernel, stride=1, act=True):
        nonlocal width
        attributes = {
            "stride": (stride, stride),
            "pad": (kernel // 2,) * 4,
            "act": ("relu",) if act else None,
        }
        inside = tensors[f"{name}.weight"] = stored.sparse(
            (channels, width, kernel, kernel), channels * width
        )
        tensors[f"{name}.bias"] = np.ones(len(inside), np.float32)
        nodes.append(Node("conv", (source,), attributes, {"w": f"{name}.weight", "b": f"{name}.bias"}))
        return len(nodes)

    last, width = conv("conv1", 0, 16, 3), 16
    for block, channels in enumerate((16, 32, 64), 1):
        start, before, stride = last, width, 1 if channels == width else 2
        last, width = conv(f"block{block}.conv1", start, channels, 3, stride), channels
        last = conv(f"block{block}.conv2", last, channels, 3, act=False)
        if stride > 1:
            width = before
            start, width = conv(f"block{block}.shortcut", start, channels, 1, stride, act=False), channels
        nodes.append(Node("add", (last, start), {"act": ("relu",)}))
        last = len(nodes)
    nodes.append(Node("mean", (last,), {"axes": (1, 2)}))
    nodes.append(Node("linear", (len(nodes),), {}, {"w": "fc.weight", "b": "fc.bias"}))
    tensors |= {"fc.weight": stored.sparse((10, 64), 200), "fc.bias": np.ones(10, np.float32)}
    preprocess = {
        "scale": 1 / 255,
        "mean": [125.3, 122.9, 113.9],
        "std": [0.247, 0.243, 0.262],
        "mirror": True,
    }
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    return Model(Graph((3, 32, 32), tuple(nodes), len(nodes)), tensors, {}, preprocess, names)


def test_the_header_of_a_small_network_is_small():
    model = resnet8()
    few, half = (read_bytes(to_bytes(model, values)) for values in ("p4", "f16"))
    assert len([node for node in model.graph.nodes if node.op == "conv"]) == 9
    assert few.header_bytes <= 2100 < half.header_bytes
    assert few.file_bytes < 0.5 * half.file_bytes


@pytest.mark.full  # tests/store/test_file.py has one of plain layers
def test_nothing_big_is_allocated_by_reading(tmp_path):
    """A mapped file of packed layers, 8 MB in every layout, is checked within 10 MB more."""
    path = tmp_path / "net.safetensors"
    code = f"""
import tracemalloc, sys
sys.path.insert(0, {str(os.path.dirname(stored.__file__))!r})
import numpy as np, stored
from membound.store.file import assemble, read
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.layouts import LAYOUTS
from membound.store.model import Model
nodes = tuple(Node("linear", (i,), {{}}, {{"w": name}}) for i, name in enumerate(LAYOUTS))
weight = stored.few_valued((2000, 2000), 1_000_000, [1, 2, 3, -7])
tensors = {{name: encode(weight, name, "p3") for name in LAYOUTS}}
with open({str(path)!r}, "wb") as file:
    for part in assemble(Model(Graph((2000,), nodes, len(nodes)), {{}}), tensors)[0]:
        file.write(part)
tracemalloc.start()
found = read({str(path)!r})
assert found.mapped and found.file_bytes > 8e6
peak = tracemalloc.get_traced_memory()[1]
assert peak < 10e6, peak
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Numbers of 8 bits


@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**60), 2.0**60, width=32)))
def test_numbers_of_8_bits_are_near_and_stay_what_they_are(numbers):
    rounded = shorten(numbers)
    most = float(np.abs(numbers).max())
    assert np.abs(rounded.astype(np.float64) - numbers).max() <= most / 126 / 2 * 1.0001 or most < 1e-30
    assert np.array_equal(shorten(rounded), rounded)
    found = as_short(rounded)
    if found is not None:
        assert np.array_equal(expand(*found), rounded)
    else:
        assert most < 1e-30


def test_scales_and_biases_take_8_bits_beside_few_bits_alone():
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(64, 30)).astype(np.float32), rng.normal(size=64).astype(np.float32)
    model = Model(
        Graph((30,), (Node("linear", (0,), {}, {"w": "a.weight", "b": "a.bias"}),), 1),
        {"a.weight": weight, "a.bias": bias},
        scales={"a.weight": rng.uniform(0.5, 2, 64).astype(np.float32)},
    )
    (_, few), (_, fine) = (
        assemble(model, encode_tensors(model, {"a.weight": kind})) for kind in ("p6", "p8")
    )
    assert few.tensors["a.bias"].values.dtype == np.float32
    assert fine.tensors["a.bias"].values.dtype == np.float16
    bits = 2 * weight.size // 8  # that the codes differ by; the table of 64 halves takes what rows save
    assert few.file_bytes == fine.file_bytes - bits
    again = encode_tensors(few.decode(), {"a.weight": "p6"})
    assert np.array_equal(again["a.bias"].values, few.tensors["a.bias"].values)
    outlier = replace(model, tensors={"a.weight": weight, "a.bias": np.where(bias == bias.max(), 1e4, bias)})
    assert encode_tensors(outlier, {"a.weight": "p6"})["a.bias"].values.dtype == np.float16
