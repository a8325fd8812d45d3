"""The codes of the table of layers in words: types of values, and formats of positions."""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.report.text import find_text

Facts = Mapping[str, Any]
FORMATS = {  # as in the table of docs/DEPLOYING.md
    "dense": "every value",
    "bitmask": "a bit for each weight, which says whether it is zero",
    "csr": "the columns of the nonzeros, row by row",
    "delta": "8-bit distances between nonzeros",
    "indexed": "32-bit positions of the nonzeros",
    "rice": "distances between nonzeros, in as few bits as they need",
}


def explain_codes(layers: Sequence[Facts]) -> list[str]:
    """What the codes in the columns mean, of those that are there.

    >>> for line in explain_codes([{"values": "p3", "format": "rice"}, {"values": "f16", "format": "dense"}]):
    ...     print(line)
    Values: p3: 3 bits for each weight, which choose one of 8 values; f16: 16-bit floating point.
    Format, how positions are stored: dense: every value; rice: distances between nonzeros, in as few bits as they need.
    """
    types = {find_text(layer, "values") or "" for layer in layers}
    bits = sorted(int(kind[1:]) for kind in types if kind[:1] == "p" and kind[1:].isdigit())
    said = []
    if bits:
        few, many = bits[0], bits[-1]
        codes, count = (f"p{few}", f"{few}") if few == many else (f"p{few} to p{many}", f"{few} to {many}")
        up_to = "" if few == many else "up to "
        said.append(f"{codes}: {count} bits for each weight, which choose one of {up_to}{2**many} values")
    said += [f"f{size}: {size}-bit floating point" for size in (16, 32) if f"f{size}" in types]
    found = {find_text(layer, "format") for layer in layers}
    formats = [f"{name}: {what}" for name, what in FORMATS.items() if name in found]
    listed = {"Values": said, "Format, how positions are stored": formats}
    return [f"{name}: {'; '.join(words)}." for name, words in listed.items() if words]
