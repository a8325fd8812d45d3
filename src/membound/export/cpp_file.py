"""A network as a file that an app opens as it runs: the plan and the arrays that `export --cpp` compiles in.

src/kernels/app_file.cpp reads it. Numbers are 64 bits wide, little-endian; texts and arrays begin with how many bytes
they have, and are filled up to multiples of 8.
"""

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from membound.errors import ModelError, check_path_like
from membound.export.cpp_source import describe_interface, prepared_sizes
from membound.machine import own_version
from membound.run.common import preprocess_of
from membound.run.files import find_model_file
from membound.run.net import Net
from membound.run.plan import Planned, flat, plan
from membound.store.file import read
from membound.store.formats import Encoded
from membound.store.model import StoredModel
from membound.store.whole import write_whole

MAGIC = b"MBAPPNET"


def export_cpp_file(net: Net | str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write a network as a file that an app opens at run time, with `net_open_file`; how many bytes it has.

    The app is one that `export_cpp` wrote, with the same version of membound, of a network that takes and gives the
    same: shapes, the size of images, and classes. Layers and weights may be any. Its outputs are those of `net(x)`, bit
    for bit on the same kind of CPU.
    """
    check_path_like(path, "path")
    if isinstance(net, Net):
        model = net.model
    else:
        check_path_like(net, "net")
        source = find_model_file(Path(net))
        if Path(path).exists() and Path(path).samefile(source):
            raise ModelError(f"{path} is the model file itself: choose another name", about="path")
        model = read(source)
        Net(model, threads=1)  # what cannot be run is refused here, not on a phone
    content = file_bytes(model)
    write_whole(Path(path), [content])
    return len(content)


def file_bytes(model: StoredModel) -> bytes:
    """All of the file."""
    plans = plan(model)
    content = b"".join(
        [
            _text(own_version()),
            _text(describe_interface(model)),
            _preparation(model),
            _sizes(model.shapes[0]),
            _sizes(model.graph.given),
            _number(len(plans)),
            *map(_plan, plans),
        ]
    )
    head = MAGIC + _number(len(MAGIC) + 16 + len(content)) + _number(zlib.crc32(content))
    return head + content


def _preparation(model: StoredModel) -> bytes:
    how = preprocess_of(model)
    if how is None:
        return _number(0)
    sizes = prepared_sizes(how, model.shapes[0])
    mean = how.mean if how.mean_image is None else how.mean_image
    return _number(1) + _reals([*sizes, how.scale]) + _floats(mean) + _floats(how.std)


def _plan(plan: Planned) -> bytes:
    name, *numbers = plan.act
    parts = [_text(plan.op), _sizes(plan.inputs), _number(len(plan.input_shapes))]
    parts += [*map(_sizes, plan.input_shapes), _sizes(plan.output_shape), _number(len(plan.numbers))]
    parts += [_text(key) + _reals(flat(value)) for key, value in plan.numbers.items()]
    parts += [_text(name), struct.pack("<2d", *[*numbers, 0.0, 0.0][:2]), _number(len(plan.tables))]
    parts += [_text(role) + _floats(table) for role, table in plan.tables.items()]
    parts.append(_number(0) if plan.weight is None else _number(1) + _weight(plan.weight))
    return b"".join(parts)


def _weight(weight: Encoded) -> bytes:
    arrays = [*weight.arrays, None, None][:2]
    widths = [0 if array is None else array.itemsize for array in arrays]
    high_bytes = weight.arrays[0].nbytes if weight.format == "rice" else 0
    numbers = [*weight.matrix[:3], *widths, weight.parameter, high_bytes, weight.scales is not None]
    parts = [_text(weight.format), _text(weight.type_name), *map(_number, numbers)]
    if weight.palette is not None:  # an entry for every code that there can be
        entries = weight.palette.entries
        parts.append(_floats(np.pad(entries, (0, weight.value_type.levels - len(entries)))))
    if weight.scales is not None:
        parts.append(_floats(weight.scales))
    return b"".join([*parts, *(_array(array) for array in (weight.values, *arrays))])


def _number(number: int) -> bytes:
    return struct.pack("<Q", number)


def _sizes(sizes: Iterable[int]) -> bytes:
    found = list(sizes)
    return struct.pack(f"<{len(found) + 1}Q", len(found), *found)


def _reals(numbers: Iterable[float]) -> bytes:
    found = list(numbers)
    return struct.pack(f"<Q{len(found)}d", len(found), *found)


def _text(text: str) -> bytes:
    return _filled(text.encode())


def _floats(numbers: Any) -> bytes:
    return _array(None if numbers is None else np.asarray(numbers, "<f4"))


def _array(array: Any) -> bytes:
    return _filled(b"" if array is None else np.ascontiguousarray(array).tobytes())


def _filled(content: bytes) -> bytes:
    return _number(len(content)) + content + bytes(-len(content) % 8)
