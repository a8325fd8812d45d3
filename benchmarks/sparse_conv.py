"""How much faster is a sparse convolution than a dense one? AlexNet's conv2 to conv5, one image.

    python benchmarks/sparse_conv.py --density 0.09 --out results/sparse-conv.json

Contenders take turns: ours on csr weights with random nonzeros, ours on dense weights, and torch's dense convolution
(oneDNN where torch has it). The floor is the number of multiplications over the machine's peak, which --peak gives
in billions a second and thread (vector lanes x multipliers x GHz); without it none is shown.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _record import arguments, record

from membound import _core
from membound.run import Net
from membound.store.file import read_bytes, to_bytes
from membound.store.graph import Graph, Node
from membound.store.model import Model

# name: input channels, output channels, kernel, pad, groups, height and width
LAYERS = {
    "conv2": (96, 256, 5, 2, 2, 27),
    "conv3": (256, 384, 3, 1, 1, 13),
    "conv4": (384, 384, 3, 1, 2, 13),
    "conv5": (384, 256, 3, 1, 2, 13),
}


def stored(weight: np.ndarray, pad: int, groups: int, size: int, prefer: str) -> Any:
    channels = weight.shape[1] * groups
    node = Node("conv", (0,), {"pad": (pad,) * 4, "groups": groups}, {"w": "w"})
    model = Model(Graph((channels, size, size), (node,), 1), {"w": weight})
    return read_bytes(to_bytes(model, prefer=prefer))


def measure(name: str, density: float, threads: int, rounds: int, seed: int) -> dict[str, Any]:
    channels, out, kernel, pad, groups, size = LAYERS[name]
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((out, channels // groups, kernel, kernel), dtype=np.float32)
    sparse = dense * (rng.random(dense.shape) < density)
    x = rng.standard_normal((1, channels, size, size), dtype=np.float32)
    ours = Net(stored(sparse, pad, groups, size, "speed"), threads=threads)
    ours_dense = Net(stored(dense, pad, groups, size, "speed"), threads=threads)
    tx, tw, ts = (torch.from_numpy(array) for array in (x, dense, sparse))

    def torch_dense() -> Any:
        return torch.nn.functional.conv2d(tx, tw, padding=pad, groups=groups)

    reference = torch.nn.functional.conv2d(tx.double(), ts.double(), padding=pad, groups=groups).numpy()
    error = float(np.abs(ours(x) - reference).max() / np.abs(reference).max())
    assert error < 1e-4, f"{name}: {error}"

    field: dict[str, Callable[[], Any]] = {
        "sparse": lambda: ours(x),
        "dense": lambda: ours_dense(x),
        "torch dense": torch_dense,
    }
    times: dict[str, list[float]] = {contender: [] for contender in field}
    with torch.inference_mode():
        for _ in range(rounds):
            for contender, work in field.items():
                work()  # brings its data back into the caches, as in a run of the same layer
                for _ in range(3):
                    start = time.perf_counter()
                    work()
                    times[contender].append(time.perf_counter() - start)
    best = {contender: min(values) * 1e3 for contender, values in times.items()}
    return {
        "layer": name,
        "nonzeros": int(np.count_nonzero(sparse)),
        "multiplications": int(np.count_nonzero(dense)) * size * size,
        "min_ms": best,
        "median_ms": {contender: statistics.median(values) * 1e3 for contender, values in times.items()},
        "times_faster_than_torch_dense": best["torch dense"] / best["sparse"],
        "error": error,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--density", type=float, default=0.09)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, help="billions of multiplications a second, of one thread")
    parser.add_argument("--out", default="results/sparse-conv.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    layers = []
    for name in LAYERS:
        layer = measure(name, options.density, options.threads, options.rounds, options.seed)
        if options.peak:
            layer["floor_ms"] = (
                layer["multiplications"] * options.density / options.peak / 1e6 / options.threads
            )
        layers.append(layer)
        shown = ", ".join(f"{contender} {ms:.3f} ms" for contender, ms in layer["min_ms"].items())
        print(f"{name}: {shown}; {layer['times_faster_than_torch_dense']:.2f} times as fast as torch dense")
    sums = {key: sum(layer["min_ms"][key] for layer in layers) for key in layers[0]["min_ms"]}
    ratio = sums["torch dense"] / sums["sparse"]
    print(f"together: {ratio:.2f} times as fast as torch dense")
    record(
        options.out,
        {
            "density": options.density,
            "threads": options.threads,
            "isa": _core.isa(),
            "seed": options.seed,
            "layers": layers,
            "sum_ms": sums,
            "times_faster_than_torch_dense": ratio,
        },
    )


if __name__ == "__main__":
    main()
