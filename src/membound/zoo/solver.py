"""How Caffe trains a network: what a solver file and a data layer say, as one frozen value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

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
    iterations: int
    lr: Schedule  # iteration, from 0 -> learning rate
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
    """`base`, then each rate from its own iteration on: {4000: 1e-4} begins at the 4001st step.

    >>> [multistep(0.001, {4000: 0.0001})(it) for it in (0, 3999, 4000)]
    [0.001, 0.001, 0.0001]
    """
    return partial(_multistep, base, tuple(sorted(rates.items())))


def _inv(base: float, gamma: float, power: float, iteration: int) -> float:
    return float(base * (1 + gamma * iteration) ** -power)


def _step(base: float, gamma: float, size: int, iteration: int) -> float:
    return float(base * gamma ** (iteration // size))


def _multistep(base: float, rates: tuple[tuple[int, float], ...], iteration: int) -> float:
    rate = base
    for start, later in rates:
        if iteration >= start:
            rate = later
    return rate
