"""Networks fitted into the flash and RAM of a microcontroller: accuracy of all test images through the C code.

    python benchmarks/micro_fit.py mnist-8k mnist-16k --seeds 0 --out results/micro_fits.json
    python benchmarks/micro_fit.py cifar10-40k cifar10-28k --seeds 0 --device cuda

Flash counts constants and the runtime's code, RAM the context and the stack; images are fed by rows. With --save the
files are kept, as NAME-SEED.safetensors in that folder.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from _record import arguments, record
from torch import Tensor, nn

import membound as mb
from membound.data import load


class Digits(nn.Module):
    """Two convolutions with pools and two linear layers, for 28 x 28 pixels."""

    def __init__(self, first: int, second: int, hidden: int, kernel: int = 5) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, first, 5, bias=False), nn.BatchNorm2d(first)
        self.conv2, self.norm2 = nn.Conv2d(first, second, kernel, bias=False), nn.BatchNorm2d(second)
        side = (12 - kernel + 1) // 2
        self.fc1, self.fc2 = nn.Linear(second * side * side, hidden), nn.Linear(hidden, 10)
        self.pool, self.act = nn.MaxPool2d(2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm1(self.conv1(x))))
        x = self.pool(self.act(self.norm2(self.conv2(x)))).flatten(1)
        scores: Tensor = self.fc2(self.act(self.fc1(x)))
        return scores


@dataclass(frozen=True)
class Case:
    """A network, what it is trained on, and what it may take."""

    make: Callable[[], nn.Module]
    data: str
    flash: str
    ram: str
    choices: dict[str, Any] = field(default_factory=dict)


DIGITS = {"augment": "shift=2,turn=8,zoom=0.08", "batch_size": 128}
CASES = {
    "mnist-8k": Case(partial(Digits, 12, 24, 64), "mnist", "8KB", "2KB", DIGITS | {"steps": 12_000}),
    "mnist-16k": Case(partial(Digits, 24, 64, 96), "mnist", "16KB", "4KB", DIGITS | {"steps": 16_000}),
    "cifar10-40k": Case(partial(mb.zoo.resnet8, width=22), "cifar10", "40KB", "20KB", {"teacher": "auto"}),
    "cifar10-28k": Case(partial(mb.zoo.resnet8, width=15), "cifar10", "28KB", "14KB", {"teacher": "auto"}),
}


def measure(name: str, seed: int, options: Any) -> dict[str, Any]:
    case, begun = CASES[name], time.monotonic()
    more = case.choices | ({} if options.steps is None else {"steps": options.steps})
    fitted = mb.fit(
        case.make, load(case.data), case.flash, ram=case.ram, target="micro", dense=False, seed=seed,
        device=options.device, **more,
    )  # fmt: skip
    if options.save is not None:
        fitted.save(options.save / f"{name}-{seed}.safetensors")
    row = {
        "name": name,
        "data": case.data,
        "seed": seed,
        "flash_allowed": case.flash,
        "ram_allowed": case.ram,
        "accuracy": fitted.accuracy,
        "images": fitted.images,
        "nonzeros": fitted.facts["weight_nonzeros"],
        "tried": fitted.facts["tried"],
        **fitted.facts["micro"],
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="+", choices=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, help="instead of those of the case")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [measure(name, seed, options) for name in options.names for seed in options.seeds]
    if options.out is not None:
        record(options.out, {"rows": rows})


if __name__ == "__main__":
    main()
