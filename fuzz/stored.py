"""A small network in every format, and its file taken apart so that tests can damage it."""

import copy
import json
import struct

import numpy as np

from membound.store.compact import join, layer_names
from membound.store.file import assemble, encode_tensors
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.layouts import LAYOUTS
from membound.store.model import Model

FORMATS = {
    "conv.weight": "bitmask",
    "conv.bias": "dense",
    "fc1.weight": "csr",
    "fc1.bias": "delta",
    "fc2.weight": "delta",
    "fc3.weight": "indexed",
    "fc3.bias": "dense",
    "shift": "dense",
}


def sparse(shape, keep, seed=0):
    """An array with `keep` nonzeros at random places."""
    rng = np.random.default_rng(seed)
    array = np.zeros(shape, np.float32).reshape(-1)
    array[rng.choice(array.size, keep, replace=False)] = rng.uniform(0.5, 2, keep) * rng.choice([-1, 1], keep)
    return array.reshape(shape)


def network() -> Model:
    """Convolution, pool, three linear layers, a constant, a residual sum: every format and role."""
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1), "act": ("relu",)}, {"w": "conv.weight", "b": "conv.bias"}),
        Node("maxpool", (1,), {"kernel": (2, 2)}),
        Node("reshape", (2,), {"shape": (36,)}),
        Node("linear", (3,), {"act": ("leaky", 0.5)}, {"w": "fc1.weight", "b": "fc1.bias"}),
        Node("linear", (4,), {}, {"w": "fc2.weight"}),
        Node("add", (5, 4), {"act": ("clip", -3.0, 6.0)}),
        Node("add", (6,), {}, {"c": "shift"}),
        Node("linear", (7,), {}, {"w": "fc3.weight", "b": "fc3.bias"}),
    )
    tensors = {
        "conv.weight": sparse((4, 2, 3, 3), 30, 1),
        "conv.bias": sparse((4,), 4, 2),
        "fc1.weight": sparse((20, 36), 200, 3),
        "fc1.bias": sparse((20,), 3, 4),
        "fc2.weight": far_apart(),
        "fc3.weight": sparse((3, 20), 9, 5),
        "fc3.bias": sparse((3,), 3, 6),
        "shift": sparse((20,), 20, 7),
    }
    original = {"conv.weight": (9, 2, 3, 3), "conv.bias": (9,), "fc1.weight": (20, 81)}
    return Model(
        Graph((2, 6, 6), nodes, 8),
        tensors,
        original,
        {"scale": 0.5, "mean": "image"},
        ["a", "b", "c"],
        np.arange(128, dtype=np.float32).reshape(2, 8, 8),
    )


def few_valued(shape, keep, table, seed=0):
    """An array with `keep` nonzeros at random places, of these values."""
    array = sparse(shape, keep, seed)
    chosen = np.random.default_rng(seed + 1).choice(np.asarray(table, np.float32), shape)
    return np.where(array == 0, np.float32(0), chosen)


# Values that make each kind of palette the smallest for them.
TABLES = {
    "f32": [0.1, -0.3],
    "f16": [1.5, 0.0999755859375],
    "i8": [1, -31, 40, -7, 9, 100],
    "linear": [0.25, -0.5],
}
TYPES = ("f32", "f16", *(f"p{bits}" for bits in range(1, 9)))


def packed_networks():
    """Two small networks for every layout and type of values, packed: a convolution, and a linear layer.

    The number of one decides on scales, a bias, the kind of palette, and whether values must be quantized.
    """
    ways = [(layout, kind) for kind in TYPES for layout in LAYOUTS]
    for number, (layout, kind) in enumerate([*ways, *ways]):
        yield packed_network(number, layout, kind)


