"""The protobuf wire format, written: a message is a run of fields. Large arrays are kept as they are, not copied."""

import struct

import numpy as np
import numpy.typing as npt

Part = bytes | memoryview

VARINT, LENGTH, FIXED32 = 0, 2, 5


def varint(value: int) -> bytes:
    """A 64-bit integer, seven bits a byte, the lowest first; a negative one takes ten.

    >>> varint(300).hex(), varint(0).hex(), len(varint(-1))
    ('ac02', '00', 10)
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def packed_varints(values: npt.NDArray[np.int64]) -> bytes:
    """Many integers from 0 up, each a varint.

    >>> packed_varints(np.array([300, 0, 127, 1 << 40])).hex() == b"".join(map(varint, (300, 0, 127, 1 << 40))).hex()
    True
    """
    widths = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        widths += values >> bits > 0
    starts = np.cumsum(widths) - widths
    out = np.empty(int(widths.sum()), np.uint8)
    for byte in range(int(widths.max(initial=0))):
        long = widths > byte
        out[starts[long] + byte] = (values[long] >> 7 * byte) & 0x7F | (widths[long] > byte + 1) << 7
    return out.tobytes()


class Message:
    """Fields in the order they are added; `parts` are its bytes, in order.

    >>> Message().integer(1, 150).parts
    [b'\\x08\\x96\\x01']
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.size = 0

    def integer(self, field: int, value: int) -> "Message":
        return self._add(varint(field << 3 | VARINT) + varint(value))

    def number(self, field: int, value: float) -> "Message":
        return self._add(varint(field << 3 | FIXED32) + struct.pack("<f", value))

    def content(self, field: int, value: "str | Part | Message") -> "Message":
        """Text, bytes or an embedded message."""
        parts: list[Part]
        if isinstance(value, Message):
            size, parts = value.size, value.parts
        else:
            whole = value.encode() if isinstance(value, str) else value
            size, parts = len(whole), [whole]
        self._add(varint(field << 3 | LENGTH) + varint(size))
        for part in parts:
            self._add(part)
        return self

    def _add(self, part: Part) -> "Message":
        self.parts.append(part)
        self.size += len(part)
        return self
