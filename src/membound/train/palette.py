"""Few values: the tensors whose nonzeros take at most L values are one more set to project onto.

The values, the palette's entries, are fitted by k-means in one dimension, beside a center that stays at zero: what is
nearer to zero than to any entry becomes zero. Everything is done on the 65,536 numbers that a 16-bit float can be.
Weights are rounded to them and counted; sums are of integers, in units of the smallest one, 2^-24. So any device and
any number of processes find the same bits, a process has only counts to share, and a table with the entry of each of
these numbers turns weights into entries in one lookup, however many entries there are.

Where 16 bits do not hold the largest weight, all of this is done on weights divided by a power of two, which is exact.
A weight in front of a batch norm may grow so: its scale does not matter to what the network computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from membound.errors import RuleError
from membound.train.magnitudes import NonFiniteError
from membound.train.schedules import value_at
from membound.train.sharded import all_finite, highest, is_sharded, local_part, reduced, shard_group

MOST = 256  # entries: codes have at most 8 bits
LARGEST = 65504.0  # that a 16-bit float can be
CODES = 1 << 16
FROM_SCRATCH, FROM_BEFORE = 30, 10  # steps of k-means: from quantiles, and from the entries that there were


@dataclass(frozen=True)
class Table:
    """The entry of each 16-bit float, by its bits, for weights that are divided by `scale`, a power of two."""

    entries: Tensor
    scale: Tensor

    def copy_(self, other: "Table") -> "Table":
        """In place."""
        self.entries.copy_(other.entries)
        self.scale.copy_(other.scale)
        return self


@dataclass(frozen=True)
class Levels:
    """How many entries a palette has, how often they are fitted, and the progress from which it acts.

    Where a schedule of levels gives None, there is no palette.
    """

    levels: int | Callable[[float], int | None]
    every: int
    begin: float

    def __post_init__(self) -> None:
        if not callable(self.levels):
            _check_levels(self.levels)
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise RuleError(f"palette: every must be a whole number of steps from 1, got {self.every!r}")
        is_number = isinstance(self.begin, int | float) and not isinstance(self.begin, bool)
        if not is_number or not 0 <= self.begin <= 1:
            raise RuleError(f"palette: begin must be a progress from 0 to 1, such as 0.6, got {self.begin!r}")

    @property
    def scheduled(self) -> bool:
        """Whether it must know how far training is."""
        return callable(self.levels) or self.begin > 0

    def acts(self, progress: float | None) -> bool:
        """Whether it has begun."""
        begun = self.begin == 0 or (progress is not None and progress >= self.begin)
        return begun and (not callable(self.levels) or _number(self.levels, progress) is not None)

    def check(self, progress: float) -> None:
        """Refuse a number of entries that cannot be, before it is needed."""
        found = _number(self.levels, progress)
        if found is not None:
            _check_levels(found)

    def at(self, progress: float | None) -> int:
        """How many entries there may be now."""
        return _check_levels(_number(self.levels, progress))


def _number(levels: Any, progress: float | None) -> Any:
    return value_at(levels, progress)


def _check_levels(levels: Any) -> int:
    if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= MOST:
        raise RuleError(
            f"palette: levels must be a whole number from 1 to {MOST}, or a schedule of it, got {levels!r}"
        )
    return levels


@torch.no_grad()
def fit_entries(weight: Tensor, levels: int, before: Tensor | None = None) -> Tensor:
    """At most `levels` values for the nonzeros of a weight, ascending, none of them zero.

    Each is exact in 16 bits or, where the largest weight is beyond them, is such a number times a power of two.

    They minimize the squared error of giving each weight the nearest of them, or zero, as k-means does: from the
    entries `before`, unless weights have left one of them, or from quantiles. Where there are no more different values
    than levels, it is these.

    >>> fit_entries(torch.tensor([0.5, 0.0, -0.25, 0.5]), levels=2)
    tensor([-0.2500,  0.5000])
    """
    scale = _scale_of(_largest(weight))
    values, counts = _counted(weight, scale)
    if len(values) > levels:
        found = None
        if before is not None and len(before) == levels:
            found, used = _cluster(values, counts, _in_units(before / scale), FROM_BEFORE)
            found = found if bool(used) else None
        if found is None:
            first = values[_apart(_quantiles(counts * values.abs(), levels), len(values))]
            found, _ = _cluster(values, counts, first, FROM_SCRATCH)
        values = found
    entries = _as_floats(values if len(values) else values.new_ones(1), weight.dtype) * scale
    return torch.cat([entries, entries[-1:].expand(levels - len(entries))])


def make_table(entries: Tensor) -> Table:
    """For every 16-bit float, by its bits: the nearest of the entries and zero; of two as near, the lower one.

    What is not finite stays what it is: training that diverges should show.
    """
    scale = _scale_of(entries.abs().max())
    codes, values = _finite(entries.device)
    centers = torch.cat([entries, entries.new_zeros(1)]).sort().values
    units = _in_units(centers / scale)
    table = torch.arange(CODES, device=entries.device).to(torch.int16).view(torch.float16).to(entries.dtype)
    table[codes] = centers[torch.searchsorted(units[:-1] + units[1:], 2 * values)]
    table[[0, 1 << 15]] = 0.0
    return Table(table, scale)


def assigned(weight: Tensor, table: Table) -> Tensor:
    """What the table has for each weight, rounded to 16 bits; of a part of a weight, where it is sharded."""
    return table.entries.index_select(0, _codes(weight, table.scale)).view(weight.shape)


def check_weight(weight: Tensor) -> None:
    """Whether it is finite, in all processes."""
    if not all_finite(weight):
        raise NonFiniteError


def count_values(weight: Tensor) -> int:
    """How many different nonzero values a weight has, in all processes together."""
    mine = torch.unique(local_part(weight))
    mine = mine[mine != 0]
    group = shard_group(weight) if is_sharded(weight) else None
    if group is None:
        return len(mine)
    every: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(every, mine.tolist(), group=group)
    return len(set().union(*every))


# The numbers that a 16-bit float can be


@cache
def _finite(device: torch.device) -> tuple[Tensor, Tensor]:
    """The bits of all that are finite and not zero, in ascending order, and what they are in units of 2^-24."""
    codes = torch.cat([torch.arange(0xFBFF, 0x8000, -1), torch.arange(0x0001, 0x7C00)])
    values = _in_units(codes.to(torch.int16).view(torch.float16))
    return codes.to(device), values.to(device)  # which waits for it: other streams will read them, too


def _in_units(values: Tensor) -> Tensor:
    return (values.double() * 2.0**24).long()


def _as_floats(units: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded to 16 bits, and to bfloat16 where that is what the weights are: such numbers are exact in both."""
    values = (units.float() * 2.0**-24).half().to(dtype)
    return values.clamp_(-_most(dtype), _most(dtype))


