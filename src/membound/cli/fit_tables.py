"""What membound fit says at its end: tables, or JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import typer

from membound.cli import options
from membound.cli.tables import Column, print_table, say, terminal_width, times
from membound.report.advice import say_note
from membound.report.device import find_limit, is_micro, say_export, show_flash, show_ram, show_time
from membound.report.device_layers import find_device_layers, kept_of
from membound.report.engines import gains_by_integers
from membound.report.pixels import find_ious
from membound.report.text import Score, find_score, show_count, show_milliseconds, weights_first
from membound.report.verdict import make_legend, make_lines

OF_INTEGERS = (  # under the command that exports C
    "if your driver gives integers, add --input-unit: what a count of 1 is in the unit of the training data, as 0.01 "
    "where 981 stands for 9.81"
)


def tell(
    summary: dict[str, Any],
    page: Path | None,
    run_dir: Path | None,
    hub: Path | None,
    as_json: bool,
    command: Sequence[str] | None = None,
) -> None:
    """What came of it, and where it is; `command` is what was typed, with whole paths."""
    if as_json:
        from membound.search.summary import without_curves

        places = {
            name: None if path is None else str(path)
            for name, path in (("report", page), ("run_dir", run_dir), ("hub", hub))
        }
        options.print_json(without_curves(summary) | places)
        return
    score = find_score(summary)
    _print_summary(summary, score)
    for final in summary["finals"]:
        if worst := say_worst(final, summary["dense"] or {}):
            say("worst", f"{final['name']}, {worst}" if len(summary["finals"]) > 1 else worst)
    for final in summary["finals"]:
        typer.echo()
        _print_layers(final, titled=len(summary["finals"]) > 1)
    typer.echo()
    said: set[str] = set()
    for final in summary["finals"]:
        if final["members"]:
            say("members", ", ".join(map(score.show, final["members"])))
        for note in final.get("tried", ()):
            if note not in said:  # of an earlier budget
                said.add(note)
                say("note", say_note(note, summary["command"]))
        for word, text in on_device(final):
            say(word, text)
        say("file", str(final["file"]))
    for word, text in beside_device(summary["finals"]):
        say(word, text)
    if page is not None:
        say("report", str(page))
    if hub is not None:
        say("folder", f"{hub}: to upload, hf upload ORG/{hub.absolute().name} {hub}")
    if run_dir is not None:
        say("run", str(run_dir))
    for line in make_legend(summary, score):
        say("±", line)
    typer.echo()
    for number, line in enumerate(make_lines(summary, score, command)):
        copied = line.startswith("membound ")  # in one line
        room = terminal_width() or 10_000
        text = line if copied else fill(line, room, break_long_words=False, break_on_hyphens=False)
        typer.secho(text, bold=number == 0)  # the verdict, on a terminal
    if is_micro(summary):
        typer.echo()
        for final in summary["finals"]:
            typer.echo(f"{'next':<10}{say_export(final, several=len(summary['finals']) > 1)}")  # in one line
        if "flash_not_included" in summary["finals"][0]["micro"]:  # it takes numbers
            say("", OF_INTEGERS)


def on_device(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a network takes on a microcontroller: a word and a text for each line."""
    micro = final.get("micro")
    if micro is None:
        return []
    from membound.micro.cost import say_flash, say_speed

    return [
        ("flash", say_flash(micro, find_limit(final), briefly=True)),
        (
            "ram",
            f"{show_ram(final)} bytes: {micro['context_bytes']:,} of context, "
            f"{micro['stack_bytes']:,} of stack",
        ),
        ("speed", say_speed(micro, briefly=True)),
    ]


