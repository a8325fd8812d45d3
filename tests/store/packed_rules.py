"""Files of packed layers that break a rule each, for test_format_rules.py."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import stored
from packed import put_array

from membound.store.compact import join, split_text
from membound.store.file import assemble
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.model import Model
from membound.store.packed import format_prefix, join_sections, take_apart

CASES = []
LAYOUT, TYPE, PALETTE, FLAGS, AXES = range(5)  # bytes of a prefix
STEP, TABLE, SCALE_STEP, SCALES, BIAS_STEP, BIAS, VALUES, HIGH, LOW = range(9)  # sections, of rice


def draft(
    layout="rice", kind="p3", table=(1.5, 0.0999755859375, -9, 8, 7), scaled=True, bias=True, compact=False
):
    """A file of one layer `a`: a weight of [6, 50] with 43 nonzeros, the first and the last among them."""
    array = stored.few_valued((6, 50), 41, table, 3)
    array.reshape(-1)[[0, 299]] = table[0]
    scales = np.array([127 if compact else 6, 1, 2, 3, 4, 5], np.float32) if scaled else None
    tensors = {"a.weight": encode(array, layout, kind, scales)}
    roles = {"w": "a.weight"}
    if bias:
        ones = np.full(6, 127 if compact else 1, np.float32)  # that many steps of 1 in 8 bits
        tensors["a.bias"] = encode(ones, "dense", "f16")
        roles["b"] = "a.bias"
    model = Model(Graph((50,), (Node("linear", (0,), {}, roles),), 1), {}, activations={0: (0.5, 3)})
    return stored.Draft(b"".join(assemble(model, tensors, compact=compact)[0]))


def content(found, name="a"):
    return bytes(found.array(name, np.uint8))


def case(rule, words, make):
    CASES.append(pytest.param(rule, words, lambda sound: make(), id=f"{rule}-packed-{len(CASES)}"))


def rewritten(rule, words, edit, **how):
    """Change the prefix (a new one comes back) and the sections in place; the file is made anew around them."""

    def make():
        found = draft(**how)
        prefix, sections = take_apart("a", np.frombuffer(content(found), np.uint8))
        sections = [section.copy() for section in sections]
        prefix = edit(prefix, sections) or prefix
        return put_array(found, "a", join_sections(format_prefix(prefix), sections))

    case(rule, words, make)


def fields(rule, words, _how=None, **changed):
    rewritten(rule, words, lambda prefix, sections: replace(prefix, **changed), **(_how or {}))


def raw(rule, words, edit, **how):
    """Change the bytes of the array in place, or give others."""

    def make():
        found = draft(**how)
        array = bytearray(content(found))
        return put_array(found, "a", bytes(edit(array) or array))

    case(rule, words, make)


def element(rule, words, section, value, at=0, **how):
    def edit(prefix, sections):
        sections[section][at] = value

    rewritten(rule, words, edit, **how)


def byte(rule, words, at, value, **how):
    raw(rule, words, lambda array: array.__setitem__(at, value), **how)


def about(rule, words, edit, **how):
    def make():
        found = draft(**how)
        edit(found)
        return found.pack()

    case(rule, words, make)


# Names


def doubled(found, name, array="F16"):
    """Another array of this name, behind all others."""
    end = len(found.data)
    found.data += bytes(12)
    found.header[name] = {"dtype": array, "shape": [6], "data_offsets": [end, end + 12]}


about(12, "no allowed name", lambda found: found.header.update({"a\n": found.header.pop("a")}))
about(12, "no allowed name", lambda found: found.header.update({"a" * 295: found.header.pop("a")}))
about(15, "unknown key 'q'", lambda found: found.about.update(v=1))
about(46, "'a.bias' is there more than once", lambda found: doubled(found, "a.bias"))
about(46, "packed, which says its shape", lambda found: found.about.update(t={"a": [[6, 50]]}))

# Contents of rice


def one_more_bit(prefix, sections):
    high = sections[HIGH]
    at = next(number for number, bits in enumerate(high) if bits != 255)
    high[at] |= ~high[at] & (high[at] + 1)


def shifted(prefix, sections):
    sections[HIGH] = np.append(sections[HIGH], np.uint8(0))
    return replace(prefix, lengths=(len(sections[HIGH]),))


def beyond(prefix, sections):
    """One more 0 before the last bit that is set."""
    bits = np.unpackbits(sections[HIGH], bitorder="little")
    last = int(np.flatnonzero(bits)[-1])
    sections[HIGH] = np.packbits([*bits[:last], 0, 1], bitorder="little")
    return replace(prefix, lengths=(len(sections[HIGH]),))


rewritten(37, "44 bits set", one_more_bit)
rewritten(37, "none in its last byte", shifted)
element(38, "low parts", LOW, 0xFF, at=-1)
rewritten(39, "beyond its 300 elements", beyond)
element(35, "stores a zero", TABLE, 0, kind="p3")
element(36, "a scale, or a value", SCALES, np.inf)
rewritten(
    36,
    "a scale, or a value",
    lambda prefix, sections: sections.__setitem__(TABLE, np.full(2, 3e38, np.float32)),
    table=(1e5, -77.7),
)
element(36, "bias' has a value that is not finite", BIAS, np.nan)

# Structure


def moved(found):
    """The layer begins at 2, behind an array that the shape of nothing needs."""
    end = len(found.data)
    found.data[:0] = bytes(2)
    found.header["c"] = {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}
    found.header["a"]["data_offsets"] = [2, end + 2]


about(40, "multiples of 4", moved)
raw(40, "multiples of 4", lambda array: array + b"\0")
raw(40, "of 0 bytes", lambda array: array.clear())
raw(41, "ends within its prefix", lambda array: array[:4])
raw(41, "ends within its prefix", lambda array: array[:4] + b"\2\6\x80\x80")
raw(41, "more than five bytes", lambda array: array[:5] + b"\xff" * 7)
raw(41, "the number 0 in its prefix", lambda array: array[:5] + b"\x80\0\6")
fields(41, "too large", count=2**31)
byte(42, "no such layout", LAYOUT, 6)
byte(42, "no such layout", TYPE, 9)
byte(42, "no such layout", PALETTE, 5)
byte(42, "do not go together", FLAGS, 64)
byte(42, "do not go together", FLAGS, 128)
byte(42, "do not go together", FLAGS, 1 | 2 | 64)
byte(42, "do not go together", FLAGS, 4 | 8 | 128)
rewritten(
    42,
    "which version 3 has",
    lambda prefix, sections: (
        sections.__setitem__(slice(SCALE_STEP, BIAS_STEP), [np.array([0x3F80], "<u2"), np.ones(6, np.int8)])
        or replace(prefix, flags=prefix.flags | 64)
    ),
)
fields(42, "do not go together", palette="")
byte(42, "do not go together", TYPE, 16)
fields(42, "do not go together", flags=2 | 4)
fields(42, "do not go together", flags=1 | 8)
fields(42, "do not go together", flags=1 | 4 | 32)
fields(42, "without axes", shape=())
byte(42, "do not go together", FLAGS, 1, kind="f32", scaled=False, bias=False)
byte(43, "9 axes", AXES, 9)
fields(43, "sizes from 1 up", shape=(6, 0))
fields(43, "sizes from 1 up", shape=(2**16, 2**16))
fields(43, "as the original one", flags=1 | 4 | 16, original=(6, 50))
fields(44, "301 values", count=301)
fields(44, "9 entries", entries=9)
fields(44, "the parameter 16", parameter=16)
fields(44, "has 0 values", count=0, parameter=1)
fields(45, "a section that ends", shape=(600, 50))
fields(45, "18 bytes behind", flags=1, shape=(4, 50))
raw(45, "[4-7] bytes behind", lambda array: array + b"\0\0\0\0")


def padded(array):
    """A byte between the prefix and the table of halves, which begins at an even place."""
    prefix = 5 + 2 + 1 + 1 + 1 + 1
    assert array[prefix] == 0
    array[prefix] = 1


raw(45, "not 0 between its sections", padded)
element(47, "beyond the end of its 43 codes", VALUES, 0xFF, at=-1)
element(47, "beyond the 5 entries", VALUES, 0b111)
for value in (np.nan, np.inf, -0.0):
    element(48, "not finite, or -0", TABLE, value)
for value in (np.nan, np.inf, 0.0, -1.0):
    element(48, "or a step of 0", STEP, value, table=(0.25, -0.5))
element(48, "not finite", STEP, 3e38, table=(0.25, -0.5))

# Activations

for q in (
    [],
    {"2": [1, 0]},
    {"01": [1, 0]},
    {"0": 1},
    {"0": [1]},
    {"0": [0, 0]},
    {"0": [1, 256]},
    {"0": [1, 0.5]},
):
    about(49, "the scale", lambda found, q=q: found.about.update(q=q))

# One array for all


def joined(rule, words, edit, text=None):
    """A file of version 3: its array `membound` (the deflated description first) is changed in place, or replaced."""

    def make():
        found = draft(compact=True)
        array = bytearray(content(found, "membound"))
        if text is not None:
            found.about = text
        return put_array(found, "membound", bytes(edit(array) or array))

    case(rule, words, make)


def described(array, change):
    """The array with another description in front of its layers."""
    text, rest = split_text(np.frombuffer(bytes(array), np.uint8))
    return bytes(join(change(text), {"a": rest}))


def layer_of(array):
    text, rest = split_text(np.frombuffer(bytes(array), np.uint8))
    return text, rest.copy()


def with_layer(array, edit):
    text, rest = layer_of(array)
    prefix, sections = take_apart("a", rest)
    sections = [section.copy() for section in sections]
    edit(sections)
    return bytes(join(text, {"a": np.frombuffer(join_sections(format_prefix(prefix), sections), np.uint8)}))


joined(52, "and nothing else but v", lambda array: None, text={"v": 3, "in": [50]})
joined(52, "and its length at first", lambda array: array[:3])
joined(52, "in an array of", lambda array: b"\xff\xff\0\0" + array[4:])
joined(52, "cannot be unpacked", lambda array: array[:4] + b"\xff" * 20 + array[24:])
joined(52, "ends too early", lambda array: struct.pack("<I", array[0] - 1) + array[4:])
joined(
    14, "the version is 2 within", lambda array: described(array, lambda text: text.replace('"v":3', '"v":2'))
)
joined(
    15, "unknown key 'z'", lambda array: described(array, lambda text: text.replace('"v":3', '"v":3,"z":1'))
)
joined(53, "bytes follow the last layer", lambda array: array + bytes(8))
joined(53, "76 are left", lambda array: array[:-4])
joined(53, "there is no layer 'a'", lambda array: array[: len(array) - len(layer_of(array)[1])])
joined(12, "no allowed name", lambda array: described(array, lambda text: text.replace('"a"', '"a\\n"')))
for step in (0, 0x7F80, 0xBF80):
    joined(54, "a step that is not above 0", lambda array, step=step: with_layer(
        array, lambda sections: sections[SCALE_STEP].__setitem__(0, step)))  # fmt: skip
joined(54, "with -128", lambda array: with_layer(array, lambda sections: sections[BIAS].__setitem__(0, -128)))
