"""A network as a file that an app opens as it runs: the plan and the arrays that `export --cpp` compiles in.

src/kernels/app_file.cpp reads it. Whole numbers have 7 bits in each byte, the lowest first, and a bit that says whether
another byte follows; texts and arrays begin with how many bytes they have. Arrays begin at multiples of 8: they are
computed on where they lie.
"""

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError, check_path_like
from membound.export.cpp_interface import FILE_FORMAT, describe_interface
from membound.export.cpp_source import prepared_sizes
from membound.run.common import preprocess_of
from membound.run.files import find_model_file
from membound.run.net import Net, chosen_engine
from membound.run.plan import Planned, flat, plan
from membound.signatures import known_keywords
from membound.store.file import read
from membound.store.formats import Encoded
from membound.store.model import StoredModel
from membound.store.palette import STEPPED, Palette
from membound.store.whole import write_whole

MAGIC = b"MBAPPNET"
TABLES = ("f32", "f16", "i8", "linear")  # how floats are written: the last two times a step


@known_keywords
def export_cpp_file(
    net: Net | str | os.PathLike[str], path: str | os.PathLike[str], *, engine: str | None = None
) -> int:
    """Write a network as a file that an app opens at run time, with `net_open_file`; how many bytes it has.

    The app is one that `export_cpp` wrote, by a version of membound with the same file format, of a network that takes
    and gives the same: shapes, the size of images, and classes. Layers and weights may differ. Its outputs are those of
    `net(x)`, bit for bit on the same kind of CPU. `engine` is how it computes there, "float" or "int8", whatever the
    engine of the app: by default as `net` does.
    """
    check_path_like(path, "path")
    if isinstance(net, Net):
        model, engine = net.model, chosen_engine(engine, net.engine)
    else:
        check_path_like(net, "net")
        source = find_model_file(Path(net))
        if Path(path).exists() and Path(path).samefile(source):
            raise ModelError(f"{path} is the model file itself: choose another name", about="path")
        model, engine = read(source), chosen_engine(engine)
        Net(model, threads=1)  # what cannot be run is refused here, not on a phone
    content = file_bytes(model, engine)
    write_whole(Path(path), [content])
    return len(content)


def file_bytes(model: StoredModel, engine: str = "float") -> bytes:
    """All of the file."""
    plans, body = plan(model, engine), _Body()
    body.number(FILE_FORMAT)
    body.text(engine)
    body.text(model.id)
    body.text(describe_interface(model))
    _add_preparation(body, model)
    body.sizes(model.shapes[0])
    body.sizes(model.graph.given)
    body.number(len(plans))
    for each in plans:
        _add_plan(body, each)
    content = bytes(body.written)
    return MAGIC + struct.pack("<2Q", len(MAGIC) + 16 + len(content), zlib.crc32(content)) + content


def _add_preparation(body: "_Body", model: StoredModel) -> None:
    how = preprocess_of(model)
    body.number(how is not None)
    if how is not None:
        body.reals([*prepared_sizes(how, model.shapes[0]), how.scale])
        body.floats(how.mean if how.mean_image is None else how.mean_image)
        body.floats(how.std)


def _add_plan(body: "_Body", plan: Planned) -> None:
    body.text(plan.op)
    body.sizes(plan.inputs)
    body.number(len(plan.input_shapes))
    for shape in [*plan.input_shapes, plan.output_shape]:
        body.sizes(shape)
    body.number(len(plan.numbers))
    for key, value in plan.numbers.items():
        body.text(key)
        body.reals(flat(value))
    name, *numbers = plan.act
    body.text(name)
    body.reals([*numbers, 0.0, 0.0][:2])
    body.number(len(plan.tables))
    for role, table in plan.tables.items():
        body.text(role)
        body.floats(table)
    body.number(plan.weight is not None)
    if plan.weight is not None:
        _add_weight(body, plan.weight)


def _add_weight(body: "_Body", weight: Encoded) -> None:
    arrays = [*weight.arrays, None, None][:2]
    body.text(weight.format)
    body.text(weight.type_name)
    for size in weight.matrix[:3]:
        body.number(size)
    for array in arrays:
        body.number(0 if array is None else array.itemsize)
    body.number(weight.parameter)
    body.number(weight.arrays[0].nbytes if weight.format == "rice" else 0)
    if weight.palette is not None:
        body.palette(weight.palette)
    body.floats(weight.scales)
    for array in (weight.values, *arrays):
        body.array(array)


class _Body:
    """What has been written so far; arrays must know where they begin."""

    def __init__(self) -> None:
        self.written = bytearray()

    def number(self, number: int) -> None:
        """
        >>> body = _Body()
        >>> body.number(300)
        >>> list(body.written)
        [172, 2]
        """
        while number > 127:
            self.written.append(128 | number & 127)
            number >>= 7
        self.written.append(number)

    def text(self, text: str) -> None:
        content = text.encode()
        self.number(len(content))
        self.written += content

    def sizes(self, sizes: Iterable[int]) -> None:
        found = list(sizes)
        self.number(len(found))
        for size in found:
            self.number(size)

    def reals(self, numbers: Iterable[float]) -> None:
        """Most are whole: those are written as twice the number, others behind a 1."""
        found = list(numbers)
        self.number(len(found))
        for real in found:
            if 0 <= real < 2**53 and real == int(real):
                self.number(2 * int(real))
            else:
                self.number(1)
                self.written += struct.pack("<d", real)

    def floats(self, numbers: Any) -> None:
        """In 16 bits where that is exact."""
        floats = np.asarray([] if numbers is None else numbers, "<f4").ravel()
        with np.errstate(over="ignore"):
            halves = floats.astype("<f2")
        exact = np.array_equal(halves.astype(np.float32), floats)
        self._table("f16" if exact else "f32", halves if exact else floats)

    def palette(self, palette: Palette) -> None:
        if palette.kind in STEPPED:
            self._table(palette.kind, palette.table)
            self.written += struct.pack("<f", palette.step)
        else:
            self.floats(palette.entries)

    def array(self, array: Any) -> None:
        content = b"" if array is None else np.ascontiguousarray(array).tobytes()
        self.number(len(content))
        if content:
            self.written += bytes(-len(self.written) % 8) + content

    def _table(self, kind: str, table: npt.NDArray[Any]) -> None:
        self.number(table.size)
        self.number(TABLES.index(kind))
        if kind != "linear":  # whose numbers follow from how many they are
            self.written += np.ascontiguousarray(table).tobytes()
