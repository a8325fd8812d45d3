"""All contenders on one network, in rounds: each takes its turn in every round, so that noise meets all alike."""

import contextlib
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from membound.bench import litert
from membound.bench.contenders import LITERT, OPENVINO_DEFAULT, OURS, OURS_INT8, PEERS, Files
from membound.bench.int8 import MAKERS, bytes_of
from membound.bench.worker import CLOCKS
from membound.errors import MemboundError, ModelError, say_absent
from membound.export.onnx import write_onnx
from membound.machine import available_cores, describe
from membound.run.files import find_model_file
from membound.run.ports import inputs_of, random_inputs
from membound.store.file import read

PATIENCE = 600.0  # seconds for one answer
REST = 0.02  # seconds before a turn, in which the threads of the one before stop spinning
SAMPLES = 8  # that int8 is calibrated on
Show = Callable[[str], None]


def race(
    file: Path,
    *,
    peers: Sequence[str] = PEERS,
    threads: Sequence[int] = (1,),
    runs: int = 100,
    rounds: int = 5,
    batch: int = 1,
    seed: int = 0,
    pythons: Mapping[str, str] | None = None,
    int8: bool = False,
    tflite: Path | None = None,
    beside: Sequence[Path] = (),
    clock: str = "wall",
    show: Show | None = None,
) -> dict[str, Any]:
    """Latency, load time, memory and file size of the network in `file`, in every runtime that is installed.

    `runs` are split over the rounds. Memory is what the process grew by since the runtime was imported. `pythons` names
    the interpreter of a peer that lives in an environment of its own, beside a membound. With `int8`, membound and the
    peers that can also run the network in 8 bits; these calibrate on the random inputs of the race: their speed says
    something, their output little. `tflite` is a file that takes the same inputs, such as the one that ships today:
    LiteRT runs it, which must be installed. Files `beside` the first, of the same shapes, run in membound, too, each as
    a contender of its own. On a busy machine, the clock "processor" counts what one thread computes, and not what it
    waits for others. A race that is interrupted has the rounds that were complete.
    """
    pythons = dict(pythons or {})
    unknown = [name for name in (*peers, *pythons) if name not in PEERS]
    if unknown:
        hint = "; give a .tflite file of yours as tflite" if unknown[0] in (LITERT, "tflite") else ""
        raise MemboundError(
            f"there is no peer {unknown[0]!r}: the peers are {', '.join(PEERS)}{hint}", about="peers"
        )
    if tflite is not None:
        _check_tflite(tflite)
        if litert.installed() is None:
            raise MemboundError(f"tflite needs LiteRT: pip install {litert.NAME}", about="tflite")
    if aside := [name for name in pythons if name not in peers]:
        raise MemboundError(
            f"pythons names {aside[0]}, which is not among the peers: {', '.join(peers) or 'none'}",
            about="pythons",
        )
    if not threads or min(threads) < 1:
        raise MemboundError(
            f"threads={list(threads)}: give counts from 1 up, such as 1 and 2", about="threads"
        )
    if clock not in CLOCKS or (clock == "processor" and max(threads) > 1):
        raise MemboundError(
            f"clock={clock!r} with threads={list(threads)}: give wall, or processor for one thread",
            about="clock",
        )
    file, others = find_model_file(file), [find_model_file(path) for path in beside]
    model = read(file)
    for path in others:
        if (shape := read(path).shapes[0]) != model.shapes[0]:
            raise ModelError(
                f"{path.name} takes inputs of {list(shape)}, and {file.name} of {list(model.shapes[0])}: "
                "files that race each other take the same"
            )
    ports = inputs_of(model.graph, model.shapes)
    if int8 and (len(ports) > 1 or ports[0].whole):
        raise MemboundError(
            f"{file.name} takes {'; '.join(map(str, ports))}: 8 bits are calibrated for networks of one float32 input",
            about="int8",
        )
    elsewhere = {name: _ask(python, name) for name, python in pythons.items()}
    installed = [name for name in peers if name in elsewhere or importlib.util.find_spec(name) is not None]
    missing = [name for name in peers if name not in installed]
    with tempfile.TemporaryDirectory(prefix="membound-bench-") as folder:
        files = _prepare(file, Path(folder), dense=bool(installed))
        random = np.random.default_rng(seed)
        np.savez(Path(folder) / "input.npz", *random_inputs(ports, batch, random))
        entries = [_Entry(OURS, OURS, files)]
        entries += [
            _Entry(f"{OURS} {path.stem}", OURS, replace(files, model=path.resolve())) for path in others
        ]
        names = [*installed, *([OPENVINO_DEFAULT] if "openvino" in installed else [])]
        entries += [_Entry(name, name, files) for name in names]
        failed: dict[str, str] = {}
        if int8:
            entries += [
                _Entry(f"{entry.name} int8", OURS_INT8, entry.files)
                for entry in entries
                if entry.contender == OURS
            ]
            samples = random_inputs(ports, SAMPLES, random)[0]
            more, lacking, failed = _quantized(installed, files, Path(folder), samples, show)
            entries, missing = entries + more, missing + lacking
        if tflite is not None:
            entries.append(_Entry(LITERT, LITERT, replace(files, int8=tflite.resolve())))
        rows: list[dict[str, Any]] = []
        interrupted = False
        for count in threads:
            found, interrupted = _heat(
                entries, Path(folder), count, runs, max(1, min(rounds, runs)), pythons, clock, show
            )
            rows += found
            if interrupted:
                break
            rows += [{"name": name, "threads": count, "error": error} for name, error in failed.items()]
    if not rows:
        raise KeyboardInterrupt
    here = [name for name in installed if name not in elsewhere]
    packages = ["membound", "numpy", *here, *(["nncf"] if int8 and "openvino" in here else [])]
    if tflite is not None and (runs_it := litert.installed()) is not None:
        packages.append(runs_it.replace("_", "-"))
    about = describe(packages)
    about["versions"] |= {name: version for name, version in elsewhere.items() if version}
    return {
        **about,
        "file": file.name,
        "batch": batch,
        "runs": runs,
        "rounds": max(1, min(rounds, runs)),
        "clock": clock,
        "input_shape": list(model.shapes[0]),
        "available_cores": available_cores(),
        "results": rows,
        "missing": missing,
        "interrupted": interrupted,
    }


