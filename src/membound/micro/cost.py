"""About how long a network takes on a Cortex-M4: instructions and cycles, estimated from what each layer does.

A layer's work is counted in a few kinds of steps. What a step takes was found by least squares over networks that an
emulated Cortex-M4 ran (benchmarks/micro_speed.py); cycles are those of Arm's table for memory without wait states.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from membound.micro.code import LIBRARY_BYTES
from membound.micro.flash import Packed
from membound.micro.integers import IntegerNet, Op
from membound.micro.layout import Layout
from membound.micro.schedule import events
from membound.units import CLOCK, LEVELS, parse_clock, say_off, say_tables, show_clock, show_ms

# What is counted: multiplications 8 outputs at a time, of what is left over in pairs, and of a last one; values of a
# weight that are decoded, with positions and a palette, otherwise, or where no weight has positions; steps to another
# row or column of the kernel; rows of a channel; outputs that are rounded to int8, added, pooled or looked up in a
# table; numbers of the input; rows of an operation.
STEPS = (
    "eight", "pair", "last", "value", "other_value", "dense_value", "kernel_row", "kernel_column", "channel_row",
    "output", "summed", "pooled", "input", "row",
)  # fmt: skip
COSTS = {  # instructions and cycles of each step, by how C is compiled
    "-Os": (
        (4.1, 8.2, 7.1, 56.3, 54.8, 38.3, 47.1, 44.4, 253.6, 24.6, 25.1, 21.4, 27.8, 553.7),
        (5.2, 13.4, 11.4, 85.7, 85.5, 62.9, 74.1, 73.9, 441.9, 35.8, 35.7, 32.0, 35.4, 750.3),
    ),
    "-O2": (
        (2.2, 5.2, 6.4, 28.1, 28.2, 16.5, 69.0, 23.1, 242.8, 16.0, 18.7, 19.2, 27.2, 666.2),
        (2.7, 7.6, 9.9, 37.2, 29.5, 20.7, 170.2, 35.8, 279.4, 25.1, 22.7, 24.3, 36.4, 1160.2),
    ),
}


class Planned(Protocol):
    """What is read of a plan; plans themselves choose by these estimates."""

    @property
    def net(self) -> IntegerNet: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def weights(self) -> dict[int, Packed]: ...


@dataclass(frozen=True)
class Estimate:
    """About how many instructions and cycles one example takes; cycles are for flash without wait states.

    `longest_cycles` and `longest_instructions` are those of the longest call of net_feed_row, which is often the last
    one of an example: it computes all that is left. Other tasks of the same priority are blocked for that long.
    """

    instructions: int
    cycles: int
    longest_cycles: int = 0
    longest_instructions: int = 0

    def ms(self, clock: str | float = CLOCK) -> float:
        """Milliseconds at this clock, in Hz or as '80 MHz'.

        >>> Estimate(1_000_000, 1_600_000).ms("80 MHz")
        20.0
        """
        return 1e3 * self.cycles / parse_clock(clock)

    def longest_ms(self, clock: str | float = CLOCK) -> float:
        """Milliseconds of the longest call of net_feed_row at this clock."""
        return 1e3 * self.longest_cycles / parse_clock(clock)

    def to_json(self, clock: float = CLOCK) -> dict[str, float]:
        """As `membound` prints it everywhere."""
        return {
            "instructions": self.instructions,
            "cycles": self.cycles,
            "ms": round(self.ms(clock), 4),
            "longest_call_instructions": self.longest_instructions,
            "longest_call_ms": round(self.longest_ms(clock), 4),
        }


def estimate(plan: Planned, level: str = "-Os", number: int | None = None) -> Estimate:
    """Of a whole network, or of one of its operations, compiled by gcc at -Os or -O2."""
    numbers = range(len(plan.net.ops)) if number is None else [number]
    steps = sum((steps_of(plan, each) for each in numbers), np.zeros(len(STEPS)))
    instructions, cycles = (round(float(steps @ np.array(each))) for each in COSTS[level])
    return Estimate(instructions, cycles)


def speed_of(plan: Planned, level: str = "-Os") -> Estimate:
    """Of a whole network, with its longest call."""
    longest = longest_call(plan, level)
    return replace(
        estimate(plan, level), longest_cycles=longest.cycles, longest_instructions=longest.instructions
    )


def longest_call(plan: Planned, level: str = "-Os") -> Estimate:
    """Of the call of net_feed_row that computes the most: all rows of an operation are taken to cost the same."""
    ops = plan.net.ops
    rows = [estimate(plan, level, number) for number in range(len(ops))]
    calls: list[list[float]] = []
    for number in events(plan.net, plan.layout.whole, plan.layout.waits):
        if number < 0:
            calls.append([0.0, 0.0])
        else:
            calls[-1][0] += rows[number].instructions / ops[number].size[0]
            calls[-1][1] += rows[number].cycles / ops[number].size[0]
    instructions, cycles = max(calls, key=lambda call: call[1])
    return Estimate(round(instructions), round(cycles))


def say_flash(facts: Mapping[str, Any], limit: float | None = None, briefly: bool = False) -> str:
    """What flash holds, of what `describe_plan` gives, and how much it is if exported for the other level.

    `briefly` leaves out what `say_excluded` says.

    >>> facts = {"flash_bytes": 5643, "constant_bytes": 2821, "weight_bytes": 2100, "code_bytes": 2822}
    >>> facts |= {"code_from": "recorded sizes", "compiled_with": "-Os", "at_O2": {"flash_bytes": 8461}}
    >>> print(say_flash(facts, 6000))
    5,643 of 6,000 bytes: 2,821 of constants (2,100 of them weights), 2,822 of code at -Os for a Cortex-M4 \
