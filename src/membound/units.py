"""Sizes in bytes, as people write them: '40 KiB' is 40960, '40 KB' is 40000; clocks, compilers, and other numbers."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from membound.errors import MemboundError

UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
CLOCK = 80_000_000  # Hz, where none is said
SLOWEST = 10_000  # Hz: a bare number below was meant as MHz
LEVELS = ("-Os", "-O2")  # that C is compiled at; flash and time are those of the first, unless said
# How far estimates of time were off, at most, on networks whose cycles were counted (results/micro-speed.json).
OFF_PERCENT = {"-Os": 7.6, "-O2": 22.2}
MILLISECONDS = {"ms": 1.0, "s": 1000.0, "us": 0.001}
# Of names that other tools have for what a budget and RAM are here; of options and of keywords.
FOR_A_DEVICE = "with {target}, {budget} bounds the flash of a microcontroller and {ram} its RAM"
R_SQUARED = "R²"  # the score of numbers that are predicted: 0 is that of their mean, always
HERTZ = {"hz": 1, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}


def name_budget(text: str) -> str:
    """A budget where it stands alone: a percentage would look like progress.

    >>> name_budget("10%"), name_budget("8KB")
    ('budget 10%', '8KB')
    """
    return f"budget {text}" if text.endswith("%") else text


def parse_bytes(text: str | int, parts: str = "", small: bool = False) -> int:
    """The number of bytes that `text` says; for the message, `parts` is what else the caller takes.

    Of a microcontroller, which has a few KB or MB, `small` leaves the largest units out of the message.

    >>> parse_bytes("40 KiB"), parse_bytes("1.5MB"), parse_bytes(512)
    (40960, 1500000, 512)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*", str(text))
    if match is None or match[2].lower() not in UNITS:
        short = match is not None and f"{match[2].lower()}b" in UNITS  # 2K, 2Ki
        meant = f" did you mean {str(text).strip()}B?" if short else ""
        write = "Write" if short else "write"
        more = ("", "") if small else (", GB, TB", ", GiB, TiB")
        raise MemboundError(
            f"{str(text)!r} is not a size{parts and ' or a part'}:{meant} {write} plain bytes (40960), a number with "
            f"KB, MB{more[0]} (powers of 1000) or KiB, MiB{more[1]} (powers of 1024), as in '40 KiB'"
            f"{parts and f', {parts}'}"
        )
    return round(float(match[1]) * UNITS[match[2].lower()])


