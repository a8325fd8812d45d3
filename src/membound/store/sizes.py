"""How many bytes layers take: in the formats of the paper's appendix, and in ours.

For n weights of which t are nonzero, at v bytes a value, the paper has

    dense    n v
    bitmask  ceil(n / 8) + t v
    indexed  t (4 + v)

Ours are all of `layouts.py`; the bytes of delta are those expected of nonzeros at random places.
"""

import math
from collections.abc import Mapping
from typing import Literal

from membound.errors import ModelError
from membound.store.formats import expected_bytes, matrix_shape
from membound.store.graph import Shape
from membound.store.values import value_type

Accounting = Literal["paper", "ours"]
THE_PAPERS = ("dense", "bitmask", "indexed")


def format_sizes(size: int, nonzeros: int, values: str = "f32") -> dict[str, int]:
    """The bytes of one layer in each format of the paper.

    >>> format_sizes(400_000, 20_000)
    {'dense': 1600000, 'bitmask': 130000, 'indexed': 160000}
    """
    sizes = our_sizes((size,), nonzeros, values)
    return {name: sizes[name] for name in THE_PAPERS}


def best_format(size: int, nonzeros: int, values: str = "f32") -> tuple[str, int]:
    """The smallest of the paper's formats for one layer, and its bytes.

    >>> best_format(400_000, 20_000), best_format(500, 500)
    (('bitmask', 130000), ('dense', 2000))
    """
    sizes = format_sizes(size, nonzeros, values)
    name = min(sizes, key=sizes.__getitem__)
    return name, sizes[name]


def best_packed_format(shape: Shape, nonzeros: int, values: str) -> tuple[str, int]:
    """The smallest of our formats for a layer whose palette holds all its values, for nonzeros at random places.

    >>> best_packed_format((500, 800), 20_000, "p4")
    ('rice', 24498)
    """
    rows, columns = matrix_shape(shape)
    sizes = expected_bytes(rows, columns, nonzeros, values, packed=True)
    name = min(sizes, key=lambda each: int(sizes[each]))
    scales = 2 * rows if value_type(values).coded else 0  # which values that are exact do without
    return name, int(sizes[name]) - scales


def total_bytes(
    tensors: Mapping[str, tuple[Shape, int]],
    formats: str | Mapping[str, str] = "best",
    accounting: Accounting = "paper",
    values: str = "f32",
) -> int:
    """The bytes of a network's tensors (biases are some of them), given the shape and nonzeros of each.

    `formats` is one format for all, "best" for the smallest of each, or a mapping; what it leaves out is dense.

    >>> lenet = {"fc1.weight": ((500, 800), 20_000), "fc1.bias": ((500,), 500)}
    >>> total_bytes(lenet), total_bytes(lenet, "dense"), total_bytes(lenet, {"fc1.weight": "indexed"})
    (132000, 1602000, 162000)
    >>> total_bytes(lenet, accounting="ours")
    102000
    """
    total = 0
    for name, (shape, nonzeros) in tensors.items():
        wanted = formats if isinstance(formats, str) else formats.get(name, "dense")
        if accounting == "paper":
            sizes = format_sizes(math.prod(shape), nonzeros, values)
        else:
            sizes = our_sizes(shape, nonzeros, values)
        if wanted != "best" and wanted not in sizes:
            raise ModelError(f"{name}: there is no format {wanted!r}: take best, {', '.join(sizes)}")
        total += min(sizes.values()) if wanted == "best" else sizes[wanted]
    return total


def our_sizes(shape: Shape, nonzeros: int, values: str = "f32") -> dict[str, int]:
    """The bytes of one tensor in each of our formats; delta's for nonzeros at random places.

    >>> our_sizes((500, 800), 20_000)
    {'dense': 1600000, 'csr': 121002, 'bitmask': 130000, 'delta': 100000, 'indexed': 160000}
    """
    sizes = expected_bytes(*matrix_shape(shape), nonzeros, values)
    return {name: int(size) for name, size in sizes.items()}
