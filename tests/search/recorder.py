"""Processes that record jobs until they are killed, and what must be there afterwards.

Run as a script it loads torch once and forks: each line `PATH` on its input starts a process that records there, says
so when it holds the run directory, and is killed by the next line, whatever that says.
"""

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

from membound.search.ledger import RunDirectory, open_run

CONFIG = {"network": "0123", "options": {"steps": 100}}


def key(index: int) -> str:
    return f"job-{index:04}"


def facts(index: int) -> dict[str, Any]:
    return {"accuracy": 100 / (index + 3), "index": index}


def tensors(index: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((7, 11), float(index)), "steps": torch.tensor([index])}


def loses(index: int) -> bool:
    """Whether the job's tensors are dropped once the next job is finished."""
    return index % 3 == 1


def record_forever(run: RunDirectory) -> None:
    """Every job in turn, as a search would: what is finished is passed over."""
    for index in count():
        if run.finished(key(index)) is None:
            (run.job_folder(key(index)) / "checkpoint").write_text("half of it")
            run.record(key(index), facts(index), tensors(index))
        if index and loses(index - 1):
            run.forget_weights(key(index - 1))


def write_slowly(descriptor: int, data: bytes, write: Any = os.write) -> int:
    """A disk that takes a part of what it is given, and time: lines are torn."""
    time.sleep(0.001)
    return int(write(descriptor, data[:40]))


def serve() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write = write_slowly
            with open_run(Path(line.rstrip("\n")), CONFIG) as run:
                print("recording", flush=True)
                record_forever(run)
        sys.stdin.readline()
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print("killed" if os.waitstatus_to_exitcode(status) == -signal.SIGKILL else "ended", flush=True)


if __name__ == "__main__":
    serve()
