"""What does projection every 100 steps cost while CIFAR-10-quick trains? A plain torch loop, dense and attached.

    python benchmarks/train_overhead.py --device cpu --out results/train-overhead-cpu.json

The two take turns every few steps, and who goes first alternates, so that what slows the machine for a while slows
both. A round is 100 steps of each and contains one projection of every layer; the median over the rounds of the ratio
of their times is reported. The images are MNIST's, padded to quick's size.
"""

import itertools
import statistics
import time

import torch
from _record import arguments, record
from _timing import wait
from torch.nn.functional import cross_entropy

import membound as mb

STEPS = 100  # a round


class Contender:
    """One network in training, over and over the same few batches."""

    def __init__(self, device: str, rules: dict | None) -> None:
        torch.manual_seed(0)
        self.device = device
        self.net = mb.zoo.cifar10_quick().to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        split = mb.data.load("mnist").train
        images = torch.nn.functional.pad(torch.from_numpy(split.images[:5000]).float(), (2, 2, 2, 2)) - 33
        images = images.expand(-1, 3, -1, -1).to(device).contiguous(memory_format=torch.channels_last)
        labels = torch.from_numpy(split.labels[:5000]).to(device)
        self.batches = itertools.cycle(zip(images.split(100), labels.split(100), strict=True))
        if rules:
            mb.attach(self.optimizer, self.net, rules)

    def run(self, steps: int) -> float:
        """Seconds for so many steps."""
        wait(self.device)
        started = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            x, y = next(self.batches)
            cross_entropy(self.net(x), y).backward()
            self.optimizer.step()
        wait(self.device)
        return time.perf_counter() - started


def round_of(dense: Contender, sparse: Contender, turn: int) -> tuple[float, float]:
    """Seconds of each for STEPS steps, in turns."""
    times = {id(dense): 0.0, id(sparse): 0.0}
    for at in range(STEPS // turn):
        for contender in (dense, sparse) if at % 2 == 0 else (sparse, dense):
            times[id(contender)] += contender.run(turn)
    return times[id(dense)], times[id(sparse)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", help="default: results/train-overhead-DEVICE.json")
    options = parser.parse_args()
    dense = Contender(options.device, None)
    sparse = Contender(options.device, {"*": mb.l0_project(keep=0.2, every=STEPS)})
    turn = 10 if options.device == "cuda" else 2
    round_of(dense, sparse, turn)  # warm up
    pairs = [round_of(dense, sparse, turn) for _ in range(options.rounds)]
    ratios = [sparse_time / dense_time for dense_time, sparse_time in pairs]
    dense_ms, sparse_ms = (
        [1e3 * seconds / STEPS for seconds in column] for column in zip(*pairs, strict=True)
    )
    result = {
        "device": options.device,
        "dense_ms_a_step": {"min": min(dense_ms), "median": statistics.median(dense_ms)},
        "sparse_ms_a_step": {"min": min(sparse_ms), "median": statistics.median(sparse_ms)},
        "overhead_percent": 100 * (statistics.median(ratios) - 1),
        "overhead_percent_of_sums": 100 * (sum(sparse_ms) / sum(dense_ms) - 1),
        "quartiles_percent": [100 * (q - 1) for q in statistics.quantiles(ratios, n=4)],
        "rounds": options.rounds,
        "target_percent": 2.0,
    }
    print(result)
    record(options.out or f"results/train-overhead-{options.device}.json", result)


if __name__ == "__main__":
    main()