def beside_device(finals: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What holds of all networks on a microcontroller: what flash leaves out, and how far times may be off."""
    micros = [micro for final in finals if (micro := final.get("micro")) is not None]
    if not micros:
        return []
    from membound.micro.cost import say_estimates, say_excluded

    return [("excluded", say_excluded(micros[0])), ("times", say_estimates())]


def _print_summary(summary: dict[str, Any], score: Score) -> None:
    """Every final network, the dense one and the dense one in 8 bits, a line each."""
    columns = [Column("network", right=False), Column(score.name), Column("errors", 4)]
    columns += _device_columns() if is_micro(summary) else _file_columns()
    columns.append(Column("nonzeros", 3))
    dense = summary["dense"]
    known = [] if dense is None else [{"name": "dense", **dense}]
    if dense is not None and dense.get("int8"):
        known.append({"name": "dense, 8 bits", **dense["int8"]})
    sizes = _device_sizes if is_micro(summary) else _file_sizes
    rows = [
        [
            net["name"], score.show(net["accuracy"]),
            "" if net["errors"] is None else f"{net['errors']:,} of {net['images']:,}",
            *sizes(net), show_count(net.get("nonzeros")),
        ]
        for net in [*known, *(row for final in summary["finals"] for row in [final, *_in_integers(final)])]
    ]  # fmt: skip
    seeds = summary["finals"][0].get("seeds")
    first = f"Seed {seeds['seeds'][0]} (the saved file). Means over seeds follow." if seeds else None
    print_table(columns, rows, first)
    if not is_micro(summary):
        say("measured", say_runtimes(summary))


def _in_integers(final: dict[str, Any]) -> list[dict[str, Any]]:
    """The same file with engine int8, where that is faster."""
    if not gains_by_integers(final) or "accuracy" not in final["engine_int8"]:
        return []
    return [final | final["engine_int8"] | {"name": f"{final['name']}, int8"}]


def say_worst(final: Mapping[str, Any], dense: Mapping[str, Any]) -> str:
    """The class of pixels that is found worst: the mean over images may hide it.

    >>> final = {"class_iou": [0.9, 0.163, None], "class_names": ["sky", "circle", "tree"]}
    >>> say_worst(final, {"class_iou": [0.9, 0.41, None]}), say_worst({"class_iou": [0.9, 0.2]}, {}), say_worst({}, {})
    ('IoU of class circle: 0.163 over all pixels (dense: 0.410)', 'IoU of class 1: 0.200 over all pixels', '')
    """
    ious, names = find_ious(final), final.get("class_names") or ()
    if len(ious) < 2:
        return ""
    number = min(ious, key=ious.__getitem__)
    name = names[number] if number < len(names) else number
    theirs = find_ious(dense).get(number)
    beside = "" if theirs is None else f" (dense: {theirs:.3f})"
    return f"IoU of class {name}: {ious[number]:.3f} over all pixels{beside}"


def say_runtimes(summary: Mapping[str, Any]) -> str:
    """Whose numbers the table has: int8 runs elsewhere, all else in the runtime that deploys the file.

    >>> dense = {"int8": {"latency_ms": 0.1, "latency_by": "ONNX Runtime"}}
    >>> say_runtimes({"finals": [{"threads": 2}], "dense": dense})
    'in membound, in floats unless int8 is named, on 2 threads of this machine (*: int8 in ONNX Runtime)'
    >>> say_runtimes({"finals": [{"threads": 1}], "dense": None})
    'in membound, in floats unless int8 is named, on 1 thread of this machine'
    >>> say_runtimes({"finals": [{"memory_isa": "every"}], "dense": None})
    'in membound, in floats unless int8 is named, on 1 thread of this machine; memory in bytes, file included, on \
any CPU'
    """
    threads = summary["finals"][0].get("threads", 1)
    int8 = (summary["dense"] or {}).get("int8") or {}
    known = [f"*: int8 in {int8['latency_by']}"] if "latency_by" in int8 else []
    notes = [*known, *_say_untimed(int8)]
    elsewhere = f" ({'; '.join(notes)})" if notes else ""
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    isa = summary["finals"][0].get("memory_isa")
    where = "on any CPU" if isa == "every" else f"with {isa}"
    memory = "" if isa is None else f"; memory in bytes, file included, {where}"
    return f"in membound, in floats unless int8 is named, on {count} of this machine{elsewhere}{memory}"


def _say_untimed(int8: Mapping[str, Any]) -> list[str]:
    """What dense in 8 bits could be timed in as well, were it here."""
    from membound.bench.int8 import MAKERS

    missing = MAKERS["onnxruntime int8"].missing() if int8 else []
    return [f"to time int8 in ONNX Runtime: pip install {' '.join(missing)}"] if missing else []


def _file_columns() -> list[Column]:
    return [Column("file bytes"), Column("memory", 2), Column("latency", 1)]


def _file_sizes(net: dict[str, Any]) -> list[str]:
    sizes = map(show_count, (net["file_bytes"], net.get("memory_bytes")))
    star = "*" if "latency_by" in net else ""
    return [*sizes, f"{show_milliseconds(net.get('latency_ms'))}{star}"]


def _device_columns() -> list[Column]:
    return [Column("flash"), Column("RAM"), Column("time", 1), Column("file bytes", 2)]


def _device_sizes(net: dict[str, Any]) -> list[str]:
    return [show_flash(net), show_ram(net), show_time(net), show_count(net["file_bytes"])]


def _print_layers(final: dict[str, Any], titled: bool) -> None:
    if device := find_device_layers(final):
        _print_device_layers(final, device, titled)
        return
    columns = [
        Column("layer", right=False), Column("shape", 3, right=False), Column("nonzeros", 1), Column("kept"),
        Column("bytes"), Column("format", 4, right=False), Column("values", 2, right=False),
    ]  # fmt: skip
    rows = [
        [
            layer["name"], times(layer["shape"]), f"{layer['nonzeros']:,}",
            f"{layer['nonzeros'] / layer['original_size']:.2%}" if layer["original_size"] else "n/a",
            f"{layer['bytes']:,}", layer["format"], layer["values"],
        ]
        for layer in weights_first(final["layers"])
    ]  # fmt: skip
    print_table(columns, rows, final["name"] if titled else None)


def _print_device_layers(
    final: dict[str, Any], device: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], titled: bool
) -> None:
    """Of a microcontroller: the bytes of the file say nothing of it."""
    columns = [
        Column("layer", right=False), Column("kept"), Column("values", 3, right=False), Column("flash bytes"),
        Column("RAM bytes", 1), Column("instructions", 2),
    ]  # fmt: skip
    rows = [
        [
            layer["name"], kept_of(weight), weight.get("values", ""),
            *(f"{layer[key]:,}" for key in ("flash_bytes", "row_bytes", "instructions")),
        ]
        for layer, weight in device
    ]  # fmt: skip
    for part in final["micro"].get("beside_layers", ()):
        rows.append([part["name"], "", "", "", f"{part['row_bytes']:,}", ""])
    print_table(columns, rows, final["name"] if titled else None)
