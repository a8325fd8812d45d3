"""Whether a training has diverged: its weights are not finite, or it has ended far worse than it began.

A loss has no scale of its own, so that "far worse" needs a reference: the loss of the network as it starts, and the
loss of outputs that are all zero, both on the first training examples. A network whose loss on these examples is, at
the end, WORSE times the larger of the two has learned nothing: its outputs have exploded. Either reference alone would
accuse networks that are well: one that starts from trained weights may lose much of a tiny loss to a tight bound, and
one that starts with a huge loss may not have come down far enough yet. Class numbers make a loss one in nats or the
like, so that there the reference is at least 1.

On the way, a loss may rise and come down again, so that only one beyond recovery ends a training before its time: LOST
times as much again, as the mean of the steps since the last evaluation.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membound.errors import MemboundError
from membound.train.batches import Feeder, size_together
from membound.train.evaluation import in_eval_mode
from membound.train.sharded import all_finite
from membound.train.task import Task, map_tensors

EXAMPLES = 64
WORSE = 1000.0
LOST = 1e6


def highest_loss(model: nn.Module, feeder: Feeder, task: Task) -> float:
    """The loss of the first examples from which on a training that starts from `model` counts as diverged."""
    outputs, targets = _run_some(model, feeder)
    found = [_loss(task, outputs, targets), _loss(task, map_tensors(torch.zeros_like, outputs), targets)]
    if not targets.is_floating_point():
        found.append(1.0)
    return WORSE * max((abs(loss) for loss in found if math.isfinite(loss)), default=0.0) or math.inf


def loss_of_some(model: nn.Module, feeder: Feeder, task: Task) -> float:
    """The mean loss of the first examples, as the network is evaluated."""
    return _loss(task, *_run_some(model, feeder))


def not_finite(model: nn.Module) -> str | None:
    """The name of a parameter or buffer that has a NaN or an infinity, if there is one."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point() and not all_finite(value.detach()):
            return name
    return None


@torch.no_grad()
def _run_some(model: nn.Module, feeder: Feeder) -> tuple[Any, Tensor]:
    with in_eval_mode(model):
        some = np.arange(min(EXAMPLES, size_together(feeder.split), len(feeder.split)))
        x, targets = next(feeder.batches(iter([some])))
        return model(x), targets


@torch.no_grad()
def _loss(task: Task, outputs: Any, targets: Tensor) -> float:
    try:
        return float(task.batch_loss(outputs, targets))
    except MemboundError:  # a loss may refuse zeros
        return math.nan
