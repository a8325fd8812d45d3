"""Where the time of a network goes, operator by operator, and how far each is from what the machine allows.

The floor of an operator is what its multiplications take at the machine's peak, or what its weights take at the
memory's bandwidth, whichever is more. Both are measured here, in a process of their own: the peak as numpy's matrix
product reaches it, the bandwidth as it copies. Weights that stay in a cache from run to run can be faster than that.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from membound.errors import MemboundError
from membound.machine import describe
from membound.run.files import find_model_file
from membound.run.net import load
from membound.run.ports import random_inputs
from membound.store.model import StoredModel

MACHINE = """
import json, time
import numpy as np

def fastest(work, times=7):
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)

a = np.random.default_rng(0).standard_normal((768, 768), np.float32)
out = np.empty_like(a)
np.matmul(a, a, out=out)
large = np.zeros(1 << 25, np.float32)
copy = np.empty_like(large)
print(json.dumps({
    "multiplications": 768**3 / fastest(lambda: np.matmul(a, a, out=out)),
    "bytes": 2 * large.nbytes / fastest(lambda: np.copyto(copy, large)),
}))
"""


def measure_machine(threads: int) -> dict[str, float]:
    """Multiplications and bytes a second that numpy gets out of so many threads; copies are made by one."""
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(limits, str(threads))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", MACHINE], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise MemboundError(f"the machine's peak cannot be measured: {done.stderr.strip()[-200:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def time_layers(
    file: Path, *, threads: int = 1, batch: int = 1, runs: int = 100, seed: int = 0
) -> dict[str, Any]:
    """The fastest of `runs` for each operator of the network in a file, and its floor, in milliseconds."""
    file = find_model_file(file)
    net = load(file, threads=threads, max_batch=batch)
    machine = measure_machine(threads)
    given = random_inputs(net.inputs, batch, np.random.default_rng(seed))
    net(*given)
    times = np.array([net.time(*given) for _ in range(runs)]).min(0)
    rows = []
    for number, seconds in enumerate(times):
        row = _describe(net.model, number)
        floor = max(
            batch * row["multiplications"] / machine["multiplications"], row["bytes"] / machine["bytes"]
        )
        rows.append({**row, "ms": 1000 * seconds, "floor_ms": 1000 * floor})
    return {
        **describe(("membound", "numpy")),
        "file": file.name,
        "threads": threads,
        "batch": batch,
        "runs": runs,
        "machine": machine,
        "layers": rows,
    }


def _describe(model: StoredModel, number: int) -> dict[str, Any]:
    """What an operator does for one image."""
    node, output = model.graph.nodes[number], model.shapes[number + 1]
    name = node.tensors.get("w")
    if name is None:
        return {
            "name": node.op,
            "op": node.op,
            "format": None,
            "nonzeros": 0,
            "multiplications": 0,
            "bytes": 0,
        }
    weight = model.tensors[name]
    places = int(np.prod(output[1:])) if node.op == "conv" else int(np.prod(output[:-1]))
    return {
        "name": name.removesuffix(".weight"),
        "op": node.op,
        "format": weight.format,
        "nonzeros": weight.nonzeros,
        "multiplications": weight.nonzeros * places,
        "bytes": weight.nbytes,
    }
