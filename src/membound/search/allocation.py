"""How many weights each layer keeps under one bound: from scores that compare weights of different layers.

A bound is a total cost, in bytes or in nonzeros; each layer has a curve, the scores of its weights from the best down.
One threshold for all layers decides: every weight that scores above it stays. The lowest threshold that the bound
allows is found on ever finer grids; where many weights score the same, layers get the same part of theirs.

    lamp       w^2 / (the sum of w'^2 over the layer's weights that are at least as large), so that the best weight of
               every layer scores 1, and no layer dies while others have weights to spare
    magnitude  |w|, as it is
    uniform    every layer keeps the same fraction
    a function of a weight's name and the weight, which gives a score of at least 0 for each of its elements
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from membound.errors import MemboundError, RuleError
from membound.store.formats import FAST, Prefer, expected_bytes, matrix_shape
from membound.store.graph import Shape
from membound.train.projection import scores_of

Array = npt.NDArray[Any]
SCORES = ("lamp", "magnitude", "uniform")
Score = str | Callable[[str, Tensor], Tensor]  # one of SCORES, or the user's own
POINTS = 2048  # of a curve that are looked at; between them it is interpolated
GRID, ROUNDS = 192, 3  # places of the path to the bound that are looked at together, and how often
FAINT = 1e-30  # scores below this are taken for this


@dataclass(frozen=True)
class Curve:
    """The scores of one layer's weights from the best down, at some of the ranks, counted from 1."""

    size: int
    ranks: Array  # increasing, from 1 to size
    scores: Array  # decreasing

    @cached_property
    def _rising(self) -> Array:
        return -self.scores

    def counts_above(self, thresholds: Array) -> Array:
        """How many weights score at least as much as each of the thresholds; never none.

        >>> Curve(4, np.array([1, 2, 4]), np.array([1.0, 0.5, 0.1])).counts_above(np.array([2.0, 0.5, 0.25]))
        array([1, 2, 3])
        """
        return np.interp(-thresholds, self._rising, self.ranks).astype(np.int64)


@torch.no_grad()
def score_curves(weights: Mapping[str, Tensor], score: Score) -> dict[str, Curve]:
    """The curve of every weight tensor under a score; the host waits for their device once.

    >>> score_curves({"a": torch.tensor([0.0, -2.0, 1.0])}, "lamp")["a"].scores.tolist()
    [1.0, 0.2, 0.0]
    """
    if callable(score):
        weights, score = (
            {name: check_scores(name, weight, score) for name, weight in weights.items()},
            "magnitude",
        )
    if score not in SCORES:
        raise MemboundError(f"there is no score {score!r}: choose {', '.join(SCORES)}")
    sizes = {name: weight.numel() for name, weight in weights.items()}
    if score == "uniform":
        return {name: proportional_curve(size, size) for name, size in sizes.items()}
    ranks = {name: _some_ranks(size) for name, size in sizes.items()}
    chosen = [_scores_at(weight, score) for weight in weights.values()]
    found = torch.cat([each.to(chosen[0].device) for each in chosen]).cpu().numpy()
    parts = np.split(found, np.cumsum([len(each) for each in chosen])[:-1])
    return {name: Curve(sizes[name], ranks[name], part) for name, part in zip(sizes, parts, strict=True)}


def guard_score(score: Score) -> Score:
    """The same score; where it is a user's function and raises, the error says so, and of which weight."""
    return partial(_call_score, score) if callable(score) else score


def _call_score(score: Callable[[str, Tensor], Tensor], name: str, weight: Tensor) -> Tensor:
    try:
        return score(name, weight)
    except Exception as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise MemboundError(
            f"your strategy function failed at weight '{name}': {what}", about="strategy"
        ) from error


def check_scores(name: str, weight: Tensor, score: Callable[[str, Tensor], Tensor]) -> Tensor:
    """What a user's function gives for a weight; what is no score is refused."""
    try:
        return scores_of(weight, partial(score, name))
    except RuleError as error:
        said = str(error)
        what = said.removeprefix("its scores") if said.startswith("its scores") else f": {said}"
        raise MemboundError(f"the strategy's scores of '{name}'{what}", about="strategy") from None


def _scores_at(weight: Tensor, score: str) -> Tensor:
    """The scores of a weight tensor at some of the ranks, on its device."""
    values = _from_the_largest(weight).double()
    if score == "lamp":
        squares = values.square()
        values = squares / squares.cumsum(0).clamp_min(torch.finfo(torch.float64).tiny)
    return values[_places(weight.numel(), weight.device)]


@cache
def _places(size: int, device: torch.device) -> Tensor:
    """The ranks of `_some_ranks`, counted from 0, on a device."""
    return torch.from_numpy(_some_ranks(size) - 1).to(device)


def _from_the_largest(weight: Tensor) -> Tensor:
    """The magnitudes in falling order."""
    magnitudes = weight.detach().abs().flatten().float()
    if (
        weight.device.type == "cpu"
    ):  # numpy sorts five times as fast as torch there, which sorts positions too
        return torch.from_numpy(np.sort(magnitudes.numpy())).flip(0)
    return magnitudes.sort(descending=True).values


