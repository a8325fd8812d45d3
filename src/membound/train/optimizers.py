"""What attach() has to know of torch's optimizers: their wrappers, their hooks, and the momentum that they keep."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from membound.errors import RuleError
from membound.train.rules import Target
from membound.train.sharded import local_part

FLUSH_EVERY, NEGLIGIBLE = 100, 1e-30  # momentum 0.9 takes 100 steps from there to the edge of the denormals


def eager(hook: Any) -> Any:
    """A hook that a compiled step calls as it is, instead of tracing it once with the step number of that moment."""
    return torch.compiler.disable(hook)  # type: ignore[no-untyped-call]


def unwrapped(optimizer: Any) -> Optimizer:
    """The torch optimizer inside the wrappers of Accelerate and Lightning, whose hooks never run."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, Optimizer):
        raise RuleError(
            f"attach() needs a torch optimizer, not {type(optimizer).__name__}: attach(optimizer, model, rules)"
        )
    return optimizer


@torch.no_grad()
def flush_moments_(optimizer: Optimizer, targets: Iterable[Target]) -> None:
    """Set momentum that is too small to matter to zero, for weights under a bound on a CPU.

    A unit that a projection cuts off gets no gradient any more, and its momentum decays to denormal numbers, on
    which a CPU is tens of times slower.
    """
    for target in targets:
        if target.update.bound is not None and target.weight.device.type == "cpu":
            for value in optimizer.state.get(target.weight, {}).values():
                if isinstance(value, Tensor) and value.shape == target.weight.shape:
                    mine = local_part(value)
                    mine.masked_fill_(mine.abs() < NEGLIGIBLE, 0.0)
