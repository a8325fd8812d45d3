"""How fast is the projection onto t nonzeros, against `torch.topk` and against the memory?

    python benchmarks/projection.py --out results/projection-cpu.json

Contenders take turns, so that a busy moment of the machine hits all of them. Every contender's first result
is compared, bit by bit, with a stable sort. The floor is the time that the memory traffic alone takes:
the data is read, then read and written (and if a projection changes nothing, only read).

Between turns torch restores the data, and its OpenMP threads then spin for some milliseconds: contenders
with threads of their own pay for that, as they would in training. OMP_WAIT_POLICY=passive takes it away.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _record import arguments, record
from _timing import wait
from torch import Tensor

from membound import _core
from membound.train.projection import project_torch_

KEY_MASK = 0x7FFFFFFF


@dataclass(frozen=True)
class Case:
    """n normal values, all but `nonzeros` of them already zero, of which t are to be kept."""

    name: str
    n: int
    t: int
    nonzeros: int | None = None

    def make(self, device: str) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        w = torch.randn(self.n, generator=generator)
        if self.nonzeros is not None:
            w[torch.randperm(self.n, generator=generator)[self.nonzeros :]] = 0
        return w.to(device)


CASES = [
    Case("37.7M dense to 3M", 37_748_736, 3_000_000),
    Case("37.7M, 3M nonzeros, to 3M (nothing to do)", 37_748_736, 3_000_000, nonzeros=3_000_000),
    Case("37.7M, 3.3M nonzeros, to 3M", 37_748_736, 3_000_000, nonzeros=3_300_000),
    Case("4.1M dense to 400K", 4_096_000, 400_000),
    Case("25,600 dense to 2,560", 25_600, 2_560),
    Case("500 dense to 50", 500, 50),
]

Contender = Callable[[Tensor, int], object]


def topk(w: Tensor, t: int) -> None:
    """The ordinary way: find the t largest, clear, put them back. Ties fall as topk likes."""
    kept = torch.topk(w.abs(), t, sorted=False).indices
    values = w[kept]
    w.zero_()
    w[kept] = values


def topk_only(w: Tensor, t: int) -> object:
    """`torch.topk` alone: a lower bound for everything that is built on it."""
    return torch.topk(w.abs(), t)


def core(isa: str, threads: int) -> Contender:
    return lambda w, t: _core.project(w.numpy(), t, isa, threads)


def contenders(device: str) -> dict[str, Contender]:
    """What to measure on this device, by name. Those named topk are the ordinary way, not checked bit by bit."""
    found: dict[str, Contender] = {"topk": topk_only, "topk, written back": topk}
    if device == "cpu":
        found |= {f"core {isa}": core(isa, 0) for isa in _core.isas()}
        found["core 1 thread"] = core(_core.isa(), 1)
    if device == "cuda":
        from membound.train.projection_triton import project_triton_

        found |= {"triton": project_triton_, "torch": project_torch_}
    return found


def reference(w: Tensor, t: int) -> Tensor:
    """The exact result: a stable sort by key, largest first; the first t are kept, less the zeros."""
    keys = w.view(torch.int32) & KEY_MASK
    kept = torch.sort(keys, descending=True, stable=True).indices[:t]
    kept = kept[keys[kept] > 0]
    result = torch.zeros_like(w)
    result[kept] = w[kept]
    return result


def seconds(work: Callable[[], object], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def measure(case: Case, device: str, budget_seconds: float, most_rounds: int) -> dict[str, Any]:
    """Run all contenders on one case, in turns, until the time is used up."""
    original = case.make(device)
    expected = reference(original, case.t)
    w = original.clone()
    field = contenders(device)
    for name, project in field.items():
        w.copy_(original)
        project(w, case.t)
        if not name.startswith("topk"):
            assert torch.equal(w.view(torch.int32), expected.view(torch.int32)), (
                f"{name}: wrong on {case.name}"
            )

    # The floor takes its turns too: a read (a sum) and an update in place (a product) of as many floats.
    field |= {"read": lambda w, _: w.sum(), "update": lambda w, _: w.mul_(1.0)}
    times: dict[str, list[float]] = {name: [] for name in field}
    end = time.perf_counter() + budget_seconds
    while len(times["topk"]) < 3 or (time.perf_counter() < end and len(times["topk"]) < most_rounds):
        for name, project in field.items():
            for _ in range(1 if name.startswith("topk") else 5):  # topk is slow, and needs fewer
                w.copy_(original)
                times[name].append(seconds(lambda: project(w, case.t), device))  # noqa: B023

    changes = not torch.equal(original.view(torch.int32), expected.view(torch.int32))
    return {
        "case": case.name,
        "n": case.n,
        "t": case.t,
        "nonzeros": case.nonzeros or case.n,
        "rounds": len(times["topk"]),
        "min_ms": {name: min(values) * 1e3 for name, values in times.items()},
        "median_ms": {name: statistics.median(values) * 1e3 for name, values in times.items()},
        "topk_over": {name: min(times["topk"]) / min(values) for name, values in times.items()},
        "floor": floor(case.n, min(times["read"]), min(times["update"]), changes),
    }


def floor(n: int, read: float, update: float, changes: bool) -> dict[str, float] | None:
    """The least time that the memory allows, from measured bandwidth; None where calls cost more than memory."""
    if n < 1_000_000:
        return None
    return {
        "read_gb_per_s": 4 * n / read / 1e9,
        "update_gb_per_s": 8 * n / update / 1e9,
        "ms": (read + (update if changes else 0.0)) * 1e3,
    }


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['case']} ({result['rounds']} rounds)")
    for name, ms in result["min_ms"].items():
        line = f"  {name:20} min {ms:9.4g} ms  median {result['median_ms'][name]:9.4g} ms"
        line += f"  topk/this {result['topk_over'][name]:6.1f}"
        if result["floor"]:
            line += f"  this/floor {ms / result['floor']['ms']:6.2f}"
        print(line)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for each case")
    parser.add_argument("--rounds", type=int, default=1000, help="at most this many rounds a case")
    parser.add_argument("--out", help="default: results/projection-DEVICE.json")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has no GPU that torch can use; run with --device cpu")

    results = []
    for case in CASES:
        result = measure(case, options.device, options.seconds, options.rounds)
        show(result)
        results.append(result)
    out = options.out or f"results/projection-{options.device}.json"
    record(
        out,
        {"device": options.device, "threads": torch.get_num_threads(), "isa": _core.isa(), "cases": results},
    )
    print(f"\nwrote {out}")


if __name__ == "__main__":
    main()
