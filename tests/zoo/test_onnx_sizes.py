"""ONNX files that compute sizes, repeat constants, resize and write GELU out, against ONNX's own reference."""

import importlib.util

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import membound as mb
from membound import zoo
from membound.capture import capture
from membound.cli import main
from membound.errors import WeightsError
from membound.export.onnx import write_onnx
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

if importlib.util.find_spec("onnx2torch") is None:
    pytest.skip("needs onnx2torch", allow_module_level=True)
RANDOM = np.random.default_rng(0)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], name=f"{op}_{output}", **attributes)


def model_of(nodes, constants, path, shape=(3, 8, 8), rank=4):
    """A file of one input x, whose batch is free, and one output y."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"size {axis}" for axis in range(rank)])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return model


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


CONV = node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1])
WEIGHT = {"w": floats(4, 3, 3, 3)}
CASES = {
    "a reshape to a computed shape": (
        [
            CONV,
            node("Shape", ["c"], "s"),
            node("Gather", ["s", "zero"], "n"),
            node("Unsqueeze", ["n", "axis"], "n1"),
            node("Concat", ["n1", "rest"], "to", axis=0),
            node("Reshape", ["c", "to"], "y"),
        ],
        {**WEIGHT, "zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1])},
    ),
    "a class token": (
        [
            CONV,
            node("Reshape", ["c", "flat"], "r"),
            node("Shape", ["x"], "s"),
            node("Slice", ["s", "zero", "one"], "n"),
            node("Concat", ["n", "ones"], "to", axis=0),
            node("Expand", ["token", "to"], "t"),
            node("Concat", ["t", "r"], "y", axis=1),
        ],
        {
            **WEIGHT, "flat": np.array([0, 4, 64]), "zero": np.array([0]), "one": np.array([1]),
            "ones": np.array([1, 64]), "token": floats(1, 1, 64),
        },
    ),
    "padding, slices and a resize": (
        [
            node("Pad", ["x", "pads"], "p"),
            node("Conv", ["p", "w"], "c"),
            node("Resize", ["c", "", "scales"], "r", mode="linear", coordinate_transformation_mode="half_pixel"),
            node("Slice", ["r", "starts", "ends", "axes", "steps"], "y"),
        ],
        {
            **WEIGHT, "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "scales": np.array([1, 1, 2, 2], np.float32),
            "starts": np.array([1, 2]), "ends": np.array([9, 1000]), "axes": np.array([2, 3]),
            "steps": np.array([1, 2]),
        },
    ),
    "the nearest pixel, three times as large": (
        [CONV, node("Resize", ["c", "", "scales"], "y", mode="nearest")],
        {**WEIGHT, "scales": np.array([1, 1, 3, 3], np.float32)},
    ),
    "linear layers and GELU": (
        [
            node("MatMul", ["x", "m"], "p"),
            node("Add", ["b", "p"], "a"),
            node("Div", ["a", "root"], "d"),
            node("Erf", ["d"], "e"),
            node("Add", ["e", "one"], "f"),
            node("Mul", ["a", "f"], "g"),
            node("Mul", ["g", "half"], "h"),
            node("MatMul", ["h", "m2"], "y"),
        ],
        {
            "m": floats(8, 5), "b": floats(5), "m2": floats(5, 3), "root": np.float32(2**0.5), "one": np.float32(1),
            "half": np.float32(0.5),
        },
    ),
    "one of several, from the end": (
        [CONV, node("Gather", ["c", "last"], "t", axis=1), node("Gather", ["t", "some"], "y", axis=2)],
        {**WEIGHT, "last": np.int64(-1), "some": np.array([0, -1, 2])},
    ),
}  # fmt: skip

RANKS = {
    "a reshape to a computed shape": 2,
    "a class token": 3,
    "one of several, from the end": 3,
}  # of y, if not 4


@pytest.mark.parametrize("name", CASES)
def test_files_give_what_onnx_says(name, tmp_path):
    nodes, constants = CASES[name]
    model = model_of(nodes, constants, tmp_path / "net.onnx", rank=RANKS.get(name, 4))
    network = zoo.build(str(tmp_path / "net.onnx"))
    found = Net(read_bytes(to_bytes(capture(network.eval(), torch.zeros(1, 3, 8, 8)))), max_batch=2)
    x = floats(2, 3, 8, 8)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(found(x), wanted, rtol=1e-4, atol=1e-5)


def test_linear_layers_are_trained(tmp_path):
    nodes, constants = CASES["linear layers and GELU"]
    model_of(nodes, constants, tmp_path / "net.onnx")
    network = zoo.build(str(tmp_path / "net.onnx"))
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [(tuple(layer.weight.shape), layer.bias is not None) for layer in layers] == [
        ((5, 8), True),
        ((3, 5), False),
    ]
    assert {parameter.numel() for parameter in network.parameters()} == {40, 5, 15}


@pytest.mark.parametrize(
    ("resize", "sizes", "said"),
    [
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, [2, 2], "torch does not resize"),
        ({"mode": "nearest"}, [1.5, 1.5], "no multiples"),
    ],
)
def test_other_ways_to_resize_are_refused(resize, sizes, said, tmp_path):
    scales = {"scales": np.array([1, 1, *sizes], np.float32)}
    model_of([node("Resize", ["x", "", "scales"], "y", **resize)], scales, tmp_path / "net.onnx")
    with pytest.raises(WeightsError, match=said) as caught:
        zoo.build(str(tmp_path / "net.onnx"))
    assert "\n" not in str(caught.value)


UPSAMPLING = {
    "nearest": {"scale_factor": 3},
    "bilinear": {"scale_factor": 2, "mode": "bilinear"},
    "bilinear to a size": {"size": (13, 5), "mode": "bilinear"},
    "bilinear by a factor": {"scale_factor": (1.6, 2.3), "mode": "bilinear"},
    "bilinear, corners": {"size": (13, 22), "mode": "bilinear", "align_corners": True},
}


@pytest.mark.parametrize("how", UPSAMPLING)
def test_upsampling_that_is_written_is_read_again(how, tmp_path):
    """The same outputs, and the same file as before: what becomes Resize is the same operator again."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Upsample(**UPSAMPLING[how]), nn.Conv2d(2, 1, 1)).eval()
    mb.save(module, tmp_path / "net.safetensors", torch.zeros(1, 3, 8, 9))
    first = mb.load(tmp_path / "net.safetensors", max_batch=2)
    write_onnx(tmp_path / "net.onnx", first.model)
    onnx_file = onnx.load(tmp_path / "net.onnx")
    assert "Resize" in [each.op_type for each in onnx_file.graph.node]
    read = capture(zoo.build(str(tmp_path / "net.onnx")).eval(), torch.zeros(1, 3, 8, 9))
    second = Net(read_bytes(to_bytes(read)), max_batch=2)
    kinds = [[each.op for each in net.model.graph.nodes] for net in (first, second)]
    assert kinds[0] == kinds[1]
    x = floats(2, 3, 8, 9)
    np.testing.assert_allclose(second(x), first(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first(x), module(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-5)


def test_open_sizes_are_refused(tmp_path):
    model_of([CONV, node("Relu", ["c"], "y")], WEIGHT, tmp_path / "net.onnx", (3, "h", "w"))
    with pytest.raises(WeightsError, match="input 'x' leaves sizes open"):
        zoo.build(str(tmp_path / "net.onnx"))


def test_export_makes_a_model_file(tmp_path, capsys):
    nodes, constants = CASES["a reshape to a computed shape"]
    model = model_of(nodes, constants, tmp_path / "net.onnx", rank=2)
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "net.onnx"), "--out", str(tmp_path / "net.safetensors")])
    assert ended.value.code == 0, capsys.readouterr()
    x = floats(3, 3, 8, 8)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(mb.load(tmp_path / "net.safetensors")(x), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "export",
                str(tmp_path / "net.onnx"),
                "--init",
                "w.pth",
                "--out",
                str(tmp_path / "other.safetensors"),
            ]
        )
    assert ended.value.code == 1
    assert "has weights of its own" in capsys.readouterr().err
