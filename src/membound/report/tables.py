"""The tables: networks against dense, layers, rounds, candidates."""

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from membound.report.codes import explain_codes
from membound.report.device import find_flash, find_ram, is_micro
from membound.report.engines import noise_between
from membound.report.markup import Markup, join, tag
from membound.report.paired import BETTER, WORSE, show_difference
from membound.report.spread import compare
from membound.report.text import (
    ABSENT,
    Score,
    divide,
    find_number,
    find_part,
    find_rows,
    find_size,
    find_text,
    name_layer,
    name_of_example,
    show_count,
    show_duration,
    show_milliseconds,
    show_share,
    weights_first,
)
from membound.report.verdict import show_error, show_seeds
from membound.units import show_bytes

MOST_OPEN = 24  # rows of a table that is open from the start
ROLES = ("table", "rowgroup", "row", "columnheader", "rowheader", "cell")
LEAST_STACKED = 5  # columns: a phone shows four
MOST_COLUMNS = 3  # more networks than these are rows, not columns

Facts = Mapping[str, Any]
Quantity = tuple[str, Sequence[object]]  # its name, and a cell for each network


def draw_table(
    head: Sequence[object], rows: Sequence[Sequence[object]], name: str, texts: Sequence[int] = (0,)
) -> Markup:
    """A table in its own frame; the columns `texts` are words, the others numbers.

    One of many columns becomes, on a narrow screen, a block for each row, in which every number has its column's name:
    nothing waits behind a scroll there. Roles say that it is a table even then.
    """
    kinds = ["text" if index in texts else None for index in range(len(head))]
    stacks = len(head) >= LEAST_STACKED
    role = {
        name: name if stacks else None
        for name in ("table", "rowgroup", "row", "columnheader", "rowheader", "cell")
    }
    columns = [
        tag("th", cell, scope="col", class_=kind, role=role["columnheader"])
        for cell, kind in zip(head, kinds, strict=True)
    ]
    body = []
    for first, *rest in rows:
        cells = [
            tag("td", cell, class_=kind, role=role["cell"], data_of=_plain(of) if stacks and cell else None)
            for cell, kind, of in zip(rest, kinds[1:], head[1:], strict=True)
        ]
        row = tag("th", first, scope="row", class_="text", role=role["rowheader"])
        body.append(tag("tr", row, *cells, role=role["row"]))
    top = tag("thead", tag("tr", *columns, role=role["row"]), role=role["rowgroup"])
    table = tag("table", top, tag("tbody", *body, role=role["rowgroup"]), role=role["table"])
    shape = "scroll stacks" if stacks else "scroll"
    return tag("div", table, class_=shape, tabindex="0", role="region", aria_label=name)


def _plain(cell: object) -> str:
    """The words of a head, without tags.

    >>> _plain("bytes"), _plain(Markup("flash<small>-Os</small>"))
    ('bytes', 'flash -Os')
    """
    return " ".join(re.sub("<[^>]*>", " ", str(cell)).split())


def with_hint(table: Markup) -> Markup:
    """A table of many columns, and that it scrolls; a script hides this where all of it is seen."""
    return join(tag("p", "Scroll the table sideways for more columns.", class_="note swipe"), table)


def fold(words: str, inside: Markup, is_open: bool = False) -> Markup:
    """A part that opens and closes without a script."""
    return tag("details", tag("summary", words), inside, open="" if is_open else None)


def make_summary(result: Facts, score: Score) -> Markup:
    """Every final network, and beside them dense, and dense in 8 bits: a narrow screen shows ours first."""
    finals = find_rows(result, "finals")
    dense = find_part(result, "dense")
    int8 = find_part(dense, "int8")
    if int8:
        dense, int8 = {"values": "f32", **dense}, {"values": "p8", **int8}
    known = {"dense": dense, "dense, 8 bits": int8}
    networks = [*finals, *filter(None, known.values())]
    heads = [find_text(final, "name") or "final" for final in finals]
    heads += [name for name, net in known.items() if net]
    once = (_score_head(finals, score), [_score_cell(net, dense, score) for net in networks])
    against = ("against dense", [_verdict_cell(net, dense) for net in networks])
    judged: list[Quantity] = [once, against]
    errors = "errors"
    if any(find_part(net, "seeds") for net in networks):  # the mean first: a single seed is a matter of luck
        seeds = [_seeds_cell(net, score) for net in networks]
        first = next(iter(find_part(finals[0], "seeds").get("seeds") or [0]))
        judged = [
            (f"{once[0]}, mean", seeds),
            against,
            (f"{score.name}, seed {first} (the saved file)", once[1]),
        ]
        errors = f"errors, seed {first}"
    sizes = _device_sizes(networks, dense) if is_micro(result) else _sizes(networks, dense, result)
    more: list[Quantity] = [
        (errors, [_errors_cell(net) for net in networks]),
        ("members", [_members_cell(net, score) for net in networks]),
    ]
    integers = [] if is_micro(result) else _in_integers(finals, len(networks), score, once[0])
    quantities = [*judged, *sizes, *integers, *more]
    present = [(words, [cell if cell is not None else ABSENT for cell in cells])
               for words, cells in quantities if any(cell is not None for cell in cells)]  # fmt: skip
    if len(finals) <= MOST_COLUMNS:
        return draw_table(["", *heads], [[words, *cells] for words, cells in present], "summary")
    rows = [[head, *(cells[index] for _, cells in present)] for index, head in enumerate(heads)]
    return draw_table(["network", *(words for words, _ in present)], rows, "summary")


