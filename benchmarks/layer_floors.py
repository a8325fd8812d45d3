"""How far each layer is from what the machine allows: ResNet-18, MobileNet and EfficientNet-Lite0 at 10 %.

    taskset -c 1 python benchmarks/layer_floors.py --out results/layer-floors-x86.json

One image, one thread, pinned to a core from the start, so that numpy has no second thread for its peak; files in
float32, stored for speed; the least time of each operator over all runs, without Python. The floor of an operator is
the largest of

- its multiplications (nonzeros x pixels; of dense layers, weights x pixels) over the machine's peak, as numpy's matrix
  product reaches it: a nonzero's multiplication also loads a float of the image, which from the first cache is as fast;
- its loads and stores, of the image and the result once each, over what the machine copies within its second cache;
- the bytes of its weights over what it copies in memory.

The machine is measured before every network and after the last one, and the best is taken for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _networks import mobilenet, resnet18, thin_
from _record import arguments, record

from membound import zoo
from membound.capture import capture
from membound.run import Net
from membound.store.file import read_bytes, to_bytes
from membound.store.model import StoredModel

NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet18": resnet18,
    "mobilenet": mobilenet,
    "lite0": zoo.efficientnet_lite0,
}
LIMIT = 2.5  # times the floor: what a layer should be within


def fastest(work: Callable[[], object], seconds: float = 0.5) -> float:
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - begin)
    return found


def peak() -> dict[str, float]:
    """Multiplications, floats read or written in the second cache, and bytes in memory, a second."""
    random = np.random.default_rng(0)
    a, out = random.standard_normal((512, 512), np.float32), np.empty((512, 512), np.float32)
    near, there = np.ones(1 << 16, np.float32), np.empty(1 << 16, np.float32)
    large = np.zeros(1 << 24, np.float32)
    copy = np.empty_like(large)
    return {
        "multiplications": a.size * 512 / fastest(lambda: np.matmul(a, a, out=out)),
        "near_floats": 2 * near.size / fastest(lambda: np.copyto(there, near)),
        "bytes": 2 * large.nbytes / fastest(lambda: np.copyto(copy, large)),
    }


def work_of(model: StoredModel, number: int) -> dict[str, Any]:
    """What an operator multiplies, loads and reads."""
    node, output = model.graph.nodes[number], model.shapes[number + 1]
    values = sum(int(np.prod(model.shapes[i])) for i in node.inputs) + int(np.prod(output))
    row = {"name": node.op, "op": node.op, "output": list(output), "format": None, "nonzeros": 0}
    if "w" not in node.tensors or node.op not in ("conv", "linear"):
        return row | {"multiplications": 0, "loads": values, "bytes": 0}
    name = node.tensors["w"]
    weight = model.tensors[name]
    size, groups = int(np.prod(weight.shape)), int(node.attributes.get("groups", 1))
    pixels = int(np.prod(output[1:])) if node.op == "conv" else 1
    products = (size if weight.format == "dense" else weight.nonzeros) * pixels
    kind = (
        "linear"
        if node.op == "linear"
        else f"{'depthwise ' if groups > 1 else ''}{weight.shape[2]}x{weight.shape[3]}"
    )
    return row | {
        "name": name.removesuffix(".weight"),
        "op": kind,
        "format": weight.format,
        "nonzeros": weight.nonzeros,
        "multiplications": products,
        "loads": values,
        "bytes": weight.nbytes,
    }


def measure(make: Callable[[], torch.nn.Module], density: float, runs: int) -> list[dict[str, Any]]:
    """Each operator that takes time, and how much."""
    torch.manual_seed(0)
    model = capture(thin_(make(), density).eval(), torch.zeros(1, 3, 224, 224))
    net = Net(read_bytes(to_bytes(model, prefer="speed")), threads=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
    net(x)
    times = np.array([net.time(x) for _ in range(runs)]).min(0)
    return [
        work_of(net.model, number) | {"ms": 1e3 * seconds}
        for number, seconds in enumerate(times)
        if seconds > 0  # else nothing runs: another shape of the same values
    ]


def judge(rows: list[dict[str, Any]], machine: dict[str, float]) -> dict[str, Any]:
    """The floor of each operator, what it is bound by, and which are far from it."""
    for row in rows:
        floors = {
            "multiplications": row["multiplications"] / machine["multiplications"],
            "loads": row["loads"] / machine["near_floats"],
            "bytes": row["bytes"] / machine["bytes"],
        }
        row["bound"] = max(floors, key=floors.__getitem__)
        row["floor_ms"] = 1e3 * floors[row["bound"]]
        row["times"] = row["ms"] / row["floor_ms"]
    beyond = [f"{row['name']} ({row['op']})" for row in rows if row["times"] > LIMIT]
    ms, floor = (sum(row[key] for row in rows) for key in ("ms", "floor_ms"))
    return {"ms": ms, "floor_ms": floor, "beyond": beyond, "layers": rows}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", default="results/layer-floors-x86.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    timed, machines = {}, []
    for name, make in NETWORKS.items():
        machines.append(peak())
        timed[name] = measure(make, options.density, options.runs)
    machines.append(peak())
    best = {key: max(each[key] for each in machines) for key in machines[0]}
    networks = {name: judge(rows, best) for name, rows in timed.items()}
    for name, found in networks.items():
        print(f"{name}: {found['ms']:.2f} ms, floor {found['floor_ms']:.2f} ms")
        for row in sorted(found["layers"], key=lambda row: row["floor_ms"] - row["ms"])[:12]:
            print(
                f"  {row['name']:<28} {row['op']:<14} {row['ms']:.3f} ms, {row['times']:.1f} times {row['bound']}"
            )
        print(f"  beyond {LIMIT} times: {len(found['beyond'])} of {len(found['layers'])}", flush=True)
    about = {"density": options.density, "runs": options.runs, "limit": LIMIT, "machine": best}
    record(options.out, {**about, "networks": networks})


if __name__ == "__main__":
    main()