def packed_network(number, layout, kind):
    """The parts of a file of one layer, and the network as stored."""
    nodes, shape, weight = (
        ((Node("conv", (0,), {"pad": (1, 1, 1, 1)}, {"w": "a.weight"}),), (2, 4, 5), (4, 2, 3, 3))
        if (number // len(LAYOUTS)) % 2
        else ((Node("linear", (0,), {"act": ("relu",)}, {"w": "a.weight"}),), (300,), (3, 300))
    )
    table = list(TABLES.values())[number % 4]
    array = sparse(weight, 30, number) if number % 5 == 0 else few_valued(weight, 20, table, number)
    rows = np.arange(1, 1 + len(array), dtype=np.float32) * (1e5 if number % 7 == 0 else -0.5)
    scaled = kind[0] == "p" and number % 3 < 2
    tensors = {"a.weight": encode(array, layout, kind, rows if scaled else None)}
    original = {"a.weight": (9, *weight[1:])} if number % 4 == 1 else {}
    if number % 3:
        nodes[0].tensors["b"] = "a.bias"
        tensors["a.bias"] = encode(sparse(weight[:1], 2, number), "dense", ("f16", "f32")[number % 2])
    activations = {0: (0.5, 128), 1: (0.25, 0)}  # also what packs every layer
    model = Model(Graph(shape, nodes, 1), {}, original, activations=activations)
    return assemble(model, tensors, compact=False)


def packed_files() -> list[bytes]:
    return [b"".join(parts) for parts, _ in packed_networks()]


def far_apart():
    """A weight whose last nonzero is 398 after the one before: over 256, so that delta needs a filler."""
    array = np.zeros(400, np.float32)
    array[[0, 1, 399]] = [1, -2, 4]
    return array.reshape(20, 20)


def in_every_format(values="f32"):
    """The parts of the file of `network()`."""
    model = network()
    tensors = {name: encode(model.tensors[name], format, values) for name, format in FORMATS.items()}
    return assemble(model, tensors, values)


def file_bytes(values="f32") -> bytes:
    return b"".join(in_every_format(values)[0])


def plain_bytes(model, values="f32") -> bytes:
    return b"".join(assemble(model, encode_tensors(model, values), values, compact=False)[0])


WIDTHS = {"F32": 4, "U32": 4, "F16": 2, "U16": 2}  # bytes of an element


def joined(content: bytes) -> bytes:
    """A file of version 2 as one of version 3, whatever is wrong with it; as it is where that cannot be."""
    try:
        draft = Draft(content)
        about = draft.about | {"v": 3}
        alone = [name for name, fields in draft.header.items() if fields["dtype"] != "U8" or ":" in name]
        layers = {name: draft.array(name, np.uint8) for name in layer_names(about["n"], alone)}
        array = join(json.dumps(about, separators=(",", ":")), layers)
        others = [name for name in draft.header if name not in layers]
        others.sort(key=lambda name: -WIDTHS.get(draft.header[name]["dtype"], 1))  # so that each is aligned
        arrays = {name: draft.array(name, np.uint8).tobytes() for name in others}
        arrays["membound"] = array.tobytes()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return content
    header, data = {"__metadata__": {"membound": '{"v":3}'}}, b""
    for name, part in arrays.items():
        fields = draft.header.get(name, {"dtype": "U8", "shape": [len(part)]})
        header[name] = {**fields, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return pack(json.dumps(header, separators=(",", ":")).encode(), data)


class Draft:
    """A file taken apart: `header` without its metadata, `about` (the description) and the data."""

    def __init__(self, content: bytes):
        (length,) = struct.unpack("<Q", content[:8])
        self.header = json.loads(content[8 : 8 + length])
        self.about = json.loads(self.header.pop("__metadata__")["membound"])
        self.data = bytearray(content[8 + length :])

    def copy(self):
        return copy.deepcopy(self)

    def array(self, name, dtype):
        """The array of this name, to be changed in place."""
        begin, end = self.header[name]["data_offsets"]
        return np.frombuffer(memoryview(self.data)[begin:end], dtype)

    def node(self, op):
        return next(node for node in self.about["n"] if node[0] == op)

    def pack(self, about=None, **metadata) -> bytes:
        text = json.dumps(self.about, separators=(",", ":")) if about is None else about
        header = {"__metadata__": {"membound": text, **metadata}, **self.header}
        return pack(json.dumps(header, separators=(",", ":")).encode(), bytes(self.data))


def pack(header: bytes, data: bytes, align=64) -> bytes:
    header += b" " * (-(8 + len(header)) % align)
    return struct.pack("<Q", len(header)) + header + data
