"""Training written out by hand, to compare with: optimizers, updates and projection from their equations alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

Batches = list[tuple[Tensor, Tensor]]
Before = Callable[[Tensor, Tensor, int], Tensor]  # (weight, gradient, step) -> gradient
After = Callable[[Tensor, int], Tensor]  # (weight, step) -> weight


class Net(nn.Module):
    """Two layers, 12 and 8 weights."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(3, 4, dtype=dtype)
        self.fc2 = nn.Linear(4, 2, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.tanh(self.fc1(x)))


def make_net(dtype: torch.dtype = torch.float64, seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net(dtype)


def make_batches(count: int, dtype: torch.dtype = torch.float64, size: int = 8) -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 3, generator=generator, dtype=torch.float64).to(dtype),
            torch.randn(size, 2, generator=generator, dtype=torch.float64).to(dtype),
        )
        for _ in range(count)
    ]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return (model(batch[0]) - batch[1]).square().mean()


def train(model: nn.Module, optimizer: Any, batches: Batches) -> None:
    """The plainest loop."""
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


class Sgd:
    """v <- beta v + g (the first v is g); W <- W - lr v, or W - lr (g + beta v) with Nesterov."""

    def __init__(self, lr: float, momentum: float = 0.0, nesterov: bool = False) -> None:
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self.velocity: dict[str, Tensor] = {}

    def __call__(self, name: str, weight: Tensor, grad: Tensor) -> Tensor:
        self.velocity[name] = (
            self.momentum * self.velocity[name] + grad if name in self.velocity else grad.clone()
        )
        move = grad + self.momentum * self.velocity[name] if self.nesterov else self.velocity[name]
        return weight - self.lr * (move if self.momentum else grad)


class Adam:
    """m, v: running means of g and g^2; W <- (1 - lr decay) W - lr m' / (sqrt(v') + eps), m', v' without bias."""

    def __init__(self, lr: float, decoupled_decay: float = 0.0) -> None:
        self.lr, self.decay = lr, decoupled_decay
        self.state: dict[str, tuple[Tensor, Tensor, int]] = {}

    def __call__(self, name: str, weight: Tensor, grad: Tensor) -> Tensor:
        m, v, t = self.state.get(name, (torch.zeros_like(weight), torch.zeros_like(weight), 0))
        m, v, t = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad * grad, t + 1
        self.state[name] = m, v, t
        weight = weight * (1 - self.lr * self.decay)
        return weight - self.lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)


def train_by_hand(
    model: nn.Module,
    batches: Batches,
    optimizer: Callable[[str, Tensor, Tensor], Tensor],
    before: Mapping[str, Before] | None = None,
    after: Mapping[str, After] | None = None,
    seen: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
) -> dict[str, Tensor]:
    """The weights after training from where `model` is, which stays as it is; updates go by parameter name.

    What the network computes with, and what comes back, is `seen` of a weight.
    """
    shown = lambda name, weight: seen[name](weight) if seen and name in seen else weight  # noqa: E731
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for step, batch in enumerate(batches, 1):
        leaves = {name: shown(name, weight).clone().requires_grad_() for name, weight in weights.items()}
        loss = (functional_call(model, leaves, batch[0]) - batch[1]).square().mean()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        for name, grad in zip(leaves, grads, strict=True):
            weight = weights[name]
            if before and name in before:
                grad = before[name](weight, grad, step)
            weight = optimizer(name, weight, grad)
            if after and name in after:
                weight = after[name](weight, step)
            weights[name] = weight
    return {name: shown(name, weight) for name, weight in weights.items()}


def shrink(weight: Tensor, delta: float) -> Tensor:
    return weight.sign() * (weight.abs() - delta).clamp(min=0)


def project(weight: Tensor, count: int) -> Tensor:
    """All but the `count` largest magnitudes zero, the earlier of equals first: a stable sort."""
    flat = weight.detach().flatten()
    order = np.argsort(-flat.abs().double().numpy(), kind="stable")
    result = torch.zeros_like(flat)
    kept = torch.from_numpy(order[:count].copy())
    result[kept] = flat[kept]
    return result.reshape(weight.shape)


def assert_same(model: nn.Module, expected: Mapping[str, Tensor], tolerance: float = 1e-11) -> None:
    """The model's weights are the expected ones: zeros exactly, everything else within the tolerance."""
    for name, weight in model.named_parameters():
        torch.testing.assert_close(
            weight.detach(), expected[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
        assert torch.equal(weight == 0, expected[name] == 0), name


def assert_same_bits(weight: Tensor, expected: Tensor) -> None:
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[weight.element_size()]
    assert torch.equal(weight.detach().view(integer), expected.detach().view(integer))
