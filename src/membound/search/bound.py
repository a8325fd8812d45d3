"""One bound for a whole network while it trains: which layer keeps how much follows from its weights' scores.

The network is dense at first. Then the bound tightens along a cubic ramp; at every projection the counts of all layers
come anew from the scores. At the ramp's end what the file would really take is measured, the counts are set so that it
is just within the limit, and the rest of training is at these counts. At the very end the limit holds exactly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.errors import TrainingError
from membound.search.allocation import Cost, Curve, allocate, proportional_curve, score_curve
from membound.train.projection import project_
from membound.train.regularizer import Regularizer
from membound.train.rules import plain_keys
from membound.train.updates import l0_project

Measure = Callable[[Mapping[str, Tensor]], int]
CLOSE = 0.995  # of the limit: near enough while training goes on
TRIES = 12  # of finding counts by measuring


@dataclass(frozen=True)
class Ramp:
    """When the bound tightens, in parts of training: dense until `begin`, at the limit from `until` on."""

    begin: float = 0.1
    until: float = 0.6
    again: float = 0.85  # when the size is measured once more

    def left(self, progress: float) -> float:
        """What is left of the way to the limit: 1 to 0, cubic.

        >>> Ramp(0.0, 0.5).left(0.25)
        0.125
        """
        part = (self.until - progress) / (self.until - self.begin)
        return float(min(max(part, 0.0), 1.0) ** 3)


class NetworkBound(Regularizer):
    """The handle of attach(), for one bound on all of `weights` together.

    `measure` says what a state of the network takes, `limit` how much it may; `cost` estimates the same from counts,
    up to what the counts do not touch. With `proportions` the counts stay in these, whatever the scores.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        weights: Sequence[str],
        *,
        measure: Measure,
        limit: int,
        cost: Cost,
        score: str,
        proportions: Mapping[str, int] | None = None,
        total_steps: int,
        every: int = 20,
        ramp: Ramp | None = None,
    ) -> None:
        self.measure, self.limit, self.cost, self.score = measure, limit, cost, score
        self.proportions = proportions
        self.every, self.ramp = every, ramp or Ramp()
        sizes: dict[str, int] = {
            name: p.numel() for name, p in plain_keys(dict(model.named_parameters())).items()
        }
        self.counts = {name: sizes[name] for name in weights}
        self.dense_cost = cost(self.counts)
        self.bound: float | None = None  # of the cost, once it has been found by measuring
        rules = {name: l0_project(partial(self._count, name), every) for name in weights}
        super().__init__(optimizer, model, rules, total_steps)

    def _count(self, name: str, progress: float) -> int:
        return self.counts[name]

    # While training

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if (self.step + 1) % self.every == 0:
            self._tighten((self.step + 1) / self._steps)
        super()._after_step(optimizer, args, kwargs)

    @property
    def _steps(self) -> int:
        assert self.total_steps is not None
        return self.total_steps

    def _due(self, step: int) -> bool:
        return step / self._steps > self.ramp.begin and super()._due(step)

    def _tighten(self, progress: float) -> None:
        if progress <= self.ramp.begin:
            return
        left = self.ramp.left(progress)
        if left > 0:
            aim = min(self.limit, self.dense_cost)
            self.counts = allocate(self._curves(), self.cost, aim + (self.dense_cost - aim) * left)
        elif self.bound is None or (progress >= self.ramp.again > progress - self.every / self._steps):
            self._settle()

    # To the limit, exactly

    @torch.no_grad()
    def _settle(self, exact: bool = False) -> None:
        """Set the counts so that what is measured is within the limit, and close to it."""
        curves = self._curves()
        best: dict[str, int] | None = None
        low, high = 0.0, 2 * self.dense_cost  # of the cost: what is within the limit, what is not
        bound = min(self.bound or float(self.limit), self.dense_cost)
        for _ in range(TRIES):
            counts = allocate(curves, self.cost, bound)
            size = self._size(counts)
            if size <= self.limit:
                best, low = counts, bound
                if size >= CLOSE * self.limit or bound >= self.dense_cost:
                    break
            else:
                high = bound
            # What is measured moves with the cost almost one to one; where that overshoots, by halves.
            bound += CLOSE * self.limit + (1 - CLOSE) / 2 * self.limit - size
            if not low < bound < high:
                bound = (low + min(high, self.dense_cost)) / 2
        if best is None:
            best = allocate(curves, self.cost, 0.0)
            if exact and self._size(best) > self.limit:
                raise TrainingError(
                    f"the network does not fit into {self.limit:,} bytes: with one weight a layer it takes "
                    f"{self._size(best):,}; allow more"
                )
        self.counts, self.bound = best, low or bound

    def _curves(self) -> dict[str, Curve]:
        if self.proportions is not None:
            sizes = {target.name: target.weight.numel() for target in self._targets}
            return {name: proportional_curve(size, self.proportions[name]) for name, size in sizes.items()}
        return {target.name: score_curve(target.weight, self.score) for target in self._targets}

    def _size(self, counts: Mapping[str, int]) -> int:
        return self.measure(self._state(counts))

    def _state(self, counts: Mapping[str, int]) -> dict[str, Tensor]:
        """The network's state with these counts imposed."""
        state = dict(plain_keys(self.model.state_dict()))
        for target in self._targets:
            cut = target.weight.detach().clone()
            project_(cut, counts[target.name])
            for name, value in state.items():
                if value.data_ptr() == target.weight.data_ptr() and value.shape == cut.shape:
                    state[name] = cut  # a tied weight has several names
        return state

    def _settle_counts(self) -> None:
        self._settle(exact=True)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "counts": dict(self.counts), "bound": self.bound}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.counts, self.bound = dict(state["counts"]), state["bound"]