(recorded sizes); startup code and memcpy/memset (about 470 bytes) not included; \
8,461 if exported for -O2, which is beyond the budget
    """
    level = facts["compiled_with"]
    other = _other(level)
    beside = facts[f"at_{other[1:]}"]["flash_bytes"]
    allowed = "" if limit is None else f" of {limit:,.0f}"
    tables = f", {facts['table_bytes']:,} {say_tables(facts['tables'])}" if facts.get("tables") else ""
    return (
        f"{facts['flash_bytes']:,}{allowed} bytes: {facts['constant_bytes']:,} of constants "
        f"({facts['weight_bytes']:,} of them weights{tables}), {facts['code_bytes']:,} of code at {level} for a "
        f"Cortex-M4 ({facts['code_from']}); "
        + ("" if briefly else f"startup code and memcpy/memset (about {LIBRARY_BYTES} bytes) not included; ")
        + f"{beside:,} if exported for {other}"
        + (", which is beyond the budget" if limit is not None and beside > limit else "")
    )


def _other(level: str) -> str:
    return next(each for each in LEVELS if each != level)


def say_excluded(facts: Mapping[str, Any]) -> str:
    """What flash leaves out.

    >>> say_excluded({})
    'startup code and memcpy/memset (about 470 bytes) are not in flash'
    """
    said = f"startup code and memcpy/memset (about {LIBRARY_BYTES} bytes) are not in flash"
    floats = facts.get("flash_not_included")
    return said if floats is None else f"{said}; {floats}"


def say_estimates() -> str:
    """How far times may be off.

    >>> print(say_estimates())
    estimates: on an emulated Cortex-M4, they were off by at most 7.6 % at -Os and 22.2 % at -O2, without wait states
    """
    return f"estimates: {say_off(*LEVELS)}, without wait states"


def say_speed(facts: Mapping[str, Any], briefly: bool = False) -> str:
    """How fast it is, of what `describe_plan` gives; `briefly` leaves out what `say_estimates` says.

    >>> fast = {"instructions": 1_893_000, "cycles": 2_600_000, "ms": 32.5}
    >>> small = {"instructions": 3_077_000, "cycles": 4_520_000, "ms": 56.5}
    >>> print(say_speed({"clock_hz": 80e6, "compiled_with": "-Os", **small, "at_O2": fast}))
    about 3.08 million instructions an example: 56.5 ms on a Cortex-M4 at 80 MHz, 32.5 ms if exported for -O2 \
(estimates: on an emulated Cortex-M4, they were off by at most 7.6 % at -Os and 22.2 % at -O2, without wait states)
    >>> print(say_speed({"clock_hz": 80e6, "compiled_with": "-O2", **fast, "at_Os": small}))
    about 1.89 million instructions an example at -O2: 32.5 ms on a Cortex-M4 at 80 MHz, 56.5 ms if exported for -Os \
(estimates: on an emulated Cortex-M4, they were off by at most 7.6 % at -Os and 22.2 % at -O2, without wait states)
    >>> small["longest_call_ms"] = 8.2
    >>> say_speed({"clock_hz": 80e6, "compiled_with": "-Os", **small, "at_O2": fast}).partition("); ")[2]
    'longest call: about 8.2 ms'
    """
    count, level = facts["instructions"] / 1e6, facts["compiled_with"]
    other = _other(level)
    return (
        f"about {count:.3g} million instructions an example{'' if level == LEVELS[0] else f' at {level}'}: "
        f"{show_ms(facts['ms'])} on a Cortex-M4 at {show_clock(facts['clock_hz'])}, "
        f"{show_ms(facts[f'at_{other[1:]}']['ms'])} if exported for {other}"
        + ("" if briefly else f" ({say_estimates()})")
        + (f"; longest call: about {show_ms(facts['longest_call_ms'])}" if "longest_call_ms" in facts else "")
    )


def steps_of(plan: Planned, number: int) -> npt.NDArray[np.float64]:
    """How often an operation does each of STEPS, for one example; the first one feeds the rows, too."""
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
        found[_kind_of(packed, plan)] = times
        columns = (op.weight != 0).any(1)  # of the kernel, for each output
        found["kernel_row"] = rows * int(columns.any(2).sum())
        found["kernel_column"] = rows * int(columns.sum()) - found["kernel_row"]
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


def _kind_of(packed: Packed, plan: Planned) -> str:
    """Which way values are decoded: code for positions is compiled where any weight has them."""
    if not any(each.sparse for each in plan.weights.values()):
        return "dense_value"
    return "value" if packed.sparse and packed.palette is not None else "other_value"


def _pooled(op: Op) -> int:
    """Elements of all windows of a pool."""
    assert op.pool is not None
    kernel = op.pool.window.kernel
    return op.channels * op.pool.size[0] * op.pool.size[1] * kernel[0] * kernel[1]
