"""Gradients of convolutions by membound.train.convolution, against torch's own: one thread, processor time.

python benchmarks/conv_gradients.py --out results/conv-gradients-arm.json
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from _record import arguments, record
from torch.nn.functional import conv2d

from membound.train.convolution import ByProducts, gradients_are_slow

LAYERS = {  # images, channels, units, side, kernel, padding
    "lenet conv1": (64, 1, 20, 28, 5, 0),
    "lenet conv2": (64, 20, 50, 12, 5, 0),
    "cifar10_quick conv2": (64, 32, 32, 16, 5, 2),
    "resnet8 first stage": (64, 16, 16, 32, 3, 1),
    "resnet8 last stage": (64, 64, 64, 8, 3, 1),
    "resnet18 third stage": (16, 256, 256, 14, 3, 1),
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", default="results/conv-gradients-arm.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, layer in LAYERS.items():
        rows.append({"layer": name, "shape": layer} | race(*layer, runs=options.runs))
        print(rows[-1], flush=True)
    record(options.out, {"threads": 1, "used_on_this_cpu": gradients_are_slow(), "rows": rows})


def race(
    n: int, channels: int, units: int, side: int, kernel: int, padding: int, *, runs: int
) -> dict[str, Any]:
    """Milliseconds of both passes, the least of several runs that take turns."""
    x = torch.rand(n, channels, side, side).to(memory_format=torch.channels_last)
    x.requires_grad_(channels > 1)  # the first layer's images need no gradient
    weight = torch.rand(units, channels, kernel, kernel, requires_grad=True)
    bias = torch.rand(units, requires_grad=True)

    def step(mode: Any) -> float:
        for each in (x, weight, bias):
            each.grad = None
        begun = time.process_time()
        with mode:
            found = conv2d(x, weight, bias, padding=padding)
        found.sum().backward()
        return time.process_time() - begun

    ways: dict[str, Callable[[], float]] = {
        "torch_ms": lambda: step(torch.enable_grad()),
        "products_ms": lambda: step(ByProducts()),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(runs + 2):
        for way, take in ways.items():
            seconds = take()
            if number > 1:
                taken[way].append(1000 * seconds)
    best = {way: round(min(found), 2) for way, found in taken.items()}
    return best | {"ratio": round(best["torch_ms"] / best["products_ms"], 2)}


if __name__ == "__main__":
    main()
