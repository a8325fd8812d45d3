"""A file of few bytes: its description, deflated, and its packed layers, all in one array.

An entry of the header takes some 80 bytes, and a description 500 to 1,000: of a network in 12 KB, a seventh. Here both
take about 300. docs/FORMAT.md has the order.
"""

import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.packed import ALIGNMENT, first_layer
from membound.store.rules import COMPACT, MAX_HEADER, is_name, refuse

Array = npt.NDArray[Any]
NAME = "membound"  # of the array
TEXT = f'{{"v":{COMPACT}}}'  # what stands for the description in the container
_LENGTH = np.dtype("<u4")
# What descriptions are full of, the most frequent last; part of the format, so it never changes.
DICTIONARY = (
    b'"mirror":true,"crop":,"scale":,"takes":"float32","mean":"image","q":{"],"t":{"],"i":{"whole"],"out":,"groups":,'
    b'"dilation":[2,2],"clip",0,6],"hardswish"],"hardsigmoid"],"gelu"],"silu"],["softmax",{"axis":0}],'
    b'["permute",{"axes":[1,0]}],["layernorm",{"eps":1e-06}],["matmul",["concat",{"axis":0}],["slice",{"axis":0,"start":0,'
    b'"stop":["mul",[["mean",{"axes":[1,2]}],["pad",{"pad":[[0,0],[0,1],[0,1]]}],["avgpool",{"kernel":[2,2]}],["maxpool",'
    b'{"kernel":[3,3],"stride":[2,2],["maxpool",{"kernel":[2,2]}],["adaptive",{"kind":"avg","size":[1,1]}],'
    b'["reshape",{"shape":["linear","classifier","head","fc"]],"p":{"mean":[],"std":[]},"c":["0","1","2","3","4"]}'
    b'["add",[],{"act":["relu"]}],features.layers.stages.downsample.shortcut",{"stride":[2,2],"act":["relu"]}],'
    b'["conv","blocks.0.conv1.0",{"pad":[1,1,1,1],"act":["relu"]}],{"v":3,"in":[3,32,32],"n":[["conv","conv1",'
)


def layer_names(nodes: Any, own: Collection[str]) -> list[str]:
    """The layers that are joined, in order: those that nodes name, but for weights with arrays of their `own`."""
    items = nodes if isinstance(nodes, list) else []
    named = [
        item[1] for item in items if isinstance(item, list) and len(item) > 1 and isinstance(item[1], str)
    ]
    return [name for name in dict.fromkeys(named) if f"{name}.weight" not in own and name not in own]


def join(text: str, layers: Mapping[str, Array]) -> npt.NDArray[np.uint8]:
    """The one array of a description and layers."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zdict=DICTIONARY)
    body = packer.compress(text.encode()) + packer.flush()
    out = len(body).to_bytes(_LENGTH.itemsize, "little") + body
    out += bytes(-len(out) % ALIGNMENT)
    return np.concatenate([np.frombuffer(out, np.uint8), *layers.values()])


def split_text(array: Array) -> tuple[str, Array]:
    """The description in this array, and what follows it."""
    if array.dtype != np.uint8 or array.ndim != 1 or len(array) < _LENGTH.itemsize:  # rule 52
        refuse(52, f"the array {NAME!r} must have bytes along one axis, and its length at first")
    length = int(array[: _LENGTH.itemsize].view(_LENGTH)[0])
    end = _LENGTH.itemsize + length
    begin = end + -end % ALIGNMENT
    if begin > len(array) or array[end:begin].any():  # rule 52
        refuse(52, f"cut short, or damaged: a description of {length} bytes in an array of {len(array)}")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=DICTIONARY)
    try:
        found = unpacker.decompress(array[_LENGTH.itemsize : end].tobytes(), MAX_HEADER)
        text = found.decode("utf-8")
    except (zlib.error, ValueError):
        refuse(52, "the description of the network cannot be unpacked: the file is damaged; fetch it again")
    if not unpacker.eof or unpacker.unused_data:  # rule 52
        refuse(52, f"the description of the network ends too early, too late, or beyond {MAX_HEADER:,} bytes")
    return text, array[begin:]


def split_layers(rest: Array, names: list[str]) -> dict[str, Array]:
    """The layers of these names, which are all that there is."""
    found = {}
    for name in names:
        if not is_name(name):  # rule 12
            refuse(12, f"layer {name[:80]!r} has no allowed name: printable, up to 300 characters")
        if not len(rest):  # rule 53
            refuse(53, f"there is no layer {name!r} behind those before it")
        found[name] = first_layer(name, rest)
        rest = rest[len(found[name]) :]
    if len(rest):  # rule 53
        refuse(53, f"{len(rest)} bytes follow the last layer")
    return found
