"""Weights under palettes: the floats that an optimizer changes are kept apart from what the network computes with.

Between steps a weight has the values of its palette. Before a step it becomes the floats, so that the optimizer and the
other updates change these; after it they are kept, and the weight becomes the nearest entries again. The gradient found
at the entries is applied to the floats as it is: straight through.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from membound.errors import RuleError
from membound.train.grids import Entries, Grid, RowSteps, make_grid
from membound.train.palette import Levels, check_weight
from membound.train.rules import Target
from membound.train.sharded import is_sharded, local_part, shard_like

Progress = float | None


class Shadow:
    """The floats of one weight, and the few values that it has instead of them."""

    def __init__(self, weight: Tensor, grid: Grid) -> None:
        self.floats = weight.detach().clone()  # sharded where the weight is
        self.grid = grid
        self.seen: int | None = None  # the weight's version when it got its values

    def lift_(self, weight: Tensor, look: bool = True) -> None:
        """Make the weight the floats; what somebody else has written to it since is taken over."""
        mine, floats = local_part(weight), local_part(self.floats)
        if look and mine._version != self.seen:
            floats.copy_(torch.where(mine == self.grid.nearest(floats), floats, mine))
        mine.copy_(floats)

    def lower_(self, weight: Tensor) -> None:
        """Keep the floats that the weight is, and make it the nearest entries."""
        mine, floats = local_part(weight), local_part(self.floats)
        floats.copy_(mine)
        mine.copy_(self.grid.nearest(floats))
        self.seen = mine._version


class Shadows:
    """Of the weights under palettes of one attach(), from when these begin."""

    def __init__(self) -> None:
        self._of: dict[str, Shadow] = {}
        self._targets: list[Target] = []

    def __len__(self) -> int:
        return len(self._of)

    @property
    def expected(self) -> bool:
        """Whether any weight is under a palette, or will be."""
        return bool(self._targets)

    def know(self, targets: Sequence[Target]) -> None:
        """The weights there are; those that are gone are forgotten."""
        self._targets = [target for target in targets if target.update.levels is not None]
        names = {target.name for target in self._targets}
        self._of = {name: shadow for name, shadow in self._of.items() if name in names}

    def due(self, step: int, progress: Progress) -> bool:
        """Whether entries are fitted after this step."""
        return any(self._is_due(target, step, progress) for target in self._targets)

    def _is_due(self, target: Target, step: int, progress: Progress) -> bool:
        levels = _levels(target)
        return levels.acts(progress) and (step % levels.every == 0 or target.name not in self._of)

    @torch.no_grad()
    def lift_(self, look: bool = True) -> None:
        """Every weight becomes its floats."""
        for target in self._targets:
            if target.name in self._of:
                self._of[target.name].lift_(target.weight, look)

    @torch.no_grad()
    def lower_(self) -> None:
        """Every weight becomes entries."""
        for target in self._targets:
            if target.name in self._of:
                self._of[target.name].lower_(target.weight)

    @torch.no_grad()
    def after(self, step: int, progress: Progress, run: Callable[..., None]) -> None:
        """What comes after a step: entries are fitted where that is due, and weights become entries."""
        for target in self._targets:
            if target.weight.grad is not None and self._is_due(target, step, progress):
                run(target, lambda weight, target=target: self._fit(target, progress))
        self.lower_()

    def _fit(self, target: Target, progress: Progress) -> None:
        """To what would be left at the present bound: between projections a weight is dense."""
        kept = target.weight.detach()
        if target.update.bound is not None:
            kept = kept.clone()
            kept.grad = target.weight.grad  # which a rank may look at
            target.update.project_(kept, progress, target.state)
        levels = _levels(target).at(progress)
        if target.name not in self._of:
            self._of[target.name] = Shadow(target.weight, make_grid(levels))
        self._of[target.name].grid.fit(kept, levels)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Inside, and after it, weights are their floats; if it fails, they are entries again."""
        self.lift_()
        try:
            yield
        except BaseException:
            self.lower_()
            raise

    @torch.no_grad()
    def project_(self, target: Target, progress: Progress, keep: bool) -> None:
        """Impose the bound and the palette of now on a weight, of this network or another one.

        Where it has floats, these are projected, and `keep` says that they are to go on from there.
        """
        weight, levels = target.weight, target.update.levels
        shadow = self._own(target)
        if shadow is not None:
            shadow.lift_(weight)
        if target.update.bound is not None:
            target.update.project_(weight, progress, target.state)
        if levels is None or not levels.acts(progress):
            return
        mine = local_part(weight)
        grid = make_grid(levels.at(progress)) if shadow is None else shadow.grid
        if shadow is None or keep:
            grid.fit(weight, levels.at(progress))
        if shadow is not None and keep:
            shadow.lower_(weight)
        else:
            mine.copy_(grid.nearest(mine))

    def check(self, target: Target) -> None:
        """Refuse what cannot be projected, before anything is changed."""
        shadow = self._own(target)
        check_weight(target.weight if shadow is None else shadow.floats)

    def _own(self, target: Target) -> Shadow | None:
        """None for a weight of another network, and before the palette begins."""
        shadow = self._of.get(target.name)
        own = shadow is not None and any(target.weight is other.weight for other in self._targets)
        return shadow if own else None

    # Checkpoints

    def forget(self) -> None:
        """Training is over: what weights are is all there is."""
        self._of = {}

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The floats and the values of each weight whose palette has begun, as they are now."""
        return {
            name: {FLOATS: shadow.floats.clone(), shadow.grid.key: shadow.grid.values.clone()}
            for name, shadow in self._of.items()
        }

    @torch.no_grad()
    def load_state_dict(self, state: Any) -> None:
        """Go on with those; the weights themselves may be loaded before or after."""
        weights = {target.name: target.weight for target in self._targets}
        found = {}
        for name, saved in _items(state):
            kind = RowSteps if isinstance(saved, Mapping) and RowSteps.key in saved else Entries
            floats, values = (
                saved.get(key) if isinstance(saved, Mapping) else None for key in (FLOATS, kind.key)
            )
            if name not in weights or not isinstance(floats, Tensor) or not isinstance(values, Tensor):
                raise RuleError(
                    f"the saved state has no floats and entries of a palette of '{name}' {_DAMAGED}"
                )
            weight = weights[name]
            if floats.shape != weight.shape:
                raise RuleError(
                    f"the saved state has a palette of '{name}' of shape {tuple(floats.shape)}, here it is "
                    f"{tuple(weight.shape)}: load what state_dict() gave for this network"
                )
            values = values.to(local_part(weight))
            if not _may_be(values, len(weight) if kind is RowSteps else None):
                raise RuleError(
                    f"the saved state has entries of a palette of '{name}' that cannot be {_DAMAGED}"
                )
            found[name] = shadow = Shadow(weight, kind(values))
            whole = is_sharded(weight) and not is_sharded(floats)
            shadow.floats.copy_(shard_like(floats, weight) if whole else floats)
        self._of = found


FLOATS = "floats"
_DAMAGED = "(it is damaged, or of other rules): load what state_dict() gave"


def _items(state: Any) -> Any:
    if not isinstance(state, Mapping):
        raise RuleError(f"the saved state has palette={state!r} {_DAMAGED}")
    return state.items()


def _may_be(values: Tensor, length: int | None) -> bool:
    """Whether these are entries, or one step for each of so many rows."""
    right = values.dim() == 1 and len(values) > 0 and length in (None, len(values))
    return right and bool((values.isfinite() & (values != 0)).all())


def _levels(target: Target) -> Levels:
    assert target.update.levels is not None
    return target.update.levels
