"""Operators that onnx2torch does not know, written with others: ONNX Runtime must give the same before and after."""

import importlib.util

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import membound as mb
from membound.cli import main
from membound.zoo.onnx_file import _as_older
from membound.zoo.onnx_rewrites import rewrite_

WINDOW = {"kernel_shape": [3, 2], "strides": [2, 3]}
OPERATORS = {
    **{
        f"{op} {same}": (op, 17, {**WINDOW, "auto_pad": same}, {})
        for op in ("MaxPool", "AveragePool")
        for same in ("SAME_UPPER", "SAME_LOWER")
    },
    "Conv": ("Conv", 17, {"auto_pad": "SAME_UPPER", "strides": [1, 2]}, {"w": (5, 4, 3, 2)}),
    "GlobalMaxPool": ("GlobalMaxPool", 17, {}, {}),
    "ReduceMax": ("ReduceMax", 18, {"keepdims": 1}, {"axes": [1, -1]}),
    "ReduceMean": ("ReduceMean", 18, {"keepdims": 0}, {"axes": [2]}),
    "Gelu": ("Gelu", 20, {}, {}),
    "Gelu tanh": ("Gelu", 20, {"approximate": "tanh"}, {}),
    "Mish": ("Mish", 18, {}, {}),
    "Split": ("Split", 18, {"num_outputs": 3, "axis": 2}, {}),
    "DepthToSpace": ("DepthToSpace", 17, {"blocksize": 2}, {}),
    "SpaceToDepth": ("SpaceToDepth", 17, {"blocksize": 2}, {}),
    "Clip": ("Clip", 17, {}, {"": None, "high": 0.3}),
}  # fmt: skip


def model_of(name):
    """A file of one operator behind a Relu, whose shape has to be inferred; x is [n, 4, 10, 8]."""
    op, version, attributes, more = OPERATORS[name]
    random = np.random.default_rng(0)
    constants = []
    for key, value in more.items():
        if isinstance(value, tuple):
            constants.append(numpy_helper.from_array(random.normal(size=value).astype(np.float32), key))
        elif value is not None:
            kind = np.int64 if isinstance(value, list) else np.float32
            constants.append(numpy_helper.from_array(np.array(value, kind), key))
    outputs = [f"y{number}" for number in range(attributes.get("num_outputs", 1))]
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["r"]),
        helper.make_node(op, ["r", *more], outputs, **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 10, 8])],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, None) for out in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})


def export(folder):
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(folder / "net.onnx"), "--out", str(folder / "net.safetensors")])
    assert stopped.value.code == 0


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_comes_out(name):
    x = np.random.default_rng(1).normal(size=(2, 4, 10, 8)).astype(np.float32)
    model = model_of(name)
    wanted = run(model, x)
    before = model.SerializeToString()
    rewrite_(model)
    assert model.SerializeToString() != before
    found = run(next(_as_older(model), model), x)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_channels_come_first():
    """As Keras writes a network: its input is turned at once."""
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 5, 6, 3]), ("y", ["n", 3, 5, 6]))
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Sigmoid", ["t"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "turned", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 6)).astype(np.float32)
    wanted = run(model, x.transpose(0, 2, 3, 1))
    rewrite_(model)
    assert [node.op_type for node in model.graph.node] == ["Sigmoid"]
    np.testing.assert_array_equal(run(model, x), wanted)
    del model.graph.node[:]
    nodes[1].input[0] = "x"  # which is read as it is, too
    model.graph.node.extend([nodes[0], nodes[1]])
    rewrite_(model)
    assert [node.op_type for node in model.graph.node] == ["Transpose", "Sigmoid"]


def test_what_has_no_sizes_stays():
    model = model_of("Conv")
    for axis in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        axis.Clear()
    del model.graph.value_info[:], model.graph.output[0].type.tensor_type.shape.dim[:]
    before = model.SerializeToString()
    rewrite_(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("name", ["Conv", "MaxPool SAME_UPPER", "Gelu", "ReduceMax", "Split"])
def test_files_are_read(name, tmp_path):
    if importlib.util.find_spec("onnx2torch") is None:
        pytest.skip("needs onnx2torch")
    model = model_of(name)
    onnx.save(model, tmp_path / "net.onnx")
    export(tmp_path)
    x = np.random.default_rng(1).normal(size=(2, 4, 10, 8)).astype(np.float32)
    found = mb.load(tmp_path / "net.safetensors")(x)
    for one, other in zip(found if isinstance(found, tuple) else [found], run(model, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_numbers_of_words_and_several_inputs_are_read(tmp_path):
    """A table of words is an embedding, and the file says that its input is whole."""
    if importlib.util.find_spec("onnx2torch") is None:
        pytest.skip("needs onnx2torch")
    table = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "x"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 3]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 4])],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "net.onnx",
    )
    export(tmp_path)
    net = mb.load(tmp_path / "net.safetensors")
    ids, x = (
        np.array([[0, 8, 3], [1, 1, 2]]),
        np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32),
    )
    assert [port.whole for port in net.inputs] == [True, False]
    np.testing.assert_allclose(net(ids, x), table[ids] * x, rtol=1e-6)
