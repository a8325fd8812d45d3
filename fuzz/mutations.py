"""Damage to model files, drawn from a seed: bytes, lengths, JSON, arrays, and whole arrays exchanged."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import mixing
import numpy as np
import packed
import stored

from membound.store.graph import ACTIVATIONS, Graph, Input, Node, Output
from membound.store.model import Model
from membound.store.operators import OPERATORS

INTEGERS = [0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 257, 16383, 16384, 16385, 65535, 65536, 65537]
INTEGERS += [2**k + d for k in (24, 31, 32, 33, 53, 63, 64) for d in (-1, 0, 1)] + [10**40]
INTEGERS += [-value for value in INTEGERS]
OTHERS = [
    None,
    True,
    False,
    "",
    "conv",
    "a\nb",
    "\ud800",
    0.5,
    -0.0,
    1e39,
    1e-46,
    [],
    {},
    [0],
    [[0, 0]],
    [1] * 9,
]
WORDS = [
    *OPERATORS,
    *ACTIVATIONS,
    *sorted({name for known in OPERATORS.values() for name in known.attributes}),
    "w",
    "b",
    "c",
]
WORDS += [
    "v",
    "in",
    "n",
    "out",
    "t",
    "p",
    "c",
    "i",
    "whole",
    "float32",
    "mean",
    "std",
    "image",
    "all",
    "valid",
    "F32",
    "F16",
    "U8",
    "U16",
    "U32",
]
KINDS = {"F32": np.float32, "F16": np.float16, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8}


def originals() -> list[bytes]:
    """Small sound files: every format at f32 and f16, every operator, and packed layers in every way that there is."""
    plain = [stored.file_bytes("f32"), stored.file_bytes("f16"), stored.plain_bytes(every_operator())]
    few = stored.plain_bytes(every_operator(), "p4")
    return [*plain * 30, *[few] * 10, *packed_originals(), *mixing.files() * 3]


def packed_originals() -> list[bytes]:
    """Those of one packed layer each."""
    return stored.packed_files()


def every_operator() -> Model:
    """A network of all operators."""
    nodes = (
        Node(
            "conv",
            (0,),
            {"stride": (2, 1), "pad": (1, 0, 2, 1), "groups": 2},
            {"w": "c.weight", "b": "c.bias"},
        ),
        Node("lrn", (1,), {"size": 3, "alpha": 0.1, "beta": 0.75, "k": 1}),
        Node("maxpool", (2,), {"kernel": (2, 2), "stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}),
        Node("avgpool", (3,), {"kernel": (3, 3), "stride": (2, 2), "over": (1, 0), "count": "valid"}),
        Node("adaptive", (1,), {"kind": "avg", "size": (3, 3)}),
        Node("act", (5,), {"act": ("gelu",)}),
        Node("slice", (6,), {"axis": 1, "start": 0, "stop": 3, "step": 2}),
        Node("pad", (7,), {"pad": ((0, 0), (1, 0), (0, 1)), "value": 0.5}),
        Node("permute", (8,), {"axes": (2, 0, 1)}),
        Node("mean", (9,), {"axes": (0, 2)}),
        Node("linear", (10,), {"act": ("elu", 1.0)}, {"w": "l.weight", "b": "l.bias"}),
        Node("softmax", (11,), {"axis": 0, "log": True}),
        Node("concat", (12, 11, 10), {"axis": 0}),
        Node("mul", (13,), {"act": ("sigmoid",)}, {"c": "scale"}),
        Node("sub", (14,), {"value": 1.5, "swap": True}),
        Node("div", (15, 13), {}),
        Node("reshape", (16,), {"shape": (2, 7)}),
        Node("add", (17,), {"value": 1e-3, "act": ("hardswish",)}),
        Node("layernorm", (18,), {"last": 1, "eps": 1e-3}, {"w": "n.weight", "b": "n.bias"}),
        Node("reshape", (19,), {"shape": (1, 2, 7)}),
        Node("upsample", (20,), {"factor": (2, 3)}),
        Node("resize", (21,), {"kind": "linear", "size": (3, 5)}),
        Node("matmul", (22, 22), {"transpose": True, "scale": 0.5}),
        Node("gather", (23,), {"axis": 1, "indices": (2, 0)}),
        Node("constant", (), {}, {"c": "token"}),
        Node("concat", (24, 25), {"axis": 1}),
        Node("maximum", (26,), {"value": 0.1}),
        Node("minimum", (27,), {"value": 9}),
        Node("max", (28,), {"axes": (0,), "keep": True}),
        Node("input", (), {"shape": (3, 2)}),
        Node("embedding", (30,), {}, {"w": "e.weight"}),
    )
    tensors = {
        "c.weight": stored.sparse((4, 1, 3, 3), 9),
        "c.bias": stored.sparse((4,), 2),
        "l.weight": stored.sparse((5, 4), 11),
        "l.bias": stored.sparse((5,), 5),
        "scale": stored.sparse((14,), 14),
        "n.weight": stored.sparse((7,), 7),
        "n.bias": stored.sparse((7,), 3),
        "token": stored.sparse((1, 1, 3), 2),
        "e.weight": stored.sparse((6, 4), 9),
    }
    preprocess = {"scale": 0.5, "mean": [1.0, 2.0], "std": [1.0, 2.0], "crop": 7, "mirror": True}
    original = {"l.weight": (5, 9), "c.weight": (8, 1, 3, 3), "c.bias": (8,)}
    inputs, outputs = (Input("x"), Input("ids", whole=True)), (Output(29, "most"), Output(31, "rows"))
    return Model(Graph((2, 7, 7), nodes, 29, inputs, outputs), tensors, original, preprocess, list("abcd"))


def mutate(content: bytes, rng: random.Random, mostly: str = "") -> bytes:
    """A damaged copy: one to three kinds of damage; mostly that of "packed" layers or of "nodes", if so."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        damages = _MOSTLY[mostly] if mostly and rng.random() < 0.85 else _MUTATIONS
        content = rng.choice(damages)(content, rng)
    if rng.random() < 0.5:
        content = stored.joined(content)
        if rng.random() < 0.1:
            content = rng.choice(_MUTATIONS)(content, rng)
    return content


