"""The protobuf wire format: a message is a run of fields (number, wire type, value). Read only, no copies.

Nothing is allocated by a declared size, nothing recurses: a length is compared with the bytes there are, and
an embedded message is a slice that the caller may read in turn.
"""

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """A short fact about bytes that are not what they should be; the boundary adds the file's name."""


class Field(NamedTuple):
    """One field of a message; a value is an integer (VARINT) or the bytes themselves."""

    number: int
    wire: int
    value: int | memoryview

    def integer(self) -> int:
        """The value as a signed 64-bit integer."""
        if not isinstance(self.value, int):
            raise Malformed(f"field {self.number} has wire type {self.wire}, not an integer's")
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def content(self, *wires: int) -> memoryview:
        """The value as bytes, if it came as one of these wire types."""
        if isinstance(self.value, int) or self.wire not in (wires or (LENGTH,)):
            raise Malformed(f"field {self.number} has wire type {self.wire}, not the one Caffe writes")
        return self.value


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message, in order.

    >>> [(f.number, f.value) for f in fields(memoryview(bytes([0x08, 0x96, 0x01])))]
    [(1, 150)]
    """
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if not 1 <= number < 1 << 29:
            raise Malformed(f"field number {number}, which protobuf does not allow")
        if wire == VARINT:
            value, at = varint(message, at)
            yield Field(number, wire, value)
            continue
        if wire == LENGTH:
            size, at = varint(message, at)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise Malformed(f"field {number} with wire type {wire}, which Caffe does not write")
        if size > end - at:
            raise Malformed(f"field {number} declares {size} bytes where {end - at} are left")
        yield Field(number, wire, message[at : at + size])
        at += size


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """The unsigned 64-bit integer that starts at a byte, and where the next thing starts.

    >>> varint(memoryview(bytes([0xAC, 0x02])), 0)
    (300, 2)
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise Malformed("an integer runs past the end")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise Malformed("an integer longer than 64 bits")