def _check_tflite(path: Path) -> None:
    """A flatbuffer says what it is in bytes 4 to 8."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise MemboundError(say_absent(path), about="tflite") from None
    except OSError as error:
        raise MemboundError(f"{path} cannot be read: {error.strerror}", about="tflite") from None
    if head[4:] != b"TFL3":
        raise MemboundError(f"{path} is not a .tflite file: give one that TensorFlow wrote", about="tflite")


@dataclass(frozen=True)
class _Entry:
    """A contender under the name of its rows, and the files that it is given."""

    name: str
    contender: str
    files: Files

    @property
    def size(self) -> int:
        """The bytes of what it loads."""
        if self.files.int8 is not None:
            return bytes_of(self.files.int8)
        own = {OURS: self.files.model, OURS_INT8: self.files.model, "torch": self.files.arrays}
        return own.get(self.contender, self.files.onnx).stat().st_size


def _prepare(file: Path, folder: Path, dense: bool) -> Files:
    """The dense forms of the network, where a peer needs one."""
    files = Files(file.resolve(), folder / "dense.onnx", folder / "dense.npz")
    if dense:
        model = read(file).decode()
        write_onnx(files.onnx, model)
        np.savez(files.arrays, *model.tensors.values())
    return files


def _quantized(
    installed: Sequence[str], files: Files, folder: Path, samples: Any, show: Show | None
) -> tuple[list[_Entry], list[str], dict[str, str]]:
    """Contenders in 8 bits, those that lack a package, and what went wrong with others."""
    entries: list[_Entry] = []
    missing: list[str] = []
    failed: dict[str, str] = {}
    for name, maker in MAKERS.items():
        if name.split()[0] not in installed:
            continue  # said already
        if lacking := maker.missing():
            missing.append(f"{name} ({', '.join(lacking)})")
            continue
        if show is not None:
            show(f"{name}: calibrating")
        target = folder / maker.name
        try:
            maker.write(files.onnx, target, samples)
        except Exception as error:  # of another's library: that it fails is a result
            failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        else:
            entries.append(_Entry(name, name, replace(files, int8=target)))
    return entries, missing, failed


def _ask(python: str, package: str) -> str:
    """The version of a package in another environment, which must have a membound, too; empty if it does not say."""
    code = (
        "import importlib.util, membound.bench.worker; from membound.machine import versions; "
        f"assert importlib.util.find_spec({package!r}), 'it has no {package}'; "
        f"print(versions([{package!r}]).get({package!r}, ''))"
    )
    try:
        done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MemboundError(f"{python} does not run ({error}): name the Python that has {package}") from None
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1][:200]
        raise MemboundError(
            f"{python} cannot be {package}'s Python ({words}): it needs {package} and membound installed"
        )
    return done.stdout.strip()


def _heat(
    entries: Sequence[_Entry],
    folder: Path,
    threads: int,
    runs: int,
    rounds: int,
    pythons: Mapping[str, str],
    clock: str,
    show: Show | None,
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of all contenders with one number of threads, and whether the race was interrupted meanwhile."""
    lanes: list[_Lane] = []
    shares: list[int] = []  # the runs of the rounds that are complete
    running: list[_Lane] = []
    words, interrupted = f"{threads} thread{'' if threads == 1 else 's'}", False
    try:
        try:
            for entry in entries:
                if show is not None:
                    show(f"loading: {entry.name}, {words}")
                python = pythons.get(entry.contender.split()[0], sys.executable)
                lane = _Lane(entry, folder, threads, python, clock)
                lanes.append(lane)
                lane.start()
                if entry.contender == OURS and lane.error is not None:
                    raise ModelError(f"{entry.files.model.name} does not run: {lane.error}")
            running = [lane for lane in lanes if not lane.repeats_f32()]
            for number in range(rounds):
                share = runs // rounds + (number < runs % rounds)
                first = number % len(running)
                for lane in running[first:] + running[:first]:  # nobody is always first
                    if show is not None:
                        show(f"round {number + 1} of {rounds}: {lane.name}, {words}")
                    lane.take_turn(share)
                shares.append(share)
        except KeyboardInterrupt:
            interrupted = True
        return [lane.row(lanes[0].output(), shares) for lane in running if shares], interrupted
    finally:
        for lane in lanes:
            lane.stop()


