"""The dense ONNX model, run by ONNX Runtime, and the torch module of `bench`: every architecture and operator."""

import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from interpreter import interpret
from profiles import at_once, chiefly, full

from membound import zoo
from membound.bench.int8 import onnx_runs
from membound.bench.torch_graph import GraphModule
from membound.capture import capture
from membound.errors import ModelError
from membound.export import onnx as writer
from membound.store.file import read_bytes, to_bytes
from membound.store.graph import ACTIVATIONS, Graph, Node
from membound.store.model import Model
from membound.store.operators import OPERATORS

onnxruntime = pytest.importorskip("onnxruntime")


def session(content: bytes):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def check(content: bytes) -> None:
    try:
        import onnx
    except ImportError:
        return
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)


def in_torch(model: Model):
    """The module that `bench` runs in torch."""
    buffer = io.BytesIO()
    np.savez(buffer, *model.scaled().tensors.values())
    buffer.seek(0)
    return GraphModule(read_bytes(to_bytes(model)), buffer)


def agree(model: Model, expected, batches=(1, 3)) -> None:
    content = b"".join(writer.to_onnx(model))
    check(content)
    run, module = session(content), in_torch(model)
    for batch in batches:
        x = torch.randn(batch, *model.graph.input_shape, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            wanted = expected(x).numpy()
        (found,) = run.run(None, {"input": x.numpy()})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(module(x)[0].numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", chiefly([*[*ARCHITECTURES][::4], "mixer", "unet"], ARCHITECTURES))
@pytest.mark.one_in(2)
def test_architectures(name):
    module, shape = build(name)
    agree(capture(module, torch.zeros(1, *shape)), module)


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick"])
def test_zoo(name):
    net = zoo.build(name).eval()
    agree(capture(net, torch.zeros(1, *net.input_shape)), net)


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one(op, shape, attributes=None, tensors=None, inputs=(0,)) -> Model:
    named = {role: f"{role}.{op}" for role in tensors or {}}
    arrays = {named[role]: array for role, array in (tensors or {}).items()}
    return Model(Graph(shape, (Node(op, inputs, attributes or {}, named),), 1), arrays)


def pools():
    for kernel, stride, pad in (
        ((3, 3), (2, 2), (1, 1, 1, 1)),
        ((3, 2), (2, 3), (2, 0, 1, 1)),
        ((2, 4), (1, 1), (1, 3, 0, 2)),
        ((1, 1), (2, 2), (0, 0, 0, 0)),
        ((2, 2), (4, 4), (0, 0, 2, 1)),
    ):
        given = {"kernel": kernel, "stride": stride, "pad": pad}
        yield one("maxpool", (2, 7, 8), given)
        overs = ((0, 0), (1, 1)) if max(kernel) > 2 else ((0, 0),)
        for over, count in itertools.product(overs, ("all", "valid", 5, 2.5)):
            yield one("avgpool", (2, 7, 8), {**given, "over": over, "count": count})
    yield one(
        "maxpool", (2, 7, 8), {"kernel": (2, 3), "stride": (1, 2), "pad": (2, 2, 2, 1), "dilation": (2, 1)}
    )
    yield one(
        "maxpool", (1, 9, 9), {"kernel": (2, 2), "stride": (2, 1), "pad": (3, 3, 3, 3), "dilation": (4, 3)}
    )


def others():
    w = rand(6, 2, 3, 2)
    window = {"stride": (2, 1), "pad": (0, 2, 1, 3), "dilation": (1, 2), "groups": 2}
    yield one("conv", (4, 9, 8), window | {"act": ("leaky", 0.3)}, {"w": w, "b": rand(6)})
    yield one("conv", (4, 9, 8), window, {"w": w})
    for shape in ((5,), (4, 5), (2, 3, 5)):
        yield one("linear", shape, {"act": ("relu",)}, {"w": rand(3, 5), "b": rand(3)})
        yield one("linear", shape, {}, {"w": rand(3, 5)})
    for kind, size in itertools.product(("avg", "max"), ((1, 1), (3, 4), (5, 3), (2, 7), (6, 8), (9, 11))):
        yield one("adaptive", (3, 6, 8), {"kind": kind, "size": size})
    for factor in ((2, 2), (1, 3), (7, 5), (41, 1), (47, 55)):
        yield one("upsample", (3, 4, 5), {"factor": factor})
    for size, shape in itertools.product((1, 2, 3, 4, 5, 12), ((7,), (7, 4), (7, 3, 4), (7, 2, 3, 2))):
        yield one("lrn", shape, {"size": size, "alpha": 0.7, "beta": 0.75, "k": 2.0})
    yield one("lrn", (5, 3, 3), {"size": 3, "alpha": -0.01, "beta": -0.5, "k": 2.0})
    for last in (1, 2, 3):
        yield one("layernorm", (4, 3, 5), {"last": last, "eps": 0.1})
        sizes = (4, 3, 5)[-last:]
        yield one("layernorm", (4, 3, 5), {"last": last}, {"w": rand(*sizes), "b": rand(*sizes)})
    for name, count in ACTIVATIONS.items():
        yield one("act", (200,), {"act": (name, *((0.3,), (-0.5, 0.7))[count - 1][:count])})
    yield one("act", (200,), {"act": ("clip", 0.7, -0.5)})
    for op, swap in itertools.product(("add", "sub", "mul", "div", "maximum", "minimum"), (False, True)):
        yield one(op, (3, 4), {"swap": swap, "act": ("relu",)}, {"c": rand(3, 1) + 5})
        yield one(op, (1, 4), {"swap": swap}, {"c": rand(3, 1) + 5})
        yield one(op, (3, 4), {"swap": swap, "value": 2.5})
        yield one(op, (3, 4), {}, inputs=(0, 0))
        yield one(op, (), {"swap": swap, "value": 2.5})
    for axis in (0, 1, 2):
        yield one("concat", (2, 3, 4), {"axis": axis}, inputs=(0, 0, 0))
        yield one("softmax", (2, 3, 4), {"axis": axis})
        yield one("softmax", (2, 3, 4), {"axis": axis, "log": True})
        yield one("slice", (5, 6, 7), {"axis": axis, "start": 1, "stop": 5, "step": 2})
    for shape in ((24,), (4, 6), (1, 24, 1, 1), (2, 2, 2, 3)):
        yield one("reshape", (2, 3, 4), {"shape": shape})
    yield one("reshape", (1,), {"shape": ()})
    yield one("permute", (2, 3, 4), {"axes": (2, 0, 1)})
    for axes, keep in itertools.product(((0,), (1, 2), (0, 1, 2)), (False, True)):
        yield one("mean", (2, 3, 4), {"axes": axes, "keep": keep})
    for axes, keep in itertools.product(((0,), (1, 2)), (False, True)):
        yield one("max", (2, 3, 4), {"axes": axes, "keep": keep})
    yield one("gather", (2, 3, 4), {"axis": 1, "indices": (2, 0, 0, 1)})
    yield one("matmul", (2, 4, 4), {}, inputs=(0, 0))
    yield one("matmul", (2, 3, 4), {"transpose": True, "scale": 0.3}, inputs=(0, 0))
    yield one("constant", (3,), {}, {"c": rand(2, 3)}, inputs=())
    for kind, size in itertools.product(("nearest", "exact", "linear", "cubic"), ((3, 11), (12, 5), (1, 14))):
        yield one("resize", (2, 6, 7), {"kind": kind, "size": size})
        yield one("resize", (2, 6, 7), {"kind": kind, "size": (9, 16), "scale": (1.6, 2.4)})
        if kind in ("linear", "cubic"):
            yield one("resize", (2, 6, 7), {"kind": kind, "size": size, "corners": True})
    yield one(
        "resize", (2, 6, 7), {"kind": "linear", "size": (6, 16), "scale": (1.1, 2.4)}
    )  # rows stay as they are
    yield one("pad", (2, 3), {"pad": ((1, 0), (2, 3)), "value": -1.5})
    yield one("pad", (2, 3, 3), {"pad": ((0, 0), (1, 1), (0, 2))})


CASES = [*pools(), *others()]


def test_the_cases_are_of_every_operator():
    of_ports = {"input", "embedding"}  # tests/capture/test_ports.py
    assert {model.graph.nodes[0].op for model in CASES} | of_ports == OPERATORS.keys()


@at_once("model", [pytest.param(model, id=model.graph.nodes[0].op) for model in CASES])
def test_operators(model):
    agree(model, lambda x: interpret(model.graph, model.tensors, x, model.scales))


@pytest.mark.parametrize("corners", [False, True])
def test_linear_resizing_is_one_operator(corners):
    """Of any sizes: a factor in float32 must not lose a pixel, nor change where the others lie."""
    for size in ((29, 49), (41, 3), (7, 98), (64, 47)):
        model = one("resize", (2, 13, 47), {"kind": "linear", "size": size, "corners": corners})
        onnx = pytest.importorskip("onnx").load_from_string(b"".join(writer.to_onnx(model)))
        assert onnx.graph.node[0].op_type == "Resize"
        x = torch.randn(2, 2, 13, 47, generator=torch.Generator().manual_seed(0))
        (found,) = session(onnx.SerializeToString()).run(None, {"input": x.numpy()})
        wanted = torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=corners)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=5e-5)


