"""Schedules: plain functions of progress, from 0 at the start of training to 1 at its end.

Every number of an update may be a schedule instead. Your own function works as well as these.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from membound.errors import MemboundError, RuleError
from membound.signatures import misfit
from membound.units import of_python

Number = int | float
Schedule = Callable[[float], Number]


SAMPLES = 16  # parts of the way, after each of which a schedule of the user's own is looked at


@dataclass(frozen=True)
class Known:
    """A schedule that says what it is; two that say the same are the same."""

    text: str
    at: Callable[[float], Any] = field(compare=False)

    def __call__(self, progress: float) -> Any:
        return self.at(progress)

    def __repr__(self) -> str:
        return self.text


def name_number(number: Any) -> str:
    """A number, or what a schedule is; one of the user's own is told by its values.

    >>> name_number(0.1), name_number(ramp(1.0, 0.05)), name_number(lambda progress: 1 - progress)[:28]
    ('0.1', 'ramp(1.0, 0.05)', 'a schedule of 1, 0.9375, 0.8')
    """
    if not callable(number) or isinstance(number, Known):
        return str(number)
    values = (_call(number, part / SAMPLES) for part in range(SAMPLES + 1))
    return f"a schedule of {', '.join('None' if each is None else f'{each:.6g}' for each in values)}"


def value_at(number: Number | Schedule, progress: float | None) -> Number:
    """The value of a number, or of a schedule at `progress`."""
    if not callable(number):
        return number
    if progress is None:
        raise RuleError("a schedule needs total_steps: attach(..., total_steps=...)")
    return _call(number, progress)


def _call(schedule: Schedule, progress: float) -> Number:
    """What a schedule says; where one of the user's own fails, how to write it."""
    try:
        return schedule(progress)
    except MemboundError:
        raise
    except Exception as error:
        wrong = misfit("a schedule", schedule, ("progress",)) or (
            f"a schedule failed at progress {progress:g} with {type(error).__name__}: {error}"
        )
        raise RuleError(wrong) from error


def constant(value: Number) -> Schedule:
    """The same value throughout.

    >>> mb.constant(0.05)(0.7)
    0.05
    """
    return Known(f"constant({value!r})", lambda progress: value)


def ramp(
    start: Number, end: Number, begin: float = 0.0, until: float = 1.0, shape: str = "cubic"
) -> Schedule:
    """From `start` to `end` between the progress `begin` and `until`, constant outside.

    linear: start + (end - start) u; cubic: end + (start - end) (1 - u)^3, fast at first and slow near the end,
    with u = (progress - begin) / (until - begin). Two ints give ints (a `keep` counted in weights).

    >>> keep = mb.ramp(1.0, 0.05, begin=0.2, until=0.8)
    >>> keep(0.1), round(keep(0.5), 5), keep(0.9)
    (1.0, 0.16875, 0.05)
    """
    _check_span("ramp", begin, until)
    if shape not in ("linear", "cubic"):
        raise RuleError(f"ramp has the shapes 'linear' and 'cubic', not {shape!r}")
    power = 3 if shape == "cubic" else 1

    def at(left: float) -> float:  # left: what is left of the ramp, 1 at its beginning
        return end + (start - end) * left**power

    shaped = "" if shape == "cubic" else f", shape={shape!r}"
    return _between(
        f"ramp({start!r}, {end!r}{_name_span(begin, until)}{shaped})", start, end, begin, until, at
    )


def cosine(start: Number, end: Number, begin: float = 0.0, until: float = 1.0) -> Schedule:
    """From `start` to `end` along half a cosine: end + (start - end) (1 + cos(pi u)) / 2.

    >>> lr = mb.cosine(0.1, 0.0)
    >>> lr(0.0), round(lr(0.5), 6), lr(1.0)
    (0.1, 0.05, 0.0)
    """
    _check_span("cosine", begin, until)

    def at(left: float) -> float:
        return end + (start - end) * (1.0 - math.cos(math.pi * left)) / 2

    return _between(f"cosine({start!r}, {end!r}{_name_span(begin, until)})", start, end, begin, until, at)


def steps(values: Mapping[float, Number]) -> Schedule:
    """Piecewise constant: `values[p]` from progress p on; there must be a value for 0.

    >>> keep = mb.steps({0.0: 1.0, 0.5: 0.2, 0.8: 0.05})
    >>> keep(0.49), keep(0.5), keep(1.0)
    (1.0, 0.2, 0.05)
    """
    if not isinstance(values, Mapping):
        raise RuleError(
            f"steps maps progress to values, as in steps({{0.0: 1.0, 0.5: 0.1}}): {values!r} does not"
        )
    if 0.0 not in values or not all(_is_number(at) and 0.0 <= at <= 1.0 for at in values):
        raise RuleError(
            f"steps needs values at progress 0 and others between 0 and 1, not at {', '.join(map(repr, values))}"
        )
    ordered = sorted(zip(values, _of_one_kind(*values.values()), strict=True), reverse=True)
    text = ", ".join(f"{at!r}: {value!r}" for at, value in reversed(ordered))
    return Known(
        f"steps({{{text}}})", lambda progress: next(value for at, value in ordered if progress >= at)
    )


def _name_span(begin: float, until: float) -> str:
    """What of it is not the default."""
    early = f", begin={begin!r}" if begin > 0 else ""
    return early + (f", until={until!r}" if until < 1 else "")


def _between(
    text: str, start: Number, end: Number, begin: float, until: float, at: Callable[[float], float]
) -> Schedule:
    start, end = _of_one_kind(start, end)
    counts = isinstance(start, int)

    def schedule(progress: float) -> Number:
        if progress <= begin:
            return start
        if progress >= until:
            return end
        value = at((until - progress) / (until - begin))
        return round(value) if counts else value

    return Known(text, schedule)


def _check_span(name: str, begin: float, until: float) -> None:
    if not (_is_number(begin) and _is_number(until) and 0.0 <= begin < until <= 1.0):
        raise RuleError(
            f"{name} runs from begin={begin!r} to until={until!r}: 0 <= begin < until <= 1 is needed"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _of_one_kind(*values: Number) -> list[Number]:
    """All ints (counts) or all floats: beside a float, 0 and 1 are floats too, and any other int is an error."""
    if not all(map(_is_number, values)):
        raise RuleError(
            f"the values of a schedule must be ints or floats, got {', '.join(map(repr, values))}"
        )
    values = of_python(values)
    if all(isinstance(value, int) for value in values):
        return list(values)
    if any(isinstance(value, int) and value not in (0, 1) for value in values):
        raise RuleError(
            f"a schedule of {', '.join(map(repr, values))} mixes counts and fractions: "
            "write all ints (counts) or all floats"
        )
    return [float(value) for value in values]