class _Lane:
    """A contender's process, and what it has said so far."""

    def __init__(self, entry: _Entry, folder: Path, threads: int, python: str, clock: str) -> None:
        self.entry, self.name, self.threads = entry, entry.name, threads
        self.error: str | None = None
        self.facts: dict[str, Any] = {}
        self.times: list[float] = []
        self.turns: list[float] = []  # the least time of each
        self.stem = folder / f"{entry.name.replace(' ', '-')}-{threads}"
        self.saved = folder / f"{self.stem.name}.npy"
        about = {
            "contender": entry.contender,
            "threads": threads,
            "clock": clock,
            "files": {key: str(path) for key, path in vars(entry.files).items() if path is not None},
            "input": str(folder / "input.npz"),
            "output": str(self.saved),
        }
        limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(limits, str(threads))}
        self.errors = folder / f"{self.stem.name}.err"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [python, "-P", "-m", "membound.bench.worker", json.dumps(about)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
                start_new_session=True,  # a terminal's interrupt is for the race, which keeps what is complete
            )  # fmt: skip

    def start(self) -> None:
        self.facts = self._answer() or {}

    def repeats_f32(self) -> bool:
        """Whether this is OpenVINO's own choice of precision, and it chose float32."""
        return self.name == OPENVINO_DEFAULT and self.error is None and self.facts["precision"] == "f32"

    def take_turn(self, runs: int) -> None:
        if self.error is not None:
            return
        time.sleep(REST)
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{runs}\n".encode())
            self.process.stdin.flush()
        except OSError:
            self.error = self._last_words()
            return
        found = self._answer() or []
        self.times += found
        self.turns += [min(found)] if found else []

    def _answer(self) -> Any:
        """The next line of the process; None, and `error`, if none comes."""
        stream = self.process.stdout
        assert stream is not None
        end, line = time.monotonic() + PATIENCE, b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                self.error = f"no answer within {PATIENCE:.0f} seconds"
                return None
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                self.error = self._last_words()
                return None
            line += part
        return json.loads(line)

    def _last_words(self) -> str:
        said = self.errors.read_text(errors="replace").strip().splitlines()
        return said[-1][:200] if said else f"it ended with code {self.process.wait()}"

    def output(self) -> Any:
        return np.load(self.saved, allow_pickle=False)

    def row(self, reference: Any, shares: Sequence[int]) -> dict[str, Any]:
        """The result of rounds of so many runs: times in milliseconds, sizes in bytes, how far off its output is."""
        row: dict[str, Any] = {"name": self.name, "threads": self.threads, "error": self.error}
        if self.error is not None or not self.times:
            return row
        times = self.times[: sum(shares)]
        return {
            **row,
            "min_ms": min(times),
            "median_ms": statistics.median(times),
            "turns_ms": self.turns[: len(shares)],
            **self.facts,
            "file_bytes": self.entry.size,
            "max_relative_difference": None
            if self.entry.contender == LITERT
            else self._difference(reference),
        }

    def _difference(self, reference: Any) -> float:
        scale = float(np.abs(reference).max()) or 1.0
        return float(np.abs(self.output() - reference).max()) / scale

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
