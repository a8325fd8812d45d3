"""One bound for a whole network while it trains: which layer keeps how much follows from its weights' scores.

The network is dense at first. Then it is measured which cost of its counts would bring it to the limit, and the bound
tightens to that cost along a cubic ramp; at every projection the counts of all layers come anew from the scores. It is
measured again on the way, since dead channels take nothing. From the ramp's end on the counts are such that what is
measured is just within the limit, and at the very end that holds exactly.

Where values are stored in few bits, weights take few values from the ramp's end on; how many, in each layer, is chosen
on the way (bits.py) or given.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.errors import MemboundError, TrainingError
from membound.modules import plain_keys
from membound.search.allocation import (
    Curve,
    Score,
    TypedCost,
    allocate,
    guard_score,
    proportional_curve,
    score_curves,
)
from membound.search.bits import (
    FRESH,
    Types,
    as_if_trained,
    choose_types,
    palette_bits,
    total_error,
    trained_levels,
    wider,
)
from membound.store.values import value_type
from membound.train.magnitudes import NonFiniteError
from membound.train.projection import project_, project_by_, scores_of
from membound.train.regularizer import Regularizer
from membound.train.schedules import Known
from membound.train.updates import Update, chain, l0_project, palette

Measure = Callable[[Mapping[str, Tensor], Types], int]
CLOSE, FULL = 0.995, 0.975  # of the limit: near enough; and what is worth another look at every layer
TRIES = 16  # of finding counts by measuring
LAST = 0.05  # of the weights that stay: those of the lowest scores, which say what a byte is worth
REGROWN = (
    1.25  # weights of an own score for each that would fit were none rounded to zero; more are dense again
)
CLEARLY = 2.0  # times the error: then it is better to keep all weights
CHOICES = 3  # of bits: each is for the counts that the one before leaves room for
PALETTE_EVERY = 100  # steps between fits of a palette, at most


@dataclass(frozen=True)
class Ramp:
    """When the bound tightens, in parts of training: dense until `begin`, at the limit from `until` on."""

    begin: float = 0.1
    until: float = 0.6
    again: float = 0.85  # when the size is measured once more

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.until <= 1:
            raise MemboundError(
                f"a ramp must have 0 <= begin < until <= 1, got begin {self.begin} and until {self.until}"
            )

    @property
    def looks(self) -> tuple[float, ...]:
        """When it is measured, but for the beginning and the very end."""
        way = self.until - self.begin
        return *(self.begin + part * way for part in (0.25, 0.5, 0.75)), self.until, self.again

    def left(self, progress: float) -> float:
        """What is left of the way to the limit: 1 to 0, cubic.

        >>> Ramp(0.0, 0.5).left(0.25)
        0.125
        """
        part = (self.until - progress) / (self.until - self.begin)
        return float(min(max(part, 0.0), 1.0) ** 3)


class NetworkBound:
    """One bound on all of `weights` together: a guide for a regularizer, which `attach` makes.

    `measure` says what a state of the network takes, `limit` how much it may; `cost` estimates the same from counts,
    up to what the counts do not touch; both by the `types` of the weights' values, f16 unless others are given. These
    stay, or they are where it `chooses` from, by `noise` (bits.py); it `widens` them where something else than bytes is
    what binds. With `counts_code`, positions cost code, too, and all weights in few bits may be better. With
    `proportions` the counts stay in these, whatever the scores.
    `rounded` has the types of weights that are not bounded, but stored in few bits.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Sequence[str],
        *,
        measure: Measure,
        limit: int,
        cost: TypedCost,
        types: Types | None = None,
        chooses: bool = False,
        widens: bool = False,
        counts_code: bool = False,
        noise: float | None = FRESH,
        score: Score,
        proportions: Mapping[str, int] | None = None,
        rounded: Types | None = None,
        total_steps: int,
        every: int = 20,
        ramp: Ramp | None = None,
    ) -> None:
        self.model, self.names = model, tuple(weights)
        self.measure, self.limit, self._cost, self.score = measure, limit, cost, guard_score(score)
        self.types, self.chooses = dict(types or dict.fromkeys(weights, "f16")), chooses
        self.widens, self.counts_code, self.noise = widens, counts_code, noise
        self.proportions, self.rounded = proportions, dict(rounded or {})
        self.total_steps, self.every, self.ramp = total_steps, every, ramp or Ramp()
        self.counts = {name: weight.numel() for name, weight in self._weights().items()}
        self.whole = False  # all weights in few bits, as `_keep_all_if_better` says
        self.bound: float | None = None  # of the cost at which the limit is met, once that has been measured

    def attach(self, optimizer: Optimizer) -> Regularizer:
        """The handle that imposes this bound at the steps of `optimizer`."""
        return Regularizer(
            optimizer,
            self.model,
            {name: self._rule(name) for name in self.names}
            | {name: self._palette(levels) for name, levels in self._others()},
            self.total_steps,
            guide=self,
        )

    def _rule(self, name: str) -> Update:
        rank = partial(self.score, name) if callable(self.score) else None
        counts = l0_project(Known("as the bound allows", partial(self._count, name)), self.every, rank)
        if not self.chooses and trained_levels(self.types[name]) is None:
            return counts
        levels = Known("as the bound allows", partial(self._levels, name))
        return chain(counts, self._palette(levels))

    def _palette(self, levels: int | Callable[[float], int | None]) -> Update:
        often = max(1, min(PALETTE_EVERY, self.total_steps // 100))
        return palette(levels, often, begin=self.ramp.until)

    def _levels(self, name: str, progress: float) -> int | None:
        levels = trained_levels(self.types[name])
        if self.whole and levels is not None and palette_bits(self.types[name]) is not None:
            return levels - 1  # without positions, zero is one of the values
        return levels

    def _others(self) -> Iterator[tuple[str, int]]:
        for name, kind in self.rounded.items():
            if (levels := trained_levels(kind)) is not None:
                yield name, levels

    @property
    def dense_cost(self) -> float:
        return float(self.cost({name: weight.numel() for name, weight in self._weights().items()}))

    def cost(self, counts: Mapping[str, Any]) -> Any:
        return self._cost(counts, self.types)

    def _count(self, name: str, progress: float) -> int:
        return self.counts[name]

    def _weights(self) -> dict[str, Tensor]:
        named = plain_keys(dict(self.model.named_parameters(remove_duplicate=False)))
        return {name: named[name] for name in self.names}

    @property
    def _looks(self) -> tuple[float, ...]:
        """When it is measured: of a score of the user's own, which may keep other weights each time, more often."""
        late = [1 - (1 - self.ramp.again) / part for part in (2, 4, 8)] if callable(self.score) else []
        return *self.ramp.looks, *late

    # What the regularizer asks for

    def rests(self, step: int) -> bool:
        """The network is dense until the ramp begins."""
        return step / self.total_steps <= self.ramp.begin

    def prepare(self, step: int) -> None:
        """Tighten the bound, and measure where that is due."""
        now, before = step / self.total_steps, (step - self.every) / self.total_steps
        left = self.ramp.left(now)
        looking = self.bound is None or any(before < at <= now for at in self._looks)
        if not (left or looking):
            return
        # Where a weight is not finite, the projection that comes next says which.
        try:
            curves = self._curves()
        except NonFiniteError:
            return
        if not all(np.isfinite(curve.scores).all() for curve in curves.values()):
            return
        if looking:
            try:
                first = self.bound is None
                self._settle(curves, final=not left)
                if self.chooses and first:
                    self._choose(curves)
                elif self.chooses and not left and callable(self.score) and now <= self.ramp.again:
                    self._widen()  # where tiny weights stay and are rounded to zero, more weights cannot fill it
            except NonFiniteError:
                return
        if left:
            assert self.bound is not None
            bound = self.bound + (self.dense_cost - self.bound) * left
            self.counts = allocate(curves, self.cost, bound)

    def settle(self) -> None:
        """Counts that are within the limit, exactly."""
        self._settle(self._curves())

    def state_dict(self) -> dict[str, Any]:
        """The counts, the types of values, and the bound if it has been measured."""
        return {
            "counts": dict(self.counts),
            "types": dict(self.types),
            "bound": self.bound,
            "whole": self.whole,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with those."""
        self.counts, self.types, self.bound = dict(state["counts"]), dict(state["types"]), state["bound"]
        self.whole = state.get("whole", False)

    # Bits

    @torch.no_grad()
    def _choose(self, curves: Mapping[str, Curve]) -> None:
        """Types for the weights that would stay at the limit, and the counts that these leave room for.

        While the network is still dense: later, what is just below the bound has been made small by it.
        """
        whole: Types | None = None  # types in which all weights fit
        for _ in range(CHOICES):
            whole = dict(self.types) if self._keeps_all else whole
            cut = {
                name: self._cut(name, weight, self.counts[name]) for name, weight in self._weights().items()
            }
            types = choose_types(cut, self.types, self.noise, self._last_squares(cut))
            if types == self.types:
                break
            self.types = types
            self._settle(curves, final=False)
        if self.counts_code and whole is not None and not self._keeps_all:
            self._keep_all_if_better(whole)
        if self.widens or self._keeps_all:
            self._widen()

    @property
    def _keeps_all(self) -> bool:
        return all(self.counts[name] == each.numel() for name, each in self._weights().items())

    def _keep_all_if_better(self, types: Types) -> None:
        """All weights in few bits, where dropping some for more bits costs far more than it brings."""
        weights, chosen = self._weights(), (self.types, self.counts, self.bound)
        cut = {name: self._cut(name, weight, self.counts[name]) for name, weight in weights.items()}
        before = total_error(weights, cut, self.types, self.noise)
        self.types = dict(types)
        self.counts = {name: weight.numel() for name, weight in weights.items()}
        self._widen()
        if CLEARLY * total_error(weights, weights, self.types, self.noise) < before:
            self.bound, self.whole = self.dense_cost, True
        else:
            self.types, self.counts, self.bound = chosen

    def _last_squares(self, cut: Mapping[str, Tensor]) -> dict[str, float] | None:
        """Of a score of the user's own, which may keep tiny weights: the mean square of the lowest scores that stay."""
        if not callable(self.score):
            return None
        found = {}
        for name, weight in self._weights().items():
            stays = cut[name] != 0
            scores = scores_of(weight, partial(self.score, name))[stays]
            lowest = scores.argsort()[: max(round(LAST * len(scores)), 1)]
            found[name] = float(weight[stays][lowest].double().square().mean())
        return found

    def _widen(self) -> None:
        """More bits as long as there is room, where no weight has to go for them; layers of the fewest come first."""
        left = set(self.names)
        while left:
            name = min(left, key=lambda name: (value_type(self.types[name]).bits, -self.counts[name]))
            more = wider(self.types[name])
            tried = self.types if more is None else {**self.types, name: more}
            if more is None or self.measure(self._state(self.counts, tried), tried) > self.limit:
                left.remove(name)
            else:
                self.types = tried

    # To the limit, exactly

    @torch.no_grad()
    def _settle(self, curves: Mapping[str, Curve], final: bool = True) -> None:
        """Set the counts so that what is measured is within the limit, and close to it; if they are `final`, closer."""
        if final and self.bound is not None and self._is_close(self._size(self.counts)):
            return  # what the network has been trained at
        best, bound = self._nearest(curves, self.dense_cost, rounds=False)
        if callable(self.score):
            best, bound = self._nearest(curves, min(REGROWN * bound, self.dense_cost), rounds=True)
        best = best or self._least(curves)
        if final and best[0] < FULL * self.limit and self.proportions is None:
            best = self._fill(*best)
        self.counts, self.bound = best[1], bound

    def _nearest(
        self, curves: Mapping[str, Curve], most: float, rounds: bool
    ) -> tuple[tuple[int, dict[str, int]] | None, float]:
        """The largest size within the limit that was found and its counts, if any, and the bound, of up to `most`."""
        best: tuple[int, dict[str, int]] | None = None
        search = _Search((1 + CLOSE) / 2 * self.limit, most)
        bound = min(self.bound or float(self.limit), most)
        for _ in range(TRIES):
            counts = allocate(curves, self.cost, bound)
            size = self.measure(self._state(counts, rounds=rounds), self.types)
            search.saw(bound, size, size <= self.limit)
            if size <= self.limit:
                best = max(best or (size, counts), (size, counts), key=lambda found: found[0])
            if search.is_over or self._is_close(size):
                break
            bound = search.next()
        return best, search.low

    def _is_close(self, size: int) -> bool:
        return CLOSE * self.limit <= size <= self.limit

    def _least(self, curves: Mapping[str, Curve]) -> tuple[int, dict[str, int]]:
        """One weight a layer, and what that takes, if it is within the limit."""
        counts = allocate(curves, self.cost, 0.0)
        size = self._size(counts)
        if size > self.limit:
            raise TrainingError(
                f"the network cannot be brought to {self.limit:,}: with one weight a layer it takes {size:,}; "
                "allow more"
            )
        return size, counts

    def _fill(self, size: int, counts: dict[str, int]) -> tuple[int, dict[str, int]]:
        """More weights for single layers, the largest first, where one threshold for all stops far from the limit.

        It does where a weight brings a channel back, and with it memory or many other weights.
        """
        for name, weight in sorted(self._weights().items(), key=lambda item: -item[1].numel()):
            low = counts[name]
            high = min(weight.numel(), low + self.limit - size) + 1  # more would not fit
            while high - low > 1 and size < CLOSE * self.limit:
                tried = {**counts, name: (low + high) // 2}
                found = self._size(tried)
                if found > self.limit:
                    high = tried[name]
                else:
                    low = tried[name]
                    if found > size:  # else they are dead
                        size, counts = found, tried
        return size, counts

    def _curves(self) -> dict[str, Curve]:
        if self.proportions is not None:
            return {
                name: proportional_curve(weight.numel(), self.proportions[name])
                for name, weight in self._weights().items()
            }
        return score_curves(self._weights(), self.score)

    def _cut(self, name: str, weight: Tensor, count: int) -> Tensor:
        """A copy of a weight with so many nonzeros."""
        cut = weight.detach().clone()
        if callable(self.score):
            cut.grad = weight.grad
            project_by_(cut, count, partial(self.score, name))
            cut.grad = None
        else:
            project_(cut, count)
        return cut

    def _size(self, counts: Mapping[str, int]) -> int:
        return self.measure(self._state(counts), self.types)

    def _state(
        self, counts: Mapping[str, int], types: Types | None = None, rounds: bool | None = None
    ) -> dict[str, Tensor]:
        """The network's state with these counts imposed, and, if it `rounds`, what a palette rounds to zero."""
        kinds = types or self.types
        rounds = callable(self.score) if rounds is None else rounds
        state = dict(plain_keys(self.model.state_dict()))
        for name, weight in self._weights().items():
            cut = as_if_trained(self._cut(name, weight, counts[name]), kinds[name], rounds)
            for other, value in state.items():
                if value.data_ptr() == weight.data_ptr() and value.shape == cut.shape:
                    state[other] = cut  # a tied weight has several names
        return state


class _Search:
    """For the bound at which a size that grows with it, somehow, is just what it should be.

    A size moves with the bound almost one to one, but for jumps, and for weights that vanish with dead channels.
    """

    def __init__(self, aim: float, highest: float) -> None:
        self.aim, self.highest = aim, highest
        self.low, self.low_size = 0.0, 0.0  # the highest bound that is within the limit
        self.high, self.high_size = highest, math.inf  # the lowest that is not
        self.sides: list[bool] = []  # whether each try was within

    def saw(self, bound: float, size: float, within: bool) -> None:
        if within:
            self.low, self.low_size = bound, size
        else:
            self.high, self.high_size = bound, size
        self.sides.append(within)

    @property
    def is_over(self) -> bool:
        """Whether all fits, or no cost lies between what does and what does not."""
        return self.low >= self.highest or (False in self.sides and self.high - self.low < 1)

    def next(self) -> float:
        """Where to look next: ever farther while all tries are on one side, then between both."""
        farther = 2.0 ** (len(self.sides) - 1)
        if False not in self.sides:
            return min(self.low + farther * (self.aim - self.low_size), self.highest)
        if True not in self.sides:
            bound = self.high - farther * (self.high_size - self.aim)
            return bound if bound > 0 else self.high / 4
        part = (self.aim - self.low_size) / (self.high_size - self.low_size)
        if len(self.sides) % 3 == 0:
            part = 0.5  # where jumps mislead
        return self.low + min(max(part, 0.1), 0.9) * (self.high - self.low)
