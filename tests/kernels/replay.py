"""Dumps networks, inputs and what a reference makes of them, for the C++ driver test_replay."""

import struct
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from architectures import ARCHITECTURES, build
from nets import FORMATS, RELU6, VALUES, chain, conv, expected, normal, stored, thin

from membound import zoo
from membound.capture import capture
from membound.run import Net
from membound.run.plan import Planned, flat, plan
from membound.store.model import StoredModel

Case = tuple[str, StoredModel, np.ndarray, np.ndarray, float, str]
THIN = ("1", "0.5", "0.1", "rows")  # how much is left of the weights


def architectures(share: int = 1) -> Iterator[Case]:
    """One of `share` of them; each in another format, type of values and density than the one before it."""
    for number, name in enumerate(["lenet", "cifar10_quick", *ARCHITECTURES][::share]):
        if name in ARCHITECTURES:
            module, shape = build(name)
        else:
            module = zoo.build(name).eval()
            shape = module.input_shape
        model = thin(capture(module, torch.zeros(1, *shape)), THIN[number % len(THIN)])
        network = stored(model, FORMATS[number % len(FORMATS)], VALUES[number % len(VALUES)])
        x = normal(number, 3, *shape)
        yield name, network, x, expected(network, x), 1e-4, "float"
        integers = Net(network, isa="scalar", engine="int8", threads=1)  # which tests/run/test_int8.py checks
        yield f"{name}, int8", network, x, integers(x), 1e-4, "int8"


def mobile_blocks() -> Iterator[Case]:
    """Blocks whose images stay bytes in the engine int8, by every depthwise kernel and of sizes that leave rests."""
    for number, (kernel, stride, side) in enumerate(product((3, 5, 7), (1, 2), (7, 14, 37))):
        wide = 6 + number
        pad = (kernel // 2, 0, kernel - 1, 1)
        layers = [
            conv(wide, 5, act=RELU6),
            conv(wide, wide, kernel, stride, pad, wide, RELU6),
            conv(9, wide, 3, 1, (1, 1, 1, 1)),
        ]
        network, x = chain((5, side, side + 1), layers, number), normal(number, 2, 5, side, side + 1)
        integers = Net(network, isa="scalar", engine="int8", threads=1)
        yield f"block {number}, int8", network, x, integers(x), 1e-6, "int8"


def large_images() -> Iterator[Case]:
    """Sparse convolutions of images that are laid out tile by tile, or whose channels are summed block by block."""
    for number, (channels, side, kernel, groups) in enumerate(
        ((64, 40, 3, 1), (96, 27, 5, 2), (40, 44, 7, 1))
    ):
        network = chain(
            (channels, side, side), [conv(32, channels, kernel, 1, (kernel // 2,) * 4, groups)], number, "0.1"
        )
        x = normal(number, 2, channels, side, side)
        yield f"large image {number}", network, x, expected(network, x), 1e-5, "float"
        integers = Net(network, isa="scalar", engine="int8", threads=1)
        yield f"large image {number}, int8", network, x, integers(x), 1e-6, "int8"


def dump(path: Path, cases: Iterable[Case]) -> int:
    """Networks with their names, inputs, expected outputs, and how far they may be off, of the largest output.

    How many there are comes back.
    """
    count = 0
    with open(path, "wb") as file:
        for name, model, x, wanted, tolerance, engine in cases:
            file.write(_text(name) + _sizes(model.shapes[0]))
            file.write(struct.pack("<qqd", model.graph.output, len(x), tolerance))
            plans = plan(model, engine)
            file.write(struct.pack("<q", len(plans)) + b"".join(map(_plan, plans)))
            file.write(_array(x.astype(np.float32)) + _array(np.asarray(wanted, np.float64)))
            count += 1
    return count


def _plan(plan: Planned) -> bytes:
    parts = [_text(plan.op), _sizes(plan.inputs), struct.pack("<q", len(plan.input_shapes))]
    parts += [*map(_sizes, plan.input_shapes), _sizes(plan.output_shape)]
    parts.append(struct.pack("<q", len(plan.numbers)))
    parts += [_text(key) + _array(np.array(flat(value))) for key, value in plan.numbers.items()]
    name, *numbers = plan.act
    parts += [_text(name), _array(np.array(numbers, np.float64)), struct.pack("<q", len(plan.tables))]
    parts += [_text(role) + _array(table) for role, table in plan.tables.items()]
    parts.append(struct.pack("<q", plan.weight is not None))
    if plan.weight is not None:
        weight = plan.weight
        arrays = [*weight.arrays, None, None][:2]
        widths = [0 if array is None else array.itemsize for array in arrays]
        parts += [_text(weight.format), _text(weight.value_type.name)]
        parts.append(struct.pack("<5q", *weight.matrix[:3], *widths))
        high_bytes = weight.arrays[0].nbytes if weight.format == "rice" else 0
        parts.append(struct.pack("<2q", weight.parameter, high_bytes))
        palette = None if weight.palette is None else weight.palette.entries
        if palette is not None and not len(palette):  # of a weight without nonzeros
            palette = np.zeros(1, np.float32)
        scales = None if weight.scales is None else weight.scales.astype(np.float32)
        parts += [_array(array) for array in (palette, scales, weight.values, *arrays)]
    return b"".join(parts)


def _text(text: str) -> bytes:
    return struct.pack("<q", len(text.encode())) + text.encode()


def _sizes(sizes: Iterable[int]) -> bytes:
    found = list(sizes)
    return struct.pack(f"<q{len(found)}q", len(found), *found)


def _array(array: Any) -> bytes:
    content = b"" if array is None else np.ascontiguousarray(array).tobytes()
    return struct.pack("<q", len(content)) + content
