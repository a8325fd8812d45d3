"""About how long a network takes on a Cortex-M4: instructions and cycles, estimated from what each layer does.

A layer's work is counted in a few kinds of steps. What a step takes was found by least squares over networks that an
emulated Cortex-M4 ran (benchmarks/micro_speed.py); cycles are those of Arm's table for memory without wait states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.micro.integers import Op
from membound.micro.plan import MicroPlan
from membound.units import CLOCK, parse_clock, show_clock, show_ms

# What is counted: multiplications 8 outputs at a time, of what is left over in pairs, and of a last one; values of a
# weight that are decoded, with positions and a palette or otherwise, and steps to another row or column of the kernel;
# rows of a channel; outputs that are rounded to int8, added, pooled or looked up in a table; the input's numbers; rows of
# an operation.
STEPS = (
    "eight", "pair", "last", "value", "other_value", "move", "channel_row", "output", "summed", "pooled",
    "input", "row",
)  # fmt: skip
LEVELS = {  # instructions and cycles of each step
    "-Os": (
        (4.1, 8.3, 5.6, 51.2, 39.6, 73.8, 273.9, 23.2, 20.7, 22.6, 25.3, 120.4),
        (5.2, 13.5, 9.6, 78.6, 64.5, 113.2, 462.8, 34.1, 30.1, 33.5, 32.0, 163.5),
    ),
    "-O2": (
        (2.2, 5.3, 5.5, 23.9, 16.5, 58.1, 316.0, 13.4, 15.3, 20.8, 25.5, 235.9),
        (2.7, 7.7, 9.3, 33.3, 19.8, 88.5, 470.6, 20.1, 20.0, 26.3, 35.2, 681.1),
    ),
}


@dataclass(frozen=True)
class Estimate:
    """Of one image, in about."""

    instructions: int
    cycles: int

    def ms(self, clock: str | float = CLOCK) -> float:
        """Milliseconds at this clock, in Hz or as '80 MHz'.

        >>> Estimate(1_000_000, 1_600_000).ms("80 MHz")
        20.0
        """
        return 1e3 * self.cycles / parse_clock(clock)

    def to_json(self, clock: float = CLOCK) -> dict[str, float]:
        return {"instructions": self.instructions, "cycles": self.cycles, "ms": round(self.ms(clock), 4)}


def estimate(plan: MicroPlan, level: str = "-Os", number: int | None = None) -> Estimate:
    """Of a whole network, or of one of its operations, compiled by gcc at -Os or -O2."""
    numbers = range(len(plan.net.ops)) if number is None else [number]
    steps = sum((steps_of(plan, each) for each in numbers), np.zeros(len(STEPS)))
    instructions, cycles = (round(float(steps @ np.array(each))) for each in LEVELS[level])
    return Estimate(instructions, cycles)


def describe_speed(plan: MicroPlan, clock: float | None = None) -> dict[str, Any]:
    """As `membound` prints it everywhere: at -Os, for which flash is counted, and at -O2."""
    hz = CLOCK if clock is None else clock
    small, fast = (estimate(plan, level).to_json(hz) for level in LEVELS)
    return {"clock_hz": round(hz), **small, "at_O2": fast}


def say_speed(facts: Mapping[str, Any]) -> str:
    """In a sentence, of what `describe_speed` gives.

    >>> fast = {"instructions": 1_893_000, "cycles": 2_600_000, "ms": 32.5}
    >>> say_speed({"clock_hz": 80e6, "instructions": 3_077_000, "cycles": 4_520_000, "ms": 56.5, "at_O2": fast})
    'about 3.08 million instructions an image: 56 ms on a Cortex-M4 at 80 MHz, 32 ms if compiled with -O2 (estimated)'
    """
    count, fast = facts["instructions"] / 1e6, facts["at_O2"]
    return (
        f"about {count:.3g} million instructions an image: {show_ms(facts['ms'])} on a Cortex-M4 at "
        f"{show_clock(facts['clock_hz'])}, {show_ms(fast['ms'])} if compiled with -O2 (estimated)"
    )


def steps_of(plan: MicroPlan, number: int) -> npt.NDArray[np.float64]:
    """How often an operation does each of STEPS, for one image; the first one feeds the rows, too."""
    op = plan.net.ops[number]
    rows, width = op.size
    outputs = rows * width * op.channels
    found = dict.fromkeys(STEPS, 0.0)
    found["row"] = rows
    if op.kind == "conv":
        assert op.weight is not None
        packed = plan.weights[number]
        times = rows * packed.count
        found["eight"] = times * (width // 8 * 8)
        found["pair"] = times * (width % 8 // 2 * 2)
        found["last"] = times * (width % 2)
        found["value" if packed.sparse and packed.palette is not None else "other_value"] = times
        found["move"] = rows * int((op.weight != 0).any(1).sum())
        found["channel_row"] = rows * op.channels
        found["output"] = outputs
    if op.kind == "sum" or op.then == "sum":
        found["summed"] = outputs
    if op.kind == "table":
        found["pooled"] = outputs
    if op.pool is not None:
        found["pooled"] += _pooled(op)
    if number == 0:
        found["input"] = float(np.prod(plan.net.images[0]))
    return np.array([found[name] for name in STEPS])


def _pooled(op: Op) -> int:
    """Elements of all windows of a pool."""
    assert op.pool is not None
    kernel = op.pool.window.kernel
    return op.channels * op.pool.size[0] * op.pool.size[1] * kernel[0] * kernel[1]