def test_weights_called_as_the_input_and_the_output():
    nodes = (Node("linear", (0,), {}, {"w": "input"}), Node("add", (1,), {}, {"c": "output"}))
    model = Model(Graph((4,), nodes, 2), {"input": rand(3, 4), "output": rand(3)})
    agree(model, lambda x: interpret(model.graph, model.tensors, x, model.scales))


def test_what_goes_with_the_network_is_in_the_metadata(tmp_path):
    nodes = (Node("reshape", (0,), {"shape": (4,)}), Node("linear", (1,), {}, {"w": "fc.weight"}))
    about = {"scale": 0.5, "mean": [3.0]}
    model = Model(Graph((1, 2, 2), nodes, 2), {"fc.weight": rand(2, 4)}, {}, about, ["cat", "dog"])
    stored = read_bytes(to_bytes(model))
    size = writer.write_onnx(tmp_path / "net.onnx", stored)
    content = (tmp_path / "net.onnx").read_bytes()
    assert len(content) == size
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    found = session(content).get_modelmeta().custom_metadata_map
    assert {key: json.loads(value) for key, value in found.items()} == {
        "preprocess": about,
        "classes": ["cat", "dog"],
    }


def test_a_network_too_large_for_protobuf_is_refused(monkeypatch):
    monkeypatch.setattr(writer, "LIMIT", 100)
    with pytest.raises(ModelError, match="an ONNX file holds at most 100"):
        writer.to_onnx(CASES[-1])


