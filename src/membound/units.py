"""Sizes in bytes, as people write them: '40 KiB' is 40960, '40 KB' is 40000."""

import re

from membound.errors import MemboundError

UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}


def parse_bytes(text: str | int, parts: str = "") -> int:
    """The number of bytes that `text` says; `parts` is what else the caller takes, for the message.

    >>> parse_bytes("40 KiB"), parse_bytes("1.5MB"), parse_bytes(512)
    (40960, 1500000, 512)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*", str(text))
    if match is None or match[2].lower() not in UNITS:
        raise MemboundError(
            f"{str(text)!r} is not a size{parts and ' or a part'}: write plain bytes (40960), a number with KB, MB, "
            f"GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024), as in '40 KiB'{parts and f', {parts}'}"
        )
    return round(float(match[1]) * UNITS[match[2].lower()])


def format_bytes(count: int) -> str:
    """`count` in the largest binary unit that keeps it at least 1.

    >>> format_bytes(40960), format_bytes(300), format_bytes(1724320)
    ('40.0 KiB', '300 B', '1.64 MiB')
    """
    for unit, digits in (("GiB", 2), ("MiB", 2), ("KiB", 1)):
        if count >= UNITS[unit.lower()]:
            return f"{count / UNITS[unit.lower()]:.{digits}f} {unit}"
    return f"{count} B"