def of_python(value: Any) -> Any:
    """Numpy's numbers as Python's, its arrays as lists; all else as it is. Numpy need not be there.

    >>> import numpy as np
    >>> of_python(np.float32(0.5)), of_python(np.arange(2)), of_python([np.int64(3), "10%"])
    (0.5, [0, 1], [3, '10%'])
    """
    if type(value) in (list, tuple):
        return type(value)(map(of_python, value))
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def plain_number(value: Any) -> Any:
    """The same, and a float that is a whole number as an int.

    >>> plain_number(100.0), plain_number([1024.0, "10%"]), plain_number(0.5)
    (100, [1024, '10%'], 0.5)
    """
    value = of_python(value)
    if type(value) in (list, tuple):
        return type(value)(map(plain_number, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def format_bytes(count: int) -> str:
    """`count` in the largest binary unit that keeps it at least 1.

    >>> format_bytes(40960), format_bytes(300), format_bytes(1724320)
    ('40.0 KiB', '300 B', '1.64 MiB')
    """
    for unit, digits in (("GiB", 2), ("MiB", 2), ("KiB", 1)):
        if count >= UNITS[unit.lower()]:
            return f"{count / UNITS[unit.lower()]:.{digits}f} {unit}"
    return f"{count} B"


def show_bytes(count: float) -> str:
    """About how many, in a decimal unit, to three digits.

    >>> show_bytes(412), show_bytes(433072), show_bytes(999_600), show_bytes(1725280)
    ('412 bytes', '433 KB', '1 MB', '1.73 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size * (0.9995 if size > 1000 else 1):
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f} bytes"


def parse_clock(text: str | float) -> float:
    """Hz; a text has a unit, a number is Hz.

    >>> parse_clock("80MHz"), parse_clock("1.5 GHz"), parse_clock(16_000_000)
    (80000000.0, 1500000000.0, 16000000.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)(?:e\+?\d+)?\s*([a-zA-Z]*)\s*", str(text))
    if match is not None and match[2] == "mHz":
        raise MemboundError(
            f"clock={text!r}: mHz are thousandths of Hz: did you mean '{match[1]} MHz'?", about="clock"
        )
    unit = "" if match is None else match[2].lower() or ("" if isinstance(text, str) else "hz")
    if match is not None and not unit:
        raise MemboundError(
            f"clock={text!r} has no unit, MHz, kHz or Hz: did you mean '{match[1]} MHz'?", about="clock"
        )
    if match is None or unit not in HERTZ or float(match[1]) <= 0:
        raise MemboundError(f"clock={text!r}: write a frequency above 0, as in '80 MHz'", about="clock")
    if not isinstance(text, str) and text < SLOWEST:
        raise MemboundError(f"clock={text!r} is in Hz: did you mean '{text:g} MHz'?", about="clock")
    return float(text) if not isinstance(text, str) else float(match[1]) * HERTZ[unit]


def parse_latency(text: str | float) -> float:
    """Milliseconds; a text has a unit, a number is milliseconds.

    >>> parse_latency("5ms"), parse_latency("0.2 s"), parse_latency(3)
    (5.0, 200.0, 3.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", str(text))
    unit = "" if match is None else match[2] or ("" if isinstance(text, str) else "ms")
    if match is not None and not unit:
        raise MemboundError(
            f"latency={text!r} has no unit, ms, s or us: did you mean '{match[1]} ms'?", about="latency"
        )
    if match is None or unit not in MILLISECONDS or float(match[1]) <= 0:
        either = "" if isinstance(text, str) else ", or a number of milliseconds"
        raise MemboundError(
            f"latency={text!r}: write a time above 0 in ms, s or us, as in '5 ms'{either}", about="latency"
        )
    return float(match[1]) * MILLISECONDS[unit]


def show_latency(latency: str | float) -> str:
    """What `parse_latency` read, as it was written.

    >>> show_latency("0.01us"), show_latency(" 5 ms"), show_latency(0.25)
    ('0.01 us', '5 ms', '0.25 ms')
    """
    text = latency.strip() if isinstance(latency, str) else f"{latency:g}ms"
    return re.sub(r"\s*([a-z]+)$", r" \1", text)


def parse_level(text: str) -> str:
    """One of LEVELS, with or without the hyphen.

    >>> parse_level("O2"), parse_level("-Os")
    ('-O2', '-Os')
    """
    level = f"-{str(text).strip().removeprefix('-')}"
    if level not in LEVELS:
        raise MemboundError(
            f"compiled={text!r}: choose Os (the least flash) or O2 (faster); others were not measured",
            about="compiled",
        )
    return level


def show_clock(clock: float) -> str:
    """In words.

    >>> show_clock(80e6), show_clock(32_768)
    ('80 MHz', '0.032768 MHz')
    """
    return f"{clock / 1e6:g} MHz"


def show_ms(ms: float) -> str:
    """In three digits everywhere: in fewer, 19.6 ms would be beyond a bound that it meets.

    >>> show_ms(56.44), show_ms(0.2344), show_ms(99.97), show_ms(1234.5)
    ('56.4 ms', '0.234 ms', '100 ms', '1,234 ms')
    """
    return f"{ms:,.0f} ms" if ms >= 99.95 else f"{ms:.3g} ms"


def say_off(*levels: str) -> str:
    """How far estimates of time were off, of C that is compiled at these levels.

    >>> say_off("-Os"), say_off("-Os", "-O2")
    ('on an emulated Cortex-M4, they were off by at most 7.6 %', \
'on an emulated Cortex-M4, they were off by at most 7.6 % at -Os and 22.2 % at -O2')
    """
    most = [f"{OFF_PERCENT[each]} %{f' at {each}' if len(levels) > 1 else ''}" for each in levels]
    return f"on an emulated Cortex-M4, they were off by at most {' and '.join(most)}"


def name_examples(shape: Sequence[int] | None) -> str:
    """What examples of a shape are called; of an unknown shape, as most are.

    >>> name_examples((3, 32, 32)), name_examples((40, 49)), name_examples((40, 49, 1)), name_examples(None)
    ('images', 'examples', 'examples', 'images')
    """
    return "images" if shape is None or (len(shape) == 3 and min(shape[1:]) > 1) else "examples"


def standard_error(values: Sequence[float]) -> float | None:
    """How far the mean of n values may be off by chance: their standard deviation / sqrt(n); None of fewer than 2.

    >>> round(standard_error([0.5, 0.7, 0.6, 0.6]), 4), standard_error([0.5])
    (0.0408, None)
    """
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (count - 1) / count)


def say_tables(tables: Mapping[str, int]) -> str:
    """What they are of.

    >>> say_tables({"Hardswish": 2}), say_tables({"SiLU": 1})
    ('the tables of 2 activations (Hardswish)', 'the table of an activation (SiLU)')
    """
    count, names = sum(tables.values()), ", ".join(tables)
    whose = "the table of an activation" if count == 1 else f"the tables of {count} activations"
    return f"{whose} ({names})"


def say_free(tables: Mapping[str, int]) -> str:
    """What takes no table in their place.

    >>> say_free({"Hardswish": 2}), say_free({"ReLU": 1})
    ('ReLU needs none', 'right behind a layer with weights, ReLU needs none')
    """
    own = "ReLU" in tables or "clip" in tables
    return f"{'right behind a layer with weights, ' if own else ''}ReLU needs none"