def _sizes(networks: Sequence[Facts], dense: Facts, result: Facts) -> list[Quantity]:
    kind = str(find_part(result, "budget").get("kind") or "file")
    return [
        ("file bytes", [_bytes_cell(net, dense, "file_bytes") for net in networks]),
        ("budget used", [_budget_cell(net, result, kind) for net in networks]),
        ("nonzero parameters", [_nonzeros_cell(net, dense) for net in networks]),
        ("values", [find_text(net, "values") for net in networks]),
        (f"latency of one {name_of_example(networks[0])}", [_latency_cell(net, dense) for net in networks]),
        ("latency of dense in floats, elsewhere", [_elsewhere_cell(net) for net in networks]),
        ("memory bytes", [_bytes_cell(net, dense, "memory_bytes") for net in networks]),
    ]


def _in_integers(finals: Sequence[Facts], count: int, score: Score, head: str) -> list[Quantity]:
    """The same files with the engine int8, how good where that is faster; of the other `count` networks nothing."""
    found = [{"images": net.get("images"), **find_part(net, "engine_int8")} for net in finals]
    found += [{}] * (count - len(finals))
    taken = [find_number(net, "latency_ms") for net in found]
    judged = [_score_cell(net, {}, score) for net in found]
    unjudged = [None if ms is None else "not measured: no faster" for ms in taken]
    if all(known is None for known in judged):
        unjudged = []
    room = [find_number(net, "memory_bytes") for net in found]
    return [
        ("latency, engine int8", [None if ms is None else show_milliseconds(ms) for ms in taken]),
        ("memory bytes, engine int8", [None if used is None else show_count(used) for used in room]),
        (
            f"{head}, engine int8",
            [known if known is not None else why for known, why in zip_longest(judged, unjudged)],
        ),
    ]


def _device_sizes(networks: Sequence[Facts], dense: Facts) -> list[Quantity]:
    """Of a microcontroller: latency and memory of this machine say nothing of it."""
    return [
        ("flash bytes", [_within_cell(find_flash(net), find_number(net, "limit")) for net in networks]),
        ("RAM bytes", [_within_cell(find_ram(net), find_number(net, "memory_limit")) for net in networks]),
        ("nonzero parameters", [_nonzeros_cell(net, dense) for net in networks]),
        ("values", [find_text(net, "values") for net in networks]),
        ("file bytes", [_bytes_cell(net, dense, "file_bytes") for net in networks]),
    ]


def _within_cell(used: float | None, allowed: float | None) -> Markup | None:
    """Bytes, and how much they are of those that were promised."""
    if used is None:
        return None
    share = divide(used, allowed)
    return _beside(
        show_count(used), None if share is None else f"{show_share(share)} of {show_count(allowed)}"
    )


def _beside(main: str | Markup, aside: str | None) -> Markup:
    """A number, and under it what it means against dense."""
    return join(main, tag("small", aside) if aside else None)


def _score_head(finals: Sequence[Facts], score: Score) -> str:
    on = {find_text(final, "accuracy_on") for final in finals} - {None}
    return f"{score.name} on {on.pop()}" if len(on) == 1 else score.name


def _score_cell(net: Facts, dense: Facts, score: Score) -> Markup | None:
    value, reference = find_number(net, "accuracy"), find_number(dense, "accuracy")
    if value is None:
        return None
    shown = _beside(score.show(value), show_error(net, score))
    return shown if net is dense or reference is None else _beside(shown, score.show_gap(value, reference))


def _errors_cell(net: Facts) -> Markup | None:
    errors, images = find_number(net, "errors"), find_number(net, "images")
    if errors is None:
        return None
    return _beside(show_count(errors), f"of\N{NO-BREAK SPACE}{show_count(images)}" if images else None)


def _bytes_cell(net: Facts, dense: Facts, key: str) -> Markup | None:
    size = find_number(net, key)
    if size is None:
        return None
    share = None if net is dense else divide(size, find_number(dense, key))
    return _beside(show_count(size), f"{show_share(share)} of dense" if share else show_bytes(size))


