"""How many bytes a layer takes, in the formats of the paper's appendix.

For n weights of which t are nonzero, at v bytes a value:

    dense    n v
    bitmask  ceil(n / 8) + t v
    indexed  t (4 + v)
"""


def format_sizes(size: int, nonzeros: int, value_bytes: int = 4) -> dict[str, int]:
    """The bytes of one layer in each format.

    >>> format_sizes(400_000, 20_000)
    {'dense': 1600000, 'bitmask': 130000, 'indexed': 160000}
    """
    return {
        "dense": size * value_bytes,
        "bitmask": -(-size // 8) + nonzeros * value_bytes,
        "indexed": nonzeros * (4 + value_bytes),
    }


def best_format(size: int, nonzeros: int, value_bytes: int = 4) -> tuple[str, int]:
    """The smallest format of one layer and its bytes.

    >>> best_format(400_000, 20_000), best_format(500, 500)
    (('bitmask', 130000), ('dense', 2000))
    """
    sizes = format_sizes(size, nonzeros, value_bytes)
    name = min(sizes, key=sizes.__getitem__)
    return name, sizes[name]
