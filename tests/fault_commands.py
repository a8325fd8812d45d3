"""Every command that writes, into a place that takes nothing more, in one process; what each said is printed as JSON.

    python fault_commands.py WORK PLACE full|readonly|limit

WORK has the inputs. PLACE is filled up, or can be read only, or no file in it may grow beyond a few kilobytes. Then
there is room again, and commands with a run directory go on.
"""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

NETS = """
from torch import nn
def small(classes=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 200), nn.ReLU(), nn.Linear(200, classes))
"""
ROOM = 8192  # bytes that are left: less than any file that is written here


def prepare() -> None:
    """The inputs, in the present folder."""
    import torch

    import membound as mb

    Path("fault_nets.py").write_text(NETS)
    sys.path.insert(0, os.getcwd())
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = (rng.integers(0, 50, (60, 6, 6)) + 150 * y[:, None, None]).astype(np.uint8)
    np.savez("own.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    np.save("many.npy", rng.standard_normal((3000, 1, 6, 6), np.float32))
    for number in range(12):
        place = Path("photos", "ab"[number % 2])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(place / f"{number}.png")
    import fault_nets

    mb.save(fault_nets.small(), "model.safetensors", torch.zeros(1, 1, 6, 6))


def commands(place: Path) -> dict[str, tuple[str, ...]]:
    """Every command that writes, by the name of what it writes."""
    quick = ("fault_nets:small", "--data", "own.npz", "--device", "cpu", "--batch-size", "20")
    train = ("train", *quick, "--lr", "0.01", "--steps", "5")
    fit = ("fit", *quick, "--budget", "90%", "--steps", "5", "--no-dense", "--no-report")
    return {
        "train --out": (*train, "--out", f"{place}/train.safetensors"),
        "train --run-dir": (*train, "--run-dir", f"{place}/train-run"),
        "train --cache": ("train", "fault_nets:small", "--data", "photos", "--cache", f"{place}/cache"),
        "fit --out": (*fit, "--out", f"{place}/fit.safetensors"),
        "fit --run-dir": (*fit, "--out", "fit.safetensors", "--run-dir", f"{place}/fit-run"),
        "run --out": ("run", "model.safetensors", "many.npy", "--out", f"{place}/many.npy"),
        "export --onnx": ("export", "model.safetensors", "--onnx", f"{place}/net.onnx"),
    }


def said(action: Callable[[], object]) -> tuple[int, str]:
    """The exit code of a command and what it writes to stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            action()
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, errors.getvalue()


def save(path: Path) -> None:
    import fault_nets
    import torch

    import membound as mb

    try:
        mb.save(fault_nets.small(), path, torch.zeros(1, 1, 6, 6))
    except mb.MemboundError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


def shut(place: Path, how: str) -> None:
    """From here on nothing of any size can be written there."""
    if how == "readonly":
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    elif how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
    else:
        size = 1 << 16
        with open(place / "filler", "wb", buffering=0) as file:
            while size >= 1:
                try:
                    size = size if os.write(file.fileno(), bytes(size)) == size else size // 2
                except OSError:
                    size //= 2
            file.truncate(file.tell() - ROOM)


def open_again(place: Path, how: str) -> None:
    if how == "readonly":
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
    elif how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        (place / "filler").unlink()


def main(work: Path, place: Path, how: str) -> None:
    from membound.cli import main as membound

    os.chdir(work)
    prepare()
    (place / "save.safetensors").write_bytes(b"what was there")
    actions = {name: lambda given=given: membound(list(given)) for name, given in commands(place).items()}
    actions["save"] = lambda: save(place / "save.safetensors")
    shut(place, how)
    found = {}
    for name, action in actions.items():
        code, errors = said(action)
        there = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
        found[name] = {"code": code, "said": errors, "there": there}
    kept = (place / "save.safetensors").read_bytes() == b"what was there"
    open_again(place, how)
    again = {
        name: said(actions[name]) for name in ("train --run-dir", "fit --run-dir", "train --out", "save")
    }
    print(json.dumps({"found": found, "kept": kept, "again": again}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
