"""Time and memory of the projection, of saving, loading, running and fitting, against the size of a network.

    python benchmarks/scaling.py --out results/scaling.json

A network of three equal square layers, of 10^4 to 10^8 weights in all, a tenth of them kept, each in a process of its
own. Times are the fastest of several; memory is what the process grew by at its highest. `fit` is 20 steps of batch 32
under a bound of 10 % of the file, dense network left out, per step.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import arguments, record

SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)
STEPS = 20


def fastest(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return 1000 * min(found)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(weights: int) -> dict[str, Any]:
    """In this process, whose memory is its own."""
    import numpy as np
    import torch
    from torch import nn

    import membound as mb
    from membound.train.projection import project_

    torch.manual_seed(0)
    side = round((weights / 3) ** 0.5)
    net = nn.Sequential(
        nn.Linear(side, side, bias=False), nn.ReLU(), nn.Linear(side, side, bias=False), nn.ReLU(),
        nn.Linear(side, side, bias=False),
    )  # fmt: skip
    times = 7 if weights <= 10**7 else 3
    found: dict[str, Any] = {"weights": 3 * side * side}
    flat = net[0].weight.detach().clone()
    before = peak()
    found["project_ms"] = 3 * fastest(
        lambda: project_(flat.copy_(net[0].weight.detach()), side * side // 10), times
    )
    found["project_bytes"] = peak() - before
    for layer in net:
        if isinstance(layer, nn.Linear):
            project_(layer.weight, side * side // 10)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        before = peak()
        found["save_ms"] = fastest(lambda: mb.save(net, path, torch.zeros(1, side)), min(times, 3))
        found["save_bytes"] = peak() - before
        found["file_bytes"] = path.stat().st_size
        before = peak()
        found["load_ms"] = fastest(lambda: mb.load(path), times)
        found["load_bytes"] = peak() - before
        loaded, x = mb.load(path, threads=1), np.zeros((1, side), np.float32)
        loaded(x)
        found["run_ms"] = fastest(lambda: loaded(x), times)
    rows = torch.randn(64, side)
    labels = torch.arange(64) % 2
    before, begin = peak(), time.perf_counter()
    mb.fit(net, (rows, labels), "10%", steps=STEPS, batch_size=32, dense=False, device="cpu")
    found["fit_ms_a_step"] = 1000 * (time.perf_counter() - begin) / STEPS
    found["fit_bytes"] = peak() - before
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--one", type=int, help="one size, in this process")
    parser.add_argument("--out", default="results/scaling.json")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one)))
        return
    rows = []
    for size in SIZES:
        command = [sys.executable, __file__, "--one", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    record(options.out, {"steps": STEPS, "rows": rows})


if __name__ == "__main__":
    main()
