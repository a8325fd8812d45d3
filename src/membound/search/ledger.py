"""The run directory of a fit: what is finished stays finished, whatever happens to the process or the disk.

A job is finished when its line is in the ledger. Its weights are written before that, whole, and the line says their
size and digest, so that nothing is ever taken for what it is not.
"""

import contextlib
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from membound.errors import TrainingError, a_kind
from membound.machine import describe
from membound.search.differences import Differing, find_differences, refuse_another
from membound.store.whole import replace_file
from membound.train.checkpoint import locked, read_tensors, write_tensors

CONFIG, ENVIRONMENT, LEDGER, LOG = "config.json", "environment.json", "ledger.jsonl", "log.txt"
WEIGHTS, JOBS, LOCK = "weights", "jobs", "lock"
FORMAT = "membound run 1"
PACKAGES = ("membound", "torch", "numpy", "safetensors", "triton", "ray")
KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # the name of a file, never of a hidden one
SEALED = re.compile(rb'(\{.*), "check": "([0-9a-f]{16})"\}')
GO_ON = "what is finished is kept, so mend that and run the same command again"


@dataclass(frozen=True)
class Entry:
    """A finished job: its facts as JSON gives them back, and whether its tensors are kept."""

    key: str
    facts: dict[str, Any]
    has_weights: bool


@dataclass(frozen=True)
class _Line:
    """An entry, the number of its line, and the size and digest of its weights file."""

    entry: Entry
    number: int
    weights: dict[str, Any] | None


