"""docs/FORMAT.md: every rule has a file that breaks it, and that file is refused by that rule and no other."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import packed_rules
import pytest
import stored
from profiles import at_once

from membound.errors import ModelError
from membound.store.file import assemble, read, read_bytes
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.model import Model

ROOT = Path(__file__).parents[2]
NUMBERS = [int(n) for n in re.findall(r"^(\d+)\. ", (ROOT / "docs" / "FORMAT.md").read_text(), re.MULTILINE)]
CASES = []


def breaks(rule, words):
    """Register a function that makes, from the parts of a sound file, one that breaks this rule."""

    def register(make):
        CASES.append(pytest.param(rule, words, make, id=f"{rule}-{make.__name__}"))
        return make

    return register


def corrupt(rule, words, edit, name=None):
    """The same for an edit in place."""

    def make(draft):
        edit(draft)
        return draft.pack()

    make.__name__ = name or edit.__name__
    CASES.append(pytest.param(rule, words, make, id=f"{rule}-{len(CASES)}"))


def put(rule, words, *path, to):
    """The same for a value put at a path in the parts."""

    def edit(draft):
        place = {"header": draft.header, "about": draft.about}[path[0]]
        for key in path[1:-1]:
            place = place[key]
        place[path[-1]] = to

    corrupt(rule, words, edit)


def set_values(rule, words, name, dtype, **at):
    """The same for elements of an array: i3=7 sets the one at 3, j2 the one at 2 from the end."""

    def edit(draft):
        array = draft.array(name, dtype)
        for place, value in at.items():
            array[int(place[1:]) if place[0] == "i" else -int(place[1:])] = value

    corrupt(rule, words, edit)


# The container


@breaks(1, "0 bytes, where its header alone has more")
def empty(draft):
    return b""


@breaks(1, "7 bytes, where its header alone has more")
def too_short(draft):
    return draft.pack()[:7]


@breaks(1, "nor another safetensors file")
def header_beyond_the_file(draft):
    return struct.pack("<Q", 2**63) + draft.pack()[8:]


@breaks(1, "nor another safetensors file")
def header_too_long(draft):
    return struct.pack("<Q", 2**24 + 56) + b"{" + b" " * (2**24 + 1000)


@breaks(2, "multiple of 64")
def misaligned_data(draft):
    header = draft.pack()[8:].split(b"}}", 1)
    text = header[0] + b"}}"
    return struct.pack("<Q", len(text) + 1) + text + b" " + header[1]


for text in (
    b"{",
    b"[]",
    b"nul",
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":"\xff"}',
    b' {"a":1}',
    b"[" * 9999,
):
    CASES.append(
        pytest.param(3, "JSON", lambda draft, text=text: stored.pack(text, b""), id=f"3-{text[:9]!r}")
    )
for text in (
    "",
    "{",
    "[]",
    '{"v":1,}',
    '{"v":Infinity}',
    '{"v":' + "9" * 5000 + "}",
    '{"v":' + "[" * 100_000,
):
    CASES.append(pytest.param(3, "JSON", lambda draft, text=text: draft.pack(text), id=f"3-about-{text[:9]}"))


@breaks(4, "more than once")
def array_twice(draft):
    return draft.pack().replace(b'"fc3.bias"', b'"conv.bias"')[:]


@breaks(4, "more than once")
def key_twice(draft):
    return draft.pack(json.dumps(draft.about)[:-1] + ',"v":1}')


@breaks(5, "not a membound model")
def no_metadata(draft):
    return stored.pack(json.dumps(draft.header).encode(), bytes(draft.data))


@breaks(5, "weights without a network")
def plain_safetensors(draft):
    header = {"__metadata__": {"format": "pt"}, **draft.header}
    return stored.pack(json.dumps(header).encode(), bytes(draft.data))


@breaks(5, "of strings")
def metadata_of_numbers(draft):
    return draft.pack(count=3)


@breaks(6, "at most 100000")
def too_many_arrays(draft):
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    draft.header |= {f"{i}": entry for i in range(100_001)}
    return draft.pack()


corrupt(6, "exactly", lambda draft: draft.header["shift"].pop("shape"))
put(6, "exactly", "header", "shift", "more", to=1)
put(6, "exactly", "header", "shift", to=[1])
put(7, "dtype 'F64'", "header", "shift", "dtype", to="F64")
put(7, "dtype ['F32']", "header", "shift", "dtype", to=["F32"])
for shape in (20, [-20], [True], ["20"], [20.0], [2**31], [2**16, 2**16], [1] * 9, [10**4000], [[20]], None):
    put(8, "has the shape", "header", "shift", "shape", to=shape)
for offsets in ([0], [0, 10**300], [-4, 76], ["0", 80], [0.0, 80.0], 5, None, [0, 2**64]):
    put(9, "two offsets", "header", "shift", "data_offsets", to=offsets)
put(9, "sizes differ", "header", "shift", "shape", to=[21])
put(9, "sizes differ", "header", "shift", "data_offsets", to=[80, 0])


@breaks(10, "not a multiple")
def misaligned_array(draft):
    for fields in draft.header.values():
        fields["data_offsets"] = [offset + 1 for offset in fields["data_offsets"]]
    draft.header["byte"] = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    draft.data[:0] = b"\0"
    return draft.pack()


@breaks(11, "hole or overlap")
def overlap(draft):
    begin, _ = draft.header["conv.bias"]["data_offsets"]
    draft.header["fc3.bias"]["data_offsets"] = [begin, begin + 12]
    return draft.pack()


@breaks(11, "hole or overlap")
def hole(draft):
    for fields in draft.header.values():
        fields["data_offsets"] = [offset + 64 for offset in fields["data_offsets"]]
    draft.data[:0] = bytes(64)
    return draft.pack()


@breaks(11, "end at byte")
def appended(draft):
    return draft.pack() + b"\0"


@breaks(9, "cut short: 1 byte is missing")
def truncated(draft):
    return draft.pack()[:-1]


@pytest.mark.parametrize("content", [b"# Read me\nThis is text.\n", b"\xff" * 100])
def test_another_kind_of_file_is_not_said_to_be_damaged(content):
    with pytest.raises(
        ModelError, match="not a model file, nor another safetensors file: its first 8 bytes"
    ) as caught:
        read_bytes(content, "README.md")
    assert not {"damaged", "fetch"} & set(str(caught.value).split())


def rename(rule, words, old, new):
    corrupt(rule, words, lambda draft: draft.header.update({new: draft.header.pop(old)}))


# Tensors


for name in ("", "a\nb", "\ud800", "x" * 301, ":csr", "fc1.weight:cols", "a:b:csr", "fc1.weight:"):
    rename(12, "no allowed name", "fc1.weight:csr", name)
rename(13, "at most one format", "fc1.weight:csr", "fc1.weight:delta")
rename(13, "at most one format", "fc1.weight:rows", "other:rows")
rename(13, "at most one format", "conv.weight:bitmask", "fc1.bias:bitmask")
rename(13, "at most one format", "conv.weight", "another")


# The description

for version in (0, -1, 1.0, "1", None, True, [1]):
    put(14, "the version is", "about", "v", to=version)
put(14, "written by a newer membound", "about", "v", to=4)
corrupt(14, "the version is None", lambda draft: draft.about.pop("v"))
corrupt(15, "lacks 'in'", lambda draft: draft.about.pop("in"))
corrupt(15, "lacks 'n'", lambda draft: draft.about.pop("n"))
put(15, "unknown key 'x'", "about", "x", to=1)
for shape in (None, 3, [0], [-1], [1.0], [True], [2**31], [2**30, 2], [1] * 9, {"0": 1}):
    put(16, "the input has the shape", "about", "in", to=shape)
for nodes in (None, [], {}, "conv", [["act", {}]] * 100_001):
    put(17, "must be a list of", "about", "n", to=nodes)
for node in (None, [], "conv", [3], [["conv"]], {"op": "conv"}):
    put(17, "starts with an operator", "about", "n", 0, to=node)
for node in (["act", 3], ["act", {}, [0]], ["act", None], ["conv", "a", "b"], ["act", [0], {}, {}]):
    put(17, "out of place", "about", "n", 0, to=node)
for node in (["conv", {"w": 3}], ["conv", "conv", {"w": "conv.weight"}], ["conv", {"w": ["a"]}]):
    put(17, "by a string", "about", "n", 0, to=node)
put(18, "must be an object", "about", "t", to=[])
for shapes in (None, [], [4, 2], [[4]] * 3, [[4], None], [[0]], [[2.0]], [[2**31]]):
    put(18, "has the shapes", "about", "t", "conv", to=shapes)
put(18, "not there, or twice", "about", "t", "absent", to=[[3]])
put(18, "not there, or twice", "about", "t", "conv.weight", to=[[4, 2, 3, 3]])
put(18, "is said to have", "about", "t", "shift", to=[[21]])
for name, value in (
    ("scale", 0), ("scale", True), ("scale", 1e39), ("scale", "1"), ("scale", None), ("mean", "picture"),
    ("mean", []), ("mean", [1, "2"]), ("std", [1, 0]), ("std", [1, 1e-60]), ("std", 1), ("crop", 0),
    ("crop", 1.5), ("mirror", 1), ("rotate", 1), ("takes", "int8"), ("takes", None), ("takes", ["uint8"]),
):  # fmt: skip
    put(19, "not understood", "about", "p", name, to=value)


@breaks(19, "not understood")
def scale_that_overflows(draft):
    return draft.pack(json.dumps(draft.about).replace("0.5", "1e999"))


put(19, "for 2 channels", "about", "p", "std", to=[1, 2, 3])
put(19, "a mean of 1 numbers for 2 channels", "about", "p", "mean", to=[1])
put(19, "must be an object", "about", "p", to=[])
for classes in (0, -1, True, 2.0, {}, "abc", 10**7):
    put(20, "the classes must be", "about", "c", to=classes)
for name in (1, "", "a\n", "\udc80", "a" * 301):
    put(20, "class 1 is named", "about", "c", to=["a", name])
put(21, "has no mean image", "about", "p", to={})
rename(21, "has mean image", "membound.mean_image", "spare")
put(21, "mean image has the shape", "header", "membound.mean_image", "shape", to=[1, 16, 8])
put(21, "mean image has the shape", "header", "membound.mean_image", "shape", to=[2, 64])


# The graph

for inputs in ([1], [-1], [True], ["0"], [None], [10**30], [[0]], [0.0], [8]):
    put(22, "takes value", "about", "n", 0, to=["conv", "conv", inputs, {"pad": [1, 1, 1, 1]}])
for inputs in ([], [0, 0]):
    put(22, "has [02] inputs", "about", "n", 0, to=["conv", "conv", inputs])
put(22, "two operands are needed", "about", "n", 6, to=["add"])
put(22, "two operands are needed", "about", "n", 6, to=["add", {"c": "shift", "value": 1}])
for out in (0, 9, -1, True, 8.0, None, "8", [0], [8, 9], {"a": 8, "b": True}, ["8"], [[8]]):
    put(22, "the output is value", "about", "out", to=out)
for out in ([], {}, [8] * 1001, {"": 8}, {"a\nb": 8}, {"a" * 301: 8}):
    put(50, "the outputs are", "about", "out", to=out)
for given in ([], "x", {"": "float32"}, {"a\n": "float32"}, {str(n): "float32" for n in range(1001)}):
    put(51, "the inputs are", "about", "i", to=given)
for kind in ("int8", None, 1, ["whole"], "Whole"):
    put(51, "is .* float32 and whole are allowed", "about", "i", to={"x": kind})
put(51, "1 inputs, 2 of them named", "about", "i", to={"x": "float32", "y": "whole"})
put(22, "has 1 inputs", "about", "n", 1, to=["input", {"shape": [4]}])
put(23, "shape is", "about", "n", 1, to=["input", [], {"shape": [0]}])
put(24, "lacks its tensor w", "about", "n", 1, to=["embedding"])
put(25, r"it must be \[rows, columns\]", "about", "n", 1, to=["embedding", [0], {"w": "conv.weight"}])
for op in ("convolution", "", "a\nb"):
    put(23, "no such operator", "about", "n", 0, to=[op])
put(23, "has no attribute 'axis'", "about", "n", 1, to=["maxpool", {"kernel": [2, 2], "axis": 0}])
put(23, "lacks the attribute 'kernel'", "about", "n", 1, to=["maxpool"])
for kernel in (2, [2], [2, 2, 2], [0, 2], [2, True], [2.0, 2], [16385, 1], [10**20, 1], [[2, 2]], None, {}):
    put(23, "kernel is", "about", "n", 1, to=["maxpool", {"kernel": kernel}])
for act in ("relu", ["leaky"], ["leaky", "x"], ["leaky", 1e39], ["swish"], [], [["relu"]], ["leaky", True]):
    put(23, "act is", "about", "n", 0, to=["conv", "conv", {"act": act}])
put(24, "which is not there", "about", "n", 0, to=["conv", "absent"])
put(24, "in the role 'w'", "about", "n", 1, to=["maxpool", "conv", {"kernel": [2, 2]}])
put(24, "lacks its tensor w", "about", "n", 0, to=["conv", {"b": "conv.bias"}])
put(25, "its weight", "about", "n", 0, to=["conv", "conv", {"groups": 2}])
put(25, "does not fit", "about", "n", 0, to=["conv", "conv", {"dilation": [9, 9]}])
put(25, "different numbers of elements", "about", "n", 2, to=["reshape", {"shape": [35]}])
put(25, "its bias has the shape", "about", "n", 0, to=["conv", {"w": "conv.weight", "b": "fc3.bias"}])
put(25, "reach the image", "about", "n", 1, to=["maxpool", {"kernel": [2, 2], "pad": [2, 0, 0, 0]}])
put(25, "reach the image", "about", "n", 1, to=["maxpool", {"kernel": [2, 2], "pad": [0, 0, 2, 0]}])
put(26, "its padded input has", "about", "in", to=[2, 2**15, 2**15 - 1])
LARGE = ["pad", [0], {"pad": [[0, 0], [16384, 10], [16384, 10]]}]
corrupt(26, "at most 8589934592", lambda draft: draft.about["n"].extend([LARGE] * 16))
put(26, "its output has the shape", "about", "n", 1, to=["pad", {"pad": [[16384, 0]] * 3}])


@breaks(26, "tensor 'shift' has the shape")
def empty_tensor(draft):
    begin, end = draft.header["shift"]["data_offsets"]
    draft.header["shift"] |= {"shape": [0], "data_offsets": [begin, begin]}
    draft.header["more"] = {"dtype": "F32", "shape": [20], "data_offsets": [begin, end]}
    return draft.pack()


put(27, "no node uses it", "about", "n", 6, to=["add", {"value": 1}])


# Contents

put(28, "values of type", "header", "shift", "dtype", to="U32")
put(28, "does not fit", "header", "fc1.weight", "shape", to=[20, 10])
put(28, "delta array", "header", "fc2.weight:delta", "shape", to=[2, 2])
put(28, "rows array", "header", "fc1.weight:rows", "shape", to=[3, 7])
put(28, "bitmask array", "about", "t", "conv", to=[[4, 2, 3, 4]])
put(28, "csr array", "about", "t", "fc1", to=[[1, 65537]])
put(28, "rows array", "about", "t", "fc1", to=[[19, 36]])
corrupt(29, "lacks its shape", lambda draft: draft.about["t"].pop("fc2"))
set_values(30, "bits set", "conv.weight:bitmask", np.uint8, i0=0)


@breaks(30, "some beyond its end")
def spare_bit(draft):
    array = stored.sparse((71,), 9)
    model = Model(Graph((71,), (Node("add", (0,), {}, {"c": "c"}),), 1), {"c": array})
    draft = stored.Draft(b"".join(assemble(model, {"c": encode(array, "bitmask")})[0]))
    bits = draft.array("c:bitmask", np.uint8)
    bits[0], bits[1], bits[8] = 0b11111111, 0, 0b10000000
    bits[2:8] = 0
    return draft.pack()


set_values(31, "do not rise", "fc3.weight:indexed", np.uint32, j1=60)
set_values(31, "do not rise", "fc3.weight:indexed", np.uint32, i0=2**32 - 1)
set_values(32, "row pointers that do not rise", "fc1.weight:rows", np.uint16, i0=1)
set_values(32, "row pointers that do not rise", "fc1.weight:rows", np.uint16, j1=201)
set_values(32, "row pointers that do not rise", "fc1.weight:rows", np.uint16, i3=65535)
set_values(33, "columns", "fc1.weight:csr", np.uint16, j1=36)
set_values(33, "columns", "fc1.weight:csr", np.uint16, i0=35)
set_values(34, "beyond its 400", "fc2.weight:delta", np.uint8, j1=255)
set_values(34, "fills no distance", "fc2.weight", np.float32, i1=0)
set_values(34, "fills no distance", "fc2.weight", np.float32, i2=-0.0)


@breaks(34, "end with a filler")
def filler_at_the_end(draft):
    draft.array("fc2.weight:delta", np.uint8)[:] = [0, 0, 0, 255]
    draft.array("fc2.weight", np.float32)[:] = [1, 2, 3, 0]
    return draft.pack()


set_values(35, "stores a zero", "fc1.weight", np.float32, i7=0)
set_values(35, "stores a zero", "fc3.weight", np.float32, i0=-0.0)
set_values(35, "stores a zero", "conv.weight", np.float32, j1=0)
for value in (np.nan, np.inf, -np.inf):
    for name in ("conv.weight", "shift", "fc2.weight", "membound.mean_image"):
        set_values(36, "not finite", name, np.float32, i1=value)


def test_a_file_that_was_cut_short_says_how_much_is_missing():
    whole = stored.file_bytes()
    for length, said in (
        (len(whole) - 1, ": 1 byte is missing, fetch the file again"),
        (len(whole) - 100, ": 100 bytes are missing, fetch the file again"),
        (40, "bytes are missing, fetch the file again"),
    ):
        with pytest.raises(ModelError, match="cut short") as caught:
            read_bytes(whole[:length], "net.safetensors")
        assert said in str(caught.value)
        assert "offsets" not in str(caught.value)
    header = int.from_bytes(whole[:8], "little")
    assert f": at least {8 + header - 40} bytes are missing" in str(caught.value)


@pytest.fixture(scope="module")
def sound():
    return stored.Draft(stored.file_bytes())


def test_the_sound_file_is_accepted(sound):
    assert read_bytes(sound.pack()).classes == ["a", "b", "c"]


@at_once("rule, words, make", [*CASES, *packed_rules.CASES])
def test_a_file_that_breaks_a_rule_is_refused_by_it(rule, words, make, sound):
    with pytest.raises(ModelError) as caught:
        read_bytes(make(sound.copy()), "net.safetensors")
    message = str(caught.value)
    assert caught.value.rule == rule, message
    assert message.startswith("net.safetensors: ")
    assert message.endswith(f"(rule {rule} of docs/FORMAT.md)")
    assert re.search(words, message) or words in message
    assert any(advice in message for advice in ("again", "upgrade", "not a model file")), "what to do"
    assert "\n" not in message
    assert len(message) < 400
    message.encode()


def test_every_rule_has_a_corrupt_file():
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS
    assert {case.values[0] for case in [*CASES, *packed_rules.CASES]} == set(NUMBERS)


def test_every_rule_has_a_branch():
    store = ROOT / "src" / "membound" / "store"
    said = {int(n) for path in store.glob("*.py") for n in re.findall(r"# rule (\d+)", path.read_text())}
    assert said == set(NUMBERS)


@pytest.mark.parametrize("mmap", [True, False])
def test_files_are_refused_with_their_path(tmp_path, sound, mmap):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(sound.pack() + b"\0")
    with pytest.raises(ModelError, match=r"broken\.safetensors: .*\(rule 11 "):
        read(path, mmap=mmap)


def test_what_may_be_damage_says_what_to_do_and_a_newer_file_does_not(tmp_path, sound):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(sound.pack() + b"\0")
    with pytest.raises(ModelError, match=r"; the file may be damaged: fetch or write it again \(rule 11 "):
        read(path)
    newer = next(make for rule, words, make in (case.values for case in CASES) if "newer" in str(words))
    with pytest.raises(ModelError, match="upgrade") as caught:
        read_bytes(newer(sound.copy()), "net.safetensors")
    assert "damaged" not in str(caught.value)
