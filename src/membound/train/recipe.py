"""A recipe: how one network is trained, as data. Caffe's solvers, and modern ones."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from membound.errors import MemboundError
from membound.train.caffe_sgd import CaffeSGD
from membound.train.sharded import is_sharded
from membound.zoo.solver import Solver


@dataclass(frozen=True)
class Recipe:
    """Everything about the optimizer; `lr` maps a step, counted from 0, to the learning rate."""

    optimizer: str  # "caffe", "sgd" or "adamw"
    steps: int
    batch_size: int
    lr: Callable[[int], float]
    momentum: float = 0.9
    weight_decay: float = 0.0
    bias_lr_mult: float = 1.0
    bias_decay_mult: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer not in ("caffe", "sgd", "adamw"):
            raise MemboundError(
                f"there is no solver {self.optimizer!r}: choose caffe, sgd or adamw", about="solver"
            )
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise MemboundError(f"{name.replace('_', ' ')} must be at least 1, not {getattr(self, name)}")
        for name in ("momentum", "weight_decay", "bias_lr_mult", "bias_decay_mult"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MemboundError(f"{name.replace('_', ' ')} must be at least 0, not {getattr(self, name)}")
        if not 0 <= self.lr(0) < math.inf:
            raise MemboundError(f"the learning rate must be a finite number of at least 0, not {self.lr(0)}")

    @property
    def peak_lr(self) -> float:
        """The highest learning rate of all steps."""
        early = range(min(self.steps, 1000))  # a warm-up is over by then
        highest = max(self.lr(step) for step in (*early, *range(0, self.steps, max(self.steps // 200, 1))))
        return float(f"{highest:.12g}")  # 0.05, not 0.05000000000000001

    def describe(self) -> dict[str, Any]:
        """The recipe as JSON, the learning rate by samples of it; run directories keep it, so its names stay."""
        at = sorted({round(self.steps * part / 16) for part in range(17)})
        names = {"steps": "iterations"}
        fields = {names.get(name, name): value for name, value in vars(self).items() if name != "lr"}
        return {**fields, "lr": [self.lr(step) for step in at]}


def caffe(solver: Solver, steps: int | None = None, batch_size: int | None = None) -> Recipe:
    """A Caffe solver to the letter; fewer `steps` cut its schedule off, they do not compress it."""
    return Recipe(
        "caffe",
        solver.steps if steps is None else steps,
        solver.batch_size if batch_size is None else batch_size,
        solver.lr,
        solver.momentum,
        solver.weight_decay,
        solver.bias_lr_mult,
        solver.bias_decay_mult,
    )


def annealed(
    solver: Solver,
    steps: int,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
) -> Recipe:
    """A Caffe solver with another schedule: a linear warm-up to its peak, then a cosine to zero.

    A solver that names a peak is for plain SGD, in which biases learn no faster than weights and do not decay.
    """
    usual = solver.peak_lr or solver.lr(0)
    peak = usual if lr is None else lr
    warmup = min(200, steps // 10)
    decay = solver.weight_decay if weight_decay is None else weight_decay
    if solver.peak_lr is not None:
        return modern("sgd", steps, batch_size or solver.batch_size, peak, decay, solver.momentum, warmup)
    schedule = WarmCosine(peak, warmup, steps)
    return replace(caffe(solver, steps, batch_size), lr=schedule, weight_decay=decay)


def modern(
    optimizer: str,
    steps: int,
    batch_size: int = 128,
    lr: float | None = None,
    weight_decay: float | None = None,
    momentum: float = 0.9,
    warmup: int = 200,
) -> Recipe:
    """SGD with momentum or AdamW: a linear warm-up, then a cosine to zero; biases and batch norm do not decay."""
    peak = {"sgd": 0.05, "adamw": 1e-3}.get(optimizer, 0.05) if lr is None else lr
    decay = {"sgd": 5e-4, "adamw": 1e-2}.get(optimizer, 0.0) if weight_decay is None else weight_decay
    return Recipe(optimizer, steps, batch_size, WarmCosine(peak, warmup, steps), momentum, decay)


@dataclass(frozen=True)
class WarmCosine:
    """From 0 to the peak in `warmup` steps, then half a cosine down to 0."""

    peak: float
    warmup: int
    steps: int

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.peak * (1 + math.cos(math.pi * min(done, 1.0))) / 2


@dataclass(frozen=True)
class Scaled:
    """A learning rate times a factor."""

    lr: Callable[[int], float]
    factor: float

    def __call__(self, step: int) -> float:
        return self.factor * self.lr(step)


def make_optimizer(model: nn.Module, recipe: Recipe, undecayed: Collection[nn.Parameter] = ()) -> Optimizer:
    """The recipe's optimizer for `model`; the weights in `undecayed` are left to rules of their own."""
    ruled = {id(weight) for weight in undecayed}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        # What Caffe calls a bias, and in modern recipes the scale of a batch norm with it.
        is_bias = name.endswith("bias") or (recipe.optimizer != "caffe" and weight.dim() < 2)
        lr_mult = recipe.bias_lr_mult if is_bias else 1.0
        decay = recipe.weight_decay * (recipe.bias_decay_mult if is_bias else 1.0)
        groups.setdefault((lr_mult, 0.0 if id(weight) in ruled else decay), []).append(weight)
    params = [
        {"params": weights, "lr_mult": lr_mult, "weight_decay": decay, "lr": recipe.lr(0) * lr_mult}
        for (lr_mult, decay), weights in groups.items()
    ]
    if recipe.optimizer == "caffe":
        return CaffeSGD(params, momentum=recipe.momentum)
    # Fused ones can be recorded in a graph.
    fused = all(weight.is_cuda and not is_sharded(weight) for weight in model.parameters())
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(params, momentum=recipe.momentum, fused=fused or None)
    return torch.optim.AdamW(params, fused=fused or None, capturable=fused)


def set_learning_rate_(optimizer: Optimizer, lr: float) -> None:
    """Give every group its multiple of `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_mult"]