def _flip(content: bytes, rng: random.Random) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set_bytes(content: bytes, rng: random.Random) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice((1, 2, 4)) if out else 0):
        out[rng.randrange(len(out))] = rng.choice((0, 1, 0x20, 0x22, 0x5C, 0x7B, 0x7D, 0x7F, 0x80, 0xFF))
    return bytes(out)


def _resize(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return content + bytes(rng.choice((1, 2, 4, 64)))
    return content[: rng.choice((rng.randrange(len(content) + 1), 0, 7, 8, 9, max(len(content) - 1, 0)))]


def _move(content: bytes, rng: random.Random) -> bytes:
    """Cut a piece out, double it or exchange it with another."""
    if len(content) < 16:
        return content
    begin = rng.randrange(len(content) - 8)
    end = begin + rng.randrange(1, 65)
    piece = content[begin:end]
    how = rng.randrange(3)
    if how == 0:
        return content[:begin] + content[end:]
    if how == 1:
        return content[:end] + piece + content[end:]
    at = rng.randrange(len(content))
    return content[:at] + piece + content[at + len(piece) :]


def _edit_packed(content: bytes, rng: random.Random) -> bytes:
    """Change what a packed layer says of itself, or has in it."""
    fast = packed.edit_single(content, rng)
    if fast is not None:
        return fast
    draft = _take_apart(content)
    return content if draft is None else packed.edit(content, draft, rng)


def _length(content: bytes, rng: random.Random) -> bytes:
    length = int.from_bytes(content[:8], "little")
    value = rng.choice((length + rng.choice((-64, -8, -1, 1, 8, 64)), *INTEGERS)) % 2**64
    return value.to_bytes(8, "little") + content[8:]


def _edit_json(content: bytes, rng: random.Random) -> bytes:
    """Change one place in the header or in the description, and write the file anew around it."""
    draft = _take_apart(content)
    if draft is None:
        return content
    nodes = draft.about.get("n")
    tree = rng.choice((nodes, nodes, draft.about, draft.header))
    _edit_tree(tree, rng)
    text = json.dumps(draft.about, separators=(",", ":"))
    if rng.random() < 0.05:  # numbers that JSON has and Python has not, keys twice, deep nests
        text = rng.choice(
            (text.replace("1", "1e999", 1), text[:-1] + "," + text[1:], "[" * 500 + text, text + text)
        )
    return draft.pack(text)


def _append_node(content: bytes, rng: random.Random) -> bytes:
    """Put more nodes behind the last: of the right kinds, so that many are accepted and run."""
    draft = _take_apart(content)
    nodes = draft.about.get("n") if draft is not None else None
    if draft is None or not isinstance(nodes, list):
        return content
    for _ in range(rng.choice((1, 1, 2, 4))):
        op = rng.choice(list(OPERATORS))
        given = {name: _likely(op, name, rng) for name in OPERATORS[op].attributes if rng.random() < 0.8}
        inputs = [rng.randrange(len(nodes) + 1) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        named = list(draft.header) or ["w"]  # a mutation before may have left none
        layer = [rng.choice(named).removesuffix(".weight")] if "w" in OPERATORS[op].roles else []
        if op in ("add", "sub", "mul", "div", "maximum", "minimum") and len(inputs) > 1:
            given.pop("value", None)
        nodes.append(
            [op, *layer, inputs, {name: value for name, value in given.items() if value is not None}]
        )
    return draft.pack()


def _likely(op: str, name: str, rng: random.Random) -> Any:
    """An attribute that may well be allowed."""
    size = rng.choice((1, 1, 2, 3, 5, 9))
    if name in ("kernel", "stride", "dilation", "size", "factor") and op != "lrn":
        return [size, rng.choice((1, 2, size))]
    if name == "pad" and op == "pad":
        return [[rng.randrange(3), rng.randrange(3)] for _ in range(rng.choice((1, 2, 3)))]
    if name in ("axes", "shape"):
        return (
            rng.sample((0, 1, 2), rng.choice((1, 2, 3)))
            if name == "axes"
            else [rng.choice((3, 14, 20, 36, 72))]
        )
    pools: dict[str, list[Any]] = {
        "pad": [[0, 0, 0, 0], [1, 1, 1, 1], [size, 0, 2, size]],
        "over": [[0, 0], [1, 0], [1, 2]],
        "groups": [1, 2, 4],
        "last": [1, 2, 3],
        "eps": [1e-5, 1],
        "act": [[act, *(rng.choice((-1, 0, 0.1, 6)) for _ in range(n))] for act, n in ACTIVATIONS.items()],
        "count": ["all", "valid", 3, -0.5],
        "kind": ["avg", "max", "nearest", "exact", "linear", "cubic"],
        "indices": [[0], [1, 0, 0], [2, 9]],
        "scale": [1, 0.5, [2, 1.5]],
        "corners": [False, True],
        "transpose": [False, True],
        "swap": [False, True],
        "keep": [False, True],
        "log": [False, True],
        "axis": [0, 1, 2],
        "start": [0, 1],
        "stop": [1, 2, 3],
        "step": [1, 2, 2**31 - 1],
        "value": [0, -1.5, 1e38],
    }
    return rng.choice(pools.get(name, [size, 0.75, -1]))


def _take_apart(content: bytes) -> stored.Draft | None:
    try:
        draft = stored.Draft(content)
        json.dumps(draft.header).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return None
    usable = isinstance(draft.header, dict) and isinstance(draft.about, dict)
    return draft if usable and all(map(_is_entry, draft.header.values())) else None


def _is_entry(fields: Any) -> bool:
    return (
        isinstance(fields, dict)
        and isinstance(fields.get("data_offsets"), list)
        and len(fields["data_offsets"]) == 2
        and all(type(offset) is int and 0 <= offset < 2**31 for offset in fields["data_offsets"])
    )


def _edit_tree(tree: Any, rng: random.Random) -> None:
    """Replace, delete, double or rename something at a random depth."""
    while True:
        if not isinstance(tree, dict | list) or not tree:
            return
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.75:
            tree = tree[key]
            continue
        break
    how = rng.random()
    if how < 0.65:
        tree[key] = _another(tree[key], rng)
    elif how < 0.75:
        del tree[key]
    elif isinstance(tree, list):
        other = rng.randrange(len(tree))
        if how < 0.9:
            tree[key], tree[other] = tree[other], tree[key]
        else:
            tree.insert(other, tree[key])
    else:
        name = (
            rng.choice(WORDS)
            if rng.random() < 0.5
            else key + rng.choice((":csr", ":delta", ":rows", ".weight", "x"))
        )
        tree[name] = tree.pop(key) if how < 0.9 else tree[key]


def _another(value: Any, rng: random.Random) -> Any:
    if type(value) is int and rng.random() < 0.6:
        return value + rng.choice((-1, 1, -2, 2, value))
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice(WORDS)
    return rng.choice(INTEGERS) if rng.random() < 0.6 else rng.choice(OTHERS)


def _edit_array(content: bytes, rng: random.Random) -> bytes:
    """Change elements of one array, as elements."""
    draft = _take_apart(content)
    if draft is None or not draft.header:
        return content
    name = rng.choice(list(draft.header))
    kind = KINDS.get(str(draft.header[name].get("dtype")))
    begin, end = draft.header[name]["data_offsets"]
    if kind is None or end > len(draft.data) or begin >= end or (end - begin) % np.dtype(kind).itemsize:
        return content
    array = draft.array(name, kind)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.choice((0, len(array) - 1, rng.randrange(len(array))))
        if np.issubdtype(kind, np.floating):
            array[at] = rng.choice((0.0, -0.0, np.nan, np.inf, 1e-7, -3.0, 6e4))
        else:
            limit = int(np.iinfo(kind).max)
            near = int(array[at]) + rng.choice((-1, 1))
            array[at] = (
                rng.choice((near, near, 0, 1, limit, limit - 1, len(array), rng.randrange(limit))) & limit
            )
    return draft.pack()


def _exchange(content: bytes, rng: random.Random) -> bytes:
    """Exchange two arrays, give one the place, type or shape of another, or take one away."""
    draft = _take_apart(content)
    if draft is None or len(draft.header) < 2:
        return content
    one, other = rng.sample(list(draft.header), 2)
    how = rng.randrange(4)
    if how == 0:
        draft.header[one], draft.header[other] = draft.header[other], draft.header[one]
    elif how == 1:
        draft.header[one] = dict(draft.header[other])
    elif how == 2:
        field = rng.choice(("dtype", "shape", "data_offsets"))
        draft.header[one][field] = draft.header[other].get(field)
    else:
        return _without(draft, one).pack()
    return draft.pack()


def _without(draft: stored.Draft, name: str) -> stored.Draft:
    """The file without one array, closed up behind it."""
    begin, end = draft.header.pop(name)["data_offsets"]
    del draft.data[begin:end]
    for fields in draft.header.values():
        fields["data_offsets"] = [
            at - max(end - begin, 0) if at >= end else at for at in fields["data_offsets"]
        ]
    return draft


_MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _set_bytes,
    _resize,
    _move,
    _length,
    _edit_json,
    _edit_json,
    _edit_json,
    _edit_json,
    _append_node,
    _append_node,
    _append_node,
    _edit_array,
    _edit_array,
    *[_edit_packed] * 8,
    _exchange,
]
_MOSTLY = {"packed": [_edit_packed], "nodes": [_edit_json, _edit_json, _append_node, _edit_array]}