def _budget_cell(net: Facts, result: Facts, kind: str) -> Markup | None:
    """What was used of the network's own limit, or of the common one."""
    limit = find_number(net, "limit") or find_number(find_part(result, "budget"), "limit")
    key = {"ram": "memory_bytes", "nonzeros": "nonzeros"}.get(kind, "file_bytes")
    used = find_number(net, "size") or find_number(net, key)
    share = divide(used, limit)
    if share is None or limit is None or not any(net is final for final in find_rows(result, "finals")):
        return None
    unit = "" if kind == "nonzeros" else " bytes"
    over = ", exceeded" if share > 1 else ""
    return _beside(show_share(share), f"of {show_count(limit)}{unit}{over}")


def _nonzeros_cell(net: Facts, dense: Facts) -> Markup | None:
    count = find_number(net, "nonzeros")
    whole = find_number(net, "parameters") or find_number(dense, "parameters")
    if count is None:
        parameters = find_number(net, "parameters") if net is dense else None
        return None if parameters is None else _beside(show_count(parameters), "all")
    share = divide(count, whole)
    return _beside(show_count(count), f"{show_share(share)} of all" if share is not None else None)


def _latency_cell(net: Facts, dense: Facts) -> Markup | None:
    value = find_number(net, "latency_ms")
    if value is None:
        return None
    if by := find_text(net, "latency_by"):
        return _beside(show_milliseconds(value), f"int8, {by}")
    ratio = None if net is dense else divide(find_number(dense, "latency_ms"), value)
    if not ratio:
        return _beside(show_milliseconds(value), None)
    noise = noise_between(net, dense)
    even = 1 / noise <= ratio <= noise
    return _beside(show_milliseconds(value), "about as fast" if even else f"{ratio:.2f} times as fast")


def _elsewhere_cell(net: Facts) -> Markup | None:
    """How fast another runtime is with the same network in floats, where it was raced."""
    other = find_part(net, "floats_elsewhere")
    taken, by = find_number(other, "latency_ms"), find_text(other, "latency_by")
    return None if taken is None or by is None else _beside(show_milliseconds(taken), by)


def _members_cell(net: Facts, score: Score) -> Markup | None:
    members = net.get("members") or []
    if not members:
        return None
    alone = [find_number({"": value}, "") for value in members]
    known = [value for value in alone if value is not None]
    spread = f"alone {score.show(min(known))} to {score.show(max(known))}" if known else None
    return _beside(show_count(len(members)), spread)


def _verdict_cell(net: Facts, dense: Facts) -> Markup | str | None:
    """The verdict, of means where there are several seeds, and the interval that it is read from."""
    found = None if net is dense else compare(net, dense)
    if found is None or found.verdict is None:
        return None
    shown = tag("small", show_difference(found.difference, found.uncertainty, "+"))
    words = found.verdict if found.verdict in (BETTER, WORSE) else tag("span", found.verdict, class_="words")
    return join(words, shown)


def _seeds_cell(net: Facts, score: Score) -> Markup | None:
    seeds = find_part(net, "seeds")
    if not seeds:
        return None
    return _beside(show_seeds(seeds, score), f"{show_count(find_number(seeds, 'count'))} seeds")


def make_layers(result: Facts) -> Markup | None:
    """One table of layers for each final network, the first one open."""
    finals = [final for final in find_rows(result, "finals") if find_rows(final, "layers")]
    tables = []
    for index, final in enumerate(finals):
        name = find_text(final, "name") or "final"
        layers = find_rows(final, "layers")
        # What was decided comes first: a narrow screen shows three or four columns.
        head = ["layer", "kept", "nonzeros", "bytes", "type", "values", "format", "shape", "parameters"]
        beside = _find_beside(final, layers)
        rows = [_layer_row(layer) for layer in weights_first(layers)]
        rows += [[words, *["", "", show_count(size)], *[""] * 5] for words, size in beside.items()]
        rows.append(_total_row(layers, sum(beside.values())))
        words = f"{name}: {len(layers)} tensors (weights and biases)"
        is_open = index == 0 and len(layers) <= MOST_OPEN
        table = with_hint(draw_table(head, rows, f"layers of {name}", texts=(0, 4, 5, 6, 7)))
        dropped = any(layer.get("original_shape") not in (None, layer.get("shape")) for layer in layers)
        was = ["'Was': the shape before unused units were removed."] if dropped else []
        note = " ".join([*explain_codes(layers), *was])
        tables.append(fold(words, join(table, tag("p", note, class_="note") if note else None), is_open))
    return join(*tables) if tables else None


