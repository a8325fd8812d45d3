"""A folder that an export writes, whole or not at all: over an earlier export of its kind, never over other files."""

import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from membound.errors import ModelError
from membound.export.hub_folder import check_folder
from membound.store.whole import digest_file, write_whole

WROTE = "/* A network that membound wrote:"  # how the headers of all exports begin
MANIFEST = ".membound.json"  # what was written, so that the next export knows what was edited since
OPTIONS = "options"  # in it, beside the digests of files: how the export was asked for


def check_target(folder: Path, header: str, line: str) -> None:
    """Refuse to write over anything but an earlier export, whose `header` begins with this line."""
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder, header, line):
        found = f"has files in it, and no {header} that membound wrote"
        if _first_line(folder / header).startswith(WROTE):
            found = "holds an export of another kind"
        elif (other := _other_prefix(folder, header, line)) is not None:
            raise ModelError(
                f"{folder} holds an export with the prefix {other}: give prefix={other!r}, or name another folder",
                about="prefix",
            )
        raise ModelError(f"{folder} {found}: name a new folder, an empty one, or one of an earlier export")
    if not folder.is_dir():
        check_folder(folder)


def write_files(
    folder: Path,
    files: Mapping[str, Iterable[bytes]],
    header: str,
    line: str,
    may_be_edited: Collection[str],
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """The folder; over an earlier export its own files alone. Gives the names of those that were edited, and stay.

    `options` are noted for the next export, which `read_options` tells of them.

    All files are written aside first, so that what fails leaves a folder as it was.
    """
    check_target(folder, header, line)
    aside = folder.absolute().with_name(f".membound-{secrets.token_hex(8)}.part")
    try:
        aside.mkdir()
        for name, parts in files.items():
            (aside / name).parent.mkdir(exist_ok=True)
            write_whole(aside / name, parts, folder / name)
        digests = {name: digest_file(aside / name) for name in files}
        noted = {**digests, **({OPTIONS: dict(options)} if options else {})}
        write_whole(aside / MANIFEST, [json.dumps(noted, indent=1).encode() + b"\n"], folder)
        if not _is_ours(folder, header, line):
            aside.rename(folder)
            return []
        return _replace(folder, aside, digests, may_be_edited)
    except OSError as error:
        raise ModelError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_options(folder: Path) -> dict[str, str]:
    """How the last export into this folder was asked for; empty where there was none."""
    found = _read_json(folder / MANIFEST).get(OPTIONS)
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _replace(
    folder: Path, aside: Path, digests: Mapping[str, str], may_be_edited: Collection[str]
) -> list[str]:
    """Move new files over the old ones; what an earlier version wrote, and this one does not, goes."""
    before = _read_manifest(folder)
    kept = [
        name
        for name in digests
        if name in may_be_edited
        and (folder / name).exists()
        and digest_file(folder / name) not in (digests[name], before.get(name))
    ]
    for name in digests:
        if name not in kept:
            (folder / name).parent.mkdir(exist_ok=True)
            os.replace(aside / name, folder / name)
    for name, digest in before.items():
        if name not in digests and (folder / name).is_file() and digest_file(folder / name) == digest:
            (folder / name).unlink()
    os.replace(aside / MANIFEST, folder / MANIFEST)
    return kept


def _is_ours(folder: Path, header: str, line: str) -> bool:
    return _first_line(folder / header) == line


def _other_prefix(folder: Path, header: str, line: str) -> str | None:
    """What the names of an export of this kind begin with, where it is not the prefix that was asked for."""
    asked = re.escape(header.removesuffix(".h"))
    theirs = (path for path in sorted(folder.glob("*.h")))
    return next((p.stem for p in theirs if _first_line(p) == re.sub(rf"\b{asked}\b", p.stem, line)), None)


def _first_line(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.readline().decode(errors="replace").rstrip()
    except OSError:
        return ""


def _read_manifest(folder: Path) -> dict[str, str]:
    """What an export noted of its files, by plain names within the folder."""
    return {
        name: digest
        for name, digest in _read_json(folder / MANIFEST).items()
        if isinstance(digest, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
