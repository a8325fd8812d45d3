"""The central idea: a memory bound is a projection, applied around `optimizer.step()`.

An update is a small function on one weight tensor. Some act on its gradient before the optimizer's step,
some on the weight after it; `chain` applies several in the order given. Every strength may be a schedule
(a function of progress from 0 to 1), and each is written for one weight W with learning rate lr:

    l2_decay        before:  g <- g + lambda W
    l1_subgradient  before:  g <- g + lambda sign(W)
    l1_shrink       after:   W <- sign(W) max(|W| - lr lambda, 0)
    l0_project      after:   W <- argmin |W - W'|^2  with at most t nonzeros in W', every n steps
    hold            after:   zeros before the step are zeros after it
    palette         after:   W <- argmin |V - W'|^2  with at most L different nonzeros in W'; the step changes V

As in Caffe the learning rate multiplies every strength: the optimizer does so for what is in the gradient,
`l1_shrink` does so itself. Momentum beta amplifies a penalty in the gradient by 1 / (1 - beta), because the
penalty enters the velocity; it does not amplify `l1_shrink`, which acts on the weight. At momentum 0.9 an
`l1_shrink` therefore needs ten times the strength of an `l1_subgradient`. Adam rescales whatever is in the
gradient, penalties included. The momentum of a weight that was set to zero is left alone, so a weight that the
loss pulls on strongly enough comes back.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Never

import torch
from torch import Tensor

from membound.errors import MemboundError, RuleError, shown
from membound.signatures import misfit
from membound.train.kept import check_state
from membound.train.magnitudes import NonFiniteError
from membound.train.palette import Levels
from membound.train.projection import Rank, project_, project_by_
from membound.train.schedules import Number, Schedule, name_number, value_at
from membound.train.sharded import is_sharded, local_part
from membound.units import of_python, plain_number


@dataclass(frozen=True)
class Moment:
    """When an update runs, and what the optimizer is about to do.

    - `step` counts from 1; `progress` goes from 0 to 1, and is None where `attach` got no `total_steps`.
    - `lr` is the learning rate of the weight's group, a tensor on the device where a recorded step reads it there.
    - `grad_scale` is what a GradScaler has multiplied the gradients by, where they still are multiplied when `before`
      runs (a fused optimizer divides them itself): multiply what you add to `weight.grad` by it. None otherwise.
    - `maximize` says that the optimizer goes up the gradient: subtract a penalty then.
    - `scratch` is yours, from `before` to `after` of one step: tensors by `id(weight)`.
    - `state` is yours for this weight, from its first step to its last: tensors by names that you choose. It is saved
      and loaded with `reg.state_dict()`. All updates of a chain have the same one.
    """

    step: int
    progress: float | None
    lr: float | Tensor
    grad_scale: Tensor | None = None
    maximize: bool = False
    scratch: dict[int, Tensor] = field(default_factory=dict)
    state: dict[str, Tensor] = field(default_factory=dict)


Stage = Callable[[Tensor, Moment], Any]
CALLED: dict[str, list[tuple[str, ...]]] = {  # what each function of an update may be called with
    "before": [("weight", "moment")], "after": [("weight", "moment")], "bound": [("size", "progress")],
    "rank": [("weight",), ("weight", "state")],
}  # fmt: skip


@dataclass(frozen=True)
class Update:
    """What is done to one weight around a step. The functions of this module make them; so can you.

    A stage is a function of the weight and a `Moment`, called without gradients: `before` may change `weight.grad`,
    `after` the weight, both in place. A chain takes your own like any other.

    - `kinds` is a tuple of one name, `arguments` a tuple of its numbers: a checkpoint keeps both, to see that the rules
      are the same. A number that is a function of progress is a schedule, which needs `total_steps`.
    - `bound(size, progress)`, if there is one, is the most nonzeros that a weight of `size` may have, a whole number:
      `finish()` projects onto it, and `with reg.projected():` too.
    - `rank(weight)` or `rank(weight, state)`, beside a bound, gives a score of at least 0 for each element: the highest
      stay. Without it, the largest magnitudes do. `weight.grad` is the last gradient, or None; `state` is what stages
      have kept in `moment.state`, empty before the first step.
    - `every`: `after` is called only on steps that are multiples of it.
    - `steady_before` and `steady_after` promise that the stage does the same at every step but for the learning rate,
      and reads nothing back from the device: then a step on a GPU is recorded with it, and replayed. False is always
      right.
    - `levels` is `palette`'s, and for no other: leave it None.

    >>> def clip(limit: float) -> mb.Update:
    ...     def after(weight: Tensor, moment: Moment) -> None:
    ...         weight.clamp_(-limit, limit)
    ...
    ...     return mb.Update(("clip",), (limit,), after=after)
    >>> weight = torch.tensor([0.5, -0.2, 2.0])
    >>> clip(1.0).after(weight, Moment(step=1, progress=None, lr=0.1))
    >>> weight
    tensor([ 0.5000, -0.2000,  1.0000])
    """

    kinds: tuple[str, ...]
    arguments: tuple[Any, ...]
    before: Stage | None = field(default=None, compare=False, repr=False)
    after: Stage | None = field(default=None, compare=False, repr=False)
    bound: Callable[[int, float | None], int] | None = field(default=None, compare=False, repr=False)
    # What `shadow` does around the stages: the weight is a palette's, the optimizer changes floats that are apart.
    levels: Levels | None = field(default=None, compare=False, repr=False)
    rank: Rank | None = field(default=None, compare=False, repr=False)
    every: int = field(default=1, compare=False, repr=False)
    steady_before: bool = field(default=False, compare=False, repr=False)
    steady_after: bool = field(default=False, compare=False, repr=False)
    _parts: tuple["Update", ...] = field(default=(), compare=False, repr=False)  # of a chain

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, tuple) or not all(isinstance(kind, str) for kind in self.kinds):
            raise RuleError(f"Update: kinds is {self.kinds!r}; it is a tuple of a name, such as ('clip',)")
        if not isinstance(self.arguments, tuple):
            raise RuleError(
                f"Update: arguments is {self.arguments!r}; it is a tuple of numbers, such as (0.5,) or ()"
            )
        for name, ways in CALLED.items():
            if (given := getattr(self, name)) is not None:
                _check_function(name, given, ways)
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise RuleError(f"Update: every is {self.every!r}; it is a whole number of steps from 1")
        if self.steady_after and self.every > 1:
            raise RuleError(
                f"Update: steady_after with every={self.every}: a stage that rests is not always the same"
            )
        if not any((self.before, self.after, self.bound, self.levels)):
            raise RuleError(
                f"Update: '{' and '.join(self.kinds)}' would do nothing: give it a before, an after or a bound"
            )

    def run(self, stage: Stage, weight: Tensor, moment: Moment) -> None:
        """Call one of its stages, where that is due; a new tensor that it returns would be lost: that is an error."""
        if stage is self.after and moment.step % self.every:
            return
        try:
            found = stage(weight, moment)
        except (MemboundError, NonFiniteError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            kinds, what = " and ".join(self.kinds), f"{type(error).__name__}: {error}".rstrip(": ")
            raise RuleError(f"the update '{kinds}' failed: {what}") from error
        if isinstance(found, Tensor) and not _is_part(found, weight, moment):
            name, such = ("after", "w.mul_(0.5)") if stage is self.after else ("before", "w.grad.add_(w)")
            raise RuleError(
                f"the stage '{name}' of the update '{' and '.join(self.kinds)}' returns a new tensor, which would be "
                f"lost: write in place, such as {such}"
            )
        check_state(moment.state)

    def allowed(self, size: int, progress: float | None) -> int:
        """What `bound` gives for a weight of `size`: a whole number from 0 to it; all of it without a bound."""
        if self.bound is None:
            return size
        try:
            found = plain_number(self.bound(size, progress))
        except TypeError as error:
            if progress is not None:
                raise
            raise RuleError(
                f"the bound of '{' and '.join(self.kinds)}' does not work without progress ({error}): give attach() "
                "total_steps"
            ) from None
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= size:
            raise RuleError(
                f"the bound of '{' and '.join(self.kinds)}' gives {found!r} for {size} weights: it must give a whole "
                f"number from 0 to {size}, such as round(0.1 * size)"
            )
        return found

    def project_(self, weight: Tensor, progress: float | None, state: Mapping[str, Tensor]) -> None:
        """Impose the bound of now on a weight; a rank may ask for what has been kept of it."""
        count, rank = self.allowed(weight.numel(), progress), self.rank
        if rank is None:
            project_(weight, count)
        elif misfit("rank", rank, ("weight",)) is None:
            project_by_(weight, count, rank)
        else:
            project_by_(weight, count, lambda weight: rank(weight, state))

    @property
    def leaves_bound(self) -> bool:
        """Whether a weight may leave its bound between steps: where the bound is not imposed after each."""
        parts = [part for part in self._parts or (self,) if part.bound is not None]
        return "hold" not in self.kinds and any(part.after is None or part.every > 1 for part in parts)

    @property
    def imposed_every(self) -> int:
        """Every how many steps a bound is imposed; 0 without one that is."""
        parts = [part for part in self._parts or (self,) if part.bound is not None and part.after is not None]
        return min((part.every for part in parts), default=0)

    @property
    def scheduled(self) -> bool:
        """Whether any of its numbers depends on the progress of training."""
        late = self.levels is not None and self.levels.scheduled
        return late or any(callable(argument) for argument in self.arguments)

    def describe(self) -> str:
        """What it is in a few words, for a checkpoint: the same rules have the same.

        >>> mb.l0_project(0.1).describe(), mb.l2_decay(mb.ramp(0.0, 1e-4)).describe()
        ('l0_project(0.1, 100)', 'l2_decay(ramp(0.0, 0.0001))')
        """
        numbers = ", ".join(map(name_number, self.arguments))
        return f"{' and '.join(self.kinds)}({numbers})"


def l2_decay(strength: float | Schedule) -> Update:
    """Weight decay, in the gradient: g <- g + strength W.

    >>> mb.l2_decay(5e-4).kinds
    ('l2_decay',)
    """
    at = _strength("l2_decay", strength)

    def before(weight: Tensor, moment: Moment) -> None:
        _add_penalty(weight, weight, at(moment), moment)

    return Update(("l2_decay",), (strength,), before=before, steady_before=not callable(strength))


def l1_subgradient(strength: float | Schedule) -> Update:
    """The l1 norm's subgradient, in the gradient: g <- g + strength sign(W).

    Weights end near zero, almost never at zero: threshold them afterwards, or use `l1_shrink`.
    """
    at = _strength("l1_subgradient", strength)

    def before(weight: Tensor, moment: Moment) -> None:
        _add_penalty(weight, weight.sign(), at(moment), moment)

    return Update(("l1_subgradient",), (strength,), before=before, steady_before=not callable(strength))


def l1_shrink(strength: float | Schedule) -> Update:
    """Soft thresholding, the l1 norm's proximal map: W <- sign(W) max(|W| - lr strength, 0).

    >>> weight = torch.tensor([0.5, -0.2, 0.05])
    >>> mb.l1_shrink(1.0).after(weight, Moment(step=1, progress=None, lr=0.125))
    >>> weight
    tensor([ 0.3750, -0.0750,  0.0000])
    """
    at = _strength("l1_shrink", strength)

    def after(weight: Tensor, moment: Moment) -> None:
        delta = moment.lr * at(moment)
        if isinstance(delta, Tensor) or is_sharded(weight):  # which stays where it is
            weight.copy_(weight.sign() * (weight.abs() - delta).clamp_min(0))
        else:
            weight.copy_(torch.nn.functional.softshrink(weight, delta))

    return Update(("l1_shrink",), (strength,), after=after, steady_after=not callable(strength))


def l0_project(keep: Number | Schedule, every: int = 100, rank: Rank | None = None) -> Update:
    """Projection onto the l0 ball: every `every` steps, all but the `keep` largest magnitudes become zero.

    `keep` is a count (int), a fraction (float) or a schedule of either. Between projections the weights are free.
    With `rank`, a function of the weight that gives a score for each element, the highest scores stay instead, as in
    `rank=lambda w: (w * w.grad).abs()`. A rank with a second argument gets what updates keep in `moment.state`.

    >>> weight = torch.tensor([0.5, -0.2, 0.05, -0.9])
    >>> mb.l0_project(keep=0.5, every=1).after(weight, Moment(step=1, progress=None, lr=0.1))
    >>> weight
    tensor([ 0.5000,  0.0000,  0.0000, -0.9000])
    """
    keep, every = of_python(keep), plain_number(every)
    if not callable(keep):
        _check_keep(keep)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise RuleError(f"l0_project: every must be a whole number of steps from 1, got {every!r}")

    def bound(size: int, progress: float | None) -> int:
        return keep_count(value_at(keep, progress), size)

    def after(weight: Tensor, moment: Moment) -> None:
        if moment.step % every == 0:
            update.project_(weight, moment.progress, moment.state)

    update = Update(("l0_project",), (keep, every), after=after, bound=bound, rank=rank, every=every)
    return update


def hold() -> Update:
    """Keep the present zeros at zero: what is zero before a step is zero after it (fine-tuning at the bound)."""

    def before(weight: Tensor, moment: Moment) -> None:
        if id(weight) not in moment.scratch:  # a closure may run several times in one step
            moment.scratch[id(weight)] = weight == 0

    def after(weight: Tensor, moment: Moment) -> None:
        weight.masked_fill_(moment.scratch[id(weight)], 0.0)

    return Update(("hold",), (), before=before, after=after)


def palette(
    levels: int | Callable[[float], int | None] = 16, every: int = 100, begin: float = 0.6, **other: Never
) -> Update:
    """Few values: from the progress `begin` on, the weight's nonzeros take at most `levels` values.

    The forward pass sees for each weight V the nearest of the palette's entries and zero; the optimizer and all other
    updates change V, which is kept apart (in memory once more), by the gradient found there, straight through. Every
    `every` steps the entries are fitted to V anew, by k-means; with `l0_project` to what it keeps. All are exact in 16
    bits. `finish()` leaves the weight with at most `levels` different nonzeros, 2^b of which are stored in b bits each.

    >>> mb.chain(mb.l0_project(0.05), mb.palette(levels=16)).kinds
    ('l0_project', 'palette')
    """
    if other:
        raise RuleError(
            f"palette takes levels, every, begin, not {next(iter(other))}: levels=16 is for 4 bits"
        )
    levels, every, begin = plain_number(levels), plain_number(every), of_python(begin)
    chosen = Levels(levels, every, begin)
    return Update(("palette",), (levels, every, begin), levels=chosen)


def chain(*updates: Update) -> Update:
    """Several updates on one weight, in the order given; a palette comes last, wherever it stands.

    >>> mb.chain(mb.l2_decay(1e-4), mb.l1_shrink(2e-4)).kinds
    ('l2_decay', 'l1_shrink')
    """
    wrong = [at for at, update in enumerate(updates) if not isinstance(update, Update)]
    if wrong or not updates:
        got = f"argument {wrong[0] + 1} is {shown(updates[wrong[0]])}, not an update" if wrong else "got none"
        raise RuleError(f"chain takes one or more updates, as chain(l2_decay(1e-4), l1_shrink(2e-4)): {got}")
    before = [(update, update.before) for update in updates if update.before is not None]
    after = [(update, update.after) for update in updates if update.after is not None]
    bounded = [update for update in updates if update.bound is not None]
    levels = [update.levels for update in updates if update.levels is not None]
    ranks = [update.rank for update in updates if update.rank is not None]
    if len(ranks) > 1:
        raise RuleError(f"one weight has one rank, and this chain has {len(ranks)}: keep one of them")
    if len(levels) > 1:
        raise RuleError(f"one weight has one palette, and this chain has {len(levels)}: keep one of them")

    def all_before(weight: Tensor, moment: Moment) -> None:
        for update, stage in before:
            update.run(stage, weight, moment)

    def all_after(weight: Tensor, moment: Moment) -> None:
        for update, stage in after:
            update.run(stage, weight, moment)

    def tightest(size: int, progress: float | None) -> int:
        return min(update.allowed(size, progress) for update in bounded)

    return Update(
        sum((update.kinds for update in updates), ()),
        sum((update.arguments for update in updates), ()),
        before=all_before if before else None,
        after=all_after if after else None,
        bound=tightest if bounded else None,
        levels=levels[0] if levels else None,
        rank=ranks[0] if ranks else None,
        every=math.gcd(*(update.every for update in updates if update.after is not None)) or 1,
        steady_before=all(update.steady_before for update in updates if update.before is not None),
        steady_after=all(update.steady_after for update in updates if update.after is not None),
        _parts=sum((update._parts or (update,) for update in updates), ()),
    )


def _check_function(name: str, given: Any, ways: Sequence[tuple[str, ...]]) -> None:
    """What cannot be called as it will be is refused now, not in the middle of the first step."""
    if not callable(given):
        raise RuleError(f"Update: {name} is {given!r}; give a function, or leave it out")
    wrong = [misfit(name, given, arguments) for arguments in ways]
    if None not in wrong:
        raise RuleError(f"Update: {wrong[0]}")


def _is_part(found: Tensor, weight: Tensor, moment: Moment) -> bool:
    """Whether a tensor lies where the weight or its gradient does, as what in-place functions return; or is kept."""
    if any(found is kept for kept in (*moment.scratch.values(), *moment.state.values())):
        return True
    places = [weight] if weight.grad is None else [weight, weight.grad]
    return any(found is place or _place(found) == _place(place) for place in places)


def _place(tensor: Tensor) -> int:
    part = local_part(tensor)
    return 0 if part.layout != torch.strided else part.untyped_storage().data_ptr()


def keep_count(keep: Number, size: int) -> int:
    """How many of `size` weights a `keep` means: an int is a count, a float a fraction.

    >>> keep_count(0.05, 500), keep_count(7, 500)
    (25, 7)
    """
    _check_keep(keep)
    if isinstance(keep, float):
        return round(keep * size)
    if keep > size:
        raise RuleError(
            f"keep={keep} weights, but there are {size}: write at most {size}, or a fraction such as 0.05"
        )
    return int(keep)


def _add_penalty(weight: Tensor, direction: Tensor, strength: float, moment: Moment) -> None:
    assert weight.grad is not None  # the handle skips weights that the optimizer will leave alone
    if weight.grad.is_sparse:
        raise RuleError("its gradient is sparse: l2_decay and l1_subgradient need a dense one (sparse=False)")
    if moment.maximize:
        strength = -strength
    if moment.grad_scale is None:
        weight.grad.add_(direction, alpha=strength)
    else:  # the strength goes into the scale first: the scale alone may overflow a half
        wide = torch.promote_types(direction.dtype, torch.float32)
        scaled = moment.grad_scale.to(direction.device, wide) * strength
        weight.grad.addcmul_(direction, scaled.to(direction.dtype))


def _strength(name: str, strength: float | Schedule) -> Callable[[Moment], float]:
    """The strength at a moment, checked: a number now, a schedule's values when they come."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise RuleError(
                f"{name} takes a finite strength of at least 0, or a schedule of it, got {value!r}"
            )
        return value

    strength = of_python(strength)
    if not callable(strength):
        check(strength)
    return lambda moment: check(value_at(strength, moment.progress))


def _check_keep(keep: Number) -> None:
    if isinstance(keep, bool) or not isinstance(keep, int | float):
        raise RuleError(
            f"keep must be a count (int), a fraction (float) or a schedule of either, got {keep!r}"
        )
    if isinstance(keep, float) and not 0.0 < keep <= 1.0:
        raise RuleError(
            f"keep={keep} is not a fraction above 0, up to 1: write an int for a count of weights"
        )
    if isinstance(keep, int) and keep < 0:
        raise RuleError(f"keep={keep} is not a count of weights: write 1 or more, or a fraction such as 0.05")