def _find_beside(final: Facts, layers: Sequence[Facts]) -> dict[str, float]:
    """What a file has beside its tensors, so that all of it is in the table.

    >>> _find_beside({"file_bytes": 130, "header_bytes": 100, "mean_image_bytes": 0}, [{"bytes": 28}])
    {'header': 100.0, 'packing': 2.0}
    """
    whole, header = find_number(final, "file_bytes"), find_number(final, "header_bytes")
    if whole is None or header is None:
        return {}
    image = find_number(final, "mean_image_bytes") or 0.0
    stored = sum(find_number(layer, "bytes") or 0.0 for layer in layers)
    found = {"header": header, "mean image": image, "packing": whole - header - image - stored}
    return {words: size for words, size in found.items() if size}


def _layer_row(layer: Facts) -> list[object]:
    size, count = find_size(layer), find_number(layer, "nonzeros")
    return [
        name_layer(layer) or ABSENT,
        show_share(divide(count, size)),
        show_count(count),
        show_count(find_number(layer, "bytes")),
        find_text(layer, "operator") or ABSENT,
        _values_cell(layer),
        find_text(layer, "format") or ABSENT,
        _show_shape(layer),
        show_count(size),
    ]


def _show_shape(layer: Facts) -> Markup | str:
    """The shape in the file, and under it the network's own where units that gave nothing were dropped.

    >>> _show_shape({"shape": [20, 9]}), _show_shape({"shape": [18, 9], "original_shape": [20, 9]})
    ('20×9', '18×9<small>was 20×9</small>')
    """
    shapes = [layer.get(key) for key in ("shape", "original_shape")]
    now, before = ["×".join(map(str, each)) if isinstance(each, list | tuple) else None for each in shapes]
    if now is None:
        return ABSENT
    return now if before in (None, now) else _beside(now, f"was {before}")


def _values_cell(layer: Facts) -> str:
    """The type of values, and how many different ones there are, where they are few."""
    kind, distinct = find_text(layer, "values"), find_number(layer, "distinct")
    if kind is None:
        return ABSENT
    return kind if distinct is None else f"{kind}, {show_count(distinct)} used"


def _total_row(layers: Sequence[Facts], beside: float) -> list[object]:
    """Of a file with what is `beside` its tensors, all of its bytes."""
    sums = {key: sum(find_number(layer, key) or 0 for layer in layers) for key in ("nonzeros", "bytes")}
    sums["size"] = sum(find_size(layer) or 0 for layer in layers)
    kept = show_share(divide(sums["nonzeros"], sums["size"]))
    cells = [
        kept,
        show_count(sums["nonzeros"]),
        show_count(sums["bytes"] + beside),
        "",
        "",
        "",
        "",
        show_count(sums["size"]),
    ]
    return [tag("strong", "all"), *(tag("strong", cell) if cell else "" for cell in cells)]


def make_rounds(result: Facts, score: Score) -> Markup | None:
    """What each round of the search chose; and, for who wants it, everything that was tried."""
    candidates = find_rows(result, "candidates")
    if not candidates:
        return None
    numbers = sorted({number for row in candidates if (number := find_number(row, "round")) is not None})
    rows = [
        _round_row(number, [row for row in candidates if find_number(row, "round") == number], score)
        for number in numbers
    ]
    head = ["round", "layer cut", score.name, "bytes", "nonzeros", "tried", "seconds"]
    rounds = draw_table(head, rows, "rounds", texts=(0, 1)) if rows else None
    return join(
        fold(f"{len(rows)} rounds", rounds, len(rows) <= MOST_OPEN // 2) if rounds else None,
        fold(f"All {len(candidates)} candidates", _draw_candidates(candidates, score)),
    )


def _round_row(number: float, tried: Sequence[Facts], score: Score) -> list[object]:
    """The winner of a round; the seconds are those of all its candidates."""
    winner = next((row for row in tried if row.get("won")), {})
    seconds = [value for row in tried if (value := find_number(row, "seconds")) is not None]
    return [
        show_count(number),
        find_text(winner, "layer") or find_text(winner, "key") or "none",
        score.show(find_number(winner, "accuracy")),
        show_count(find_number(winner, "bytes")),
        show_count(find_number(winner, "nonzeros")),
        show_count(len(tried)),
        f"{sum(seconds):,.1f}" if seconds else ABSENT,
    ]


def _draw_candidates(candidates: Sequence[Facts], score: Score) -> Markup:
    head = ["candidate", "layer cut", score.name, "bytes", "nonzeros", "seconds", "won"]
    rows = []
    for row in candidates:
        seconds = find_number(row, "seconds")
        rows.append([
            find_text(row, "key") or ABSENT,
            find_text(row, "layer") or ABSENT,
            score.show(find_number(row, "accuracy")),
            show_count(find_number(row, "bytes")),
            show_count(find_number(row, "nonzeros")),
            ABSENT if seconds is None else show_duration(seconds),
            "yes" if row.get("won") else "",
        ])  # fmt: skip
    return draw_table(head, rows, "candidates", texts=(0, 1))
