"""Networks from ONNX files."""

import importlib.util
import sys

import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from membound import zoo
from membound.errors import WeightsError
from membound.zoo.onnx_file import OLDER, _as_older, _make_names_storable_, _use_initializers_directly
from membound.zoo.onnx_packages import load_checked, onnx2torch


def small_model():
    """y = relu(x w + b), with w named by way of Identity twice, as exporters do."""
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(4, 3)).astype(np.float32), random.normal(size=3).astype(np.float32)
    nodes = [
        helper.make_node("Identity", ["w"], ["w1"]),
        helper.make_node("Identity", ["w1"], ["w2"]),
        helper.make_node("Gemm", ["x", "w2", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model, weight, bias


def test_weights_that_have_several_names_are_used_by_their_own():
    model, _, _ = small_model()
    _use_initializers_directly(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Gemm", "Relu"]
    assert list(model.graph.node[0].input) == ["x", "w", "b"]
    onnx.checker.check_model(model)


def test_a_network_of_an_onnx_file_computes_what_the_file_says(tmp_path):
    if importlib.util.find_spec("onnx2torch") is None:
        pytest.skip("needs onnx2torch")
    model, weight, bias = small_model()
    onnx.save(model, tmp_path / "small.onnx")
    network = zoo.build(str(tmp_path / "small.onnx"))
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    with torch.no_grad():
        found = network(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, np.maximum(x @ weight + bias, 0), rtol=1e-5, atol=1e-6)
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_what_is_wrong_with_a_file_is_said_in_a_line(tmp_path):
    with pytest.raises(WeightsError, match=r"nothere\.onnx: there is no such file"):
        zoo.build(str(tmp_path / "nothere.onnx"))
    (tmp_path / "bad.onnx").write_text("no network")
    wanted = "not a valid ONNX file" if importlib.util.find_spec("onnx2torch") else r"pip install .\.\[onnx\]"
    with pytest.raises(WeightsError, match=wanted) as caught:
        zoo.build(str(tmp_path / "bad.onnx"))
    assert "\n" not in str(caught.value)


def test_onnx2torch_is_imported_without_torchvision(tmp_path, monkeypatch):
    """A stand-in for the package, which imports torchvision as the real one does; a broken one is named."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("onnx2torch", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    package = tmp_path / "onnx2torch.py"
    package.write_text("import torchvision\nfrom torchvision.ops import roi_align\nconvert = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert onnx2torch("net.onnx").convert == 7
    assert "torchvision" not in sys.modules
    del sys.modules["onnx2torch"]
    package.write_text("raise RuntimeError('two\\nlines')")
    importlib.invalidate_caches()
    with pytest.raises(WeightsError, match=r"package onnx2torch cannot be imported: RuntimeError: two;"):
        onnx2torch("net.onnx")


def test_files_that_are_cut_short_or_of_integers_are_told(tmp_path):
    content = small_model()[0].SerializeToString()
    for size in (0, 1, 20, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.onnx").write_bytes(content[:size])
        with pytest.raises(WeightsError, match=f"cut short: it ends after {size} bytes"):
            load_checked(tmp_path / "cut.onnx")
    scale, zero = helper.make_tensor("s", 1, [], [0.1]), helper.make_tensor("z", TensorProto.INT8, [], [0])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "integers", ports[:1], ports[1:], [scale, zero])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "int8.onnx",
    )
    with pytest.raises(WeightsError, match=r"quantized to integers already \(operator QuantizeLinear\)"):
        load_checked(tmp_path / "int8.onnx")


def test_weights_that_are_stored_as_integers_become_floats(tmp_path):
    """What `export --onnx` writes of weights in few bits, with and without zeros and axes."""
    whole = np.arange(12, dtype=np.int8).reshape(4, 3)
    scales, zeros = np.array([0.5, 0.25, 2], np.float32), np.array([1, 0, 2], np.int8)
    bias = np.array([7, 8, 9], np.int32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"], axis=-1),
        helper.make_node("DequantizeLinear", ["b", "one"], ["bf"]),
        helper.make_node("Gemm", ["x", "wf", "bf"], ["y"]),
    ]
    stored = {"w": whole, "s": scales, "z": zeros, "b": bias, "one": np.float32(0.5)}
    graph = helper.make_graph(
        nodes,
        "stored",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    onnx.save(model, tmp_path / "stored.onnx")
    read = load_checked(tmp_path / "stored.onnx")
    assert [node.op_type for node in read.graph.node] == ["Gemm"]
    (found,) = onnx.reference.ReferenceEvaluator(read).run(None, {"x": x})
    np.testing.assert_array_equal(found, wanted)


def test_names_that_no_tensor_may_have_are_changed_to_names_of_their_own():
    nodes = [helper.make_node("Relu", ["x"], ["y"], name=name) for name in ("a:1", "a_1", "a\n1", "b/c", "")]
    graph = helper.make_graph(nodes, "names", [], [])
    _make_names_storable_(graph)
    assert [node.name for node in graph.node] == ["a_1_1", "a_1", "a_1_2", "b/c", ""]


def versioned(op, version):
    """A file of one operator, under some version of ONNX's operators."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], name=op)], "one", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def test_a_newer_file_is_tried_as_an_older_one_where_it_means_the_same():
    found = [each.opset_import[0].version for each in _as_older(versioned("Identity", 20))]
    assert found == list(OLDER)
    assert list(_as_older(versioned("Identity", 13))) == []
    assert list(_as_older(versioned("Gelu", 20))) == []  # there was none before


def test_a_newer_file_is_read(tmp_path):
    if importlib.util.find_spec("onnx2torch") is None:
        pytest.skip("needs onnx2torch")
    model, _, _ = small_model()
    model.opset_import[0].version = 23
    onnx.save(model, tmp_path / "new.onnx")
    x = torch.randn(3, 4)
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(zoo.build(str(tmp_path / "new.onnx"))(x).detach(), wanted, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_the_padding_of_ds_cnn_survives_torch_s_export(tmp_path):
    """Its exporter rounds divisions toward zero, so that the ceil of a division must not be that of a negative one."""
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    net, x = zoo.ds_cnn().eval(), torch.randn(2, 1, 49, 10)
    path = tmp_path / "ds.onnx"
    torch.onnx.export(net, (x,), path, input_names=["x"], dynamo=False, dynamic_axes={"x": {0: "n"}})
    found = runtime.InferenceSession(path).run(None, {"x": x.numpy()})[0]
    wanted = net(x).detach().numpy()
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
