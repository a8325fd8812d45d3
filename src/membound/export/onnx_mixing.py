"""Products of two values, gathering, resizing and constants as ONNX has them."""

from collections.abc import Callable

import numpy as np

from membound.export.onnx_steps import Step
from membound.export.onnx_tensors import INT64
from membound.store.resampling import taps


def _matmul(s: Step) -> str:
    left, right = s.inputs
    if s.a["scale"] != 1:
        left = s.w.emit("Mul", [left, s.w.constant(s.a["scale"])])
    if s.a["transpose"]:
        axes = list(range(len(s.shape) + 1))
        right = s.w.emit("Transpose", [right], perm=(*axes[:-2], axes[-1], axes[-2]))
    return s.w.emit("MatMul", [left, right])


def _max(s: Step) -> str:
    axes = tuple(axis + 1 for axis in s.a["axes"])
    return s.w.emit("ReduceMax", [s.x], axes=axes, keepdims=int(s.a["keep"]))


def _gather(s: Step) -> str:
    return s.w.emit("Gather", [s.x, s.w.integers(s.a["indices"])], axis=s.a["axis"] + 1)


def _resize(s: Step) -> str:
    """Two gathers or two small products, which say exactly which pixels are meant; ONNX's Resize rounds otherwise."""
    out = s.x
    for axis in (0, 1):
        scale = None if s.a["scale"] is None else s.a["scale"][axis]
        places, weights = taps(s.shape[1 + axis], s.a["size"][axis], s.a["kind"], s.a["corners"], scale)
        if len(places) == 1:
            out = s.w.emit("Gather", [out, s.w.integers(places[0].tolist())], axis=2 + axis)
            continue
        matrix = np.zeros((s.a["size"][axis], s.shape[1 + axis]))
        for at, share in zip(places, weights, strict=True):
            matrix[np.arange(len(at)), at] += share
        out = s.w.emit("MatMul", [s.w.constant(matrix), out] if axis == 0 else [out, s.w.constant(matrix.T)])
    return out


def _constant(s: Step) -> str:
    """Repeated for every image: times ones of the batch's size."""
    batch = s.w.emit("Slice", [s.w.emit("Shape", [s.w.taken[0]]), s.w.integers((0,)), s.w.integers((1,))])
    shape = s.w.emit("Concat", [batch, s.w.integers(s.out)], axis=0) if s.out else batch
    return s.w.emit("Expand", [s.roles["c"], shape])


def _embedding(s: Step) -> str:
    return s.w.emit("Gather", [s.roles["w"], s.w.emit("Cast", [s.x], to=INT64)], axis=0)


MIXING: dict[str, Callable[[Step], str]] = {
    "matmul": _matmul,
    "max": _max,
    "gather": _gather,
    "resize": _resize,
    "constant": _constant,
    "embedding": _embedding,
}
