"""Fits in several processes that find each other as those of a torchrun do.

Run as a script it loads torch once and forks: each line of its input is an order as JSON (`Ranks.run` has its members),
which starts so many processes that fit together. Their exit codes, that of the first process first, are the answer.
With `kill`, the last process ends itself at that save of a checkpoint.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from small import Small, digits
from torch import nn

import membound as mb
from membound.capture.capture import Tracer
from membound.errors import MemboundError
from membound.search import jobs
from membound.train import loop


class Normed(nn.Module):
    """1,700 weights, and a batch norm whose statistics are of one process's images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=4)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(144, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.norm(self.conv(x))).flatten(1))


def split(begin: int, end: int) -> tuple[Any, Any]:
    return digits(begin, end).images, digits(begin, end).labels


COMMON: dict[str, Any] = {"test_data": split(300, 400), "device": "cpu"}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"model": Small, "budget": 4000, "steps": 24, "batch_size": 23, "lr": 0.05, "dense": False,
              "values": "f16"},
    "taught": {"model": Small, "budget": 4000, "steps": 60, "batch_size": 23, "lr": 0.05, "values": "f16"},
    "few bits": {"model": Small, "budget": 4000, "steps": 60, "batch_size": 23, "lr": 0.05},
    "searched": {"model": Normed, "budget": 1900, "strategy": "greedy", "greedy_step": 0.4, "steps": 24,
                 "candidate_steps": 8, "batch_size": 16, "validation": 60, "values": "f16",
                 "dense": False},
    "unalike": {"model": Small, "budget": 4000, "steps": 10, "batch_size": 23},
}  # fmt: skip


def fit_case(case: str, out: Path, run_dir: Path | None = None) -> None:
    """Fit, and save what every process got."""
    asked = COMMON | CASES[case]
    rank = int(os.environ.get("RANK", "0"))
    if case == "unalike":
        asked["steps"] += rank
    if asked["model"] is Small:  # begun differently: the first process's weights count
        torch.manual_seed(rank)
        asked["model"] = Small()
    fitted = mb.fit(asked.pop("model"), split(0, 300), asked.pop("budget"), run_dir=run_dir, **asked)
    fitted.save(out.with_name(f"{out.name}-{rank}.safetensors"))


def _serve_one(order: dict[str, Any], rank: int) -> int:
    torch.set_num_threads(1)
    jobs.Settings = partial(jobs.Settings, checkpoint_seconds=0)  # type: ignore[misc]
    if order["kill"] is not None and rank == order["ranks"] - 1:
        saves = iter(range(order["kill"]))
        save = loop.save

        def save_or_die(run: Any) -> None:
            save(run)
            if next(saves, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        loop.save = save_or_die
    try:
        fit_case(order["case"], Path(order["out"]), order["run_dir"] and Path(order["run_dir"]))
    except MemboundError as error:
        print(f"membound: error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def serve() -> None:
    # What a fit loads on its way is loaded once. The first trace loads most, for seconds; it computes on this thread
    # alone, as a fork has no threads of a pool made before it.
    for module in ("membound.search.fit", "torch.nn.parallel", "torch.distributed.algorithms.join"):
        import_module(module)
    torch.set_num_threads(1)
    Tracer(nn.Linear(3, 2), torch.zeros(1, 3))
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(order["ranks"]):
            child = os.fork()
            if child == 0:
                meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank,
                           "LOCAL_RANK": rank, "WORLD_SIZE": order["ranks"]}  # fmt: skip
                os.environ |= {name: str(value) for name, value in meeting.items()}
                code = 70
                try:
                    code = _serve_one(order, rank)
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


class Ranks:
    """Such fits, from a test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.errors = folder, folder / "errors.txt"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        assert self._answer() == "ready", self.errors.read_text()

    def run(
        self, case: str, ranks: int, name: str, resumable: bool = False, kill: int | None = None
    ) -> list[int]:
        """The exit codes; files are `folder / f"{name}-{rank}.safetensors"`."""
        run_dir = str(self.folder / f"{name}.run") if resumable else None
        order = {
            "case": case,
            "ranks": ranks,
            "out": str(self.folder / name),
            "run_dir": run_dir,
            "kill": kill,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        codes: list[int] = json.loads(self._answer())
        return codes

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


if __name__ == "__main__":
    serve()
