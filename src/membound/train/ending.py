"""Said when training ends, or before: what a user may have meant otherwise, and would not notice."""

import warnings
from collections.abc import Sequence

from torch import nn

from membound.train.downstream import norms_may_follow
from membound.train.rules import Target

STACK = 4  # from here to who calls finish()
FAR = 2  # times fewer or more steps than planned: epochs were counted, or training was cut short


class StaleStatistics(UserWarning):
    """Batch norms have averaged over networks that were denser than the final one."""


class UnplannedEnd(UserWarning):
    """Training took no steps, or another number of them than its schedules were made for."""


class OneShot(UserWarning):
    """A weight is projected only once, when training is over: it is pruned in one shot, and nothing recovers."""


def say_one_shot(constrained: Sequence[Target], steps: int | None) -> str | None:
    """What to say of weights that `steps` steps are too few to project even once; None where all are projected."""
    late = [target for target in constrained if steps and target.update.imposed_every > steps]
    if not late:
        return None
    which = f"'{late[0].name}' is" if len(late) == 1 else f"'{late[0].name}' and {len(late) - 1} more are"
    return (
        f"every={late[0].update.imposed_every:,} is more than the {steps:,} step{'s' * (steps != 1)} of training: "
        f"{which} projected only once, by finish(), which is pruning in one shot; give a smaller every"
    )


def tell_ending(
    model: nn.Module, constrained: Sequence[Target], steps: int, total_steps: int | None, own_loop: bool
) -> None:
    """Warn of what finish() cannot mend; `own_loop` says that it was the user's, where an optimizer may be mistaken."""
    if not steps:
        if total_steps is None or not own_loop:  # what is trained already may be cut at once
            return
        warnings.warn(
            "finish() before any step of this optimizer: nothing was trained under the rules; is it the one that your "
            "loop steps?",
            UnplannedEnd,
            stacklevel=STACK - 1,
        )
        return
    _tell_stale(model, constrained, steps)
    said = say_one_shot(constrained, steps) if total_steps is None else None  # else attach() has said it
    if said is not None:
        warnings.warn(said, OneShot, stacklevel=STACK - 1)
    scheduled = [target.name for target in constrained if target.update.scheduled]
    if total_steps is None or not scheduled or total_steps / FAR <= steps <= total_steps * FAR:
        return
    more = f" and {len(scheduled) - 1} more" if len(scheduled) > 1 else ""
    when = (
        "went to its final value at once" if steps < total_steps else f"was over after step {total_steps:,}"
    )
    warnings.warn(
        f"finish() after {steps:,} steps with total_steps={total_steps:,}: the schedule of '{scheduled[0]}'{more} "
        f"{when}; total_steps counts optimizer steps, not epochs",
        UnplannedEnd,
        stacklevel=STACK - 1,
    )


def _tell_stale(model: nn.Module, constrained: Sequence[Target], steps: int) -> None:
    """Warn where weights left their bounds between steps, and batch norms after them averaged meanwhile."""
    leaving = [target for target in constrained if target.update.leaves_bound]
    if leaving and norms_may_follow(model, [target.weight for target in leaving]):
        left = [target.name for target in leaving]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        warnings.warn(
            f"batch norm: '{left[0]}'{more} left the bound between projections, so running statistics are partly those "
            "of denser networks; average them again with torch.optim.swa_utils.update_bn(train_loader, model), or "
            "project with every=1 in the last steps. Ignore this where you do so next, or keep only an averaged model "
            "whose statistics you update",
            StaleStatistics,
            stacklevel=STACK,
        )
