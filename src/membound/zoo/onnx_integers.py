"""Weights that an ONNX file stores as whole numbers, made floats; what computes in integers is refused."""

from pathlib import Path
from typing import Any

import numpy as np

from membound.errors import WeightsError

QUANTIZED = ("DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")


def without_integers_(path: str | Path, model: Any) -> None:
    """A network in floats: `export --onnx` stores weights of few bits as whole numbers, but they are floats to it."""
    _dequantize_(model.graph)
    kinds = [node.op_type for node in model.graph.node]
    found = next((kind for kind in kinds if kind in QUANTIZED or kind.startswith("QLinear")), None)
    if found is not None:
        raise WeightsError(
            f"{path} is quantized to integers already (operator {found}): give the float32 file that it was made of"
        )


def _dequantize_(graph: Any) -> None:
    """DequantizeLinear of constants becomes a constant, as ONNX computes it."""
    from onnx import helper, numpy_helper

    constants = {each.name: each for each in graph.initializer}
    for node in list(graph.node):
        if node.op_type != "DequantizeLinear" or not all(name in constants for name in node.input if name):
            continue
        given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        whole, scale, *zero = (numpy_helper.to_array(constants[name]) for name in node.input if name)
        if whole.dtype.kind not in "iu" or given.get("block_size"):
            continue
        along = [1] * whole.ndim
        if scale.size > 1:
            along[given.get("axis", 1)] = -1
        steps = whole.astype(np.int64)
        for each in zero:
            steps = steps - each.astype(np.int64).reshape(along)
        floats = steps.astype(np.float32) * scale.astype(np.float32).reshape(along)
        graph.initializer.append(numpy_helper.from_array(floats, node.output[0]))
        graph.node.remove(node)
