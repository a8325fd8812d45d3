"""Networks that come as ONNX files, from any framework: made torch modules by onnx2torch, weights and all."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from membound.errors import WeightsError
from membound.zoo.onnx_linear import with_linear_layers
from membound.zoo.onnx_packages import first_line, load_checked, onnx2torch
from membound.zoo.onnx_rewrites import rewrite_
from membound.zoo.onnx_static import with_constant_sizes

SUFFIX = ".onnx"
WHOLE = (2, 3, 4, 5, 6, 7, 9, 12, 13)  # element types of ONNX: integers and booleans
OLDER = (18, 17)  # versions of ONNX's operators that onnx2torch knows best
ADVICE = "export it again with the batch as a dynamic axis, or give the network as package.module:callable"


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
    package = onnx2torch(path)
    model = load_checked(path)
    rewrite_(model)
    _make_names_storable_(model.graph)
    model, found = _converted(path, model, package.convert)
    _check_resizing(path, model.graph)
    shapes = input_shapes(path, model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how onnx2torch indexes
            found = with_linear_layers(with_constant_sizes(found, *shapes))
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}; {ADVICE}") from None
    except Exception as error:
        raise WeightsError(
            f"{path}: the network does not run on batches of 2 and 3: {first_line(error)}; {ADVICE}"
        ) from error
    plain: nn.Module = found.requires_grad_(True)
    plain.input_shape = shapes[0][0] if len(shapes[0]) == 1 else None  # type: ignore[assignment]
    plain.example_input = _zeros(*shapes)  # type: ignore[assignment]
    return plain


def _make_names_storable_(graph: Any) -> None:
    """Names of nodes become those of modules and tensors; some of TensorFlow's, such as Conv:1, no tensor may have."""
    taken = {node.name for node in graph.node}
    for node in graph.node:
        plain = "".join(each if each.isprintable() and each != ":" else "_" for each in node.name)
        if plain == node.name:
            continue
        name, number = plain, 1
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        node.name = name


def _zeros(shapes: list[tuple[int, ...]], whole: list[bool]) -> tuple[np.ndarray, ...] | np.ndarray:
    """A batch of 1 of each input."""
    kinds = (np.int64 if is_whole else np.float32 for is_whole in whole)
    made = tuple(np.zeros((1, *shape), kind) for shape, kind in zip(shapes, kinds, strict=True))
    return made if len(made) > 1 else made[0]


def _converted(path: str | Path, model: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The network in torch; a file of a version that onnx2torch does not know, as one of an older version."""
    first: Exception | None = None
    for tried in (model, *_as_older(model)):
        try:
            _use_initializers_directly(tried.graph)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of resizing, which has a check of its own
                return tried, convert(tried)
        except Exception as error:
            first = first or error
    assert first is not None
    raise WeightsError(
        f"{path}: onnx2torch cannot convert it: {first_line(first)}; export it for opset {OLDER[-1]}, or give the "
        "network as package.module:callable"
    ) from first


def _as_older(model: Any) -> Iterator[Any]:
    """The same network under older versions, where it is valid in them.

    Since 18, operators have got more types and attributes; what has none of these means what it meant.
    """
    import onnx

    for version in OLDER:
        older = onnx.ModelProto()
        older.CopyFrom(model)
        own = [each for each in older.opset_import if each.domain in ("", "ai.onnx")]
        if not own or own[0].version <= version:
            continue
        own[0].version = version
        try:
            onnx.checker.check_model(older)
        except onnx.checker.ValidationError:
            continue
        yield older


def input_shapes(path: str | Path, model: Any) -> tuple[list[tuple[int, ...]], list[bool]]:
    """Of each input the shape without the batch, and whether it takes whole numbers."""
    weights = {each.name for each in model.graph.initializer}
    shapes, whole = [], []
    for each in model.graph.input:
        if each.name in weights:
            continue
        sizes = [axis.dim_value for axis in each.type.tensor_type.shape.dim][1:]
        if any(size < 1 for size in sizes):
            raise WeightsError(
                f"{path}: input {each.name!r} leaves sizes open: export it again with every size but the batch's "
                "given"
            )
        shapes.append(tuple(sizes))
        whole.append(each.type.tensor_type.elem_type in WHOLE)
    return shapes, whole


def _check_resizing(path: str | Path, graph: Any) -> None:
    """onnx2torch takes every way to place pixels for torch's own."""
    for node in graph.node:
        if node.op_type != "Resize":
            continue
        told = {each.name: each.s.decode() or each.f or each.i for each in node.attribute}
        place = told.get("coordinate_transformation_mode", "half_pixel")
        torchs = ("half_pixel", "pytorch_half_pixel", "align_corners")
        if told.get("mode", "nearest") != "nearest" and (
            place not in torchs or told.get("exclude_outside") or told.get("cubic_coeff_a", -0.75) != -0.75
        ):
            raise WeightsError(f"{path}: {node.name}: torch does not resize as {told} says; {ADVICE}")


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