def proportional_curve(size: int, count: int) -> Curve:
    """The curve of a layer that keeps `count` weights where others keep theirs, and more or fewer as they do.

    >>> proportional_curve(100, 10).counts_above(np.array([0.5]))
    array([20])
    """
    ranks = _some_ranks(size)
    return Curve(size, ranks, count / ranks)


@cache
def _some_ranks(size: int) -> Array:
    """All ranks of a small layer; of a large one as many near the beginning, then ever fewer."""
    if size <= POINTS:
        return np.arange(1, size + 1)
    return np.unique(np.geomspace(1, size, POINTS).round().astype(np.int64))


# What counts cost; given an array of counts for every layer, an array of costs.
Cost = Callable[[Mapping[str, Any]], Any]
TypedCost = Callable[
    [Mapping[str, Any], Mapping[str, str]], Any
]  # the same, by the types of the layers' values


def allocate(curves: Mapping[str, Curve], cost: Cost, bound: float) -> dict[str, int]:
    """The counts of the lowest threshold whose cost is within the bound; one weight a layer if none is.

    >>> curve = Curve(4, np.array([1, 2, 3, 4]), np.array([1.0, 0.5, 0.2, 0.1]))
    >>> allocate({"a": curve, "b": curve}, lambda counts: sum(counts.values()), 6)
    {'a': 3, 'b': 3}
    """
    everything = {name: curve.size for name, curve in curves.items()}
    if cost(everything) <= bound:
        return everything
    # In logarithms: scores span many orders of magnitude.
    top = np.log(max(float(curve.scores[0]) for curve in curves.values()) * 2 + FAINT)
    bottom = np.log(max(min(float(curve.scores[-1]) for curve in curves.values()), FAINT))

    def above(places: Array) -> dict[str, Array]:
        thresholds = np.exp(top + (bottom - top) * places)
        return {name: curve.counts_above(thresholds) for name, curve in curves.items()}

    within, beyond = _last_within(above, cost, bound, ROUNDS)
    if beyond is None:  # all that is left are weights of no score
        beyond = everything
    steps = {name: beyond[name] - count for name, count in within.items()}
    if max(steps.values()) <= 1:
        return within

    def between(parts: Array) -> dict[str, Array]:  # weights of one score, or closer than the grid
        return {name: count + (steps[name] * parts).astype(np.int64) for name, count in within.items()}

    return _last_within(between, cost, bound, ROUNDS - 1)[0]


def _last_within(
    path: Callable[[Array], dict[str, Array]], cost: Cost, bound: float, rounds: int
) -> tuple[dict[str, int], dict[str, int] | None]:
    """On a path of rising counts, from 0 to 1: the last that are within the bound, or the first; and the next."""
    begin, end = 0.0, 1.0
    for _ in range(rounds):
        places = np.linspace(begin, end, GRID + 1)
        counts = path(places)
        within = max(int(np.count_nonzero(cost(counts) <= bound)) - 1, 0)
        begin, end = places[within], places[min(within + 1, GRID)]
        if within == GRID:
            break
    found = {name: int(values[within]) for name, values in counts.items()}
    if within == GRID:
        return found, None
    return found, {name: int(values[within + 1]) for name, values in counts.items()}


@dataclass(frozen=True)
class NonzeroCost:
    """Every nonzero costs one."""

    def __call__(self, counts: Mapping[str, Any], types: Mapping[str, str] | None = None) -> Any:
        return sum(counts.values())


@dataclass(frozen=True)
class ByteCost:
    """Bytes in each layer's best format, as expected of nonzeros at random places (for speed, of the fast ones).

    >>> cost = ByteCost({"fc1.weight": (500, 800)})
    >>> cost({"fc1.weight": 4000}, {"fc1.weight": "f16"}), cost({"fc1.weight": 4000}, {"fc1.weight": "p4"}) < 8000
    (12990.0, True)
    """

    shapes: Mapping[str, Shape]
    prefer: Prefer = "bytes"

    def __call__(self, counts: Mapping[str, Any], types: Mapping[str, str]) -> Any:
        return sum(self._of_type(kind, counts, types) for kind in {types[name] for name in counts})

    def _of_type(self, kind: str, counts: Mapping[str, Any], types: Mapping[str, str]) -> Any:
        mine = {name: count for name, count in counts.items() if types[name] == kind}
        rows, columns = np.array([matrix_shape(self.shapes[name]) for name in mine]).T[..., None]
        given = np.array(list(mine.values()), np.float64)
        sizes = expected_bytes(rows, columns, given.reshape(len(mine), -1), kind)
        if self.prefer == "speed":
            sizes = {name: sizes[name] for name in FAST}
        total = np.minimum.reduce(list(sizes.values())).sum(0)
        return total if given.ndim > 1 else float(total[0])
