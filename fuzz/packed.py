"""Damage to packed layers that leaves them well formed: other numbers in the prefix, other contents of sections.

Bytes changed at random are refused at the first check. Here a prefix says something else, and the sections may be made
as long as it says, so that what only the checks of contents can find gets there, and much of it is accepted and run.
"""

import json
import random
import struct
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import stored

from membound.errors import ModelError
from membound.store.packed import (
    LAYOUT_CODES,
    PALETTE_CODES,
    TYPE_CODES,
    Prefix,
    format_prefix,
    join_sections,
    take_apart,
)

FLOATS = (0.0, -0.0, np.nan, np.inf, 1e-7, -3.0, 6e4, 1e-45, 3e38)


def edit(content: bytes, draft: stored.Draft, rng: random.Random) -> bytes:
    """The file with one of its packed layers changed; as it is if there is none that can be taken apart."""
    names = [name for name, fields in draft.header.items() if ":" not in name and fields.get("dtype") == "U8"]
    if not names:
        return content
    name = rng.choice(names)
    begin, end = draft.header[name]["data_offsets"]
    array = np.frombuffer(bytes(draft.data[begin:end]), np.uint8)
    try:
        prefix, sections = take_apart(name, array)
    except (ModelError, ValueError):
        return content
    return put_array(draft, name, _changed(prefix, sections, rng))


def edit_single(content: bytes, rng: random.Random) -> bytes | None:
    """The same for a file of one packed layer and no other arrays, many times as fast; None if it is no such."""
    found = _single(content)
    if found is None:
        return None
    metadata, name, prefix, sections = found
    data = _changed(prefix, sections, rng)
    fields = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = f'{{"__metadata__":{metadata},{json.dumps(name)}:{json.dumps(fields)}}}'
    return stored.pack(header.encode(), data)


@lru_cache(1024)  # the originals are taken apart once
def _single(content: bytes) -> tuple[str, str, Prefix, list[Any]] | None:
    try:
        draft = stored.Draft(content)
        (name,) = draft.header
        prefix, sections = take_apart(name, draft.array(name, np.uint8).copy())
        metadata = json.dumps({"membound": json.dumps(draft.about, separators=(",", ":"))})
    except (ModelError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return None
    return metadata, name, prefix, sections


def _changed(prefix: Prefix, sections: list[Any], rng: random.Random) -> bytes:
    """The bytes of a layer with one to three things in it changed."""
    sections = [section.copy() for section in sections]
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.4:
            prefix = _other_prefix(prefix, rng)
            if rng.random() < 0.7:
                sections = _fitted(prefix, sections, rng)
        else:
            _edit_section(sections, rng)
    return join_sections(_bytes(prefix, rng), sections)


def _bytes(prefix: Prefix, rng: random.Random) -> bytes:
    out = bytearray(format_prefix(prefix))
    if rng.random() < 0.05:
        out[rng.randrange(len(out))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    if rng.random() < 0.03:
        out.insert(rng.randrange(len(out) + 1), rng.choice((0, 128)))
    return bytes(out)


def _other_prefix(prefix: Prefix, rng: random.Random) -> Prefix:
    """One of its fields is another, mostly one that may be."""
    near = rng.choice((-1, 1, 1, 7))
    axis = rng.randrange(len(prefix.shape)) if prefix.shape else 0
    shape = list(prefix.shape)
    if shape:
        shape[axis] = max(0, rng.choice((shape[axis] + near, shape[axis] * 2, 1, 0, 2**31 - 1, 65537)))
    lengths = tuple(max(0, length + near) for length in prefix.lengths)
    count = max(0, rng.choice((prefix.count + near, 0, 2 * prefix.count)))
    fields: list[dict[str, Any]] = [
        {"layout": rng.choice(list(LAYOUT_CODES.values()))},
        {"kind": rng.choice(list(TYPE_CODES.values()))},
        {"palette": rng.choice(list(PALETTE_CODES.values()))},
        {"flags": prefix.flags ^ (1 << rng.randrange(8))},
        {"shape": tuple(shape)},
        {"count": count},
        {"entries": max(0, rng.choice((prefix.entries + near, 0, 256)))},
        {"parameter": rng.choice((max(0, prefix.parameter + near), 0, 15, 16))},
        {"lengths": lengths},
    ]
    changed = replace(prefix, **rng.choice(fields))
    if changed.layout.packed and not changed.lengths:
        changed = replace(changed, lengths=(max(1, changed.count // 4),))
    if changed.flags & 16 and changed.original is None:
        changed = replace(changed, original=tuple(size + 1 for size in changed.shape))
    return changed


def _fitted(prefix: Prefix, sections: list[Any], rng: random.Random) -> list[Any]:
    """The sections with the types and lengths that a prefix says, if they are not too long."""
    out = []
    wanted = list(prefix.sections())
    if sum(dtype.itemsize * length for dtype, length in wanted) > 1 << 16:
        return sections
    for place, (dtype, length) in enumerate(wanted):
        content = sections[place].tobytes() if place < len(sections) else b""
        size = dtype.itemsize * length
        if len(content) < size:
            content += bytes(rng.choice((0, 1, 255)) for _ in range(size - len(content)))
        out.append(np.frombuffer(bytearray(content[:size]), dtype))
    return out


def _edit_section(sections: list[Any], rng: random.Random) -> None:
    filled = [section for section in sections if len(section)]
    if not filled:
        return
    section = rng.choice(filled)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.choice((0, len(section) - 1, rng.randrange(len(section))))
        if section.dtype.kind == "f":
            with np.errstate(over="ignore"):
                section[at] = np.array(rng.choice(FLOATS)).astype(section.dtype)
            continue
        raw = section.view(np.uint8)
        how, byte = rng.randrange(4), rng.randrange(len(raw))
        if how == 0:
            raw[byte] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 1:
            value = rng.choice((int(section[at]) + 1, int(section[at]) - 1, 0, len(section)))
            section[at] = np.array(value).astype(section.dtype)
        elif how == 2:
            raw[byte] ^= 1 << rng.randrange(8)
        else:  # as many bits as before are set, elsewhere
            other = rng.randrange(len(raw))
            raw[byte], raw[other] = raw[other], raw[byte]


def put_array(draft: stored.Draft, name: str, content: bytes) -> bytes:
    """The file with another array of this name; those behind it move."""
    begin, end = draft.header[name]["data_offsets"]
    draft.data[begin:end] = content
    more = len(content) - (end - begin)
    for fields in draft.header.values():
        fields["data_offsets"] = [at + more if at >= end else at for at in fields["data_offsets"]]
    draft.header[name] = {
        "dtype": "U8",
        "shape": [len(content)],
        "data_offsets": [begin, begin + len(content)],
    }
    return draft.pack()
