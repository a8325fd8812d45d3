"""membound bench FILE: latency and memory against the dense runtimes that are installed."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.inspect import File
from membound.cli.tables import Column, print_table, tell
from membound.errors import MemboundError
from membound.units import show_bytes

DEEPSPARSE = "deepsparse"
PEERS = f"torch,onnxruntime,openvino,{DEEPSPARSE}"


def bench_command(
    file: File,
    threads: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of threads to measure with, such as 1,2.")
    ] = "1",
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of each runtime, over all rounds.")
    ] = 100,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Rounds, in which the runtimes take turns (default: 5)."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=65536, metavar="N", help="Images at once.")] = 1,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help=f"Which runtimes to compare with, or none (default: {PEERS.replace(',', ', ')}).",
        ),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PROGRAM",
            help="The Python of a peer's own environment, which must have membound, too; repeatable.",
        ),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8", help="Also in 8 bits: membound, ONNX Runtime (needs onnx) and OpenVINO (nncf)."
        ),
    ] = False,
    tflite: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also a .tflite file of yours, in LiteRT (needs ai-edge-litert)."),
    ] = None,
    operators: Annotated[
        bool,
        typer.Option(
            "--operators",
            help="Instead, time each operator of the network, and compare it with the least that the machine allows.",
        ),
    ] = False,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Compare a model file with the dense network in other runtimes.

    Measures latency, time to load, and memory of the imports and of the network. Every runtime is a process of its
    own; those that are not installed are left out.

    membound bench net.safetensors --int8
    """
    if operators:
        from membound.bench.layers import time_layers

        (count, *more) = _counts(threads)
        if more:
            raise MemboundError(f"--operators takes one count of threads, not {threads}")
        if peers is not None or rounds is not None or python or int8 or tflite is not None:
            raise MemboundError(
                "--operators compares with no other runtime: leave --peers, --python, --int8, --tflite and --rounds out"
            )
        found = time_layers(file, threads=count, batch=batch, runs=runs, seed=seed)
        options.print_json(found) if as_json else _print_layers(found)
        return
    from membound.bench.race import race

    peers = PEERS if peers is None else peers
    names = [] if peers.strip() in ("", "none") else [name.strip() for name in peers.split(",")]
    with _status() as show:
        facts = race(
            file, peers=list(dict.fromkeys(names)), threads=_counts(threads), runs=runs, rounds=rounds or 5,
            batch=batch, seed=seed, pythons=interpreters(python or []), int8=int8,
            tflite=tflite, show=show,
        )  # fmt: skip
    options.print_json(facts) if as_json else _print(facts)
    if facts["interrupted"]:
        raise options.Stopped("interrupted: these are the rounds that were complete")


