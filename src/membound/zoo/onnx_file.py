"""Networks that come as ONNX files, from any framework: made torch modules by onnx2torch, weights and all."""

import importlib.util
from pathlib import Path
from typing import Any

from torch import nn

from membound.errors import WeightsError

SUFFIX = ".onnx"


def is_onnx(spec: str) -> bool:
    """Whether a network is named by an ONNX file.

    >>> is_onnx("nets/model.onnx"), is_onnx("lenet")
    (True, False)
    """
    return spec.lower().endswith(SUFFIX)


def read_onnx(path: str | Path) -> nn.Module:
    """The network of an ONNX file, with its weights."""
    if not Path(path).is_file():
        raise WeightsError(f"{path}: there is no such file")
    if importlib.util.find_spec("onnx2torch") is None:
        raise WeightsError(f"{path}: reading ONNX takes onnx2torch: pip install 'membound[onnx]'")
    import onnx
    import onnx2torch

    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:
        raise WeightsError(f"{path} is not a valid ONNX file: {_first_line(error)}") from error
    _use_initializers_directly(model.graph)
    try:
        found: nn.Module = onnx2torch.convert(model)
    except Exception as error:
        raise WeightsError(
            f"{path}: onnx2torch cannot convert it: {_first_line(error)}; export it again with constant shapes, or "
            "give the network as package.module:callable"
        ) from error
    return found.requires_grad_(True)


def _use_initializers_directly(graph: Any) -> None:
    """Exporters give weights that are alike once and name the others by Identity, which onnx2torch does not follow."""
    known = {each.name for each in graph.initializer}
    same: dict[str, str] = {}
    for node in list(graph.node):
        if node.op_type == "Identity" and (source := same.get(node.input[0], node.input[0])) in known:
            same[node.output[0]] = source
            graph.node.remove(node)
    for node in graph.node:
        for number, name in enumerate(node.input):
            if name in same:
                node.input[number] = same[name]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
