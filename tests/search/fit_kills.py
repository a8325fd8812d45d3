"""A fit killed with SIGKILL at random moments and called again each time, against one left in peace.

Run as a script it loads torch once and forks: each line `RUN_DIR OUT` on its input starts a process that fits there,
the next line, `kill` or `wait`, ends it or waits for its end, and its exit code is the answer.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from small import digits
from torch import nn

import membound as mb
from membound.capture.capture import Tracer
from membound.search import jobs, workshop
from membound.search.jobs import carry_out
from membound.search.ledger import LEDGER

ORDERS = "orders.jsonl"  # which jobs were begun, a line for each time that some were


class Tiny(nn.Module):
    """3,264 weights in three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=4)
        self.fc1 = nn.Linear(144, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


def fit_tiny(run_dir: Path | None, budget: Any = 5000, **changed: Any) -> Any:
    """A greedy search of a few rounds, a network to judge by, and the final ones: some fifteen jobs."""
    options = {"strategy": "greedy", "greedy_step": 0.3, "steps": 30, "candidate_steps": 12, "batch_size": 16,
               "values": "f16"}  # fmt: skip
    data = (digits(0, 200).images, digits(0, 200).labels)
    return mb.fit(Tiny, data, budget, run_dir=run_dir, **{**options, **changed})


def ledger_keys(run_dir: Path) -> list[str]:
    """The jobs that the ledger has as finished, in whole lines."""
    path = run_dir / LEDGER
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [content["key"] for line in lines if "key" in (content := json.loads(line))]


def fit_recorded(run_dir: Path, out: Path) -> None:
    """The fit, with checkpoints wherever there can be one, and with a note of the jobs that are begun."""

    def noted(problem: Any, orders: Any, *rest: Any) -> Any:
        keys = [order.job.key for order in orders]
        with open(out.with_name(ORDERS), "a") as file:
            file.write(json.dumps({"begun": keys, "finished": ledger_keys(run_dir)}) + "\n")
        return carry_out(problem, orders, *rest)

    jobs.Settings = partial(jobs.Settings, checkpoint_seconds=0)
    workshop.carry_out = noted
    fit_tiny(run_dir).save(out)


def serve() -> None:
    torch.set_num_threads(1)
    # What a fit loads on its way is loaded once. No gradients: torch for GPUs has threads for them, which a fork leaves
    # behind.
    import_module("membound.search.fit")
    Tracer(Tiny(), torch.zeros(1, 1, 28, 28))
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                fit_recorded(*map(Path, line.split()))
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        if sys.stdin.readline().strip() == "kill":
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Fits:
    """Fits in processes of their own."""

    def __enter__(self) -> "Fits":
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._answer() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def run(self, folder: Path, kill_after: float | None = None, begun: bool = False) -> int:
        """One call of the fit in `folder`, to its end or until it is killed (once it has `begun`): the exit code."""
        folder.mkdir(exist_ok=True)
        self._tell(f"{folder / 'run'} {folder / 'net.safetensors'}")
        if kill_after is not None:
            time.sleep(kill_after)
            while begun and not (folder / "run" / "environment.json").exists():
                time.sleep(0.01)
        self._tell("wait" if kill_after is None else "kill")
        return int(self._answer())

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def kill_and_compare(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill a fit so many times, call it again each time, and hold its file against an undisturbed fit's."""
    rng = random.Random(seed)
    with Fits() as fits:
        started = time.monotonic()
        assert fits.run(folder / "peace") == 0
        duration = time.monotonic() - started
        finished: list[int] = []  # how many jobs the ledger had at each kill
        runs = 1
        while len(finished) < kills:
            here = folder / f"killed-{runs}"
            before = ledger_lines(here)
            code = fits.run(here, kill_after=rng.uniform(0, duration), begun=not finished)
            assert ledger_lines(here)[: len(before)] == before  # what is finished stays as it is
            if code == 0:  # it was done before the kill: another one, to be killed again
                check_same(folder / "peace", here)
                runs += 1
            else:
                assert code == -signal.SIGKILL
                finished.append(len(ledger_keys(here / "run")))
        assert fits.run(folder / f"killed-{runs}") == 0
        check_same(folder / "peace", folder / f"killed-{runs}")
    jobs_in_all = len(ledger_keys(folder / "peace" / "run"))
    return {
        "kills": kills,
        "identical": True,
        "trained_twice": 0,
        "seed": seed,
        "fits": runs,
        "jobs": jobs_in_all,
        "finished_at_kill": finished,
    }


def ledger_lines(folder: Path) -> list[bytes]:
    path = folder / "run" / LEDGER
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def check_same(peace: Path, killed: Path) -> None:
    """The same file, the same jobs, each finished once, and none begun again when it was finished."""
    assert (killed / "net.safetensors").read_bytes() == (peace / "net.safetensors").read_bytes()
    keys = ledger_keys(killed / "run")
    assert keys == ledger_keys(peace / "run")
    assert max(Counter(keys).values()) == 1
    for line in (killed / ORDERS).read_text().splitlines():
        assert not set(json.loads(line)["begun"]) & set(json.loads(line)["finished"])


if __name__ == "__main__":
    serve()
