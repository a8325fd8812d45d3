"""The page: what came out of a fit, in one file that loads nothing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from membound.errors import MemboundError, check_path_like, say_no_folder
from membound.report.advice import has_collapsed, is_command, say_advice, say_note, say_taken, says_too_short
from membound.report.bars import make_bars
from membound.report.classes import make_class_iou, make_classes
from membound.report.curves import make_curves
from membound.report.device_layers import make_device_layers
from membound.report.eight_bits import say_beaten
from membound.report.footprint import make_footprint
from membound.report.markup import Markup, breakable, code, join, keep_options, tag
from membound.report.methods import make_columns, make_duels, say_best, say_unlike
from membound.report.pixels import say_over_pixels
from membound.report.scatter import make_scatter
from membound.report.spread import say_rule
from membound.report.style import SCRIPT, STYLE
from membound.report.tables import fold, make_layers, make_rounds, make_summary
from membound.report.text import (
    find_number,
    find_part,
    find_rows,
    find_score,
    find_text,
    show_count,
    show_duration,
)
from membound.report.tiles import make_tiles, say_names
from membound.report.usage import make_usage
from membound.report.verdict import (
    make_verdict,
    say_estimate,
    say_given,
    say_timed,
    say_uncertainty,
    say_untimed,
)
from membound.store.whole import replace_file

Facts = Mapping[str, Any]

# The browser itself refuses whatever is not in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_report(path: str | os.PathLike[str], result: Facts) -> None:
    """Write the page of `result` to `path`: whole or not at all."""
    check_path_like(path, "path")
    folder = Path(path).parent
    if not folder.is_dir():
        raise MemboundError(f"{os.fspath(path)}: {say_no_folder(folder)}")
    page = make_page(result)
    try:
        replace_file(Path(os.path.realpath(path)), [page.encode()])  # what a link points to, not the link
    except OSError as error:
        raise MemboundError(f"{path}: the report cannot be written: {error.strerror or error}") from None


def make_page(result: Facts) -> str:
    """The HTML page of a fit; every part without data is left out.

    >>> page = make_page({"finals": [{"name": "20KiB", "accuracy": 98.97, "file_bytes": 20412}]})
    >>> "98.97 % in 20,412 bytes" in page
    True
    """
    if not find_rows(result, "finals"):
        raise MemboundError(
            "a report needs at least one final network, and this result's 'finals' holds none: fit one first"
        )
    score = find_score(result)
    title = make_title(result)
    columns = make_columns(result, score)
    scatter = None if columns and not find_rows(result, "candidates") else make_scatter(result, score)
    sections = [
        _section("Flash and RAM", make_footprint(result)),
        _section(f"{_capital(score.name)} of each method", columns),
        _section("Method against method", make_duels(result, score)),
        _section(f"{_capital(score.name)} against size", scatter),
        _section(f"{_capital(score.name)} of each class", make_classes(result)),
        _section("IoU of each class", make_class_iou(result)),
        _section("What each layer keeps", make_bars(result), _say_first_seed(result)),
        _section("Training", make_curves(result, score)),
        _section("Layers", join(make_device_layers(result), make_layers(result)) or None),
        _section("The search", make_rounds(result, score)),
        _section("How it was trained, and what was tried", _make_notes(result)),
        _section("How to use it", make_usage(result)),
        _section("How it was made", _make_origin(result)),
    ]
    said = " ".join(filter(None, (_capital(make_verdict(result, score)), say_best(result, score))))
    verdict = tag("p", said, class_="verdict")
    beaten = say_beaten(result, score)
    warning = join(tag("p", beaten[0], class_="verdict"), code(beaten[1])) if beaten else None
    if taken := say_taken(result):
        warning = tag("p", taken, class_="verdict")
    collapsed = has_collapsed(result)
    advice = [  # a collapse is said as large as the score, and so is a training that was far too short
        tag(
            "p",
            *keep_options(line),
            class_="verdict" if (collapsed and index == 0) or says_too_short(line, result) else "note",
        )
        for index, line in enumerate(say_advice(result)[:2])
    ]
    if unlike := say_unlike(result):
        advice.insert(0, tag("p", unlike, class_="verdict"))
    tiles = make_tiles(result, score)
    first = find_rows(result, "finals")[0]
    rule = None if tiles or columns else say_rule(first, find_part(result, "dense"))  # said of columns below
    error = None if tiles or find_part(first, "seeds") else say_uncertainty(first, score)
    given = say_given(find_part(result, "dense"), score)
    said_below = (say_over_pixels(result), given, say_estimate(first), error, say_timed(result), rule)
    timed = " ".join(filter(None, said_below))
    summary = fold(
        "All numbers", tag("div", make_summary(result, score), class_="summary"), is_open=not tiles
    )
    meant = None if tiles else say_names(result, score) or None
    note = join(*(tag("p", words, class_="note") for words in (meant, timed, say_untimed(result)) if words))
    begun = [*advice, verdict] if collapsed else [verdict, *advice]
    main = tag("main", tag("h1", breakable(title)), *begun, warning, tiles, note, summary, *sections)
    tip = tag("div", id="tip", role="status", hidden="")
    body = tag("body", main, tip, Markup(f"<script>{SCRIPT}</script>"))
    return f"<!DOCTYPE html>\n{tag('html', _make_head(title), body, lang='en')}\n"


def _make_head(title: str) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        Markup(f"<style>{STYLE}</style>"),
    )


def _capital(text: str) -> str:
    """Only the first letter: the others may be a name."""
    return text[:1].upper() + text[1:]


def _section(title: str, inside: Markup | None, note: str | None = None) -> Markup | None:
    said = tag("p", note, class_="note") if note else None
    return tag("section", tag("h2", title), said, inside) if inside else None


def _say_first_seed(result: Facts) -> str | None:
    """Whose the figures below are, where there were several seeds.

    >>> _say_first_seed({"finals": [{"seeds": {"seeds": [3, 4]}}]})
    'Layers here and in the table below are those of seed 3. For all seeds: fitted.facts["seeds"]["layers"].'
    >>> _say_first_seed({"finals": [{"seeds": {"seeds": [3, 4]}}], "command": "membound fit lenet"})
    'Layers here and in the table below are those of seed 3. For all seeds: finals[0].seeds.layers of --json.'
    """
    seeds = find_part(find_rows(result, "finals")[0], "seeds").get("seeds")
    if not seeds:
        return None
    by_command = "finals[0].seeds.layers of --json"
    where = by_command if is_command(result.get("command")) else 'fitted.facts["seeds"]["layers"]'
    return f"Layers here and in the table below are those of seed {seeds[0]}. For all seeds: {where}."


def _make_notes(result: Facts) -> Markup | None:
    """How networks were trained, and what the choices gained: what holds for all, then a list for each network."""
    finals = find_rows(result, "finals")
    notes = [[say_note(note, result.get("command")) for note in _find_notes(final)] for final in finals]
    by_networks: dict[tuple[str, ...], list[str]] = {}  # each note once, under all that have it
    for note in dict.fromkeys(note for mine in notes for note in mine):
        having = [
            find_text(final, "name") or "network"
            for final, mine in zip(finals, notes, strict=True)
            if note in mine
        ]
        by_networks.setdefault(() if len(having) == len(finals) else tuple(having), []).append(note)
    lists = [_list_notes(by_networks.pop((), []))]
    for names, own in by_networks.items():
        lists += [tag("h3", ", ".join(names)), _list_notes(own)]
    return join(*lists) if any(lists) else None


def _find_notes(final: Facts) -> list[str]:
    tried = final.get("tried")
    return [note for note in tried if isinstance(note, str)] if isinstance(tried, list | tuple) else []


def _list_notes(notes: Sequence[str]) -> Markup | None:
    items = (tag("li", *keep_options(_capital(note))) for note in notes)
    return tag("ul", *items, class_="notes") if notes else None


def make_title(result: Facts) -> str:
    """What was fitted, on what, within what.

    >>> make_title({"network": "lenet", "data": "mnist", "budget": {"kind": "file", "text": "20KiB"}})
    'lenet on mnist in 20KiB'
    >>> make_title({"network": "lenet", "budget": {"kind": "file", "text": "in 5 ms"}})
    'lenet in 5 ms'
    >>> make_title({"network": "mine:net", "data": "/home/me/photos/"})
    'mine:net on photos'
    >>> make_title({"network": "lenet", "budget": {"kind": "file", "text": "10%, 8KB"}})
    'lenet in 10% of its bytes, 8KB'
    >>> bounds = {"memory_limit": 2000, "latency_bound": {"bound_ms": 15.0}}
    >>> make_title({"network": "imu", "budget": {"kind": "flash", "text": "6KB"}, "finals": [bounds]})
    'imu in 6KB of flash, 2,000 bytes of RAM and 15 ms'
    >>> make_title({"network": "lenet", "data": "mnist", "strategy": "mynets:taylor"})
    'lenet on mnist, strategy mynets:taylor'
    """
    own = find_text(result, "title")
    if own:
        return own
    budget = find_part(result, "budget")
    limit = find_text(budget, "text") or show_count(find_number(budget, "limit"))
    limit = limit.removeprefix("in ")  # of a bound on latency
    if str(budget.get("kind")) == "file":
        limit = ", ".join(
            f"{part} of its bytes" if part.endswith("%") else part for part in limit.split(", ")
        )
    units = {"ram": " of memory", "nonzeros": " nonzeros", "flash": " of flash"}
    unit = units.get(str(budget.get("kind")), "")
    data = (
        (find_text(result, "data") or "").rstrip("/").rpartition("/")[2]
    )  # the command below has all of a path
    return (
        (find_text(result, "network") or "A network")
        + (f" on {data}" if data else "")
        + (f" in {limit}{'' if unit.strip() in limit else unit}{_say_more_bounds(result)}" if budget else "")
        + _say_strategy(result)
    )


def _say_strategy(result: Facts) -> str:
    """One strategy, where it is not the default; several are the names of the networks."""
    finals = find_rows(result, "finals")
    each = {find_text(find_part(final, "asked"), "strategy") for final in finals} - {None}
    name = each.pop() if len(each) == 1 else None if each else find_text(result, "strategy")
    return "" if name in (None, "global") else f", strategy {name}"


def _say_more_bounds(result: Facts) -> str:
    """The bounds of a microcontroller beside the first."""
    budget, finals = find_part(result, "budget"), find_rows(result, "finals")
    if budget.get("kind") != "flash" or not finals:
        return ""
    ram = find_number(finals[0], "memory_limit")
    time = find_number(find_part(finals[0], "latency_bound"), "bound_ms")
    found = [] if ram is None else [f"{show_count(ram)} bytes of RAM"]
    if time is not None and "ms" not in (find_text(budget, "text") or ""):
        found.append(f"{time:g} ms")
    return "".join(f"{' and' if each is found[-1] else ','} {each}" for each in found)


def _say_digests(result: Facts) -> str | None:
    """
    >>> _say_digests({"finals": [{"file": "a.safetensors", "sha256": "12ab"}]})
    'a.safetensors: SHA-256 12ab'
    """
    found = [final for final in find_rows(result, "finals") if find_text(final, "sha256")]
    return "; ".join(f"{final.get('file')}: SHA-256 {final['sha256']}" for final in found) or None


def _make_origin(result: Facts) -> Markup | None:
    """What is needed to do it again."""
    command = find_text(result, "command")
    environment = find_part(result, "environment")
    seconds = find_number(result, "seconds")
    facts = {
        "file": _say_digests(result),
        "strategy": find_text(result, "strategy"),
        **_find_seeds(result),
        "training": _say_training(result),
        "date": find_text(result, "date"),
        "took": None if seconds is None else show_duration(seconds),
        "hardware": _list_facts(environment.get("hardware")),
        "versions": _list_facts(environment.get("versions")),
    }
    rows = [
        tag("tr", tag("th", name, scope="row", class_="text"), tag("td", value))
        for name, value in facts.items()
        if value
    ]
    table = tag("table", tag("tbody", *rows), class_="facts") if rows else None
    return join(code(command) if command else None, table) or None


def _find_seeds(result: Facts) -> dict[str, str | None]:
    """All seeds that were trained, or the only one.

    >>> _find_seeds({"seed": 3, "finals": [{"seeds": {"seeds": [3, 4]}}]}), _find_seeds({"seed": 3})
    ({'seeds': '3, 4'}, {'seed': '3'})
    """
    all_seeds = {
        int(seed): None
        for final in find_rows(result, "finals")
        for seed in find_part(final, "seeds").get("seeds") or ()
    }
    return {"seeds": ", ".join(map(str, all_seeds))} if all_seeds else {"seed": find_text(result, "seed")}


def _say_training(result: Facts) -> str | None:
    """The numbers that training goes by.

    >>> training = {"optimizer": "sgd", "peak_lr": 0.05, "weight_decay": 5e-4, "ramp": {"begin": 0.1, "until": 0.6}}
    >>> _say_training({"finals": [{"training": training | {"every": 12}}]})
    'sgd, peak learning rate 0.05, weight decay 0.0005, bound tightens from 10 to 60 % of the steps, every 12 steps'
    """
    about = find_part(find_rows(result, "finals")[0], "training")
    ramp = find_part(about, "ramp")
    begin, until = find_number(ramp, "begin"), find_number(ramp, "until")
    numbers = {name: find_number(about, name) for name in ("peak_lr", "weight_decay", "every")}
    known = [
        find_text(about, "optimizer"),
        None if numbers["peak_lr"] is None else f"peak learning rate {numbers['peak_lr']:g}",
        None if numbers["weight_decay"] is None else f"weight decay {numbers['weight_decay']:g}",
        None
        if begin is None or until is None
        else f"bound tightens from {100 * begin:g} to {100 * until:g} % of the steps",
        None if numbers["every"] is None else f"every {show_count(numbers['every'])} steps",
    ]
    return ", ".join(words for words in known if words) or None


def _list_facts(facts: object) -> str | None:
    """
    >>> _list_facts({"cpu": "Neoverse-N1", "cores": 2, "gpu": None})
    'cpu Neoverse-N1, cores 2'
    """
    if not isinstance(facts, Mapping):
        return None if facts is None else str(facts)
    shown = [f"{key} {_list_facts(value)}" for key, value in facts.items() if value is not None]
    return ", ".join(shown) or None
