"""attach(): the updates run around every `optimizer.step()` of the user's own loop, through the optimizer's hooks.

No subclass, no proxy, no copy of the weights but for palettes, and the keys of every state_dict stay as they are.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from membound.errors import Diverged, RuleError, TrainingError
from membound.train.ending import OneShot, say_one_shot, tell_ending
from membound.train.fingerprints import describe_rule
from membound.train.guide import Guide
from membound.train.kept import carry_over_, load_states_, take_states
from membound.train.magnitudes import BITS, NonFiniteError
from membound.train.optimizers import FLUSH_EVERY, eager, flush_moments_, unwrapped
from membound.train.palette import check_weight
from membound.train.promises import Promises
from membound.train.reports import Report, report_layer
from membound.train.rules import Target, check_rules, counterparts, resolve
from membound.train.same_rules import check_same_rules
from membound.train.shadow import Shadows
from membound.train.sharded import local_part
from membound.train.updates import Moment, Update
from membound.units import plain_number

_active: "WeakSet[Regularizer]" = WeakSet()


def attach(
    optimizer: Optimizer, model: nn.Module, rules: Mapping[str, Update], total_steps: int | None = None
) -> "Regularizer":
    """Run updates around every step of `optimizer`, each on the weights that its pattern selects.

    `rules` maps a layer's dotted name, or a pattern for names, to an update; the first match wins. `total_steps` is
    needed where a number is a schedule. Call `finish()` on what comes back when the loop is done.

    >>> model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> reg = mb.attach(optimizer, model, {"*": mb.l0_project(keep=0.25, every=10)})
    >>> for step in range(20):
    ...     optimizer.zero_grad()
    ...     model(torch.randn(16, 8)).square().mean().backward()
    ...     _ = optimizer.step()
    >>> reg.finish()
    >>> [layer.nonzeros for layer in reg.report().layers]
    [8, 2]
    """
    reg = Regularizer(unwrapped(optimizer), model, rules, plain_number(total_steps))
    if (said := reg.say_one_shot()) is not None:
        warnings.warn(said, OneShot, stacklevel=2)
    return reg


class Regularizer:
    """What `attach` returns: it runs the updates at every step, until `finish` makes the bounds hold and detaches.

    `step` counts the steps of the optimizer so far; there is nothing to call for each of them.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        rules: Mapping[str, Update],
        total_steps: int | None,
        guide: Guide | None = None,
    ) -> None:
        if total_steps is not None and not _is_whole(total_steps):
            raise RuleError(
                f"total_steps must be a whole number from 1, or None without schedules, got {total_steps!r}"
            )
        check_rules(rules)
        self.optimizer, self.model, self.rules, self.total_steps = optimizer, model, dict(rules), total_steps
        self.guide = guide
        self.step = 0
        self.finished = False
        self._inside_projected = False
        self._recording = False
        self._targets: list[Target] = []
        self._moments: list[Moment] = []  # of the step under way, one a parameter group
        self._shadows = Shadows()
        self._resolve()
        self._hooks = [
            optimizer.register_step_pre_hook(eager(self._before_step)),
            optimizer.register_step_post_hook(eager(self._after_step)),
        ]
        _active.add(self)

    def __repr__(self) -> str:
        of = "" if self.total_steps is None else f" of {self.total_steps:,}"
        state = ", finished" if self.finished else ""
        return f"Regularizer(step {self.step:,}{of}, weights under rules: {len(self._targets)}{state})"

    @property
    def progress(self) -> float | None:
        """How far training is, from 0 to 1; None when total_steps was not given."""
        if self.finished:
            return 1.0
        return self._progress_at(self.step)

    def _progress_at(self, step: int) -> float | None:
        return None if self.total_steps is None else min(step / self.total_steps, 1.0)

    # The optimizer's hooks

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._recording:
            self._moments = self._moments_of(self.step + 1)
            self._shadows.lift_(look=False)
            self._before_updates()
            return None
        self._check_step(kwargs)
        self._refresh()
        self._shadows.lift_()
        if self._with_before or self._due(self.step + 1):
            self._moments = self._moments_of(self.step + 1)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer
        if closure is None:
            self._before_updates()
            return None
        # The closure computes the gradients, so the penalties come after it, inside the step.
        wrapped = self._wrap(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": wrapped}
        return (args[0], wrapped, *args[2:]), kwargs

    def _wrap(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        @wraps(closure)
        def closure_then_updates() -> Any:
            self._shadows.lower_()  # a closure computes with what the network is, too
            try:
                loss = closure()
            finally:
                self._shadows.lift_(look=False)
            self._before_updates()
            return loss

        return closure_then_updates

    def _moments_of(self, step: int) -> list[Moment]:
        progress = self._progress_at(step)
        grad_scale = getattr(self.optimizer, "grad_scale", None)
        return [
            Moment(step, progress, group["lr"], grad_scale, group.get("maximize", False))
            for group in self.optimizer.param_groups
        ]

    def _before_updates(self) -> None:
        if not self._with_before:
            return
        with torch.no_grad():
            for target in self._with_before:
                if target.weight.grad is not None:  # what the optimizer leaves alone, so do the updates
                    self._stage(target, target.update.before)

    def _due(self, step: int) -> bool:
        """Whether any weight changes after this step: most steps lie between two projections."""
        return step % self._period == 0 and not (self.guide is not None and self.guide.rests(step))

    @property
    def recordable(self) -> bool:
        """Whether steps may be recorded in a CUDA graph: all before them is the same every time."""
        return all(target.update.steady_before for target in self._with_before)

    @property
    def palettes(self) -> int:
        """How many weights are under a palette that has begun: a recording holds as long as it stays the same."""
        return len(self._shadows)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, a step is recorded with all that is the same every time; it is not counted."""
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def step_taken(self) -> None:
        """Count a step that a recording took, and do what is due after it."""
        if self._due(self.step + 1):
            self._moments = self._moments_of(self.step + 1)
        self._count_step(recorded=True)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._recording:
            self._after_updates([target for target in self._with_after if target.update.steady_after])
            self._shadows.lower_()
            return
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and float(found_inf) > 0:
            self._shadows.lower_()
            return  # a fused optimizer has skipped this step under a GradScaler: it does not count
        self._count_step(recorded=False)

    def _count_step(self, recorded: bool) -> None:
        step, due = self.step + 1, self._due(self.step + 1)
        left = [target for target in self._with_after if not (recorded and target.update.steady_after)]
        changing = (due and bool(left)) or self._shadows.due(step, self._progress_at(step))
        if recorded and changing:
            self._shadows.lift_()  # the recording has left entries
        if self.guide is not None and due:
            self.guide.prepare(step)
        self.step = step
        if self.step % FLUSH_EVERY == 0:
            flush_moments_(self.optimizer, self._with_after)
            self._check_finite(target for target in self._free if target.weight.device.type == "cpu")
        if due:
            self._after_updates(left)
            self._promises.tell(self.progress)
        if changing or not recorded:
            self._shadows.after(self.step, self.progress, self._run)

    def _after_updates(self, targets: list[Target]) -> None:
        with torch.no_grad():
            for target in targets:
                if target.weight.grad is not None:
                    self._stage(target, target.update.after)
        self._moments = []

    def _stage(self, target: Target, stage: Any) -> None:
        moment = replace(self._moments[target.group], state=target.state)
        self._run(target, lambda weight: target.update.run(stage, weight, moment))

    def _run(self, target: Target, work: Callable[[Tensor], None]) -> None:
        try:
            work(target.weight)
        except NonFiniteError:
            raise Diverged(
                f"'{target.name}' has a weight that is NaN or infinite after step {self.step}: "
                "training has diverged; lower the learning rate or clip the gradient"
            ) from None
        except RuleError as error:
            raise type(error)(f"'{target.name}': {error}") from error.__cause__

    def _check_step(self, kwargs: Any) -> None:
        if self._inside_projected:
            raise TrainingError(
                "optimizer.step() inside `with projected()`: the weights that it dropped would be lost"
            )
        if kwargs.get("grad_scaler") is not None:
            raise RuleError(
                "step(grad_scaler=...) hides the gradients' scale: call scaler.step(optimizer) instead"
            )
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            raise RuleError(
                "a step inside a CUDA graph would not count when replayed: capture the model, not the step"
            )

    # The weights under rules

    def _resolve(self) -> None:
        targets = resolve(self.model, self.rules, self.optimizer)
        scheduled = next((target for target in targets if target.update.scheduled), None)
        if scheduled is not None and self.total_steps is None:
            late = " or a palette that begins on the way" if scheduled.update.levels else ""
            raise RuleError(
                f"the rule for '{scheduled.name}' has a schedule{late}: attach(..., total_steps=...) is needed"
            )
        taken = {id(target.weight) for other in _active if other is not self for target in other._targets}
        for target in targets:
            if id(target.weight) in taken:
                raise RuleError(
                    f"'{target.name}' is still under an earlier attach(): call its finish() or detach() first"
                )
        carry_over_(targets, self._targets)
        self._targets = targets
        self._with_before = [target for target in targets if target.update.before is not None]
        self._with_after = [target for target in targets if target.update.after is not None]
        self._free = [target for target in targets if not (target.update.bound or target.update.levels)]
        self._period = math.gcd(*(target.update.every for target in self._with_after)) or 1
        self._shadows.know(targets)
        self._promises = Promises(self.model, targets)
        self._promises.tell(self.progress)
        self._resolved = self._held()

    def _refresh(self) -> None:
        """Look again when the optimizer has got other weights, such as those of a layer added later."""
        if self._hooks and self._held() != self._resolved:
            self._resolve()

    def _held(self) -> list[int]:
        return [id(weight) for group in self.optimizer.param_groups for weight in group["params"]]

    def _project(self, target: Target, progress: float | None, keep: bool = True) -> None:
        self._run(target, lambda _: self._shadows.project_(target, progress, keep))

    def _check_finite(self, targets: Iterable[Target]) -> None:
        """Of weights without a bound, too, on which no projection looks; a GPU has to be waited for."""
        for target in targets:
            self._run(target, check_weight)

    def _check(self, target: Target) -> None:
        self._run(target, lambda _: self._shadows.check(target))

    # What users call

    def finish(self) -> None:
        """Make every constraint hold exactly, at its value for progress 1, and detach. Safe to call twice."""
        if self.finished:
            return
        if self._inside_projected:
            raise TrainingError(
                "finish() inside `with projected()`: what it dropped would come back; leave it first"
            )
        self._refresh()
        constrained = self._targets_of(self.model)
        with self._shadows.lifted():
            self._check_finite(self._free)  # all are looked at before any is changed
            for target in constrained:
                self._check(target)
            if self.guide is not None:
                self.guide.settle()
        for target in constrained:
            self._project(target, 1.0)
        self._shadows.forget()
        self.finished = True
        self._promises.tell(1.0)
        self.detach()
        tell_ending(self.model, constrained, self.step, self.total_steps, self.guide is None)

    def say_one_shot(self) -> str | None:
        """What to say where weights are projected only once, at the end; None where they are not."""
        return say_one_shot(self._targets, self.total_steps)

    def detach(self) -> None:
        """Stop regularizing, and leave the weights as they are."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        _active.discard(self)
        if not self.finished:
            self._promises.withdraw()

    def project_(self, model: nn.Module) -> None:
        """Impose the bounds of now, after finish() the final ones, on another network of the same layers.

        An average of weights that each are within a bound is not: positions differ from step to step. Of the average,
        too, the largest weights stay.

        >>> model = nn.Linear(8, 4)
        >>> reg = mb.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, {"*": mb.l0_project(keep=0.25)})
        >>> average = torch.optim.swa_utils.AveragedModel(model)
        >>> reg.project_(average)
        >>> int(average.module.weight.count_nonzero())
        8
        """
        others = self._targets_of(model)
        with torch.no_grad():
            for target in others:  # all are looked at before any is changed
                self._check(target)
            for target in others:
                self._project(target, self.progress)
            self._promises.tell(self.progress)

    def _targets_of(self, model: nn.Module) -> list[Target]:
        """The weights under bounds and palettes; those of the same names in another network, where it is one."""
        self._refresh()
        constrained = [target for target in self._targets if target.update.bound or target.update.levels]
        return constrained if model is self.model else counterparts(constrained, model)

    @contextmanager
    def projected(self, model: nn.Module | None = None) -> Iterator[None]:
        """Inside, the weights are at the present bound; outside they are as before. Only what it drops is saved.

        What the network is outside (dense between projections) is not what will be deployed: evaluate inside. Another
        network of the same layers, such as an average of the weights, is given as `model`.
        """
        if self._inside_projected:
            raise TrainingError("`with projected()` is already open: it cannot be nested")
        targets = self._targets_of(self.model if model is None else model)
        self._promises.tell(self.progress)
        self._inside_projected = True
        dropped: list[tuple[Tensor, Tensor, Tensor]] = []
        try:
            with torch.no_grad():
                for target in targets:
                    dropped.append(self._drop(target))
            yield
        finally:
            with torch.no_grad():
                for weight, where, values in dropped:
                    weight[where] = values
            self._inside_projected = False

    def _drop(self, target: Target) -> tuple[Tensor, Tensor, Tensor]:
        weight = local_part(target.weight)
        before = weight.clone()
        self._project(target, self.progress, keep=False)
        # Compared as integers: -0.0 is not 0.0, nor is what arithmetic flushes to it.
        bits, *_ = BITS[weight.dtype]
        where = weight.view(bits) != before.view(bits)
        return weight, where, before[where]

    def report(self) -> Report:
        """Nonzeros and bytes of every weight under a rule, as they are now; each must be finite."""
        self._refresh()
        self._check_finite(self._targets)
        return Report([report_layer(target, self.progress) for target in self._targets])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs, besides the model's and the optimizer's own, to go on exactly."""
        self._refresh()
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "layers": [target.name for target in self._targets],
            "rules": [describe_rule(target.update) for target in self._targets],
            "finished": self.finished,
            **({"palette": self._shadows.state_dict()} if self._shadows.expected else {}),
            **take_states(self._targets),
            **({} if self.guide is None else self.guide.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken; the rules must be the same."""
        here = self.state_dict()
        check_same_rules(state, here)
        if self.finished and not state["finished"]:
            raise RuleError(
                "this handle has finished and the saved state has not: attach() again and load into that"
            )
        load_states_(self._targets, state.get("state", {}))
        if "palette" in here:
            self._shadows.load_state_dict(state["palette"])
        self.step = int(state["step"])
        if self.guide is not None:
            self.guide.load_state_dict(state)
        if state["finished"]:
            self.finished = True
            self.detach()
        self._promises.tell(self.progress)


def _is_whole(steps: Any) -> bool:
    is_number = isinstance(steps, int | float) and not isinstance(steps, bool)
    return is_number and steps >= 1 and float(steps).is_integer()
