"""Read a model file with nothing but numpy: all versions of docs/FORMAT.md, no rule checked.

python examples/read_file.py net.safetensors

It shows the format, and is a start for a reader in another language. membound's own reader checks every rule.
"""

import json
import sys
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {"F32": "<f4", "F16": "<f2", "U32": "<u4", "U16": "<u2", "U8": "u1"}
LAYOUTS = ("dense", "bitmask", "indexed", "csr", "delta", "rice")
NO_PALETTE, F32_TABLE, F16_TABLE, I8_TABLE, LINEAR = range(5)
SCALES, WIDE_SCALES, BIAS, WIDE_BIAS, ORIGINAL, OWN_NAME, BYTE_SCALES, BYTE_BIAS = (
    1 << bit for bit in range(8)
)
DICTIONARY = (  # what a deflated description may refer to
    rb'"mirror":true,"crop":,"scale":,"takes":"float32","mean":"image","q":{"],"t":{"],"i":{"whole"],"out":'
    rb',"groups":,"dilation":[2,2],"clip",0,6],"hardswish"],"hardsigmoid"],"gelu"],"silu"],["softmax",{"axi'
    rb's":0}],["permute",{"axes":[1,0]}],["layernorm",{"eps":1e-06}],["matmul",["concat",{"axis":0}],["slic'
    rb'e",{"axis":0,"start":0,"stop":["mul",[["mean",{"axes":[1,2]}],["pad",{"pad":[[0,0],[0,1],[0,1]]}],["'
    rb'avgpool",{"kernel":[2,2]}],["maxpool",{"kernel":[3,3],"stride":[2,2],["maxpool",{"kernel":[2,2]}],["'
    rb'adaptive",{"kind":"avg","size":[1,1]}],["reshape",{"shape":["linear","classifier","head","fc"]],"p":'
    rb'{"mean":[],"std":[]},"c":["0","1","2","3","4"]}["add",[],{"act":["relu"]}],features.layers.stages.do'
    rb'wnsample.shortcut",{"stride":[2,2],"act":["relu"]}],["conv","blocks.0.conv1.0",{"pad":[1,1,1,1],"act'
    rb'":["relu"]}],{"v":3,"in":[3,32,32],"n":[["conv","conv1",'
)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The description of the network, and its tensors, dense."""
    content = Path(path).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    about = json.loads(header.pop("__metadata__")["membound"])
    arrays = {
        name: np.frombuffer(content[begin:][slice(*each["data_offsets"])], TYPES[each["dtype"]])
        for name, each in header.items()
    }
    tensors: dict[str, Array] = {}
    if about["v"] >= 3:
        whole = arrays.pop("membound")
        length = int.from_bytes(whole[:4].tobytes(), "little")
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=DICTIONARY)
        about = json.loads(unpacker.decompress(whole[4 : 4 + length].tobytes()))
        at = 4 + -(-length // 4) * 4
        for name in joined(about, arrays):
            layer, taken = unpack(whole[at:], name)
            tensors |= layer
            at += taken
    packed = [name for name, each in arrays.items() if each.dtype == np.uint8 and ":" not in name]
    for name in packed:
        tensors |= unpack(arrays.pop(name), name)[0]
    shapes = {name: each["shape"] for name, each in header.items()}
    for name, (stored, *_) in about.get("t", {}).items():
        shapes[name if name in header else f"{name}.weight"] = stored
    for name in (name for name in arrays if ":" not in name):
        others = {key.split(":")[1]: each for key, each in arrays.items() if key.startswith(f"{name}:")}
        layout = next((each for each in LAYOUTS if each in others), "dense")
        # A bias may leave its shape out: it is as long as its weight has rows.
        shape = (
            shapes[name]
            if layout == "dense" or name in shapes
            else shapes[name.replace("bias", "weight")][:1]
        )
        tensors[name] = spread(arrays[name], layout, others, tuple(shape))
    return about, tensors


def joined(about: dict[str, Any], arrays: dict[str, Array]) -> Iterator[str]:
    """The layers that one array holds, in order: those that nodes name, but not those with arrays of their own."""
    names = dict.fromkeys(node[1] for node in about["n"] if len(node) > 1 and isinstance(node[1], str))
    return (name for name in names if name not in arrays and f"{name}.weight" not in arrays)


def unpack(array: Array, name: str) -> tuple[dict[str, Array], int]:
    """The tensors of a packed layer, and how many bytes it takes."""
    content = array.tobytes()
    layout, bits, palette, flags, axes = content[:5]
    at = 5

    def number() -> int:
        nonlocal at
        found = shift = 0
        while True:
            byte, at = content[at], at + 1
            found, shift = found | (byte & 127) << shift, shift + 7
            if byte < 128:
                return found

    def section(kind: str, count: int) -> Array:
        nonlocal at
        if not count:
            return np.zeros(0, kind)
        size = np.dtype(kind).itemsize
        at = -(-at // size) * size + count * size
        return np.frombuffer(content[at - count * size : at], kind)

    def numbers(count: int, is_wide: bool, is_byte: bool) -> Array:
        if is_byte:  # of 8 bits, times a step: the upper half of a float32
            step = (section("<u2", 1).astype("<u4") << 16).view("<f4")
            return section("i1", count).astype(np.float32) * step
        return section("<f4" if is_wide else "<f2", count).astype(np.float32)

    shape = tuple(number() for _ in range(axes))
    if flags & ORIGINAL:
        for _ in range(axes):
            number()
    size, rows = prod(shape), shape[0] if axes > 1 else 1
    count = size if LAYOUTS[layout] == "dense" else number()
    entries = number() if palette in (F32_TABLE, F16_TABLE, I8_TABLE) else 0
    rice = (number(), number()) if LAYOUTS[layout] == "rice" else (0, 0)
    step = section("<f4", 1) if palette in (I8_TABLE, LINEAR) else None
    table = section({F32_TABLE: "<f4", F16_TABLE: "<f2"}.get(palette, "i1"), entries).astype(np.float32)
    scales = numbers(rows, bool(flags & WIDE_SCALES), bool(flags & BYTE_SCALES)) if flags & SCALES else None
    bias = numbers(shape[0], bool(flags & WIDE_BIAS), bool(flags & BYTE_BIAS)) if flags & BIAS else None
    if palette == NO_PALETTE:
        values = section(f"<f{bits // 8}", count).astype(np.float32)
    else:
        codes = unpack_bits(section("u1", -(-count * bits // 8)), bits, count)
        values = (codes - 2.0 ** (bits - 1)).astype(np.float32) if palette == LINEAR else table[codes]
        values = values if step is None else values * step
    places = {}
    if LAYOUTS[layout] == "bitmask":
        places["bitmask"] = section("u1", -(-size // 8))
    elif LAYOUTS[layout] == "csr":
        places["csr"] = section("<u2" if size // rows <= 65536 else "<u4", count)
        places["rows"] = section("<u2" if count <= 65535 else "<u4", rows + 1)
    elif LAYOUTS[layout] == "rice":
        k, high = rice
        places["rice"] = unrice(section("u1", high), section("u1", -(-count * k // 8)), k, count)
    elif LAYOUTS[layout] != "dense":
        places[LAYOUTS[layout]] = section("u1" if LAYOUTS[layout] == "delta" else "<u4", count)
    weight = spread(values, LAYOUTS[layout], places, shape)
    if scales is not None:
        weight = weight * scales.reshape(-1, *[1] * (axes - 1))
    tensors = {name if flags & OWN_NAME else f"{name}.weight": weight}
    if bias is not None:
        tensors[f"{name}.bias"] = bias
    return tensors, -(-at // 4) * 4


def unpack_bits(packed: Array, bits: int, count: int) -> Array:
    """Numbers of so many bits each, the lowest bits first."""
    each = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
    return each @ (1 << np.arange(bits))


def unrice(high: Array, low: Array, k: int, count: int) -> Array:
    """The numbers of the elements that a rice layout names."""
    ends = np.flatnonzero(np.unpackbits(high, bitorder="little"))  # the i-th at i + the sum of q up to i
    quotients = np.diff(ends - np.arange(count), prepend=0)
    rests = unpack_bits(low, k, count) if k else 0
    return np.cumsum((quotients << k) + rests + 1) - 1


def spread(values: Array, layout: str, places: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """The values at their places, zeros elsewhere."""
    flat = np.zeros(prod(shape), np.float32)
    if layout == "dense":
        at = np.arange(flat.size)
    elif layout == "bitmask":
        at = np.flatnonzero(np.unpackbits(places["bitmask"], bitorder="little")[: flat.size])
    elif layout == "csr":
        counts = np.diff(places["rows"].astype(np.int64))
        at = np.repeat(np.arange(len(counts)), counts) * (flat.size // len(counts)) + places["csr"]
    elif layout == "delta":
        at = np.cumsum(places["delta"].astype(np.int64) + 1) - 1
    else:
        at = places[layout]
    flat[at] = values
    return flat.reshape(shape)


if __name__ == "__main__":
    about, tensors = read(sys.argv[1])
    print(f"version {about['v']}, input {about['in']}, {len(about['n'])} nodes")
    for name, tensor in tensors.items():
        print(f"{name}: {list(tensor.shape)}, {np.count_nonzero(tensor):,} nonzeros")
