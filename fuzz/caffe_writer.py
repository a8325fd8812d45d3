"""A tiny protobuf writer for Caffe's messages, written apart from the reader, for tests."""

import struct


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def floats(field, values, packed=True, code="f"):
    parts = [struct.pack("<" + code, v) for v in values]
    wire = 5 if code == "f" else 1
    return block(field, b"".join(parts)) if packed else b"".join(varint(field << 3 | wire) + p for p in parts)


def new_shape(dims, packed=True):
    return block(7, block(1, b"".join(map(varint, dims))) if packed else b"".join(number(1, d) for d in dims))


def old_shape(dims):
    padded = [1] * (4 - len(dims)) + list(dims)
    return b"".join(number(i + 1, d) for i, d in enumerate(padded))


def new_blob(array, **how):
    return floats(5, array.ravel().tolist(), **how) + new_shape(array.shape)


def old_blob(array):
    return old_shape(array.shape) + floats(5, array.ravel().tolist())


def model(layers, version="layer"):
    """A NetParameter of {name: [arrays]} in one of the three encodings; a layer without blobs around them."""
    out = block(1, "test net")
    for name, arrays in {"data": [], **layers, "loss": []}.items():
        if version == "layer":
            blobs = b"".join(block(7, new_blob(a)) for a in arrays)
            out += block(
                100, block(1, name) + block(2, "Convolution") + block(3, "bottom") + blobs + number(10, 0)
            )
        elif version == "V1":
            blobs = b"".join(block(6, old_blob(a)) for a in arrays)
            out += block(2, block(2, "bottom") + block(4, name) + number(5, 4) + blobs)
        else:
            blobs = b"".join(block(50, old_blob(a)) for a in arrays)
            out += block(2, block(1, block(1, name) + block(2, "conv") + blobs) + block(2, "bottom"))
    return out
