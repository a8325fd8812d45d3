"""How many weights each layer keeps under one bound: from scores that compare weights of different layers.

A bound is a total cost, in bytes or in nonzeros; each layer has a curve, the scores of its weights from the best down.
One threshold for all layers decides: every weight that scores above it stays. The lowest threshold that the bound
allows is found by bisection.

    lamp       w^2 / (the sum of w'^2 over the layer's weights that are at least as large), so that the best weight of
               every layer scores 1, and no layer dies while others have weights to spare
    magnitude  |w|, as it is
    uniform    every layer keeps the same fraction
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from membound.errors import MemboundError
from membound.store.graph import Shape
from membound.store.sizes import our_sizes

Array = npt.NDArray[Any]
SCORES = ("lamp", "magnitude", "uniform")
POINTS = 2048  # of a curve that are looked at; between them it is interpolated


@dataclass(frozen=True)
class Curve:
    """The scores of one layer's weights from the best down, at some of the ranks, counted from 1."""

    size: int
    ranks: Array  # increasing, from 1 to size
    scores: Array  # decreasing

    def count_above(self, threshold: float) -> int:
        """How many weights score at least `threshold`; never none.

        >>> Curve(4, np.array([1, 2, 4]), np.array([1.0, 0.5, 0.1])).count_above(0.3)
        3
        """
        return max(1, round(float(np.interp(-threshold, -self.scores, self.ranks))))


@torch.no_grad()
def score_curve(weight: Tensor, score: str) -> Curve:
    """The curve of one weight tensor under one of SCORES; all work but the last is done on its device.

    >>> score_curve(torch.tensor([0.0, -2.0, 1.0]), "lamp").scores.tolist()
    [1.0, 0.20000000298023224, 0.0]
    """
    size = weight.numel()
    if score == "uniform":
        return proportional_curve(size, size)
    ranks = _some_ranks(size)
    magnitudes = weight.detach().abs().flatten().float().sort(descending=True).values
    at = torch.from_numpy(ranks - 1).to(weight.device)
    if score == "lamp":
        squares = magnitudes.double().square()
        chosen = squares[at] / squares.cumsum(0)[at].clamp_min(torch.finfo(torch.float64).tiny)
    elif score == "magnitude":
        chosen = magnitudes[at]
    else:
        raise MemboundError(f"there is no score {score!r}: choose {', '.join(SCORES)}")
    return Curve(size, ranks, chosen.float().cpu().numpy().astype(np.float64))


def proportional_curve(size: int, count: int) -> Curve:
    """The curve of a layer that keeps `count` weights where others keep theirs, and more or fewer as they do.

    >>> proportional_curve(100, 10).count_above(0.5)
    20
    """
    ranks = _some_ranks(size)
    return Curve(size, ranks, count / ranks)


def _some_ranks(size: int) -> Array:
    """All ranks of a small layer; of a large one as many near the beginning, then ever fewer."""
    if size <= POINTS:
        return np.arange(1, size + 1)
    return np.unique(np.geomspace(1, size, POINTS).round().astype(np.int64))


Cost = Callable[[Mapping[str, int]], float]


def allocate(curves: Mapping[str, Curve], cost: Cost, bound: float) -> dict[str, int]:
    """The counts of the lowest threshold whose cost is within the bound; one weight a layer if none is.

    >>> curve = Curve(4, np.array([1, 2, 3, 4]), np.array([1.0, 0.5, 0.2, 0.1]))
    >>> allocate({"a": curve, "b": curve}, lambda counts: sum(counts.values()), 6)
    {'a': 3, 'b': 3}
    """

    def counts(threshold: float) -> dict[str, int]:
        return {name: curve.count_above(threshold) for name, curve in curves.items()}

    everything = {name: curve.size for name, curve in curves.items()}
    if cost(everything) <= bound:
        return everything
    # Between the ends in logarithms: scores span many orders of magnitude.
    low, high = 1e-30, max(float(curve.scores[0]) for curve in curves.values()) * 2 + 1e-30
    for _ in range(80):
        middle = (low * high) ** 0.5
        if cost(counts(middle)) <= bound:
            high = middle
        else:
            low = middle
    return counts(high)


@dataclass(frozen=True)
class NonzeroCost:
    """Every nonzero costs one."""

    def __call__(self, counts: Mapping[str, int]) -> float:
        return sum(counts.values())


@dataclass(frozen=True)
class ByteCost:
    """Bytes in each layer's best format, as they are expected of nonzeros at random places.

    >>> ByteCost({"fc1.weight": (500, 800)}, value_bytes=2)({"fc1.weight": 4000})
    12990.0
    """

    shapes: Mapping[str, Shape]
    value_bytes: int

    def __call__(self, counts: Mapping[str, int]) -> float:
        return float(
            sum(
                min(our_sizes(self.shapes[name], count, self.value_bytes).values())
                for name, count in counts.items()
            )
        )