class RunDirectory:
    """Finished jobs and their tensors, places for the checkpoints of others, a log; opened by `open_run`."""

    def __init__(self, path: Path) -> None:
        self.path, self.jobs = path, path / JOBS
        self._lines: dict[str, _Line] = {}
        self._last = 0  # the number of the ledger's last line
        self._read()
        self._tidy()

    def finished(self, key: str) -> Entry | None:
        """The entry of a job, or None while it is not finished."""
        line = self._lines.get(_checked(key))
        return None if line is None else line.entry

    def entries(self) -> list[Entry]:
        """All finished jobs, in the order in which they were recorded."""
        return [line.entry for line in self._lines.values()]

    def weights(self, key: str) -> dict[str, Tensor]:
        """The tensors of a finished job, proven to be the ones that were recorded."""
        line = self._lines.get(_checked(key))
        if line is None or line.weights is None or not line.entry.has_weights:
            why = "is not finished" if line is None else "keeps no weights"
            raise TrainingError(f"{self.path}: the job '{key}' {why}, so there are none to load")
        path = self._weights_path(key)
        remedy = f"restore it, or delete line {line.number} of {self.path / LEDGER} so that the job is trained again"
        try:
            found = _measure(path)
        except FileNotFoundError:
            raise TrainingError(f"{path} is gone, which the ledger records: {remedy}") from None
        except OSError as error:
            raise TrainingError(f"{path} cannot be read: {error.strerror or error}: {remedy}") from error
        if found != line.weights:
            was = line.weights["bytes"]
            why = (
                "its checksum is another"
                if found["bytes"] == was
                else f"it has {found['bytes']} bytes, not {was}"
            )
            raise TrainingError(f"{path} is not the file that the ledger records ({why}): {remedy}")
        return read_tensors(path)[0]

    def record(self, key: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> Entry:
        """Finish a job: its tensors first, whole and on the disk, then the line that makes it count."""
        self._check_unfinished(key)
        plain = _plain(facts, "facts")
        measured = None
        if tensors is not None:
            path = self._weights_path(key)
            try:
                write_tensors(path, tensors, {"membound": {"key": key}})
            except TrainingError as error:
                raise TrainingError(f"{error}: {GO_ON}") from error
            with _writing(path):
                measured = _measure(path)
        self._append({"key": key, "facts": plain, "weights": measured})
        entry = Entry(key, plain, measured is not None)
        self._lines[key] = _Line(entry, self._last, measured)
        shutil.rmtree(self.path / JOBS / key, ignore_errors=True)
        return entry

    def forget_weights(self, key: str) -> None:
        """Drop the tensors of a finished job, and let the ledger say so; it may be asked for again and again."""
        line = self._lines.get(_checked(key))
        if line is None:
            raise TrainingError(f"{self.path}: the job '{key}' is not finished, so it has no weights to drop")
        if line.entry.has_weights:
            # The line first: a file too many is tidied up, a file too few would be a broken promise.
            self._append({"forget": key})
            self._lines[key] = _forgotten(line)
            with _writing(self._weights_path(key)):
                self._weights_path(key).unlink(missing_ok=True)

    def job_folder(self, key: str) -> Path:
        """Where a job that is under way keeps its checkpoints; it goes when the job is recorded."""
        self._check_unfinished(key)
        folder = self.jobs / key
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, text: str) -> None:
        """A line for people, with the time."""
        with _writing(self.path / LOG), open(self.path / LOG, "a", encoding="utf-8") as file:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            file.write(f"{now} {' '.join(text.splitlines())}\n")

    def _check_unfinished(self, key: str) -> None:
        if _checked(key) in self._lines:
            raise TrainingError(f"{self.path}: the job '{key}' is recorded already, a job is finished once")

    def _weights_path(self, key: str) -> Path:
        return self.path / WEIGHTS / f"{key}.safetensors"

    def _append(self, content: dict[str, Any]) -> None:
        """Add a line and see it on the disk; if that fails, the ledger ends where it ended before."""
        path = self.path / LEDGER
        with _writing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)  # it is never made here: it is there
            try:
                _append_whole(descriptor, _seal(content) + b"\n")
            finally:
                os.close(descriptor)
        self._last += 1

    def _read(self) -> None:
        path = self.path / LEDGER
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TrainingError(f"{path} cannot be read: {error.strerror or error}") from error
        *whole, rest = content.split(b"\n")
        if rest:
            whole += self._mend_end(rest, len(content))
        for number, text in enumerate(whole, 1):
            if text.strip():  # an empty line is what some editors leave of a deleted one
                self._take(_unseal(text), number)
        self._last = len(whole)

    def _mend_end(self, rest: bytes, length: int) -> list[bytes]:
        """A last line without its end: whole but for that, or cut off, since its job was not finished."""
        whole = _unseal(rest) is not None
        with _writing(self.path / LEDGER), open(self.path / LEDGER, "r+b") as file:
            if whole:
                file.seek(length)
                file.write(b"\n")
            else:
                file.truncate(length - len(rest))
            file.flush()
            os.fsync(file.fileno())
        if not whole:
            self.log(
                f"{LEDGER} ended in the middle of a line, as a process that is killed leaves it: "
                f"{len(rest):,} bytes were dropped: that job is not finished, and runs again"
            )
        return [rest] if whole else []

    def _take(self, content: dict[str, Any] | None, number: int) -> None:
        place = f"{self.path / LEDGER}, line {number}"
        match content:
            case {"forget": str(key)}:
                if key in self._lines:  # else its job's line was deleted, so that it is trained again
                    self._lines[key] = _forgotten(self._lines[key])
            case {"key": str(key), "facts": dict(facts), "weights": (dict() | None) as weights}:
                if key in self._lines:
                    raise TrainingError(
                        f"{place}: the job '{key}' is recorded in line {self._lines[key].number} already: "
                        "delete one of the two"
                    )
                self._lines[key] = _Line(Entry(key, facts, weights is not None), number, weights)
            case _:
                raise TrainingError(
                    f"{place} is damaged (its text and its checksum do not agree): "
                    "restore it, or delete that line so that the job is trained again"
                )

    def _tidy(self) -> None:
        """What a killed process could not: its half-written files, and what the ledger says is not needed."""
        folder = self.path / WEIGHTS
        with _writing(folder):
            folder.mkdir(exist_ok=True)
            for left_over in folder.glob(".*.part"):
                left_over.unlink()
            for key, line in self._lines.items():
                if line.weights is not None and not line.entry.has_weights:
                    self._weights_path(key).unlink(missing_ok=True)
                shutil.rmtree(self.path / JOBS / key, ignore_errors=True)


@contextmanager
def open_run(
    path: Path | None,
    config: Mapping[str, Any],
    about: Mapping[str, Any] | None = None,
    differing: Differing = find_differences,
) -> Iterator[RunDirectory]:
    """Begin a run, or go on with the one that is there; without a path, in a folder that vanishes.

    `config` says what the run is: another one is refused. `about` joins the description of this start; `differing`
    says in the caller's words where two configs part.

    >>> with open_run(None, {"budget": 40960}) as run:
    ...     _ = run.record("round-1.dense", {"accuracy": 98.5}, None)
    ...     run.finished("round-1.dense").facts, run.finished("round-2.keep-10")
    ({'accuracy': 98.5}, None)
    """
    wanted = _plain(config, "config")
    with ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="membound-")))
        try:
            if path.exists():
                _is_begun(path)  # before anything is written: a folder that is not ours stays as it is
            stack.enter_context(locked(path))
            begun = _is_begun(path)
        except OSError as error:
            reason = error.strerror or error
            raise TrainingError(f"{path} cannot be a run directory: {reason}: choose another") from error
        if begun:
            refuse_another(_read_config(path), wanted, path, differing)
        else:
            with _writing(path / LEDGER):
                (path / LEDGER).touch()  # before the config: where that is, a ledger was
            _write_json(path / CONFIG, {"format": FORMAT, "config": wanted})
        _describe_start(path, about or {})
        run = RunDirectory(path)
        run.log(f"resumes after {len(run.entries())} finished jobs" if begun else "begins")
        yield run


