"""A run killed at random moments and resumed each time, against one left in peace."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]

COMMAND = [
    sys.executable, "-m", "membound", "train", "lenet", "--data", "mnist", "--subsample", "600", "--solver", "sgd",
    "--steps", "120", "--batch-size", "16", "--lr", "0.02", "--keep", "fc*=0.1", "--every", "10", "--ramp",
    "--evaluate-every", "120", "--checkpoint-seconds", "0", "--device", "cpu", "--json",
]  # fmt: skip


def run_command(
    folder: Path, more: tuple[str, ...] = (), kill_after: float | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, to its end or until it is killed."""
    process = subprocess.Popen(
        [*COMMAND, "--run-dir", str(folder), "--out", str(folder.with_suffix(".safetensors")), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    output, errors = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def kill_and_compare(
    folder: Path, kills: int, seed: int, steps: int = 120, data: str = "mnist"
) -> dict[str, Any]:
    """Kill a run so many times, resume it each time, and hold its weights against an undisturbed run's."""
    rng = random.Random(seed)
    more = ("--steps", str(steps), "--data", data)
    started = time.monotonic()
    peace = run_command(folder / "peace", more)
    assert peace.returncode == 0, peace.stderr
    duration = time.monotonic() - started
    reached: list[int] = []  # the step of the checkpoint that each kill left behind
    runs = 1
    while len(reached) < kills:
        attempt = run_command(folder / "killed", more, kill_after=rng.uniform(0, duration))
        if attempt.returncode == 0:  # it finished before the kill: another run, to be killed again
            assert same_weights(folder)
            shutil.rmtree(folder / "killed")
            runs += 1
        else:
            assert attempt.returncode == -signal.SIGKILL, attempt.stderr
            reached.append(saved_step(folder / "killed"))
    last = run_command(folder / "killed", more)
    assert last.returncode == 0, last.stderr
    assert same_weights(folder)
    return {
        "kills": kills,
        "identical": True,
        "seed": seed,
        "runs": runs,
        "iterations": steps,
        "reached": reached,
    }


def saved_step(run: Path) -> int:
    checkpoint = run / "checkpoint.safetensors"
    if not checkpoint.exists():
        return 0
    with safe_open(checkpoint, framework="pt") as file:
        return int(json.loads(file.metadata()["membound"])["iteration"])


def same_weights(folder: Path) -> bool:
    peace, killed = load_file(folder / "peace.safetensors"), load_file(folder / "killed.safetensors")
    return peace.keys() == killed.keys() and all(torch.equal(peace[name], killed[name]) for name in peace)
