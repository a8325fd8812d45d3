"""In how many bits the values of each layer are stored, so that a byte buys as much in every layer.

A byte can be spent on more weights, or on more bits for those that there are. Both bring a layer closer to what it
would be without a bound, and the same number tells how much: the squared error over E, the sum of the squares that
stay, which is what the score `lamp` compares, too. The last weights that were kept say what a byte is worth,

    price = w^2 / E / (bytes of a value and its position)

and a layer of t nonzeros gets the b that makes N D(b) / E + price (b t / 8 + 2 2^b) least, where D(b) is the squared
error of the best palette of 2^b values. So bits follow from what training has made of the weights.

N says how much noise on a weight that stays matters beside a weight that is dropped. A network that starts from nothing
grows around the bound: what is dropped has been small for long, and others have taken its place, so noise matters far
more (FRESH). One that was trained without a bound needs what is dropped. There, each weight that stays does the work
of as many as there are weights for it, and N is that many.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from membound.run.layers import position_entropy
from membound.store.values import value_type
from membound.train.grids import Even
from membound.train.palette import assigned, fit_entries, make_table

Types = Mapping[str, str]
FEWEST, MOST = 2, 6  # bits of palettes that are trained
WIDE = "p8"  # steps of one size and a scale for each row
FRESH = 32.0
START = "p4"  # before anything is known


def palette_bits(kind: str) -> int | None:
    """The bits of a type whose palette is trained, or None.

    >>> palette_bits("p4"), palette_bits("p8"), palette_bits("f16")
    (4, None, None)
    """
    found = value_type(kind)
    return found.bits if found.coded and found.bits <= MOST else None


def trained_levels(kind: str) -> int | None:
    """The levels that weights of a type are trained at, or None; with more bits than palettes have they are even.

    >>> trained_levels("p4"), trained_levels("p8"), trained_levels("f16")
    (16, 254, None)
    """
    found = value_type(kind)
    if not found.coded:
        return None
    return 1 << found.bits if found.bits <= MOST else Even((1 << found.bits) - 2)


def describe_types(types: Types) -> str:
    """For people: one type, or the fewest and the most bits.

    >>> describe_types({"a": "p4", "b": "p4"}), describe_types({"a": "p3", "b": "p8", "c": "p4"})
    ('p4', 'p3 to p8')
    """
    ordered = sorted(set(types.values()), key=lambda name: value_type(name).bits)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


@torch.no_grad()
def choose_types(
    cut: Mapping[str, Tensor],
    now: Types,
    noise: float | None = FRESH,
    last: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """A type for each weight tensor, with the zeros that it will have; positions cost as they do at random places.

    `noise` is N; None for a network that was trained before. `last` has the squares of the last weights that were kept,
    where these are not the smallest.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> small, large = torch.randn(40), torch.randn(40_000)
    >>> choose_types({"small": small * (small.abs() > 1), "large": large * (large.abs() > 1.6)}, {})
    {'small': 'p8', 'large': 'p4'}
    """
    price = _price(cut, now, last or {})
    if price == 0:  # every weight is kept: nothing else can be bought
        return dict.fromkeys(cut, WIDE)
    if noise is None:
        kept = sum(int(weight.count_nonzero()) for weight in cut.values())
        noise = sum(weight.numel() for weight in cut.values()) / kept
    return {name: _cheapest(weight, price, noise) for name, weight in cut.items()}


def _price(cut: Mapping[str, Tensor], now: Types, last: Mapping[str, float]) -> float:
    """What a byte is worth: the median over all weights of layers from which some were dropped."""
    found: list[tuple[float, int]] = []
    for name, weight in cut.items():
        squares = weight[weight != 0].double().square()
        count, size = len(squares), weight.numel()
        if 0 < count < size:
            weight_bytes = value_type(now.get(name, START)).bits / 8 + position_entropy(size, count) / count
            least = last.get(name, float(squares.min()))
            found.append((least / float(squares.sum()) / weight_bytes, count))
    if not found:
        return 0.0
    prices, counts = np.array(sorted(found)).T
    return float(prices[np.searchsorted(counts.cumsum(), counts.sum() / 2)])


def _cheapest(weight: Tensor, price: float, noise: float) -> str:
    values = weight[weight != 0]
    energy = float(values.double().square().sum())
    if not len(values) or energy == 0:
        return f"p{FEWEST}"
    best: tuple[float, str] | None = None
    for bits in range(FEWEST, MOST + 1):
        near = assigned(values, make_table(fit_entries(values, 1 << bits)))
        error = float((values - near).double().square().sum()) / energy
        found = (noise * error + price * (bits * len(values) / 8 + 2 * (1 << bits)), f"p{bits}")
        best = found if best is None else min(best, found)
        if (1 << bits) >= len(values):  # more entries than values cannot help
            break
    assert best is not None
    rows = weight.shape[0] if weight.dim() > 1 else 1
    return min(best, (price * (len(values) + 2 * rows), WIDE))[1]


@torch.no_grad()
def total_error(
    weights: Mapping[str, Tensor], cut: Mapping[str, Tensor], types: Types, noise: float | None = FRESH
) -> float:
    """What dropped weights and few bits cost together, over all layers, by the same measure; `noise` is N.

    >>> weight = {"a": torch.tensor([3.0, -4.0])}
    >>> total_error(weight, {"a": torch.tensor([0.0, -4.0])}, {"a": "p2"}), total_error(weight, weight, {"a": "p2"})
    (0.36, 0.0)
    """
    if noise is None:
        kept = sum(int(each.count_nonzero()) for each in cut.values())
        noise = sum(weight.numel() for weight in weights.values()) / max(kept, 1)
    total = 0.0
    for name, weight in weights.items():
        values = cut[name][cut[name] != 0].double()
        energy = float(weight.double().square().sum()) or 1.0
        total += float((weight - cut[name]).double().square().sum()) / energy
        bits = palette_bits(types[name])
        if bits is not None and len(values):
            near = assigned(values, make_table(fit_entries(values, 1 << bits)))
            total += noise * float((values - near).square().sum()) / energy
    return round(total, 9)


def wider(kind: str) -> str | None:
    """The type with the next more bits, up to WIDE.

    >>> wider("p5"), wider("p6"), wider("p8")
    ('p6', 'p8', None)
    """
    bits = palette_bits(kind)
    return None if bits is None else WIDE if bits == MOST else f"p{bits + 1}"


def as_if_trained(cut: Tensor, kind: str, rounds: bool = False) -> Tensor:
    """The same zeros with as many different values as there will be: a file of it has the bytes that it will have.

    The values are exact in f16 and no multiples of one step, as those of a trained palette. With `rounds`, what is
    nearer to zero than to any of its entries is zero, too: few are, unless tiny weights stay.
    """
    bits = palette_bits(kind)
    if bits is None:
        return cut
    values = cut[cut != 0]
    if rounds and len(values):
        near = assigned(values, make_table(fit_entries(values, 1 << bits)))
        cut = cut.masked_scatter(cut != 0, torch.where(near == 0, 0.0, values))
    places = torch.arange(cut.numel(), device=cut.device).view(cut.shape) % (1 << bits)
    return torch.where(cut == 0, cut, 1 + places.to(cut.dtype) / 1024)


def joined(types: list[Any]) -> dict[str, str]:
    """The types of an ensemble from those of its members, in order."""
    return {f"{number}.{name}": kind for number, each in enumerate(types) for name, kind in each.items()}