def _is_begun(path: Path) -> bool:
    """Whether a run is there; False for an empty folder, an error for anything else."""
    names = {place.name for place in path.iterdir() if not re.fullmatch(r"\.membound-.*\.part", place.name)}
    if CONFIG in names:
        _read_config(path)
        if LEDGER not in names:
            raise TrainingError(
                f"{path / LEDGER} is gone, which says what is finished: restore it, or choose another run directory"
            )
        return True
    if LEDGER in names and (path / LEDGER).stat().st_size:
        raise TrainingError(
            f"{path / CONFIG} is gone, which says what this run is: restore it, or choose another run directory"
        )
    if any(re.fullmatch(r"seed-\d+", name) for name in names):
        raise TrainingError(
            f"{path} holds a fit of several seeds: give as many seeds to go on with it, or choose another run directory"
        )
    if more := sorted(names - {LEDGER, LOCK}):
        raise TrainingError(
            f"{path} is not a run directory and not empty (it holds {more[0]}): choose another run directory"
        )
    return False


def _read_config(path: Path) -> dict[str, Any]:
    match _read_json(path / CONFIG, "choose another run directory"):
        case {"format": str(found), "config": dict(config)} if found == FORMAT:
            return config
    raise TrainingError(
        f"{path / CONFIG} is not the config of a run ('{FORMAT}'): restore it, or choose another run directory"
    )


def _describe_start(path: Path, about: Mapping[str, Any]) -> None:
    """Add this start to the list of them: the command, the date, the hardware, the versions, torch's threads."""
    starts = []
    if (path / ENVIRONMENT).exists():
        starts = _read_json(path / ENVIRONMENT, "delete it, since no result depends on it")
        if not isinstance(starts, list):
            raise TrainingError(f"{path / ENVIRONMENT} is damaged: delete it, since no result depends on it")
    here = {**describe(PACKAGES), "torch_threads": torch.get_num_threads(), **_plain(about, "about")}
    _write_json(path / ENVIRONMENT, [*starts, here])


def _read_json(path: Path, otherwise: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingError(f"{path} cannot be read ({error}): restore it, or {otherwise}") from error


def _write_json(path: Path, content: Any) -> None:
    with _writing(path):
        replace_file(path, [json.dumps(content, indent=1).encode() + b"\n"])


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror or error}: {GO_ON}") from error


def _append_whole(descriptor: int, line: bytes) -> None:
    before = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except BaseException:  # also Ctrl-C: the line is there whole, or not at all
        with contextlib.suppress(OSError):  # then the next start cuts it off
            os.ftruncate(descriptor, before)
        raise


def _seal(content: dict[str, Any]) -> bytes:
    """JSON with a checksum of its own text as the last member."""
    text = json.dumps(content, allow_nan=False).encode()
    return text[:-1] + b', "check": "' + _check(text[:-1]) + b'"}'


def _unseal(line: bytes) -> dict[str, Any] | None:
    """What `_seal` was given, or None when it is not that, to the letter."""
    match = SEALED.fullmatch(line)
    if match is None or _check(match[1]) != match[2]:
        return None
    content: dict[str, Any] = json.loads(match[1] + b"}")
    return content


def _check(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def _measure(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _checked(key: str) -> str:
    if not KEY.fullmatch(key):
        raise TrainingError(
            f"{key!r} cannot be a job's key: use 1 to 200 letters, digits, '.', '_' and '-', no '.' at the front"
        )
    return key


def _forgotten(line: _Line) -> _Line:
    return replace(line, entry=replace(line.entry, has_weights=False))


def _plain(value: Any, name: str) -> Any:
    """As JSON gives it back: lists for tuples, null for what is not a finite number."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TrainingError(f"{name}: the key {key!r} is not a text, and JSON takes no other")
        return {str(key): _plain(inner, f"{name}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{name}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TrainingError(
        f"{name} is {a_kind(value)}: a run directory holds what JSON can, "
        "so give texts, Python's numbers, lists and mappings"
    )
