"""A layer in one array of bytes: its weight, in any layout and type of values, with scales of rows, and its bias.

Each array of a file takes some 70 bytes of header, and a weight of few bits would have up to six. Here they follow each
other as sections behind a prefix that says what they are; docs/FORMAT.md has the order. Reading one gives the tensors
that arrays of their own would give, as views onto the sections.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.formats import Encoded, matrix_shape
from membound.store.graph import Shape
from membound.store.layouts import DENSE, LAYOUTS, MOST_LOW_BITS, Layout, Matrix
from membound.store.palette import KINDS, STEPPED, Palette, linear
from membound.store.rules import COMPACT, MAX_AXES, MAX_ELEMENTS, is_shape, refuse, show
from membound.store.short import CODE, STEP, as_short, expand
from membound.store.values import F16, F32, VALUE_TYPES, ValueType

Array = npt.NDArray[Any]
ALIGNMENT = 4  # of a packed array, and of its length: that of the widest section
SCALES, WIDE_SCALES, BIAS, WIDE_BIAS, ORIGINAL, OWN_NAME, SHORT_SCALES, SHORT_BIAS = (
    1 << bit for bit in range(8)
)

LAYOUT_CODES = {each.code: each for each in LAYOUTS.values()}
TYPE_CODES = {each.bits: each for each in VALUE_TYPES.values()}
PALETTE_CODES = dict(enumerate(("", *KINDS)))  # 0 is none


@dataclass(frozen=True, eq=False)
class Layer:
    """What one array holds; `original` is the weight's original shape, where it had another.

    The array has the name of the layer, NAME, and the tensors are NAME.weight and NAME.bias; or, by its `own_name`, the
    one tensor NAME.
    """

    weight: Encoded
    bias: Encoded | None = None
    original: Shape | None = None
    own_name: bool = False

    def tensors(self, name: str) -> dict[str, Encoded]:
        """The tensors of the array of this name."""
        if self.own_name:
            return {name: self.weight}
        bias = {} if self.bias is None else {f"{name}.bias": self.bias}
        return {f"{name}.weight": self.weight, **bias}


@dataclass(frozen=True)
class Prefix:
    """What an array starts with, from which all its sections follow."""

    layout: Layout
    kind: ValueType
    palette: str  # its kind; "" if there is none
    flags: int
    shape: Shape
    original: Shape | None
    count: int
    entries: int  # of the palette's table
    parameter: int
    lengths: tuple[int, ...]  # of the layout's arrays that do not follow from the rest

    @property
    def matrix(self) -> Matrix:
        return Matrix(*matrix_shape(self.shape), self.count, self.parameter)

    def sections(self) -> Iterator[tuple[np.dtype[Any], int]]:
        """The type and length of each: step, table, scales (step, numbers), bias (step, numbers), values, arrays of
        the layout."""
        matrix, lengths = self.matrix, iter(self.lengths)
        yield F32.dtype, int(self.palette in STEPPED)
        yield KINDS.get(self.palette, KINDS["i8"]), self.entries
        yield STEP, int(bool(self.flags & SHORT_SCALES))
        yield self._type(WIDE_SCALES, SHORT_SCALES), matrix.rows if self.flags & SCALES else 0
        yield STEP, int(bool(self.flags & SHORT_BIAS))
        yield self._type(WIDE_BIAS, SHORT_BIAS), self.shape[0] if self.flags & BIAS else 0
        size = self.kind.nbytes(self.count)
        yield self.kind.dtype, size // self.kind.dtype.itemsize
        for index in self.layout.arrays:
            length = int(index.length(matrix))
            yield index.dtype(matrix), next(lengths) if length < 0 else length

    def _type(self, wide: int, short: int) -> np.dtype[Any]:
        """Of scales or biases, by their flags."""
        return CODE if self.flags & short else F32.dtype if self.flags & wide else F16.dtype


def pack_layer(layer: Layer, shorten: bool = False) -> npt.NDArray[np.uint8]:
    """The array of a layer; with `shorten`, scales and biases that are what 8 bits can hold take 8 bits."""
    weight, palette, scales, bias = layer.weight, layer.weight.palette, layer.weight.scales, layer.bias
    table = None if palette is None or palette.kind == "linear" else palette.table
    chosen = LAYOUTS[weight.format]
    flags = (ORIGINAL if layer.original is not None else 0) | (OWN_NAME if layer.own_name else 0)
    numbers: list[Array | None] = []
    beside = (scales, SCALES, WIDE_SCALES, SHORT_SCALES), (
        None if bias is None else bias.values, BIAS, WIDE_BIAS, SHORT_BIAS,
    )  # fmt: skip
    for array, there, wide, shorter in beside:
        short = as_short(array) if array is not None and shorten else None
        if array is not None:
            flags |= there | (shorter if short else wide if array.itemsize == 4 else 0)
        numbers += short or (None, array)
    open_ended = [index.length(weight.matrix) < 0 for index in chosen.arrays]
    prefix = Prefix(
        chosen,
        weight.value_type,
        "" if palette is None else palette.kind,
        flags,
        weight.shape,
        layer.original,
        weight.count,
        0 if table is None else len(table),
        weight.parameter,
        tuple(len(array) for array, said in zip(weight.arrays, open_ended, strict=True) if said),
    )
    empty = np.zeros(0, np.uint8)
    step = np.full(1, palette.step, F32.dtype) if palette is not None and palette.kind in STEPPED else empty
    parts = [step, table, *numbers, weight.values, *weight.arrays]
    arrays = [empty if part is None else part for part in parts]
    for (dtype, length), array in zip(prefix.sections(), arrays, strict=True):
        assert len(array) == length
        assert array.dtype == dtype or not length
    return np.frombuffer(join_sections(format_prefix(prefix), arrays), np.uint8)


def join_sections(prefix: bytes, sections: Iterable[Array]) -> bytes:
    """The sections behind a prefix, aligned."""
    out = bytearray(prefix)
    for section in sections:
        if len(section):
            out += bytes(-len(out) % section.itemsize) + section.tobytes()
    return bytes(out + bytes(-len(out) % ALIGNMENT))


def format_prefix(prefix: Prefix) -> bytes:
    palette = next(code for code, name in PALETTE_CODES.items() if name == prefix.palette)
    out = bytearray([prefix.layout.code, prefix.kind.bits, palette, prefix.flags, len(prefix.shape)])
    numbers = [*prefix.shape, *(prefix.original or ())]
    if prefix.layout is not DENSE:
        numbers.append(prefix.count)
    if prefix.palette not in ("", "linear"):
        numbers.append(prefix.entries)
    if prefix.layout.packed:
        numbers += [prefix.parameter, *prefix.lengths]
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


class _Reader:
    """Goes through the bytes of a prefix."""

    def __init__(self, what: str, content: bytes) -> None:
        self.what, self.content, self.at = what, content, 0

    def byte(self) -> int:
        if self.at >= len(self.content):  # rule 41
            refuse(41, f"{self.what} ends within its prefix")
        self.at += 1
        return self.content[self.at - 1]

    def number(self) -> int:
        """A whole number, seven bits a byte, the lowest first; all bytes but the last have their top bit set."""
        found = place = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << place
            place += 7
            if byte < 128:
                break
            if place > 28:  # rule 41
                refuse(41, f"{self.what} has a number of more than five bytes in its prefix")
        if found > MAX_ELEMENTS or (byte == 0 and place > 7):  # rule 41
            refuse(41, f"{self.what} has the number {found} in its prefix: too large, or in too many bytes")
        return found


_PREFIX = 5 + 5 * (2 * MAX_AXES + 5)  # bytes that one has at most


def unpack_layer(name: str, array: Array, may_be_short: bool = False) -> Layer:
    """The layer in this array, as views onto it but for numbers of 8 bits, which must be allowed; what sections contain
    is not checked yet."""
    prefix, sections = take_apart(name, array)
    if prefix.flags & (SHORT_SCALES | SHORT_BIAS) and not may_be_short:  # rule 42
        refuse(42, f"packed layer {show(name)} has scales or biases of 8 bits, which version {COMPACT} has")
    step, table, *beside, values = sections[:7]
    arrays = sections[7:]
    scales = _numbers(name, *beside[:2])
    bias = _numbers(name, *beside[2:])
    palette = None
    if prefix.palette == "linear":
        palette = linear(prefix.kind.bits, float(step[0]))
    elif prefix.palette:
        palette = Palette(prefix.palette, table, float(step[0]) if len(step) else 1.0)
    weight = Encoded(
        prefix.shape,
        prefix.layout.name,
        values,
        tuple(arrays),
        prefix.kind.name,
        prefix.count,
        palette,
        scales if prefix.flags & SCALES else None,
        prefix.parameter,
    )
    said = Encoded(prefix.shape[:1], DENSE.name, bias) if prefix.flags & BIAS else None
    return Layer(weight, said, prefix.original, bool(prefix.flags & OWN_NAME))


def _numbers(name: str, step: Array, stored: Array) -> Array:
    """Scales or biases: as they are stored, or of 8 bits."""
    if not len(step):
        return stored
    if not 0 < step[0] < 0x7F80 or (stored == -128).any():  # rule 54
        refuse(
            54,
            f"packed layer {show(name)} has numbers of 8 bits with a step that is not above 0, or with -128",
        )
    return expand(step, stored)


def first_layer(name: str, array: Array) -> Array:
    """The part of these bytes that the layer at their beginning takes."""
    what = f"packed layer {show(name)}"
    reader = _Reader(what, array[:_PREFIX].tobytes())
    prefix = _read_prefix(what, reader)
    end = reader.at
    for dtype, length in prefix.sections():
        end += (-end % dtype.itemsize if length else 0) + length * dtype.itemsize
    end += -end % ALIGNMENT
    if end > len(array):  # rule 53
        refuse(53, f"{what} takes {end} bytes, and {len(array)} are left: cut short, or damaged")
    return array[:end]


def take_apart(name: str, array: Array) -> tuple[Prefix, list[Array]]:
    """The prefix of this array, and its sections."""
    what = f"packed layer {show(name)}"
    if (
        array.__array_interface__["data"][0] % ALIGNMENT or len(array) % ALIGNMENT or not len(array)
    ):  # rule 40
        refuse(40, f"{what} of {len(array)} bytes does not begin and end at multiples of {ALIGNMENT}")
    reader = _Reader(what, array[:_PREFIX].tobytes())
    prefix = _read_prefix(what, reader)
    return prefix, _split(what, array, reader.at, prefix)


def _read_prefix(what: str, reader: _Reader) -> Prefix:
    layout_code, type_code, palette_code, flags = (reader.byte() for _ in range(4))
    layout, kind = LAYOUT_CODES.get(layout_code), TYPE_CODES.get(type_code)
    palette = PALETTE_CODES.get(palette_code)
    if layout is None or kind is None or palette is None:  # rule 42
        refuse(
            42,
            f"{what} has the codes {layout_code}, {type_code}, {palette_code}: "
            "no such layout, type of values or palette",
        )
    coded, scaled, biased = kind.coded, bool(flags & SCALES), bool(flags & BIAS)
    if (
        coded != bool(palette)
        or (scaled and not coded)
        or (flags & WIDE_SCALES and not scaled)
        or (flags & WIDE_BIAS and not biased)
        or (flags & SHORT_SCALES and (not scaled or flags & WIDE_SCALES))
        or (flags & SHORT_BIAS and (not biased or flags & WIDE_BIAS))
        or (flags & OWN_NAME and biased)
    ):  # rule 42
        refuse(42, f"{what} has a type of values, a palette and flags ({flags}) that do not go together")
    axes = reader.byte()
    if biased and not axes:  # rule 42
        refuse(42, f"{what} has a bias for a weight without axes")
    shape, original = _read_shape(what, reader, axes), None
    if flags & ORIGINAL:
        original = _read_shape(what, reader, axes)
        if original == shape:  # rule 43
            refuse(43, f"{what} has its own shape {show(shape)} as the original one")
    size = math.prod(shape)
    count = size if layout is DENSE else reader.number()
    entries = reader.number() if palette not in ("", "linear") else 0
    parameter = reader.number() if layout.packed else 0
    lengths = (reader.number(),) if layout.packed else ()
    if (
        count > size or entries > kind.levels or parameter > MOST_LOW_BITS or (parameter and not count)
    ):  # rule 44
        refuse(
            44,
            f"{what} of {size} elements has {count} values, {entries} entries in its palette "
            f"and the parameter {parameter}: up to {size}, {kind.levels} and {MOST_LOW_BITS} are allowed",
        )
    return Prefix(layout, kind, palette, flags, shape, original, count, entries, parameter, lengths)


def _read_shape(what: str, reader: _Reader, axes: int) -> Shape:
    if axes > MAX_AXES:  # rule 43
        refuse(43, f"{what} has {axes} axes: up to {MAX_AXES} are allowed")
    shape = tuple(reader.number() for _ in range(axes))
    if not is_shape(shape):  # rule 43
        refuse(
            43, f"{what} has the shape {show(shape)}: sizes from 1 up, at most 2^31 - 1 elements, are allowed"
        )
    return shape


def _split(what: str, array: Array, at: int, prefix: Prefix) -> list[Array]:
    """The sections, which fill the array but for what aligns them."""
    found, gaps = [], bytearray()
    for dtype, length in prefix.sections():
        begin = at + (-at % dtype.itemsize if length else 0)
        end = begin + length * dtype.itemsize
        if end > len(array):  # rule 45
            refuse(45, f"{what} of {len(array)} bytes has a section that ends at byte {end}")
        if begin > at:
            gaps += array[at:begin].tobytes()
        found.append(array[begin:end].view(dtype) if length else np.zeros(0, dtype))
        at = end
    behind = len(array) - at
    if behind >= ALIGNMENT or any(gaps + array[at:].tobytes()):  # rule 45
        refuse(45, f"{what} has bytes that are not 0 between its sections, or {behind} bytes behind them")
    return found