# Sparse initializers


def thinned(model: Model, kept=0.1) -> Model:
    """The network with most of each weight's elements zero."""
    chance = np.random.default_rng(0)
    tensors = {
        name: array * (chance.random(array.shape) < kept).astype(np.float32)
        for name, array in model.tensors.items()
    }
    return replace(model, tensors=tensors)


def run_sparse(model: Model) -> tuple[int, int, set[str]]:
    """Run both forms, which must agree; bytes dense, bytes sparse, and the names of sparse weights."""
    onnx = pytest.importorskip("onnx")
    dense, sparse = (b"".join(writer.to_onnx(model, sparse)) for sparse in (False, True))
    onnx.checker.check_model(onnx.load_from_string(sparse))  # its inference of types has no sparse weights
    x = rand(2, *model.graph.input_shape)
    (wanted,), (found,) = (session(content).run(None, {"input": x}) for content in (dense, sparse))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    return (
        len(dense),
        len(sparse),
        {one.values.name for one in onnx.load_from_string(sparse).graph.sparse_initializer},
    )


@pytest.mark.parametrize(
    "model",
    [model for model in CASES if model.tensors and model.graph.nodes[0].op != "div"],
    ids=lambda model: model.graph.nodes[0].op,
)
def test_sparse_initializers_of_operators(model):
    dense, sparse, _ = run_sparse(thinned(model))
    assert sparse <= dense


@pytest.mark.parametrize("name", ["mobilenet", full("densenet")])
def test_sparse_initializers_of_architectures(name):
    module, shape = build(name)
    dense, sparse, names = run_sparse(thinned(capture(module, torch.zeros(1, *shape))))
    assert sparse < dense
    assert names


def test_sparse_initializers_of_every_rank_where_they_are_smaller():
    nodes = (
        Node("conv", (0,), {}, {"w": "conv", "b": "bias"}),
        Node("mul", (1,), {}, {"c": "scale"}),
        Node("reshape", (2,), {"shape": (2, 144)}),
        Node("linear", (3,), {}, {"w": "rows"}),
        Node("reshape", (4,), {"shape": (600,)}),
        Node("linear", (5,), {}, {"w": "all zero", "b": "one"}),
        Node("linear", (6,), {}, {"w": "dense"}),
    )
    shapes = {
        "conv": (8, 3, 3, 3),
        "bias": (8,),
        "scale": (8, 6, 6),
        "rows": (300, 144),
        "all zero": (40, 600),
    }
    tensors = {name: rand(*shape) for name, shape in shapes.items()}
    model = thinned(Model(Graph((3, 8, 8), nodes, 7), tensors))
    model.tensors.update(
        {"one": np.eye(1, 40, 3, dtype=np.float32)[0], "dense": rand(4, 40), "bias": rand(8)}
    )
    model.tensors["all zero"][:] = 0
    dense, sparse, names = run_sparse(model)
    assert names == {"conv", "scale", "rows", "all zero", "one"}
    kept = sum(np.count_nonzero(model.tensors[name]) for name in names)
    left_out = 4 * sum(model.tensors[name].size for name in names)
    assert (
        0 < sparse - (dense - left_out) - 4 * kept < 3 * kept + 50 * len(names)
    )  # of places, and around them


def test_sparse_initializers_hold_the_very_weights():
    onnx = pytest.importorskip("onnx")
    from onnx import numpy_helper

    weight = thinned(one("linear", (20000,), {}, {"w": rand(7, 20000)}), 0.05)
    (name, array), *_ = weight.tensors.items()
    (found,) = onnx.load_from_string(b"".join(writer.to_onnx(weight, True))).graph.sparse_initializer
    back = np.zeros(array.size, np.float32)
    back[numpy_helper.to_array(found.indices)] = numpy_helper.to_array(found.values)
    assert found.values.name == name
    assert tuple(found.dims) == array.shape
    assert np.array_equal(back.reshape(array.shape), array)


def test_floats_and_int8_are_raced_on_the_same_input():
    model = capture(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)), torch.zeros(1, 1, 4, 4))
    with onnx_runs(read_bytes(to_bytes(model)), 1) as runs:
        (floats,), (int8,) = (run() for run in runs)
    assert floats.shape == int8.shape == (1, 3)
    assert not np.array_equal(floats, int8)
    np.testing.assert_allclose(floats, int8, atol=0.1)
