"""The numbers of the integer arithmetic, chosen in float64: docs/MICRO_ARITHMETIC.md says what they mean."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError

Float64 = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
LOW, HIGH = -128, 127
MOST_SHIFT = 29  # of a rescaling
SUM_BITS = 21  # of the multipliers of an addition: 255 * 2^21 * 2 is below 2^31
LIMIT = 2**31  # of all sums
MOST_GROWTH = 2**16  # from an input's scale to an output's


@dataclass(frozen=True)
class Quantization:
    """A number is scale * (q - zero), q from -128 to 127."""

    scale: float
    zero: int

    @property
    def low(self) -> float:
        return self.scale * (LOW - self.zero)

    @property
    def high(self) -> float:
        return self.scale * (HIGH - self.zero)

    def round(self, x: Any) -> npt.NDArray[np.int8]:
        """q = floor(x / scale + 1/2) + zero, within -128 and 127."""
        whole = np.floor(np.asarray(x, np.float64) / self.scale + 0.5) + self.zero
        found: npt.NDArray[np.int8] = np.clip(whole, LOW, HIGH).astype(np.int8)
        return found


def quantization(low: float, high: float) -> Quantization:
    """The finest that holds all from low to high, and 0 exactly.

    >>> quantization(0, 255), quantization(-1, 254)
    (Quantization(scale=1.0, zero=-128), Quantization(scale=1.0, zero=-127))
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (HIGH - LOW) or 1.0
    return Quantization(scale, int(np.clip(math.floor(LOW - low / scale + 0.5), LOW, HIGH)))


@dataclass(frozen=True, eq=False)
class Rescale:
    """y = zero + floor(floor(sum 2^up multiplier / 2^16) / 2^shift + 1/2), within low and high, then the table.

    `multiplier` and `shift` have one entry for each channel, or one for all.
    """

    multiplier: npt.NDArray[np.int16]
    shift: npt.NDArray[np.uint8]
    up: int
    zero: int
    low: int = LOW
    high: int = HIGH
    table: npt.NDArray[np.int8] | None = None


def multipliers(real: Float64) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8], int]:
    """(multiplier, shift, up) with multiplier 2^up / 2^(16 + shift) next to `real`; 15 bits, or fewer of tiny ones.

    >>> multipliers(np.array([0.001, -3.0]))
    (array([ 16777, -24576], dtype=int16), array([12,  1], dtype=uint8), 4)
    """
    if not np.abs(real).max(initial=0) < MOST_GROWTH:
        raise ModelError(
            f"its output's scale is below its input's by more than {MOST_GROWTH}: calibrate it again"
        )
    up = 0
    while np.abs(real).max() * (1 + 2**-15) >= 2.0 ** (up - 2):
        up += 1
    exponent = np.frexp(real / 2.0**up)[1]
    shift = np.minimum(-1 - exponent, MOST_SHIFT)
    shift = np.where(real == 0, 1, shift)
    m = np.rint(real * 2.0 ** (16 + shift - up))
    over = np.abs(m) == 2**15
    m, shift = np.where(over, m / 2, m), np.where(over, shift - 1, shift)
    return m.astype(np.int16), shift.astype(np.uint8), up


def sum_multipliers(real: list[float], zero: float, zeros: list[int]) -> tuple[list[int], int, int]:
    """(multipliers, constant, shift) of y = floor((sum of multiplier q + constant) / 2^shift), in 32 bits.

    >>> sum_multipliers([0.5], -128, [0])
    ([2097152], -534773760, 22)
    """
    for shift in range(30, 0, -1):
        if not max(*map(abs, real), abs(zero)) < LIMIT:
            break
        whole = [round(each * 2.0**shift) for each in real]
        folded = sum(m * z for m, z in zip(whole, zeros, strict=True))
        constant = round(zero * 2.0**shift) + 2 ** (shift - 1) - folded
        fits = abs(constant) + 128 * sum(map(abs, whole)) < LIMIT
        if fits and max(map(abs, whole)) <= 2**SUM_BITS:
            return whole, constant, shift
    raise ModelError("an addition grows one of its inputs a million times: calibrate on more examples")


# Activations: within bounds, or a table.

_ERF = np.vectorize(math.erf)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky": lambda x, slope: np.where(x > 0, x, slope * x),
    "clip": lambda x, low, high: np.clip(x, low, high),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + _ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "elu": lambda x, slope: np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "sqrt": np.sqrt,
}
# From where to where an input matters: below and above, the function is constant but for a step of the result.
_REACH = {
    "silu": -10.0,
    "gelu": -4.0,
    "gelu_tanh": -4.0,
    "hardswish": -3.0,
    "elu": -6.0,
    "mish": -10.0,
    "softplus": -7.0,
}
_BOUNDED = {"sigmoid": 7.0, "tanh": 4.0, "hardsigmoid": 3.0}


def bounds(act: tuple[Any, ...] | None, out: Quantization) -> tuple[int, int] | None:
    """The lowest and highest q that an activation allows, where that is all it does."""
    if act is None:
        return LOW, HIGH
    if act[0] == "relu":
        return out.zero, HIGH
    if act[0] == "clip":
        low, high = out.round([act[1], act[2]]).astype(int).tolist()
        return low, high
    return None


def before(act: tuple[Any, ...], out: Quantization) -> Quantization:
    """How the input of an activation is rounded whose output is rounded so: over all that makes a difference."""
    name = act[0]
    if name in _BOUNDED:
        return quantization(-_BOUNDED[name], _BOUNDED[name])
    if name == "leaky":
        slope = float(act[1])
        return quantization(out.low / slope if slope > 0 else -out.high, out.high)
    if name == "sqrt":
        return quantization(0.0, out.high**2)
    return quantization(_REACH[name], out.high + 0.5)


def table(act: tuple[Any, ...], given: Quantization, out: Quantization) -> npt.NDArray[np.int8]:
    """The activation of each q from -128 to 127."""
    x = given.scale * (np.arange(LOW, HIGH + 1, dtype=np.float64) - given.zero)
    with np.errstate(all="ignore"):
        return out.round(np.nan_to_num(FUNCTIONS[act[0]](x, *act[1:])))
