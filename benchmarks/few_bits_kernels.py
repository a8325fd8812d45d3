"""What few bits cost the kernels: layers on codes, and on positions in about their entropy, beside float32.

    python benchmarks/few_bits_kernels.py --out results/few-bits-kernels.json

One image, one thread, every instruction set in turn; the layouts and types of a layer take turns in every round, and
times are those of the operator, without Python. Weights have 16 values and random nonzeros, so that all contenders
compute the same.

Floors. A convolution cannot take less than its multiplications over the machine's peak (vector lanes x multipliers x
GHz, which --peak gives in billions a second): nonzeros x pixels. To decode adds to that, for each tile of up to 448 or
1024 pixels (AVX-512, AVX2) and each nonzero, about 0.1 ns for a code and 0.5 ns for a position of rice; the
multiplications of a nonzero with 14 x 14 pixels take 12 cycles of AVX-512 at least. A linear layer on one vector reads
all its bytes once: over the bandwidth that --bandwidth gives in GB a second, 3 million nonzeros are 18 MB in csr with
float32, 7.5 MB with codes of 4 bits and 3.4 MB in rice. It also loads an element of the vector for each nonzero and
finds out which: 3.6 instructions, of which a core starts four a cycle, so that csr takes 0.35 ns a nonzero at 3 GHz
however few bytes it has. Slices (src/kernels/slices.h: codes of up to 4 bits in csr on AVX-512) take 7.5 instructions
for a step of about 8 nonzeros, and 2.2 bytes a nonzero.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from _record import arguments, record

from membound import _core
from membound.run import Net
from membound.store.file import assemble
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.model import Model

CONTENDERS = (("csr", "f32"), ("csr", "f16"), ("csr", "p4"), ("rice", "p4"), ("csr", "p8"), ("rice", "f32"))
DENSE = ("dense", "f32")  # beside linear layers
# height and width, channels in and out, kernel
CONVOLUTIONS = (
    (14, 64, 3), (14, 128, 3), (14, 256, 3), (14, 128, 1), (14, 256, 1), (28, 64, 3), (28, 128, 1), (56, 64, 3),
    (7, 256, 3),
)  # fmt: skip
DENSITIES = (0.05, 0.1, 0.2, 0.3)
LINEARS = (
    (4096, 25088, 10_000_000), (4096, 9216, 3_000_000), (4096, 4096, 4096 * 4096 // 10), (1000, 2048, 204_800),
    (500, 800, 10_000),
)  # fmt: skip


def weight(shape: tuple[int, ...], nonzeros: int, seed: int) -> np.ndarray:
    """So many elements of 16 values, the others 0."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(16).astype(np.float16).astype(np.float32)
    found = np.zeros(int(np.prod(shape)), np.float32)
    found[rng.choice(found.size, nonzeros, replace=False)] = values[rng.integers(0, 16, nonzeros)]
    return found.reshape(shape)


def network(model: Model, layout: str, values: str, isa: str) -> tuple[Net, int]:
    """The layer as it is stored, and the bytes of its weight."""
    stored = encode(model.tensors["layer.weight"], layout, values)
    return Net(assemble(model, {"layer.weight": stored}, values)[1], threads=1, isa=isa), stored.nbytes


def seconds(net: Net, x: np.ndarray) -> float:
    """Of the operator; without the time that other processes had the CPU, where a run takes so long that they had."""
    before = time.process_time()
    of_operator = sum(net.time(x))
    return min(of_operator, time.process_time() - before)


