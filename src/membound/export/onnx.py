"""A stored network as an ONNX model: the way out, to any runtime. Written by hand, without the onnx package.

Operator set 13; the batch stays free. Weights are dense floats; int8 and DequantizeLinear where they are whole numbers
times a step for each row; or, where that is asked for and takes fewer bytes, sparse initializers, whose places are flat
and written as varints, two or three bytes each. What ONNX has no operator for, or one of another meaning, is put
together from others: an average pool's uncounted edge is a product with constants, a general adaptive pool two small
products or two gathers, a normalisation over an even number of channels a product with a band of ones.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.export.onnx_mixing import MIXING
from membound.export.onnx_steps import Step, Writer
from membound.export.onnx_tensors import FLOAT, INT64
from membound.export.protobuf import Message, Part
from membound.run.ports import Port, inputs_of, outputs_of
from membound.store.graph import Graph, Shape
from membound.store.model import Model, StoredModel
from membound.store.shapes import infer_shapes
from membound.store.whole import write_whole

OPSET, IR_VERSION = 13, 7
LIMIT = 2**31 - 1  # bytes of one protobuf message

Array = npt.NDArray[Any]


def write_onnx(path: str | os.PathLike[str], model: StoredModel | Model, sparse: bool = False) -> int:
    """Write a network as an ONNX model, whole or not at all; how many bytes it has."""
    parts = to_onnx(model, sparse)
    write_whole(Path(path), parts)
    return sum(map(len, parts))


def to_onnx(model: StoredModel | Model, sparse: bool = False) -> list[Part]:
    """The bytes of the ONNX model, in parts; the input is called `input`, the output `output`, several by their names.

    Inputs of whole numbers are int64.

    With `sparse` a weight is a sparse initializer where that has fewer bytes.
    """
    stored = model.tensors if isinstance(model, StoredModel) else {}
    dense = model.decode() if isinstance(model, StoredModel) else model.scaled()
    shapes = infer_shapes(dense.graph, {name: array.shape for name, array in dense.tensors.items()})
    inputs_, outputs = inputs_of(dense.graph, shapes), _renamed(dense.graph, shapes)
    writer = Writer(sparse, [port.name for port in (*inputs_, *outputs)])
    given = {value: _input(writer, port) for value, port in zip(dense.graph.taken, inputs_, strict=True)}
    values = [given[0]]
    for number, node in enumerate(dense.graph.nodes, 1):
        if number in given:
            values.append(given[number])
            continue
        inputs = [values[value] for value in node.inputs]
        inputs += [
            writer.weight(name, dense.tensors[name], stored.get(name)) for name in node.tensors.values()
        ]
        roles = dict(zip(node.tensors, inputs[len(node.inputs) :], strict=True))
        step = Step(
            writer, node, inputs[: len(node.inputs)], roles, [shapes[v] for v in node.inputs], shapes[number]
        )
        out = WRITERS[node.op](step)
        values.append(_activate(writer, out, step.a.get("act") or ()))
    for value, port in zip(dense.graph.given, outputs, strict=True):
        writer.emit("Identity", [values[value]], output=port.name)
    found = _model(writer, dense, inputs_, outputs)
    if found.size > LIMIT:
        raise ModelError(
            f"the ONNX model has {found.size:,} bytes: an ONNX file holds at most {LIMIT:,}, so keep the model file"
        )
    return found.parts


def _renamed(graph: Graph, shapes: Sequence[Shape]) -> list[Port]:
    """The outputs; one that is called as an input is, which ONNX forbids, gets another name."""
    taken = {port.name for port in inputs_of(graph, shapes)}
    found = []
    for port in outputs_of(graph, shapes):
        while port.name in taken:
            port = replace(port, name=f"{port.name}_out")
        taken.add(port.name)
        found.append(port)
    return found


def _input(writer: Writer, port: Port) -> str:
    return writer.emit("Cast", [port.name], to=FLOAT) if port.whole else port.name


def _model(writer: Writer, dense: Model, inputs: Sequence[Port], outputs: Sequence[Port]) -> Message:
    graph = Message()
    for node in writer.nodes:
        graph.content(1, node)
    graph.content(2, "membound")
    for each in writer.tensors.values():
        graph.content(5, each)
    for each in writer.sparse_tensors.values():
        graph.content(15, each)
    for port in inputs:
        graph.content(11, _value_info(port))
    for port in outputs:
        graph.content(12, _value_info(port))
    found = Message().integer(1, IR_VERSION).content(2, "membound").content(7, graph)
    found.content(8, Message().content(1, "").integer(2, OPSET))
    for key, value in (("preprocess", dense.preprocess), ("classes", dense.classes)):
        if value is not None:
            found.content(14, Message().content(1, key).content(2, json.dumps(value)))
    return found


def _value_info(port: Port) -> Message:
    dims = Message().content(1, Message().content(2, "batch"))
    for size in port.shape:
        dims.content(1, Message().integer(1, size))
    kind = Message().integer(1, INT64 if port.whole else FLOAT).content(2, dims)
    return Message().content(1, port.name).content(2, Message().content(1, kind))


# Operators.


def _conv(s: Step) -> str:
    inputs = [s.x, s.roles["w"], *([s.roles["b"]] if "b" in s.roles else [])]
    window = {"strides": s.a["stride"], "pads": s.a["pad"], "dilations": s.a["dilation"]}
    return s.w.emit("Conv", inputs, group=s.a["groups"], **window)


def _linear(s: Step) -> str:
    bias = [s.roles["b"]] if "b" in s.roles else []
    if len(s.shape) == 1:
        return s.w.emit("Gemm", [s.x, s.roles["w"], *bias], transB=1)
    out = s.w.emit("MatMul", [s.x, s.w.emit("Transpose", [s.roles["w"]], perm=(1, 0))])
    return s.w.emit("Add", [out, *bias]) if bias else out


def _needed_pad(s: Step, pad: Sequence[int], extents: Sequence[int]) -> tuple[int, int, int, int]:
    """The padding without what no window reaches at the end: runtimes refuse as much as a window."""
    after = [
        max(0, (s.out[1 + i] - 1) * s.a["stride"][i] + extents[i] - s.shape[1 + i] - pad[i]) for i in (0, 1)
    ]
    return pad[0], pad[1], after[0], after[1]


def _max_pool(s: Step) -> str:
    kernel, dilation = s.a["kernel"], s.a["dilation"]
    pad = _needed_pad(s, s.a["pad"], [dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)])
    x = s.x
    if any(size >= kernel[i % 2] for i, size in enumerate(pad)):  # which only dilated windows allow
        x = s.w.emit("Pad", [x, s.w.integers((0, 0, *pad[:2], 0, 0, *pad[2:])), s.w.constant(-np.inf)])
        pad = (0, 0, 0, 0)
    return s.w.emit("MaxPool", [x], kernel_shape=kernel, strides=s.a["stride"], pads=pad, dilations=dilation)


def _average_pool(s: Step) -> str:
    """The mean of whole windows, times the area of a window over what is counted of it."""
    kernel, count = s.a["kernel"], s.a["count"]
    pad = _needed_pad(s, s.a["pad"], kernel)
    window = {"kernel_shape": kernel, "strides": s.a["stride"], "pads": pad}
    out = s.w.emit("AveragePool", [s.x], count_include_pad=1, **window)
    area = math.prod(kernel)
    if isinstance(count, str):
        rows, columns = (_counted(s, axis, count) for axis in (0, 1))
        factor = area / np.outer(rows, columns)
    else:
        factor = np.full((1, 1), area / count)
    if (factor == 1).all():
        return out
    return s.w.emit("Mul", [out, s.w.constant(factor)])


def _counted(s: Step, axis: int, count: str) -> Array:
    """How many elements of each window along an axis count: those of the padded image, or of the image."""
    size, before, after = s.shape[1 + axis], s.a["pad"][axis], s.a["pad"][2 + axis]
    low, high = (-before, size + after) if count == "all" else (0, size)
    first = np.arange(s.out[1 + axis]) * s.a["stride"][axis] - before
    counted: Array = np.minimum(first + s.a["kernel"][axis], high) - np.maximum(first, low)
    return counted


def _adaptive(s: Step) -> str:
    average = s.a["kind"] == "avg"
    name = "Average" if average else "Max"
    if s.a["size"] == (1, 1):
        return s.w.emit(f"Global{name}Pool", [s.x])
    if all(s.shape[1 + i] % s.a["size"][i] == 0 for i in (0, 1)):
        kernel = tuple(s.shape[1 + i] // s.a["size"][i] for i in (0, 1))
        return s.w.emit(f"{name}Pool", [s.x], kernel_shape=kernel, strides=kernel)
    rows, columns = (_bins(s.shape[1 + i], s.a["size"][i]) for i in (0, 1))
    if average:
        left, right = _averaging(rows, s.shape[1]), _averaging(columns, s.shape[2]).T
        return s.w.emit("MatMul", [s.w.emit("MatMul", [s.w.constant(left), s.x]), s.w.constant(right)])
    out = s.x
    for axis, bins in ((2, rows), (3, columns)):
        longest = max(end - begin for begin, end in bins)
        index = [[min(begin + k, end - 1) for k in range(longest)] for begin, end in bins]
        out = s.w.emit("Gather", [out, s.w.constant(index, np.int64)], axis=axis)
        out = s.w.emit("ReduceMax", [out], axes=(axis + 1,), keepdims=0)
    return out


def _upsample(s: Step) -> str:
    """Pixel floor(i / factor): other ways to round are the default."""
    rounding = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = s.w.constant((1, 1, *s.a["factor"]))
    return s.w.emit("Resize", [s.x, "", scales], mode="nearest", **rounding)


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    """Where each of `count` bins begins and ends, as torch has it: they may overlap.

    >>> _bins(5, 2)
    [(0, 3), (2, 5)]
    """
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _averaging(bins: list[tuple[int, int]], size: int) -> Array:
    matrix = np.zeros((len(bins), size), np.float32)
    for row, (begin, end) in enumerate(bins):
        matrix[row, begin:end] = 1 / (end - begin)
    return matrix


def _lrn(s: Step) -> str:
    """x / (k + alpha / size sum of squares)^beta; ONNX has it for images and an odd number of channels."""
    size, alpha, beta, k = s.a["size"], float(s.a["alpha"]), float(s.a["beta"]), float(s.a["k"])
    if len(s.shape) == 3 and size % 2 and alpha > 0 and beta > 0:
        return s.w.emit("LRN", [s.x], size=size, alpha=alpha, beta=beta, bias=k)
    channels = s.shape[0]
    place = np.arange(channels)[None, :] - np.arange(channels)[:, None]
    band = ((place >= -(size // 2)) & (place <= (size - 1) // 2)) * np.float32(alpha / size)
    flat = s.w.emit("Reshape", [s.w.emit("Mul", [s.x, s.x]), s.w.integers((0, channels, -1))])
    summed = s.w.emit("Add", [s.w.emit("MatMul", [s.w.constant(band), flat]), s.w.constant(k)])
    scale = s.w.emit("Reshape", [s.w.emit("Pow", [summed, s.w.constant(beta)]), s.w.integers((0, *s.shape))])
    return s.w.emit("Div", [s.x, scale])


def _layer_norm(s: Step) -> str:
    """(x - mean) / sqrt(variance + eps) * w + b, piece by piece: this operator set has no such operator."""
    axes = tuple(range(len(s.shape) - s.a["last"] + 1, len(s.shape) + 1))
    centered = s.w.emit("Sub", [s.x, s.w.emit("ReduceMean", [s.x], axes=axes, keepdims=1)])
    variance = s.w.emit("ReduceMean", [s.w.emit("Mul", [centered, centered])], axes=axes, keepdims=1)
    deviation = s.w.emit("Sqrt", [s.w.emit("Add", [variance, s.w.constant(float(s.a["eps"]))])])
    out = s.w.emit("Div", [centered, deviation])
    for role, op in (("w", "Mul"), ("b", "Add")):
        out = s.w.emit(op, [out, s.roles[role]]) if role in s.roles else out
    return out


def _binary(s: Step) -> str:
    operands = list(s.inputs)
    if len(operands) == 1:
        operands.append(s.roles["c"] if "c" in s.roles else s.w.constant(s.a["value"]))
    name = {"maximum": "Max", "minimum": "Min"}.get(s.op, s.op.capitalize())
    return s.w.emit(name, operands[::-1] if s.a["swap"] else operands)


def _concat(s: Step) -> str:
    return s.w.emit("Concat", s.inputs, axis=s.a["axis"] + 1)


def _reshape(s: Step) -> str:
    return s.w.emit("Reshape", [s.x, s.w.integers((0, *s.a["shape"]))])  # 0: the batch, as it is


def _permute(s: Step) -> str:
    return s.w.emit("Transpose", [s.x], perm=(0, *(axis + 1 for axis in s.a["axes"])))


def _slice(s: Step) -> str:
    numbers = (s.a["start"], s.a["stop"], s.a["axis"] + 1, s.a["step"])
    return s.w.emit("Slice", [s.x, *(s.w.integers((number,)) for number in numbers)])


def _mean(s: Step) -> str:
    return s.w.emit(
        "ReduceMean", [s.x], axes=tuple(axis + 1 for axis in s.a["axes"]), keepdims=int(s.a["keep"])
    )


def _softmax(s: Step) -> str:
    return s.w.emit("LogSoftmax" if s.a["log"] else "Softmax", [s.x], axis=s.a["axis"] + 1)


def _pad(s: Step) -> str:
    before, after = ([pair[i] for pair in s.a["pad"]] for i in (0, 1))
    return s.w.emit("Pad", [s.x, s.w.integers((0, *before, 0, *after)), s.w.constant(s.a["value"])])


WRITERS: dict[str, Callable[[Step], str]] = {
    "conv": _conv,
    "linear": _linear,
    "maxpool": _max_pool,
    "avgpool": _average_pool,
    "adaptive": _adaptive,
    "upsample": _upsample,
    "lrn": _lrn,
    "layernorm": _layer_norm,
    "act": lambda s: s.x,
    "add": _binary,
    "sub": _binary,
    "mul": _binary,
    "div": _binary,
    "maximum": _binary,
    "minimum": _binary,
    "concat": _concat,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "mean": _mean,
    "softmax": _softmax,
    "pad": _pad,
    "input": lambda s: s.x,  # given, never written
    **MIXING,
}


# Activations.

_PLAIN = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus", "sqrt": "Sqrt"}
_WITH_ALPHA = {"leaky": "LeakyRelu", "elu": "Elu"}


def _activate(w: Writer, x: str, act: Sequence[Any]) -> str:
    if not act:
        return x
    name, *numbers = act
    if name in _PLAIN:
        return w.emit(_PLAIN[name], [x])
    if name in _WITH_ALPHA:
        return w.emit(_WITH_ALPHA[name], [x], alpha=float(numbers[0]))
    if name == "clip":
        low, high = map(w.constant, numbers)
        if numbers[0] <= numbers[1]:
            return w.emit("Clip", [x, low, high])
        return w.emit("Min", [w.emit("Max", [x, low]), high])  # ONNX does not say what Clip makes of these
    if name == "silu":
        return w.emit("Mul", [x, w.emit("Sigmoid", [x])])
    if name == "mish":
        return w.emit("Mul", [x, w.emit("Tanh", [w.emit("Softplus", [x])])])
    if name == "hardsigmoid":
        return w.emit("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    if name == "hardswish":
        return w.emit("Mul", [x, w.emit("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
    return _gelu(w, x, name)


def _gelu(w: Writer, x: str, name: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2, or with tanh(sqrt(2 / pi) (x + 0.044715 x^3))."""
    if name == "gelu":
        inner = w.emit("Erf", [w.emit("Mul", [x, w.constant(math.sqrt(0.5))])])
    else:
        cube = w.emit("Mul", [w.emit("Mul", [x, x]), w.emit("Mul", [x, w.constant(0.044715)])])
        inner = w.emit(
            "Tanh", [w.emit("Mul", [w.emit("Add", [x, cube]), w.constant(math.sqrt(2 / math.pi))])]
        )
    half = w.emit("Mul", [x, w.constant(0.5)])
    return w.emit("Mul", [half, w.emit("Add", [inner, w.constant(1.0)])])
