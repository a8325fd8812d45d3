"""Caffe's SGD, which differs from torch's when the learning rate changes."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class CaffeSGD(Optimizer):
    """Momentum SGD with the learning rate inside the velocity.

        V <- mu V + lr (g + wd W);  W <- W - V

    torch has V <- mu V + g + wd W; W <- W - lr V, so that a drop of the learning rate scales the whole velocity at
    once. In Caffe the old velocity plays out at the old rate.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = CaffeSGD([weight], lr=0.5, momentum=0.5)
    >>> for lr in (0.5, 0.25):
    ...     weight.grad = torch.tensor([1.0])
    ...     optimizer.param_groups[0]["lr"] = lr
    ...     _ = optimizer.step()
    >>> weight.item()  # 1 - 0.5 - (0.5 * 0.5 + 0.25 * 1)
    0.0
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 0.01, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights: list[Tensor] = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients: Any = [weight.grad for weight in weights]
            for weight in weights:
                if "velocity" not in self.state[weight]:
                    self.state[weight]["velocity"] = torch.zeros_like(weight)
            velocities = [self.state[weight]["velocity"] for weight in weights]
            if group["weight_decay"] != 0:
                gradients = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
            torch._foreach_mul_(velocities, group["momentum"])
            if isinstance(
                group["lr"], Tensor
            ):  # recorded in a graph: its value changes from replay to replay
                torch._foreach_add_(velocities, torch._foreach_mul(gradients, group["lr"]))
            else:
                torch._foreach_add_(velocities, gradients, alpha=group["lr"])
            torch._foreach_sub_(weights, velocities)
        return loss