def race(
    model: Model, contenders: Sequence[tuple[str, str]], isa: str, rounds: int, seed: int
) -> dict[str, Any]:
    """A layer in all contenders: the least and the median time of each, how far it is off, its bytes and tables.

    Ratios are medians, over rounds, of the least times in a round: other work slows a round as a whole.
    """
    x = np.random.default_rng(seed).standard_normal((1, *model.graph.input_shape), dtype=np.float32)
    made = {"+".join(each): network(model, *each, isa) for each in contenders}
    first = next(iter(made.values()))[0](x)
    times: Mapping[str, list[list[float]]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, (net, _) in made.items():
            net(x)  # brings its data back into the caches, as in a run of the same layer
            times[name].append([seconds(net, x) for _ in range(3)])
    least, median = (
        {name: way(chain.from_iterable(each)) * 1e3 for name, each in times.items()}
        for way in (min, statistics.median)
    )
    of_rounds = {name: [min(each) for each in found] for name, found in times.items()}
    ratios = {
        name: statistics.median(mine / other for mine, other in zip(found, of_rounds["csr+f32"], strict=True))
        for name, found in of_rounds.items()
    }
    return {
        "isa": isa,
        "min_ms": least,
        "median_ms": median,
        "times_csr_f32": ratios,
        "bytes": {name: size for name, (_, size) in made.items()},
        "tables": {name: net.memory().tables for name, (net, _) in made.items()},
        "off": max(float(np.abs(net(x) - first).max() / np.abs(first).max()) for net, _ in made.values()),
    }


def convolution(size: int, channels: int, kernel: int, density: float, seed: int) -> Model:
    shape = (channels, channels, kernel, kernel)
    tensor = weight(shape, round(density * np.prod(shape)), seed)
    node = Node("conv", (0,), {"pad": (kernel // 2,) * 4}, {"w": "layer.weight"})
    return Model(Graph((channels, size, size), (node,), 1), {"layer.weight": tensor})


def linear(rows: int, columns: int, nonzeros: int, seed: int) -> Model:
    node = Node("linear", (0,), {}, {"w": "layer.weight"})
    return Model(Graph((columns,), (node,), 1), {"layer.weight": weight((rows, columns), nonzeros, seed)})


def tell(name: str, found: Mapping[str, Any]) -> None:
    ratios = ", ".join(
        f"{each} {ratio:.3f}" for each, ratio in found["times_csr_f32"].items() if each != "csr+f32"
    )
    print(
        f"{found['isa']:>7} {name}: csr+f32 {found['min_ms']['csr+f32']:.3f} ms; times that: {ratios}",
        flush=True,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--isas", nargs="+", default=[isa for isa in _core.isas() if isa != "scalar"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, help="billions of multiplications a second, of one thread")
    parser.add_argument("--bandwidth", type=float, help="GB a second that one thread reads")
    parser.add_argument("--out", default="results/few-bits-kernels.json")
    options = parser.parse_args()

    layers: list[dict[str, Any]] = []
    for isa in options.isas:
        for size, channels, kernel in CONVOLUTIONS:
            for density in DENSITIES:
                model = convolution(size, channels, kernel, density, options.seed)
                found = race(model, CONTENDERS, isa, options.rounds, options.seed)
                name = f"{channels} channels of {size} x {size}, {kernel} x {kernel}, {density:.0%}"
                layer: dict[str, Any] = {
                    "layer": name, "size": size, "channels": channels, "kernel": kernel, "density": density,
                }  # fmt: skip
                if options.peak:
                    products = np.count_nonzero(model.tensors["layer.weight"]) * size * size
                    layer["floor_ms"] = products / options.peak / 1e6
                tell(name, found)
                layers.append(layer | found)
        for rows, columns, nonzeros in LINEARS:
            model = linear(rows, columns, nonzeros, options.seed)
            found = race(model, (*CONTENDERS, DENSE), isa, options.rounds, options.seed)
            name = f"{columns} -> {rows}, {nonzeros:,} nonzeros"
            layer = {"layer": name, "rows": rows, "columns": columns, "nonzeros": nonzeros}
            if options.bandwidth:
                layer["floor_ms"] = {
                    each: size / options.bandwidth / 1e6 for each, size in found["bytes"].items()
                }
            tell(name, found)
            layers.append(layer | found)
    record(options.out, {"rounds": options.rounds, "seed": options.seed, "threads": 1, "layers": layers})


if __name__ == "__main__":
    main()
