"""What every script does: read its options, and save its numbers together with what is needed to repeat them."""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from membound import machine
from membound.store.whole import replace_file

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("membound", "numpy", "torch", "triton")
VERSIONS = machine.versions(PACKAGES)  # at the start: the checkout may change while a script runs


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring, as it stands there."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options that make a result what it is, for its record."""
    return {
        name: value for name, value in vars(options).items() if name not in ("out", "device", "file", "files")
    }


def record(path: str | Path, payload: dict[str, Any]) -> None:
    """Write `payload` as JSON, with command, hardware, versions and date; the file appears whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "command": command_line(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": VERSIONS,
        **payload,
    }
    replace_file(path, [json.dumps(document, indent=2).encode() + b"\n"])


def command_line() -> str:
    """The command as anyone would type it at the root of the repository: no path of this machine."""
    return shlex.join(["python", *(_relative(argument) for argument in sys.argv)])


def _relative(argument: str) -> str:
    """A path inside the repository relative to its root, one outside by its last part; the rest unchanged."""
    option, equals, value = argument.rpartition("=")
    if Path(option).is_absolute():  # FILE=DATA
        option = Path(option).name
    path = Path(value)
    inside = path.resolve()
    if path.exists() and inside.is_relative_to(ROOT):
        value = inside.relative_to(ROOT).as_posix()
    elif path.is_absolute() or ".." in path.parts:
        value = path.name
    return option + equals + value


def hardware() -> dict[str, Any]:
    """The CPU, how many of its cores this process may use, and the GPU if torch is loaded and sees one."""
    found = machine.hardware()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def collect(parts: Sequence[Path], out: str | Path, summary: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rows of several processes, or of such records, as one record, with what each of them ran on."""
    found = [json.loads(path.read_text()) for path in parts]
    rows = [row for part in found for row in part["rows"]]
    about = [each for part in found for each in part.get("made_by", [_about(part)])]
    record(out, {"made_by": about, "summary": summary(rows), "rows": rows})
    for each in summary(rows):
        print(each)


def keep_rows(before: dict[str, Any] | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """`rows` beside those of an earlier record that have other names, and how that was made."""
    if before is None:
        return {"rows": rows}
    names = {row["name"] for row in rows}
    kept = [row for row in before["rows"] if row["name"] not in names]
    return {"made_by": before.get("made_by", [_about(before)]), "rows": kept + rows}


def _about(part: dict[str, Any]) -> dict[str, Any]:
    return {key: part[key] for key in ("command", "date", "hardware", "versions")}
