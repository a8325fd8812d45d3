"""The table of layers of a network on a microcontroller: flash and RAM there, not bytes of the file."""

from collections.abc import Mapping
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
        if rows := _rows(final):
            words = f"{find_text(final, 'name') or 'final'}: {len(rows)} layers on the device"
            tables.append(fold(words, _draw(final, rows), index == 0 and len(rows) <= MOST_OPEN))
    return join(*tables) if tables else None


def _rows(final: Facts) -> list[list[object]]:
    return [
        [
            find_text(layer, "name") or ABSENT,
            kept_of(weight),
            show_count(find_number(layer, "flash_bytes")),
            show_count(find_number(layer, "row_bytes")),
            show_count(find_number(layer, "instructions")),
            f"{show_count(find_number(layer, 'rows'))} of {show_count(find_number(layer, 'height'))}",
            show_count(find_number(layer, "multiplications")),
            find_text(layer, "operation") or ABSENT,
        ]
        for layer, weight in find_device_layers(final)
    ]


def _draw(final: Facts, rows: list[list[object]]) -> Markup:
    head = ["layer", "kept", "flash bytes", "RAM bytes", "instructions", "rows kept", "multiplications"]
    table = draw_table([*head, "operation"], rows, "layers on the device", texts=(0, 7))
    note = (
        "Flash is a layer's constants; the code is beside them. RAM is the rows that are kept, padding included: "
        f"layers that are not needed at the same time share it. Instructions are estimated at {find_level(final)}."
    )
    return join(with_hint(table), tag("p", unbroken(note), class_="note"))