def _most(dtype: torch.dtype) -> float:
    """The largest number that is exact in 16 bits and in this type."""
    return 65280.0 if dtype == torch.bfloat16 else LARGEST


def _largest(weight: Tensor) -> Tensor:
    """The largest magnitude, in all processes."""
    check_weight(weight)
    mine = local_part(weight).detach()
    return highest(mine.abs().max() if mine.numel() else mine.new_zeros(()), weight)


def _scale_of(largest: Tensor) -> Tensor:
    """1 where 16 bits hold it, else the power of two that brings it to between 2^14 and 2^15."""
    exponent = torch.frexp(largest.double()).exponent
    power = torch.where(largest.half().isfinite(), 0, exponent - 15)
    return torch.ldexp(largest.new_ones((), dtype=torch.float64), power).to(largest.dtype)


def _codes(weight: Tensor, scale: Tensor) -> Tensor:
    """Each weight as the bits of a 16-bit float: of the largest, where it is finite and beyond that."""
    divided, most = weight / scale, _most(weight.dtype)
    held = torch.where(divided.isfinite(), divided.clamp(-most, most), divided)
    return held.half().contiguous().view(torch.int16).view(-1).int() & 0xFFFF


def _counted(weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that a weight's nonzeros are, in units, and how often each occurs in all processes together."""
    group, mine = shard_group(weight) if is_sharded(weight) else None, local_part(weight)
    codes, ones = _codes(mine, scale).long(), torch.ones(1, dtype=torch.int64, device=mine.device)
    counts = torch.zeros(CODES, dtype=torch.int64, device=mine.device)
    reduced(counts.scatter_add_(0, codes, ones.expand_as(codes)), group)
    codes, values = _finite(mine.device)
    there = counts[codes] > 0
    return values[there], counts[codes][there]


# k-means


def _quantiles(mass: Tensor, levels: int) -> Tensor:
    """Where equal parts of a mass have their middles."""
    total = mass.cumsum(0)
    middles = total[-1] // (2 * levels) * torch.arange(1, 2 * levels, 2, device=mass.device)
    return torch.searchsorted(total, middles, right=True)


def _apart(places: Tensor, length: int) -> Tensor:
    """The places below `length` that are next to these, no two the same: two centers in one would be one."""
    steps = torch.arange(len(places), device=places.device)
    return (places - steps).cummax(0).values.clamp_(0, length - len(places)) + steps


def _cluster(values: Tensor, counts: Tensor, centers: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm on counted values, in integers; zero is a center that stays. And: whether all others are used.

    Because of the zero no center changes its sign, nor becomes zero.
    """
    none = counts.new_zeros(1)
    number = torch.cat([none, counts.cumsum(0)])
    total = torch.cat([none, (counts * values).cumsum(0)])
    twice, end = 2 * values, none + len(values)
    centers = torch.cat([centers, none]).sort().values
    for _ in range(steps):
        cuts = torch.cat([none, torch.searchsorted(twice, centers[:-1] + centers[1:], right=True), end])
        size = number[cuts].diff()
        mean = (total[cuts].diff() + size // 2).floor_divide(size.clamp(min=1))
        centers = torch.where((centers == 0) | (size == 0), centers, mean)
    return centers[centers != 0], (size > 0)[centers != 0].all()
