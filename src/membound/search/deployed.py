"""What came of a fit: the network as it will be deployed, measured through the runtime that deploys it."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from membound.data import Split
from membound.run.inspection import inspect
from membound.run.net import Net
from membound.search.measure import FileBytes
from membound.search.problem import Problem, State
from membound.store.model import StoredModel
from membound.train.evaluation import Score

BATCH = 64
TIMED_RUNS, TIMED_SECONDS = 200, 0.5  # of a latency, at most


@dataclass(frozen=True, eq=False)
class Fitted:
    """A network within its budget.

    `accuracy` is in percent, on `accuracy_on`, through the deployed runtime; for a task with a score of its own it is
    that score. `history` has every candidate that was trained on the way, `dense` the dense network beside it.
    """

    model: nn.Module
    limit: int
    size: int  # of what the budget counts
    file_bytes: int
    values: str
    accuracy: float | None
    accuracy_on: str
    errors: int | None
    images: int | None
    members: Sequence[float | None]  # accuracies of an ensemble's members
    history: Sequence[Mapping[str, Any]]
    dense: Mapping[str, Any] | None
    facts: Mapping[str, Any]  # everything else, as JSON
    name: str = ""
    files: FileBytes = field(repr=False, default=None)  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str]) -> StoredModel:
        """Write the model file, which `mb.load` runs."""
        return self.files.write(path, self.model.state_dict())

    def __repr__(self) -> str:
        score = (
            "no accuracy" if self.accuracy is None else f"accuracy {self.accuracy:.4g} on {self.accuracy_on}"
        )
        return f"Fitted({self.file_bytes:,} bytes, {score})"


def describe_stored(stored: StoredModel, batch: int = 1) -> dict[str, Any]:
    """Bytes, memory, latency and layers of a stored network."""
    net = Net(stored, max_batch=batch)
    facts = inspect(stored)
    return {
        "file_bytes": stored.file_bytes,
        "header_bytes": stored.header_bytes,
        "memory_bytes": net.memory().total,
        "latency_ms": measure_latency(net),
        "parameters": facts["parameters"],
        "nonzeros": facts["nonzeros"],
        "weight_nonzeros": facts["weight_nonzeros"],
        "layers": [
            {key: layer[key] for key in ("name", "shape", "nonzeros", "format", "bytes")}
            | {"size": layer["original_size"]}
            for layer in facts["layers"]
        ],
    }


def measure_latency(net: Net) -> float:
    """The least milliseconds that one input takes."""
    x = np.zeros((1, *net.input_shape), np.float32)
    best, until = float("inf"), time.monotonic() + TIMED_SECONDS
    for _ in range(TIMED_RUNS):
        begun = time.perf_counter()
        net(x)
        best = min(best, time.perf_counter() - begun)
        if time.monotonic() > until:
            break
    return best * 1000


def score_stored(stored: StoredModel, split: Split, problem: Problem) -> Score:
    """How good a stored network is on a split, through the runtime."""
    net = Net(stored, max_batch=BATCH)
    task = problem.task
    correct, total, loss = 0, 0.0, 0.0
    for begin in range(0, len(split), BATCH):
        rows = np.arange(begin, min(begin + BATCH, len(split)))
        outputs = torch.from_numpy(net(_prepared(split.read(rows), problem.data.preprocess)))
        targets = torch.from_numpy(np.ascontiguousarray(split.labels[rows]))
        with torch.no_grad():
            loss += float(task.batch_loss(outputs, targets)) * len(rows)
        if task.counts:
            correct += int((outputs.argmax(1) == targets).sum())
        else:
            total += float(task.batch_score(outputs, targets)) * len(rows)
    if task.counts:
        return Score(len(split), correct, loss / len(split))
    return Score(len(split), None, loss / len(split), total / len(split))


def _prepared(x: Any, preprocess: Any) -> Any:
    if x.ndim == 4:
        return preprocess(x)
    out = np.asarray(x, np.float32)  # not images: all that can be done to them is to scale them
    return out * np.float32(preprocess.scale) if preprocess.scale != 1 else out


def rounding_loss(problem: Problem, files: FileBytes, state: State, images: int) -> float:
    """How many points the values' rounding to 16 bits costs on some of the training images."""
    some = np.linspace(0, len(problem.data.train) - 1, min(images, len(problem.data.train)), dtype=np.int64)
    split = problem.data.train.take(some)
    exact = FileBytes(files.tracer, "f32", files.preprocess, files.classes)
    before = score_stored(exact.stored(state), split, problem).accuracy
    return before - score_stored(files.stored(state), split, problem).accuracy