def _counts(text: str) -> list[int]:
    """The counts in a text such as 1,2.

    >>> _counts("1,2")
    [1, 2]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 256 for part in parts):
        raise MemboundError(f"--threads {text!r} is not a list of counts from 1 to 256, such as 1,2")
    return list(dict.fromkeys(int(part) for part in parts))


def interpreters(given: list[str]) -> dict[str, str]:
    """Programs by the names of their peers.

    >>> interpreters(["deepsparse=old/bin/python"])
    {'deepsparse': 'old/bin/python'}
    """
    wrong = [each for each in given if not all(each.partition("="))]
    if wrong:
        raise MemboundError(
            f"--python {wrong[0]!r} is not a peer and a program, such as deepsparse=venv/bin/python"
        )
    found = dict(each.split("=", 1) for each in given)
    if len(found) < len(given):
        raise MemboundError(f"--python names a peer twice: {', '.join(given)}")
    return found


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """What is under way: in one line on a terminal, else a line each."""
    if not sys.stderr.isatty():
        yield lambda text: typer.echo(text, err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(text)


def _print(facts: dict[str, Any]) -> None:
    counts = {row["threads"] for row in facts["results"]}
    columns = [
        Column("runtime", right=False), Column("threads", 7 if len(counts) < 2 else 1), Column("min", 3),
        Column("median"), Column("load", 4), Column("imports", 5), Column("growth", 6), Column("peak"),
        Column("file"), Column("diff", 2),
    ]  # fmt: skip
    rows = []
    for row in facts["results"]:
        if "min_ms" not in row:
            rows.append([row["name"], str(row["threads"]), "", "failed", *[""] * 6])
            continue
        rows.append([
            _label(row), str(row["threads"]), _short(row["min_ms"]), _short(row["median_ms"]),
            _short(row["load_ms"]), _size(row["imported_bytes"]), _size(row["resident_bytes"]),
            _size(row["peak_bytes"]), _size(row["file_bytes"]), _difference(row),
        ])  # fmt: skip
    left_out = [head for head in print_table(columns, rows) if len(counts) > 1 or head != "threads"]
    if left_out:
        tell(f"no room for: {', '.join(left_out)}; a wider terminal and --json have them")
    hardware = facts["hardware"]
    threads = f", threads {next(iter(counts))}" if len(counts) == 1 else ""
    tell(
        f"batch {facts['batch']}{threads}, {_counted(facts['runs'], 'run')} in {_counted(facts['rounds'], 'round')}; "
        f"{hardware['cpu']}, {hardware['cores']} cores"
    )
    tell(
        "times in ms; min and median: of the runs; load: time until the network is ready; imports: memory of the "
        "process and its runtime; growth: memory added by loading and running the network; peak: the most it added"
    )
    tell(
        "diff: the largest difference to membound's output in floats on random inputs, as a part of its largest value: "
        "less than 0.01 % is rounding; with 8 bits, a few percent is normal, and membound evaluate --engine int8 says "
        "what that costs in accuracy"
    )
    tell("versions: " + ", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    for row in facts["results"]:
        if row["error"] is not None:
            tell(f"{row['name']} failed: {row['error']}")
    if facts["missing"]:
        from membound.bench.litert import NAME, installed

        tell(f"not installed: {', '.join(facts['missing'])}{_say_install(facts['missing'])}")
        if installed() is None:
            tell(f"for --tflite FILE: pip install {NAME}")


def _say_install(missing: Sequence[str]) -> str:
    """What adds the runtimes that are missing; one that takes old packages needs an environment of its own.

    >>> _say_install(["openvino", "deepsparse", "onnxruntime int8 (onnx)"])
    '; to add them: pip install openvino onnx; deepsparse in an environment of its own, named with --python'
    """
    packages = [re.sub(r".*\((.*)\)", r"\1", name).replace(",", "") for name in missing if name != DEEPSPARSE]
    said = f"; to add them: pip install {' '.join(packages)}" if packages else ""
    return said + (
        f"; {DEEPSPARSE} in an environment of its own, named with --python" * (DEEPSPARSE in missing)
    )


def _counted(count: int, what: str) -> str:
    """
    >>> _counted(1, "round"), _counted(10, "run")
    ('1 round', '10 runs')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _print_layers(facts: dict[str, Any]) -> None:
    columns = [
        Column("operator", right=False), Column("format", 3, right=False), Column("nonzeros", 2),
        Column("multiplications", 4), Column("ms"), Column("floor ms", 1), Column("times"),
    ]  # fmt: skip
    rows = [
        [
            row["name"], row["format"] or "", f"{row['nonzeros']:,}", f"{row['multiplications']:,}",
            f"{row['ms']:.4f}", f"{row['floor_ms']:.4f}" if row["floor_ms"] else "",
            f"{row['ms'] / row['floor_ms']:.1f}" if row["floor_ms"] else "",
        ]
        for row in facts["layers"]
    ]  # fmt: skip
    print_table(columns, rows)
    machine, total = facts["machine"], sum(row["ms"] for row in facts["layers"])
    tell(
        f"{total:.3f} ms in all, the fastest of {facts['runs']} runs each; batch {facts['batch']}, {facts['threads']} "
        f"threads. Floor: the multiplications at {machine['multiplications'] / 1e9:.1f} billion a second, or the "
        f"weights' bytes at {machine['bytes'] / 2**30:.1f} GiB a second, as numpy reaches them here; times: how many "
        "floors an operator takes"
    )


def _label(row: dict[str, Any]) -> str:
    """OpenVINO's own choice of precision by what it chose.

    >>> _label({"name": "openvino default", "precision": "f16"})
    'openvino f16'
    """
    name: str = row["name"].removesuffix(" default").removesuffix(" int8")
    return name if row["precision"] == "f32" else f"{name} {row['precision']}"


def _difference(row: dict[str, Any]) -> str:
    """Nothing for another network's file.

    >>> [_difference({"max_relative_difference": each}) for each in (0.0, 2e-7, 0.0021, 0.09, 1.0, None)]
    ['0', '<0.01 %', '0.21 %', '9 %', '100 %', '']
    """
    found = row["max_relative_difference"]
    if not found:
        return "" if found is None else "0"
    return "<0.01 %" if found < 1e-4 else f"{float(f'{100 * found:.2g}'):g} %"


def _size(count: int | None) -> str:
    """
    >>> _size(11_968), _size(45_690_000), _size(1_020_000), _size(None)
    ('12 KB', '45.7 MB', '1.02 MB', 'unknown')
    """
    return "unknown" if count is None else show_bytes(count)


def _short(number: float) -> str:
    """Four digits are enough for a table.

    >>> _short(0.18349), _short(37.317), _short(1045.62)
    ('0.183', '37.32', '1046')
    """
    return f"{number:.{max(0, 4 - len(str(int(number))))}f}"
