"""Where weights of few values may be: at the entries of a palette, or at multiples of a step for each row."""

import torch
from torch import Tensor

from membound.errors import RuleError
from membound.train.palette import Table, assigned, fit_entries, make_table
from membound.train.sharded import is_sharded


class Even(int):
    """So many levels at even distances on both sides of zero, in steps of each row's own: integers with row scales."""


class Entries:
    """The entries of a palette, and the nearest of them and zero for any weight."""

    key = "entries"  # of what a checkpoint needs

    def __init__(self, entries: Tensor | None = None) -> None:
        self.table: Table | None = None
        if entries is not None:
            self.set(entries.sort().values)

    def set(self, entries: Tensor) -> None:
        """In place where there was a table: a recording may read it."""
        self.values, table = entries, make_table(entries)
        self.table = table if self.table is None else self.table.copy_(table)

    def fit(self, weight: Tensor, levels: int) -> None:
        """Entries for what the weight is now, from those that there were."""
        self.set(fit_entries(weight, levels, None if self.table is None else self.values))

    def nearest(self, weight: Tensor) -> Tensor:
        """Of a part of the weight, where that is sharded."""
        assert self.table is not None
        return assigned(weight, self.table)


class RowSteps:
    """A step for each row: its weights become multiples of it, and the largest of them takes all steps there are.

    So an 8-bit integer for each weight and a 16-bit scale for each row store what was trained.
    """

    key = "steps"

    def __init__(self, steps: Tensor | None = None) -> None:
        self.values = torch.empty(0) if steps is None else steps

    def fit(self, weight: Tensor, levels: int) -> None:
        """Steps for what the weight is now."""
        if is_sharded(weight):
            raise RuleError("even levels are for weights that one process has whole: this one is sharded")
        largest = weight.detach().flatten(1).abs().amax(1)
        steps = torch.where(largest > 0, largest / (levels // 2), 1.0)
        self.values = self.values.copy_(steps) if len(self.values) else steps

    def nearest(self, weight: Tensor) -> Tensor:
        """The nearest multiple for every weight."""
        steps = self.values.view(-1, *[1] * (weight.dim() - 1))
        return (weight / steps).round_().mul_(steps)


Grid = Entries | RowSteps


def make_grid(levels: int) -> Grid:
    """Where a weight under a palette of so many levels may be: to be fitted to it."""
    return RowSteps() if isinstance(levels, Even) else Entries()
