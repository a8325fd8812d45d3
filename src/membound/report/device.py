"""Networks for a microcontroller in a report: what its flash and RAM hold, not files or this machine's memory."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from membound.report.text import find_number, find_part, find_rows, find_text, show_count
from membound.units import CLOCK, LEVELS, say_free, say_tables, show_clock, show_ms

Facts = Mapping[str, Any]
NEARLY = 0.95  # of a bound: it binds
ROOM = 0.1  # of flash, free for more weights, and of time: -O2 has to give that much to be worth its flash
FOLDER = "firmware"  # that the commands shown to a user export to


def is_micro(result: Facts) -> bool:
    """Whether a fit was for a microcontroller."""
    return any(find_part(final, "micro") for final in find_rows(result, "finals"))


def find_flash(net: Facts) -> float | None:
    """Bytes of constants and code, where they are known."""
    return find_number(find_part(net, "micro"), "flash_bytes")


def find_ram(net: Facts) -> float | None:
    return find_number(find_part(net, "micro"), "ram_bytes")


def find_time(net: Facts) -> float | None:
    """Milliseconds of one image, as estimated."""
    return find_number(find_part(net, "micro"), "ms")


def find_other(net: Facts) -> tuple[str, float, float] | None:
    """How else C may be compiled, and the bytes of flash and milliseconds that this takes.

    >>> find_other({"micro": {"at_O2": {"flash_bytes": 8461, "ms": 11.0}}})
    ('-O2', 8461.0, 11.0)
    """
    other = next(level for level in LEVELS if level != find_level(net))
    taken = find_part(find_part(net, "micro"), f"at_{other[1:]}")
    flash, ms = find_number(taken, "flash_bytes"), find_number(taken, "ms")
    return None if flash is None or ms is None else (other, flash, ms)


@dataclass(frozen=True)
class Faster:
    """What -O2 gives a network that was compiled at -Os."""

    flash_bytes: int
    ms: float
    budget: int | None  # the least one, where the present one leaves no room

    @property
    def words(self) -> str:
        """What to ask for, in Python's words.

        >>> Faster(6700, 28.0, None).words, Faster(6700, 28.0, 7500).words
        ('compiled="O2"', 'compiled="O2", with a budget of 7.5KB or more')
        """
        more = "" if self.budget is None else f", with a budget of {self.budget / 1000:g}KB or more"
        return f'compiled="O2"{more}'


def find_faster(micro: Facts, limit: float | None) -> Faster | None:
    """What -O2 would give where time binds at -Os; None where it is hardly faster, as weights lie in another form.

    >>> micro = {"ms": 50.0, "at_O2": {"flash_bytes": 6700, "ms": 28.0}}
    >>> find_faster(micro, 8000)
    Faster(flash_bytes=6700, ms=28.0, budget=None)
    >>> find_faster(micro, 6824).budget, find_faster(micro, None).budget  # None: nothing bounds flash
    (7500, None)
    >>> find_faster({"ms": 30.0, "at_O2": {"flash_bytes": 6700, "ms": 28.0}}, 8000) is None
    True
    """
    at = find_part(micro, "at_O2")
    flash, ms, now = find_number(at, "flash_bytes"), find_number(at, "ms"), find_number(micro, "ms")
    compiled = find_text(micro, "compiled_with") or LEVELS[0]
    if flash is None or ms is None or now is None or compiled != LEVELS[0] or ms > (1 - ROOM) * now:
        return None
    needed = with_room(flash)
    return Faster(int(flash), ms, None if limit is None or needed <= limit else needed)


def with_room(flash: float) -> int:
    """The least budget, in steps of 100 bytes, of which -O2 leaves a tenth for the weights that there is time for.

    >>> with_room(6700)
    7500
    """
    return 100 * math.ceil(flash / (1 - ROOM) / 100)


def say_clock(net: Facts) -> str:
    """What these are estimated for.

    >>> say_clock({"micro": {"clock_hz": 64_000_000}})
    'a Cortex-M4 at 64 MHz'
    """
    return f"a Cortex-M4 at {show_clock(find_number(find_part(net, 'micro'), 'clock_hz') or CLOCK)}"


def find_level(net: Facts) -> str:
    """How its C is compiled."""
    return find_text(find_part(net, "micro"), "compiled_with") or LEVELS[0]


def say_way(net: Facts) -> str:
    """The options that say clock and compiler again to another command.

    >>> say_way({"micro": {"clock_hz": 64_000_000, "compiled_with": "-O2"}}), say_way({})
    (' --clock 64MHz --compiled O2', '')
    """
    clock = find_number(find_part(net, "micro"), "clock_hz") or CLOCK
    words = f" --clock {show_clock(clock).replace(' ', '')}" if clock != CLOCK else ""
    return words + (f" --compiled {find_level(net)[1:]}" if find_level(net) != LEVELS[0] else "")


def find_folder(net: Facts, several: bool) -> str:
    """Where its C goes: of several networks each has a folder of its own.

    >>> find_folder({"name": "8KB"}, False), find_folder({"name": "8KB"}, True), find_folder({"name": "8 KB, a"}, True)
    ('firmware', 'firmware-8KB', 'firmware-8-KB-a')
    """
    name = re.sub(r"[^\w.]+", "-", find_text(net, "name") or "").strip("-.") if several else ""
    return f"{FOLDER}-{name}" if name else FOLDER


def say_export(net: Facts, several: bool = False) -> str:
    """The command that writes it as C; `several` networks have a folder each.

    >>> say_export({"file": "a b.safetensors", "micro": {"clock_hz": 64_000_000}})
    "membound export 'a b.safetensors' --c firmware --clock 64MHz"
    """
    file = shlex.quote(find_text(net, "file") or "FILE")
    return f"membound export {file} --c {find_folder(net, several)}{say_way(net)}"


def unbroken(text: str) -> str:
    """With -Os and -O2 as one word each: no line ends after the hyphen.

    >>> ascii(unbroken("at -Os for a Cortex-M4"))
    "'at \\\\u2011Os for a Cortex-M4'"
    """
    return text.replace(" -O", " \N{NON-BREAKING HYPHEN}O")


def show_flash(net: Facts) -> str:
    """Bytes of flash, of those that the budget allows.

    >>> show_flash({"micro": {"flash_bytes": 27067}, "limit": 27400}), show_flash({"micro": {"flash_bytes": 90}})
    ('27,067 of 27,400', '90')
    """
    return _show_within(find_flash(net), find_limit(net))


def find_limit(net: Facts) -> float | None:
    """Bytes of flash that are allowed; none where time alone is bounded."""
    alone = find_part(net, "latency_bound").get("alone")
    return None if alone else find_number(net, "limit")


def say_more_room(final: Facts, with_options: bool) -> str:
    """Which bound of a microcontroller's network binds, and how to get more of that.

    >>> micro = {"ms": 2.99, "flash_bytes": 3852, "at_O2": {"flash_bytes": 5308, "ms": 2.1}}
    >>> print(say_more_room({"micro": micro, "limit": 8000, "latency_bound": {"bound_ms": 3.0}}, True))
    time is the limiting bound (2.99 of 3 ms): allow more (--latency), or compile for speed (--compiled O2)
    >>> print(say_more_room({"micro": micro | {"compiled_with": "-O2"}, "limit": 3900}, False))
    flash is the limiting bound (3,852 of 3,900 bytes): allow more (budget), or compile for size (compiled="Os")
    >>> print(say_more_room({"micro": micro, "limit": 5500, "latency_bound": {"bound_ms": 3.0}}, False))
    time is the limiting bound (2.99 of 3 ms): allow more (latency), or compile for speed (compiled="O2", with a \
budget of 5.9KB or more)
    >>> say_more_room({"micro": micro, "limit": 8000}, True)
    'flash and time are not the limit: try a wider network (--widths 1,1.5,2, if its function takes a width)'
    """
    wider = "--widths 1,1.5,2" if with_options else "widths=[1, 1.5, 2]"
    return say_binding(final, with_options) or (
        f"flash and time are not the limit: try a wider network ({wider}, if its function takes a width)"
    )


def say_binding(final: Facts, with_options: bool) -> str | None:
    """The same where one binds.

    >>> say_binding({"micro": {"flash_bytes": 3852}, "limit": 8000}, True) is None
    True
    """
    dashes = "--" if with_options else ""
    taken, allowed = find_time(final), find_number(find_part(final, "latency_bound"), "bound_ms")
    if taken is not None and allowed is not None and taken >= NEARLY * allowed:
        other = ", or take a faster clock"
        if faster := find_faster(find_part(final, "micro"), find_limit(final)):
            words = faster.words.replace('compiled="O2"', "--compiled O2") if with_options else faster.words
            other = f", or compile for speed ({words})"
        return (
            f"time is the limiting bound ({taken:.3g} of {allowed:g} ms): allow more ({dashes}latency){other}"
        )
    flash, limit = find_flash(final), find_limit(final)
    if flash is not None and limit is not None and flash >= NEARLY * limit:
        less = "--compiled Os" if with_options else 'compiled="Os"'
        other = "" if find_level(final) == LEVELS[0] else f", or compile for size ({less})"
        said = f"flash is the limiting bound ({show_count(flash)} of {show_count(limit)} bytes)"
        return f"{said}: allow more ({dashes}budget){other}{_say_tables(final)}"
    return None


def _say_tables(final: Facts) -> str:
    """What tables of activations take of the flash, and what takes none.

    >>> print(_say_tables({"micro": {"table_bytes": 512, "tables": {"Hardswish": 2}}}))
    , or take other activations: 512 bytes are the tables of 2 activations (Hardswish), and ReLU needs none
    """
    micro = find_part(final, "micro")
    tables = find_part(micro, "tables")
    if not tables:
        return ""
    return (
        f", or take other activations: {show_count(find_number(micro, 'table_bytes'))} bytes are "
        f"{say_tables(tables)}, and {say_free(tables)}"
    )


def show_time(net: Facts) -> str:
    """The estimated time of one example, of what is allowed.

    >>> show_time({"micro": {"ms": 39.94}, "latency_bound": {"bound_ms": 40.0}}), show_time({"micro": {"ms": 68.2}})
    ('39.9 of 40 ms', '68.2 ms')
    >>> show_time({})
    '–'
    """
    ms, allowed = find_time(net), find_number(find_part(net, "latency_bound"), "bound_ms")
    if ms is None:
        return show_count(None)
    return show_ms(ms) if allowed is None else f"{ms:.3g} of {allowed:g} ms"


def show_ram(net: Facts) -> str:
    """Bytes of RAM, of those that are allowed."""
    return _show_within(find_ram(net), find_number(net, "memory_limit"))


def _show_within(used: float | None, allowed: float | None) -> str:
    return show_count(used) + ("" if used is None or allowed is None else f" of {show_count(allowed)}")
