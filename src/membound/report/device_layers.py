"""The table of layers of a network on a microcontroller: flash and RAM there, not bytes of the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.report.device import find_level, unbroken
from membound.report.markup import Markup, join, tag
from membound.report.tables import MOST_OPEN, draw_table, fold, with_hint
from membound.report.text import (
    ABSENT,
    divide,
    find_number,
    find_part,
    find_rows,
    find_size,
    find_text,
    name_layer,
    show_count,
    show_share,
)

Facts = Mapping[str, Any]


def find_device_layers(final: Facts) -> list[tuple[Facts, Facts]]:
    """What each layer takes there, beside its weight in the file (empty where it has none)."""
    weights = {name_layer(layer): layer for layer in find_rows(final, "layers")}
    device = find_rows(find_part(final, "micro"), "layers")
    return [(layer, weights.get(find_text(layer, "name") or "", {})) for layer in device]


def kept_of(weight: Facts) -> str:
    """
    >>> kept_of({"nonzeros": 478, "size": 480}), kept_of({})
    ('99.6 %', '–')
    """
    return show_share(divide(find_number(weight, "nonzeros"), find_size(weight)))


def make_device_layers(result: Facts) -> Markup | None:
    """One table for each final network, the first one open; None of other targets."""
    tables = []
    for index, final in enumerate(find_rows(result, "finals")):
        if layers := find_device_layers(final):
            words = f"{find_text(final, 'name') or 'final'}: {len(layers)} layers on the device"
            table = _draw(final, _rows(final, layers))
            tables.append(fold(words, table, index == 0 and len(layers) <= MOST_OPEN))
    return join(*tables) if tables else None


def _rows(final: Facts, layers: list[tuple[Facts, Facts]]) -> list[list[object]]:
    """The layers, and what else the arena holds."""
    beside: list[tuple[Facts, Facts]] = [(part, {}) for part in _find_beside(final)]
    return [
        [
            find_text(layer, "name") or ABSENT,
            kept_of(weight),
            show_count(find_number(layer, "flash_bytes")),
            show_count(find_number(layer, "row_bytes")),
            show_count(find_number(layer, "instructions")),
            _say_rows(layer),
            show_count(find_number(layer, "multiplications")),
            find_text(layer, "operation") or ABSENT,
        ]
        for layer, weight in [*layers, *beside]
    ]


def _find_beside(final: Facts) -> Sequence[Facts]:
    return find_rows(find_part(final, "micro"), "beside_layers")


def _say_rows(layer: Facts) -> str:
    rows, height = find_number(layer, "rows"), find_number(layer, "height")
    return ABSENT if rows is None else f"{show_count(rows)} of {show_count(height)}"


def _draw(final: Facts, rows: list[list[object]]) -> Markup:
    head = ["layer", "kept", "flash bytes", "RAM bytes", "instructions", "rows kept", "multiplications"]
    table = draw_table([*head, "operation"], rows, "layers on the device", texts=(0, 7))
    arena = show_count(find_number(find_part(final, "micro"), "arena_bytes"))
    note = (
        "Flash counts a layer's constants; code is counted separately. RAM is the rows that are kept, with "
        "padding and the 32-bit sums of means; rows that are not needed at the same time share their bytes in the "
        f"arena of {arena} bytes. Instructions are estimated at {find_level(final)}."
    )
    return join(with_hint(table), tag("p", unbroken(note), class_="note"))
