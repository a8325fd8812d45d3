"""One weight in few values, chosen by what it does to a layer's outputs on real inputs.

With inputs x of second moments H = E[x x'], a row w that becomes s u changes the output by (w - s u)' H (w - s u) on
average. The store's own choice of values is where it starts. Then the scale s of a row is searched by the diagonal of
H, columns are rounded one by one, each error spread over the columns that are still to come (optimal brain surgery, as
in GPTQ), and the scale is fitted once more. For each row the best of all that is kept.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from membound.store.quantize import narrow, quantize
from membound.store.values import ValueType

DAMPING = 0.01  # of the mean square of inputs: what few inputs say about H is not all there is to it
FACTORS = np.arange(0.5, 1.1, 0.05)  # of the scale that the store would choose
BLOCK = 128  # columns whose errors are spread over the rest of the row at once
WIDEST = 4608  # columns up to which H is used, not only its diagonal

Float32 = NDArray[np.float32]


class Rounded(NamedTuple):
    """A weight as scales[row] * u, where u has few values; scales are exact as they will be stored."""

    u: Float32
    scales: NDArray[Any]


def round_weight(weight: Float32, kind: ValueType, moments: Tensor, with_zero: bool) -> Rounded:
    """The weight in the values of `kind`; `moments` are H for each group of its rows, or their diagonals.

    Zeros stay zeros. `with_zero` says that they take one of the values, as in a dense layout.
    """
    matrix = weight.reshape(len(weight), -1)
    start = quantize(matrix, kind, None, with_zero)
    if start.scales is None:  # it has few values as it is
        return Rounded(start.u.reshape(weight.shape), np.ones(len(weight), np.float32))
    values = np.unique(start.u[matrix != 0]) if start.palette is None else start.palette.entries
    grid = _Grid(matrix, values, len(moments))
    scales = grid.rows(start.scales)
    best = _Best(grid, moments)
    best.offer(grid.rows_of(start.u), scales)
    searched = scales
    diagonal = moments if moments.dim() == 2 else moments.diagonal(dim1=1, dim2=2)
    least = torch.full_like(scales, torch.inf)
    for factor in FACTORS:
        tried = grid.nearest(grid.weight, scales * factor)
        off = ((grid.weight - tried * (scales * factor)) ** 2 * diagonal[:, None]).sum(2, keepdim=True)
        searched, least = torch.where(off < least, scales * factor, searched), torch.minimum(off, least)
    best.offer(grid.nearest(grid.weight, searched), searched)
    if moments.dim() == 3:
        best.offer(_spread(grid, searched, moments), searched)
    return Rounded(best.u.reshape(weight.shape).numpy(), _stored(best.scales).reshape(-1).numpy())


class _Grid:
    """A weight as [group, row, column], and the values that its elements may take where they are not zero."""

    def __init__(self, matrix: Float32, values: Float32, groups: int) -> None:
        self.shape = (groups, len(matrix) // groups, matrix.shape[1])
        self.weight = torch.from_numpy(matrix.copy()).reshape(self.shape)
        self.zero = self.weight == 0
        self.entries = torch.from_numpy(values.astype(np.float32))
        self.middles = (self.entries[1:] + self.entries[:-1]) / 2

    def rows(self, numbers: NDArray[Any]) -> Tensor:
        """One number a row, not 0, in a shape that broadcasts."""
        found = torch.from_numpy(numbers.astype(np.float32)).reshape(*self.shape[:2], 1)
        return torch.where(found == 0, torch.ones_like(found), found)

    def rows_of(self, u: Float32) -> Tensor:
        return torch.from_numpy(u.copy()).reshape(self.shape)

    def nearest(self, weight: Tensor, scales: Tensor) -> Tensor:
        """The values u of which s u is nearest to the weight; where it is zero, zero."""
        found = self.entries[torch.bucketize(weight / scales, self.middles)]
        return torch.where(self.zero, torch.zeros_like(found), found)


class _Best:
    """For each row what changes the output least, of what has been offered."""

    def __init__(self, grid: _Grid, moments: Tensor) -> None:
        self.weight, self.moments = grid.weight, moments
        self.u = torch.zeros(grid.shape)
        self.scales = torch.ones(*grid.shape[:2], 1)
        self.least = torch.full((*grid.shape[:2], 1), torch.inf)

    def offer(self, u: Tensor, scales: Tensor) -> None:
        """These values with these scales, and with those that fit the outputs best."""
        weighed = self._weigh(u)
        squares = (weighed * u).sum(2, keepdim=True)
        fitted = (weighed * self.weight).sum(2, keepdim=True) / squares
        for tried in (scales, torch.where((fitted > 0) & fitted.isfinite(), fitted, scales)):
            stored = _stored(tried)
            off = self.weight - u * stored
            error = (self._weigh(off) * off).sum(2, keepdim=True)
            better = error < self.least
            self.u = torch.where(better, u, self.u)
            self.scales = torch.where(better, stored, self.scales)
            self.least = torch.where(better, error, self.least)

    def _weigh(self, rows: Tensor) -> Tensor:
        return rows @ self.moments if self.moments.dim() == 3 else rows * self.moments[:, None]


def _stored(scales: Tensor) -> Tensor:
    """Scales as they will be read from the file."""
    return torch.from_numpy(narrow(scales.reshape(-1).numpy()).astype(np.float32)).reshape(scales.shape)


def _spread(grid: _Grid, scales: Tensor, moments: Tensor) -> Tensor:
    """Round column by column; what each is off by changes the columns behind it, as H says it is best made up for."""
    inverse = _inverse_root(moments)
    weight, u = grid.weight.clone(), torch.zeros(grid.shape)
    columns = grid.shape[2]
    for begin in range(0, columns, BLOCK):
        end = min(begin + BLOCK, columns)
        errors = torch.zeros(*grid.shape[:2], end - begin)
        for column in range(begin, end):
            now = weight[:, :, column : column + 1]
            value = grid.entries[torch.bucketize(now / scales, grid.middles)]
            value = torch.where(grid.zero[:, :, column : column + 1], torch.zeros_like(value), value)
            root = inverse[:, column : column + 1, column:end]
            error = (now - value * scales) / root[:, :, :1]
            weight[:, :, column:end] -= error * root
            u[:, :, column : column + 1], errors[:, :, column - begin : column - begin + 1] = value, error
        weight[:, :, end:] -= errors @ inverse[:, begin:end, end:]
    return u


def _inverse_root(moments: Tensor) -> Tensor:
    """The upper triangular U with U' U the inverse of H, which is damped."""
    wide = moments.double()
    mean = wide.diagonal(dim1=1, dim2=2).mean(1)
    damped = wide + torch.eye(wide.shape[1], dtype=torch.float64) * (DAMPING * mean + 1e-12)[:, None, None]
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    root: Tensor = torch.linalg.cholesky(inverse, upper=True).float()
    return root
