"""How Caffe trains a network: what a solver file and a data layer say, as one frozen value."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Solver:
    """Caffe's recipe for one network: V <- momentum V + lr (g + weight_decay W); W <- W - V.

    A bias takes `bias_lr_mult` times the rate and `bias_decay_mult` times the decay. Images are values
    0..255, less the mean ("image", "channel" or None), times `scale`.

    >>> from membound.zoo.lenet import LeNet
    >>> LeNet.caffe_solver.batch_size, LeNet.caffe_solver.lr(0)
    (64, 0.01)
    """

    batch_size: int
    steps: int
    lr: Schedule  # step, from 0 -> learning rate
    momentum: float
    weight_decay: float
    bias_lr_mult: float = 2.0
    bias_decay_mult: float = 1.0
    peak_lr: float | None = (
        None  # for a schedule that warms up and anneals; the first rate of `lr` if left out
    )
    scale: float = 1.0
    mean: str | None = None
    crop: int | None = None
    mirror: bool = False

    @property
    def iterations(self) -> int:
        """What `steps` was called before."""
        return self.steps


def _take_old_name(init: Callable[..., None]) -> Callable[..., None]:
    """`iterations` is what `steps` was called before: a caller may still say it, and is told."""

    @wraps(init)
    def take(self: Solver, *given: Any, **named: Any) -> None:
        if "iterations" in named:
            warnings.warn("Solver(iterations=N) is now Solver(steps=N)", FutureWarning, stacklevel=2)
            named["steps"] = named.pop("iterations")
        init(self, *given, **named)

    return take


Solver.__init__ = _take_old_name(Solver.__init__)  # type: ignore[method-assign]


def inv(base: float, gamma: float, power: float) -> Schedule:
    """Caffe's 'inv': base (1 + gamma it)^-power.

    >>> round(inv(0.01, 1e-4, 0.75)(10_000), 9)
    0.005946036
    """
    return partial(_inv, base, gamma, power)


def step(base: float, gamma: float, size: int) -> Schedule:
    """Caffe's 'step': base gamma^floor(it / size).

    >>> step(1.0, 0.5, 100)(250)
    0.25
    """
    return partial(_step, base, gamma, size)


def multistep(base: float, rates: Mapping[int, float]) -> Schedule:
    """`base`, then each rate from its own step on: {4000: 1e-4} begins at the 4001st step.

    >>> [multistep(0.001, {4000: 0.0001})(it) for it in (0, 3999, 4000)]
    [0.001, 0.001, 0.0001]
    """
    return partial(_multistep, base, tuple(sorted(rates.items())))


def _inv(base: float, gamma: float, power: float, step: int) -> float:
    return float(base * (1 + gamma * step) ** -power)


def _step(base: float, gamma: float, size: int, step: int) -> float:
    return float(base * gamma ** (step // size))


def _multistep(base: float, rates: tuple[tuple[int, float], ...], step: int) -> float:
    rate = base
    for start, later in rates:
        if step >= start:
            rate = later
    return rate
