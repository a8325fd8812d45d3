"""How numbers become the bytes that a network is fed: floats, and integers that count units, such as fixed point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from membound.errors import ModelError
from membound.micro.arithmetic import Quantization
from membound.micro.plan import MicroPlan

# So that the product of a factor and an int32, and the sum, are within 64 bits.
FACTOR_BITS, OFFSET_BITS = 30, 61
INT32 = 2.0**31
RANGES = 6  # of channels, that a message shows
# What net_input_fixed adds to flash: code on a Cortex-M4 at -Os or -O2, and constants of each channel.
FIXED_CODE_BYTES, FIXED_CHANNEL_BYTES = 64, 12


@dataclass(frozen=True)
class Steps:
    """byte = number / step + offset of its channel, rounded half up; `prepared` where numbers are prepared before."""

    steps: tuple[float, ...]
    offsets: tuple[float, ...]
    prepared: bool = False


@dataclass(frozen=True)
class FixedInput:
    """byte = floor((number factor + offset) / 2^shift) within 0 and 255, of an int32 number of so many `units`."""

    units: tuple[float, ...]  # one, or one for each channel
    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    shift: int


def steps_of(plan: MicroPlan, preprocess: Mapping[str, Any] | None) -> Steps:
    """Of each channel, with its preparation: (number - mean) scale / std, then rounded as the plan says."""
    return find_steps(plan.net.quantizations[0], plan.net.images[0][0], preprocess or {})


def find_steps(first: Quantization, channels: int, preprocess: Mapping[str, Any]) -> Steps:
    """
    >>> find_steps(Quantization(0.5, -8), 1, {"mean": [-4.0], "std": [2.0]})
    Steps(steps=(1.0,), offsets=(124.0,), prepared=False)
    """
    mean, std = preprocess.get("mean"), preprocess.get("std") or [1.0]
    prepared = mean == "image"
    means = [0.0] if mean is None or prepared else mean
    factor = 1.0 if prepared else float(preprocess.get("scale", 1.0))
    stds = [1.0] if prepared else std
    steps = [first.scale * stds[c % len(stds)] / factor for c in range(channels)]
    offsets = [first.zero + 128 - means[c % len(means)] / steps[c] for c in range(channels)]
    return Steps(tuple(steps), tuple(offsets), prepared)


def read_units(given: object) -> tuple[float, ...]:
    """What an integer counts: one unit, or one for each channel.

    >>> read_units(0.01), read_units("0.001, 0.02"), read_units([1, 0.5])
    ((0.01,), (0.001, 0.02), (1.0, 0.5))
    """
    parts = given.split(",") if isinstance(given, str) else given
    try:
        found = tuple(map(float, parts if isinstance(parts, Sequence | np.ndarray) else [parts]))
    except (TypeError, ValueError):
        found = ()
    if not found or not all(0 < unit < np.inf for unit in found):
        raise ModelError(
            f"input_unit={given!r}: what an integer counts is needed, such as 0.01, or one number above 0 for each "
            "channel",
            about="input_unit",
        )
    return found


def fix_input(plan: MicroPlan, preprocess: Mapping[str, Any] | None, units: Sequence[float]) -> FixedInput:
    """The constants of a network's own net_input_fixed: the same bytes on every CPU."""
    channels = plan.net.images[0][0]
    if plan.net.takes_pixels:
        raise ModelError(
            "this network takes bytes as they are, and no numbers to make bytes of: leave input_unit out",
            about="input_unit",
        )
    if len(units) not in (1, channels):
        raise ModelError(
            f"input_unit has {len(units)} numbers, but the input has {channels} channels: give one, or one for each "
            "channel",
            about="input_unit",
        )
    known = steps_of(plan, preprocess)
    each = np.broadcast_to(np.array(units), channels) / np.array(known.steps)  # bytes for one unit
    offsets = np.array(known.offsets) + 0.5
    for channel, size in enumerate(np.abs(each).tolist()):
        if not 256 / INT32 < size < 256:
            unit = units[channel % len(units)]
            covers = 256 * abs(known.steps[channel])
            raise ModelError(
                f"input_unit={unit:g} does not suit channel {channel}, where a byte covers a range of {covers:.3g}: a "
                f"unit from {covers / INT32:.3g} to {covers:.3g} is allowed",
                about="input_unit",
            )
    shift = min(
        _shift(float(np.abs(each).max()), FACTOR_BITS), _shift(float(np.abs(offsets).max()), OFFSET_BITS)
    )
    factors, constants = (
        tuple(int(number) for number in np.rint(np.ldexp(numbers, shift))) for numbers in (each, offsets)
    )
    return FixedInput(tuple(units), factors, constants, shift)


def _shift(most: float, bits: int) -> int:
    """By how many bits numbers up to this one may be moved up, and be within 2^bits.

    >>> _shift(1.0, 30), _shift(0.75, 30), _shift(300.0, 30)
    (29, 30, 21)
    """
    return bits - int(np.frexp(most)[1])


def say_range(plan: MicroPlan, preprocess: Mapping[str, Any] | None) -> str | None:
    """From which to which number the input's int8 reaches, before preparation; None where nothing is prepared."""
    known = steps_of(plan, preprocess)
    if not preprocess or known.prepared:
        return None
    ends = [
        sorted(((-0.5 - offset) * step, (255.5 - offset) * step))
        for step, offset in zip(known.steps, known.offsets, strict=True)
    ]
    shown = [f"{low:.3g} to {high:.3g}" for low, high in ends]
    if len(set(shown)) == 1:
        return shown[0]
    each = [f"{text} for channel {number}" for number, text in enumerate(shown[:RANGES])]
    return ", ".join([*each, *(["and so on"] if len(shown) > RANGES else [])])


def say_not_included(plan: MicroPlan, has_units: bool = False) -> str | None:
    """What turns numbers into bytes, and is not in the flash that is counted; None where bytes are fed as they are.

    `has_units` where an export has net_input_fixed: then firmware needs no net_input.
    """
    if plan.net.takes_pixels:
        return None
    fixed = FIXED_CODE_BYTES + FIXED_CHANNEL_BYTES * plan.net.images[0][0]
    if has_units:
        return (
            f"net_input_fixed, which converts integers to bytes, is not included: at most {fixed:,} bytes on a "
            "Cortex-M4; net_input adds nothing unless you call it"
        )
    return (
        "the code that converts numbers to bytes is not included: on a Cortex-M4 without an FPU about 1.8 KB "
        f"(net_input), or at most {fixed:,} bytes (net_input_fixed, if the export has an input unit)"
    )
