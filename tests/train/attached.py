"""What the tests of attach() share: a mixture of rules, the same by hand, and an optimizer."""

from typing import Any

import torch
from by_hand import (
    project,
    shrink,
)
from torch import Tensor, nn

import membound as mb

LR = 0.05
MIXED = {"fc1": mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2)), "fc2": mb.l0_project(3, every=2)}
MIXED_BEFORE = {"fc1.weight": lambda w, g, step: g + 0.3 * w}
MIXED_AFTER = {
    "fc1.weight": lambda w, step: shrink(w, LR * 0.2),
    "fc2.weight": lambda w, step: project(w, 3) if step % 2 == 0 else w,
}


def momentum(model: nn.Module, **how: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), LR, momentum=0.9, **how)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}
