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
    """ONNX's Resize for linear; else two gathers or small products, which say exactly which pixels are meant.

    Which pixel is nearest depends on how positions are rounded, which ONNX leaves to whoever runs it. And ONNX Runtime
    takes a hundred times as long for a cubic Resize as for the products.
    """
    scales = _scales(s)
    if s.a["kind"] == "linear" and scales is not None:
        place = "align_corners" if s.a["corners"] else "half_pixel"
        given = [s.x, "", s.w.constant((1, 1, *scales))]
        return s.w.emit("Resize", given, mode="linear", coordinate_transformation_mode=place)
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


def _scales(s: Step) -> list[np.float32] | None:
    """The factors of rows and columns in float32, of which ONNX computes the sizes; None if these would be others.

    Sizes instead of factors would say how large the batch is.
    """
    found = []
    for axis in (0, 1):
        size, out = s.shape[1 + axis], s.a["size"][axis]
        factor = np.float32(out / size if s.a["scale"] is None else s.a["scale"][axis])
        if s.a["scale"] is None and float(factor) * size < out:  # rounded down to one pixel less
            factor = np.nextafter(factor, np.float32(np.inf))
        if {int(float(factor) * size), int(factor * np.float32(size))} != {out}:
            return None
        if factor != 1 and size == out:  # ONNX would resample what torch leaves as it is
            return None
        found.append(factor)
    return found


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
