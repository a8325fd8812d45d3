"""Tensors and attributes as messages of ONNX."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.export.protobuf import Message, packed_varints
from membound.store.formats import Encoded, decode, scale_rows
from membound.store.palette import STEPPED

FLOAT, INT8, INT64 = 1, 3, 7
_TYPES = {np.dtype(np.float32): FLOAT, np.dtype(np.int8): INT8, np.dtype(np.int64): INT64}

Array = npt.NDArray[Any]


def tensor(name: str, array: Array) -> Message:
    found = Message()
    for size in array.shape:
        found.integer(1, size)
    flat = np.ascontiguousarray(array).reshape(-1)
    found.integer(2, _TYPES[flat.dtype]).content(8, name)
    return found.content(9, flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data)


def whole_steps(stored: Encoded, array: Array) -> tuple[Array, Array] | None:
    """A weight as int8 and a step for each row, if their product in float32 is what the runtime computes with."""
    if stored.palette is None or stored.palette.kind not in STEPPED:
        return None
    rows = np.ones(array.shape[0], np.float32) if stored.scales is None else stored.scales.astype(np.float32)
    whole = decode(replace(stored, palette=replace(stored.palette, step=1.0), scales=None))
    steps = rows * np.float32(stored.palette.step)
    if not np.array_equal(scale_rows(whole, steps), array):
        return None
    return whole.astype(np.int8), steps


def sparse_tensor(name: str, array: Array) -> Message:
    """The nonzeros and their places in the flattened array, ascending, which ONNX wants as int64."""
    flat = np.ascontiguousarray(array).reshape(-1)
    places = np.flatnonzero(flat).astype(np.int64)
    indices = Message().integer(1, len(places)).integer(2, INT64).content(7, packed_varints(places))
    found = Message().content(1, tensor(name, flat[places])).content(2, indices)
    for size in array.shape:
        found.integer(3, size)
    return found


def attribute(name: str, value: Any) -> Message:
    found = Message().content(1, name)
    if isinstance(value, float):
        return found.number(2, value).integer(20, 1)
    if isinstance(value, int):
        return found.integer(3, int(value)).integer(20, 2)
    if isinstance(value, str):
        return found.content(4, value).integer(20, 3)
    for item in value:
        found.integer(8, item)
    return found.integer(20, 7)
