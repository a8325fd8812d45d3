"""Flash and RAM of a microcontroller, part by part, beside the dense network in 8 bits."""

from collections.abc import Callable, Mapping
from typing import Any

from membound.report.device import (
    find_flash,
    find_level,
    find_other,
    find_ram,
    find_time,
    is_micro,
    say_clock,
    unbroken,
)
from membound.report.markup import Markup, join, tag
from membound.report.tables import MOST_COLUMNS, draw_table
from membound.report.text import (
    ABSENT,
    find_number,
    find_part,
    find_rows,
    find_text,
    name_of_examples,
    show_count,
)
from membound.units import LEVELS, say_off, show_ms

Facts = Mapping[str, Any]
Part = tuple[str, Callable[[Facts], object]]


def make_footprint(result: Facts) -> Markup | None:
    """A table, and what its words mean; None of a fit for another target."""
    if not is_micro(result):
        return None
    finals = find_rows(result, "finals")
    networks = [(find_text(final, "name") or "final", final) for final in finals]
    int8 = find_part(find_part(result, "dense"), "int8")
    if find_part(int8, "micro"):
        networks.append(("dense, 8 bits", int8))
    level, other = find_level(finals[0]), find_other(finals[0])
    parts: list[Part] = [
        ("flash, bytes", lambda net: _within(find_flash(net), find_number(net, "limit"))),
        ("weights", _count("weight_bytes")),
        ("biases, scales, layers", _rest("constant_bytes", "weight_bytes", "table_bytes")),
        ("tables of activations", _count("table_bytes")),
        ("code", _count("code_bytes")),
        ("RAM, bytes", lambda net: _within(find_ram(net), find_number(net, "memory_limit"))),
        ("arena (activations)", _count("arena_bytes")),
        ("counters of rows", _rest("context_bytes", "arena_bytes")),
        ("stack, at most", _count("stack_bytes")),
        ("instructions, estimated", _count("instructions")),
        ("milliseconds, estimated", lambda net: _rounded(find_time(net))),
    ]
    if other is not None:  # how much more flash, how much less time
        parts += [
            (unbroken(f"flash if exported for {other[0]}"), lambda net: _compiled_else(net, 1)),
            (unbroken(f"milliseconds with {other[0]}"), lambda net: _compiled_else(net, 2)),
        ]
    known = [(words, [show(net) for _, net in networks]) for words, show in parts]
    known = [(words, cells) for words, cells in known if any(cell != ABSENT for cell in cells)]
    heads = [name for name, _ in networks]
    if len(finals) <= MOST_COLUMNS:
        table = draw_table(["", *heads], [[_head(words), *cells] for words, cells in known], "flash and RAM")
    else:
        rows = [[head, *(cells[index] for _, cells in known)] for index, head in enumerate(heads)]
        table = draw_table(["network", *(words for words, _ in known)], rows, "flash and RAM")
    fed = name_of_examples(finals[0])
    compiled = find_text(find_part(finals[0], "micro"), "code_from") or "recorded sizes"
    note = (
        f"Code is at {level} for a Cortex-M4 ({compiled}), without startup code, memcpy and memset. "
        f"{fed.capitalize()} are fed by rows, so the input is not in RAM as a whole. Instructions and time are "
        f"estimated for one {fed.removesuffix('s')} on {say_clock(finals[0])}, at {level}, without wait states of "
        f"the flash; {say_off(*LEVELS)}."
    )
    floats = find_text(find_part(finals[0], "micro"), "flash_not_included")
    if floats is not None:
        note += f" In flash, {floats}."
    note = unbroken(note)
    return join(tag("div", table, class_="summary"), tag("p", note, class_="note"))


def _head(words: str) -> Markup:
    """A sum stands out from its parts."""
    return tag("strong", words) if words.endswith(", bytes") else tag("span", words)


def _within(used: float | None, allowed: float | None) -> object:
    """A sum, and under it what is allowed."""
    if used is None or allowed is None:
        return show_count(used)
    return join(show_count(used), tag("small", f"of {show_count(allowed)}"))


def _rounded(ms: float | None) -> str:
    return ABSENT if ms is None else show_ms(ms).removesuffix(" ms")


def _compiled_else(net: Facts, place: int) -> str:
    """Flash or milliseconds, compiled the other way."""
    found = find_other(net)
    if found is None:
        return ABSENT
    return show_count(found[1]) if place == 1 else _rounded(found[2])


def _count(key: str) -> Callable[[Facts], str]:
    return lambda net: show_count(find_number(find_part(net, "micro"), key))


def _rest(whole: str, part: str, other: str = "") -> Callable[[Facts], str]:
    """What a sum has beside one of its parts, and another one that not every network has."""

    def show(net: Facts) -> str:
        micro = find_part(net, "micro")
        all_of_it, some, more = (find_number(micro, key) for key in (whole, part, other))
        return show_count(None if all_of_it is None or some is None else all_of_it - some - (more or 0))

    return show
