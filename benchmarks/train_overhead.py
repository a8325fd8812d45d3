"""What does projection every 100 steps cost while CIFAR-10-quick trains? A plain torch loop, dense and attached.

    python benchmarks/train_overhead.py --device cpu --out results/train-overhead-cpu.json

The two take turns in blocks of 100 steps, each of which contains one projection of every layer. The ratio of every
pair of neighbouring blocks is taken, and the median of these ratios reported: what slows the machine for a while
slows both.
"""

import argparse
import statistics
import time

import torch
from _record import record
from torch.nn.functional import cross_entropy

import membound as mb

STEPS = 100  # a block


class Contender:
    """One network in training, on images that stay the same: time is all that is measured."""

    def __init__(self, device: str, rules: dict | None) -> None:
        torch.manual_seed(0)
        self.device = device
        self.net = mb.zoo.cifar10_quick().to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4, momentum=0.9)
        self.x = torch.randn(100, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
        self.y = torch.randint(0, 10, (100,), device=device)
        if rules:
            mb.attach(self.optimizer, self.net, rules)

    def block(self) -> float:
        """Seconds for one block."""
        self._wait()
        started = time.perf_counter()
        for _ in range(STEPS):
            self.optimizer.zero_grad(set_to_none=True)
            cross_entropy(self.net(self.x), self.y).backward()
            self.optimizer.step()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--out", help="default: results/train-overhead-DEVICE.json")
    options = parser.parse_args()
    dense = Contender(options.device, None)
    sparse = Contender(options.device, {"*": mb.l0_project(keep=0.2, every=100)})
    dense.block(), sparse.block()  # warm up
    pairs = []
    for at in range(options.blocks):  # who goes first alternates, too
        first, second = (dense, sparse) if at % 2 == 0 else (sparse, dense)
        times = {id(first): first.block(), id(second): second.block()}
        pairs.append((times[id(dense)], times[id(sparse)]))
    ratios = [sparse_time / dense_time for dense_time, sparse_time in pairs]
    dense_ms, sparse_ms = (
        [1e3 * seconds / STEPS for seconds in column] for column in zip(*pairs, strict=True)
    )
    result = {
        "device": options.device,
        "dense_ms_a_step": {"min": min(dense_ms), "median": statistics.median(dense_ms)},
        "sparse_ms_a_step": {"min": min(sparse_ms), "median": statistics.median(sparse_ms)},
        "overhead_percent": 100 * (statistics.median(ratios) - 1),
        "overhead_percent_of_minima": 100 * (min(sparse_ms) / min(dense_ms) - 1),
        "quartiles_percent": [100 * (q - 1) for q in statistics.quantiles(ratios, n=4)],
        "blocks": options.blocks,
        "target_percent": 2.0,
    }
    print(result)
    record(options.out or f"results/train-overhead-{options.device}.json", result)


if __name__ == "__main__":
    main()
