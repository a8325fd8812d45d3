"""A stored network as C++: its plan as code, its weights as constants in the formats of the file, its header in C."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data import Preprocess
from membound.errors import ModelError, shown
from membound.export import cpp_templates as templates
from membound.export.cpp_interface import FILE_FORMAT, describe_interface, image_size, number_of
from membound.export.prefix import say_taken
from membound.machine import own_version
from membound.run.common import preprocess_of
from membound.run.plan import Planned, flat, plan
from membound.run.ports import Port, inputs_of, outputs_of
from membound.store.formats import Encoded
from membound.store.model import StoredModel

ALIGNED = 16  # bytes: more than any element has
PER_LINE = 6
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Words of C and C++.
RESERVED = """
alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not nullptr operator or private protected public register requires restrict
return short signed sizeof static struct switch template this throw true try typedef typeid typename union unsigned
using virtual void volatile while xor
"""
# What net.cpp, net_test.cpp and main.cpp call their own.
OWN = """
check class_names code_of input_shape is_check largest least_ms main means membound std needed noise none opened_by
outputs plan preparation run_on_noise stds wanted weight_bytes
"""


def check_prefix(prefix: str) -> None:
    """It becomes the name of a type, and the beginning of all others.

    >>> check_prefix("9")
    Traceback (most recent call last):
    membound.errors.ModelError: prefix='9' is not a lower-case C name: write one, such as net or digits
    >>> check_prefix("int")
    Traceback (most recent call last):
    membound.errors.ModelError: prefix='int' is a reserved word of C or C++: choose another name, such as net or digits
    """
    if not isinstance(prefix, str) or not NAME.fullmatch(prefix):
        why = " is not a lower-case C name: write one"
    elif prefix in RESERVED.split():
        why = " is a reserved word of C or C++: choose another name"
    elif prefix in OWN.split():
        why = ": the exported code uses that name itself: choose another"
    elif taken := say_taken(prefix):
        why = f": {taken}: choose another name"
    else:
        return
    raise ModelError(f"prefix={shown(prefix)}{why}, such as net or digits", about="prefix")


def renamed(text: str, prefix: str) -> str:
    """A template, which says net and NET_, with another name instead.

    >>> renamed("net.h: net *net_open(NET_OK), network", "cat")
    'cat.h: cat *cat_open(CAT_OK), network'
    """
    return re.sub(r"\bNET(?=_)", prefix.upper(), re.sub(r"\bnet(?=_|\b)", prefix, text))


class Constants:
    """Arrays one behind another, each aligned; equal ones are kept once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self.nbytes = 0

    def add(self, array: npt.NDArray[Any]) -> int:
        """Where the array is, in bytes."""
        part = array.tobytes()
        if part in self._places:
            return self._places[part]
        place = self._places[part] = self.nbytes
        padded = part + bytes(-len(part) % ALIGNED)
        self._parts.append(padded)
        self.nbytes += len(padded)
        return place

    def text(self, prefix: str) -> Iterator[bytes]:
        """weights.cpp, in parts."""
        count = max(self.nbytes // 8, 1)
        yield renamed(
            "// The weights of a network: made by membound, not meant to be edited.\n#include <cstdint>\n\n"
            "#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n#error the weights are for little-endian CPUs\n#endif\n\n"
            "extern const uint64_t net_weights[];\n"
            f"alignas(64) const uint64_t net_weights[{count}] = {{\n",
            prefix,
        ).encode()
        for part in self._parts or [bytes(8)]:
            digits = np.frombuffer(part, "<u8").astype(">u8").tobytes().hex()
            words = [f"0x{digits[i : i + 16]}" for i in range(0, len(digits), 16)]
            for i in range(0, len(words), PER_LINE):
                yield (",".join(words[i : i + PER_LINE]) + ",\n").encode()
        yield b"};\n"


@dataclass(frozen=True)
class Source:
    """What is made for one network: net.h, net.cpp, main.cpp, and the constants of weights.cpp."""

    header: str
    source: str
    main: str
    constants: Constants


def make_source(model: StoredModel, prefix: str, engine: str = "float") -> Source:
    """All of it; `prefix` begins the names of functions, macros and files."""
    constants = Constants()
    ports = inputs_of(model.graph, model.shapes), outputs_of(model.graph, model.shapes)
    several = len(ports[0]) > 1 or len(ports[1]) > 1
    how, shape = preprocess_of(model), model.shapes[0]
    preparation = (
        "const membound::Preparation preparation{};\n"
        if how is None
        else _preparation(how, shape, constants, prefix)
    )
    plans = "".join(_operator(each, constants) for each in plan(model, engine))
    made = [
        renamed(templates.BEGINNING, prefix),
        _classes(model.classes),
        "namespace {\n\n[[maybe_unused]] constexpr size_t none = membound::Stored::nowhere;\n\n"
        f"void plan(membound::App& net) {{\n{plans}}}\n\n"
        f"const membound::Shape input_shape{_braces(shape)};\n"
        f"const std::vector<size_t> outputs{_braces(model.graph.given)};\n"
        f"constexpr size_t weight_bytes = {constants.nbytes};\n{preparation}{_interface(model)}\n"
        "}  // namespace\n\n",
        renamed(
            templates.API + (templates.API_RUN_MANY if several else templates.API_RUN + _gives(ports[1])[1]),
            prefix,
        ),
    ]
    if model.classes is not None:
        made.append(renamed(templates.API_CLASSES, prefix))
    if how is not None:
        text = templates.API_PREPARE_IMAGE if len(shape) == 3 else templates.API_PREPARE_NUMBERS
        made.append(renamed(text.replace("uint8_t", number_of(how)), prefix))
    header = _header(model, *ports, how, prefix, engine)
    return Source(header, "".join(made), _main(model, *ports, how, prefix), constants)


# --- net.cpp ---


def _operator(plan: Planned, constants: Constants) -> str:
    shapes = "{" + ", ".join(map(_braces, plan.input_shapes)) + "}"
    lines = [
        f'net.op("{plan.op}", {_braces(plan.inputs)}, {shapes}, {_braces(plan.output_shape)});',
        *(f'net.number("{name}", {_braces(flat(value))});' for name, value in plan.numbers.items()),
    ]
    name, *numbers = plan.act
    if name != "none":
        lines.append(f"net.activation({', '.join([_text(name), *map(_real, numbers)])});")
    if plan.weight is not None:
        lines.append(f"net.weight({_weight(plan.weight, constants)});")
    for role, table in plan.tables.items():
        place = constants.add(np.asarray(table, "<f4"))
        lines.append(f'net.table("{role}", {place}, {table.size});')
    return "".join(f"  {line}\n" for line in lines)


def _weight(weight: Encoded, constants: Constants) -> str:
    matrix = weight.matrix
    arrays = [(constants.add(array), array.itemsize) for array in weight.arrays]
    index, pointers = [*arrays, None, None][:2]
    palette = scales = None
    if weight.palette is not None:  # an entry for every code that there can be
        entries = weight.palette.entries
        palette = constants.add(np.pad(entries, (0, weight.value_type.levels - len(entries))).astype("<f4"))
    if weight.scales is not None:
        scales = constants.add(weight.scales.astype("<f4"))
    sizes = [_text(weight.format), _text(weight.type_name), matrix.rows, matrix.columns, matrix.entries]
    high_bytes = weight.arrays[0].nbytes if weight.format == "rice" else 0
    rest = [*(index or (None, 0)), *(pointers or (None, 0)), weight.parameter, high_bytes, palette, scales]
    while rest and rest[-1] == _DEFAULTS[len(rest) - 1]:
        rest.pop()
    fields = [*sizes, constants.add(weight.values), *rest]
    return "{" + ", ".join("none" if field is None else str(field) for field in fields) + "}"


_DEFAULTS = (None, 0, None, 0, 0, 0, None, None)  # of membound::Stored, behind where the values are


def _braces(numbers: Sequence[Any]) -> str:
    """As C++ lists numbers.

    >>> _braces([1, 0.5, 3.0])
    '{1, 0.5, 3}'
    """
    return "{" + ", ".join(map(_real, numbers)) + "}"


def _real(number: float) -> str:
    """As C++ writes a double: the shortest text that is this number.

    >>> _real(3), _real(0.1), _real(float("-inf"))
    ('3', '0.1', '-HUGE_VAL')
    """
    if math.isinf(number):
        return "HUGE_VAL" if number > 0 else "-HUGE_VAL"
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(float(number))


def float_text(number: float) -> str:
    """As C++ writes a float32."""
    text = f"{float(np.float32(number)):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _text(text: str) -> str:
    r"""As C writes a text in UTF-8.

    >>> print(_text('a "b" é'))
    "a \042b\042 \303\251"
    """
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{plain}"'


def _classes(classes: list[str] | None) -> str:
    if classes is None:
        return ""
    names = "".join(f"    {_text(name)},\n" for name in classes)
    return f"static const char* const class_names[] = {{\n{names}}};\n\n"


# --- what a network in a file must be ---


def _interface(model: StoredModel) -> str:
    ports = inputs_of(model.graph, model.shapes), outputs_of(model.graph, model.shapes)
    floats = ", ".join(_braces([math.prod(port.shape) for port in each]) for each in ports)
    return f"const membound::Interface needed{{{_text(describe_interface(model))}, {floats}}};\n"


# --- how images are prepared ---


def prepared_sizes(how: Preprocess, shape: Sequence[int]) -> tuple[int, int, int, bool, int, int]:
    """Channels, height and width of what the network takes, whether images are cropped to it, and the mean image's
    height and width, 0 where there is none. What is no image is one row of places in each channel."""
    channels, height, width = shape if len(shape) == 3 else (shape[0], 1, math.prod(shape[1:]))
    if how.crop is not None and (height, width) != (how.crop, how.crop):
        raise ModelError(
            f"images are cropped to {how.crop} x {how.crop}, and the network takes {height} x {width}: load the file "
            "without input_shape, or save the network with another preprocess"
        )
    rows, columns = (0, 0) if how.mean_image is None else how.mean_image.shape[1:]
    return channels, height, width, how.crop is not None, rows, columns


def _preparation(how: Preprocess, shape: Sequence[int], constants: Constants, prefix: str) -> str:
    *takes, crops, rows, columns = prepared_sizes(how, shape)
    image, lines = how.mean_image, ""
    for name, array in (("mean", how.mean if image is None else None), ("std", how.std)):
        if array is not None:
            numbers = ", ".join(map(float_text, array))
            lines += f"const float {name}s[] = {{{numbers}}};\n"
    mean = "nullptr" if how.mean is None else "means"
    if image is not None:
        place = constants.add(image.astype("<f4"))
        mean = f"reinterpret_cast<const float*>({prefix}_weights) + {place // 4}"
    return (
        f"{lines}const membound::Preparation preparation{{{', '.join(map(str, takes))}, "
        f"{'true' if crops else 'false'}, {float_text(how.scale)}, {mean}, "
        f"{'nullptr' if how.std is None else 'stds'}, {rows}, {columns}}};\n"
    )


# --- net.h ---


def _header(
    model: StoredModel,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    how: Preprocess | None,
    prefix: str,
    engine: str,
) -> str:
    shape = model.shapes[0]
    macros: list[Any] = []
    if len(shape) == 3:
        macros += [("CHANNELS", shape[0]), ("HEIGHT", shape[1]), ("WIDTH", shape[2])]
    macros.append(("INPUT_FLOATS", math.prod(shape)))
    several = len(inputs) > 1 or len(outputs) > 1
    if several:
        macros += _ports(inputs, outputs)
    else:
        macros.append(("OUTPUTS", math.prod(outputs[0].shape)))
        if len(outputs[0].shape) == 3:
            sizes = zip(("CHANNELS", "HEIGHT", "WIDTH"), outputs[0].shape, strict=True)
            macros += [(f"OUTPUT_{name}", size) for name, size in sizes]
    if model.classes is not None:
        macros.append(("CLASSES", len(model.classes)))
    if how is not None and len(shape) == 3:
        sides = image_size(model, how)
        macros += [("IMAGE_HEIGHT", sides[0]), ("IMAGE_WIDTH", sides[1])]
        macros += [("TAKES_PIXELS", 1)] if how.takes == "uint8" else []
    lines = "".join(
        f"#define {prefix.upper()}_{name} {value}{'' if not about else f' /* {about[0]} */'}\n"
        for name, value, *about in macros
    )
    run = templates.RUN_OF_MANY if several else templates.RUN + _gives(outputs)[0]
    whole = templates.TAKES_WHOLE if any(port.whole for port in inputs) else ""
    classes = "" if model.classes is None else templates.CLASSES
    parts = {"run": run.replace("@takes@", whole), "classes": classes, "prepare": _prepare_header(how, shape)}
    text = templates.HEADER
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    lines += "".join(
        f"#define {prefix.upper()}_{name} {value} /* {about} */\n"
        for name, value, about in (
            ("ENGINE", f'"{engine}"', "how the network of this export computes"),
            ("ID", f'"{model.id}"', "which one it is: the first 16 digits of the SHA-256 of its model file"),
            ("FILE_FORMAT", FILE_FORMAT, "of files that net_open_file reads"),
            ("MEMBOUND", f'"{own_version()}"', "the version of membound"),
        )
    )
    return renamed(text, prefix).replace("@macros@", lines)


def _gives(outputs: Sequence[Port]) -> tuple[str, str, str]:
    """What the only output tells, in net.h, net.cpp and main.cpp: the best class, of all or of each pixel."""
    shape = outputs[0].shape
    if len(shape) == 3 and 2 <= shape[0] <= 256:
        return templates.MASK, templates.API_MASK, templates.TELL_MASK
    return templates.BEST, templates.API_BEST, templates.TELL_BEST


def _ports(inputs: Sequence[Port], outputs: Sequence[Port]) -> list[Any]:
    """The sizes of several arrays, with their names."""
    found: list[Any] = []
    for kind, ports in (("INPUT", inputs), ("OUTPUT", outputs)):
        found.append((f"{kind}_ARRAYS", len(ports)))
        for number, port in enumerate(ports):
            about = f"{_plain(port.name)} {list(port.shape)}" + (", whole numbers" if port.whole else "")
            found.append((f"{kind}_{number}_FLOATS", math.prod(port.shape), about))
    return found


def _plain(name: str) -> str:
    """A name that cannot end a comment."""
    return re.sub(r"[^\w. \-]", "_", name)


def _prepare_header(how: Preprocess | None, shape: Sequence[int]) -> str:
    if how is None:
        return templates.NO_PREPARE
    if len(shape) != 3:
        return templates.PREPARE_NUMBERS.replace("uint8_t", number_of(how))
    size = "NET_IMAGE_HEIGHT x NET_IMAGE_WIDTH"
    if how.crop is not None:
        least = "" if how.mean_image is not None else " (or NET_HEIGHT x NET_WIDTH and more)"
        size += f"{least}, of which\n * the center is taken"
    what = "Numbers as in training" if how.takes == "float32" else "Pixels from 0 to 255"
    text = templates.PREPARE_IMAGE.replace("@what@", what).replace("@size@", size)
    return text.replace("uint8_t", number_of(how))


# --- main.cpp ---


def _main(
    model: StoredModel, inputs: Sequence[Port], outputs: Sequence[Port], how: Preprocess | None, prefix: str
) -> str:
    shape = model.shapes[0]
    if len(inputs) > 1 or len(outputs) > 1:
        parts = {"takes": _sizes(inputs), "gives": _sizes(outputs)}
        text = templates.MAIN_OF_MANY
    else:
        text, image = templates.MAIN, how is not None and len(shape) == 3
        text = text.replace("@tell@", _gives(outputs)[2])
        count, prepare = prepare_call(how, shape)
        parts = {
            "what": "an image (rows of pixels, channels side by side)" if image else "the numbers",
            "number": "float" if how is None else number_of(how),
            "count": count,
            "prepare": prepare,
            "name": '"", ""'
            if model.classes is None
            else '": ", net_class(best) ? net_class(best) : "no name"',
        }
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return renamed(text.replace("@beginning@", templates.MAIN_BEGINNING), prefix)


def prepare_call(how: Preprocess | None, shape: Sequence[int]) -> tuple[str, str]:
    """How many `numbers` there are in an input as it comes, and the call that prepares it as `input`."""
    if how is None:
        return "NET_INPUT_FLOATS", "(input = numbers, NET_OK)"
    if len(shape) != 3:
        return "NET_INPUT_FLOATS", "net_prepare(numbers.data(), input.data())"
    return (
        "NET_IMAGE_HEIGHT * NET_IMAGE_WIDTH * NET_CHANNELS",
        "net_prepare_hwc(numbers.data(), NET_IMAGE_HEIGHT, NET_IMAGE_WIDTH, input.data())",
    )


def _sizes(ports: Sequence[Port]) -> str:
    return ", ".join(str(math.prod(port.shape)) for port in ports)
