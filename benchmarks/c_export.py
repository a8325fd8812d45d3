"""The C of `membound export --c`, built on a host by its own CMakeLists.txt, beside the float32 runtime.

    python benchmarks/c_export.py --out results/c-export-x86.json

LeNet, CIFAR-10-quick and ResNet-8 with a tenth of their weights in 4 bits, which random weights time as well as trained
ones. Both run one image at a time on one thread, in turns; the least time of all rounds counts.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _record import arguments, record

import membound as mb

NETWORKS = {
    "lenet": (mb.zoo.lenet, (1, 28, 28)),
    "cifar10_quick": (mb.zoo.cifar10_quick, (3, 32, 32)),
    "resnet8": (mb.zoo.resnet8, (3, 32, 32)),
}
KEPT = 0.1
CLOCK = r"""#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "net.h"

int main(int count, char **words) { /* the least milliseconds of one image, of as many as the first word says */
  static net_context context;
  static uint8_t image[NET_HEIGHT][NET_WIDTH * NET_CHANNELS];
  for (unsigned y = 0; y < NET_HEIGHT; y++)
    for (unsigned x = 0; x < sizeof image[0]; x++) image[y][x] = (uint8_t)rand();
  double best = 1e30;
  for (int left = count > 1 ? atoi(words[1]) : 1; left > 0; left--) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    net_start(&context);
    for (unsigned y = 0; y < NET_HEIGHT; y++) net_feed_row(&context, image[y], 1, NET_CHANNELS);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took = 1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec);
    if (took < best) best = took;
  }
  printf("%.6f\n", best);
  return 0;
}
"""


def make_file(build: Callable[[], torch.nn.Module], shape: tuple[int, ...], file: Path) -> None:
    """The network with its largest weights, in 4 bits."""
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.ndim > 1):
            least = weight.abs().flatten().kthvalue(round((1 - KEPT) * weight.numel()) or 1).values
            weight.mul_(weight.abs() > least)
    prepare = mb.data.Preprocess(scale=1 / 256)
    mb.save(model, file, torch.zeros(1, *shape), values="p4", preprocess=prepare)


def build_program(file: Path, folder: Path, shape: tuple[int, ...]) -> Path:
    """The exported folder, built as its CMakeLists.txt says, around a clock."""
    images = np.random.default_rng(0).integers(0, 256, (64, *shape), np.uint8)
    mb.export_c(file, folder, images=images)
    (folder / "main.c").write_text(CLOCK)
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder / "build"], check=True, stdout=subprocess.DEVNULL)
    return folder / "build" / "main"


def race(name: str, runs: int, rounds: int) -> dict[str, Any]:
    """The least milliseconds of both, in turns."""
    build, shape = NETWORKS[name]
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "net.safetensors"
        make_file(build, shape, file)
        program = build_program(file, Path(place) / "c", shape)
        net = mb.load(file, threads=1)
        x = np.random.default_rng(1).random((1, *shape), np.float32)
        float_ms, c_ms = [], []
        for _ in range(rounds):
            for _ in range(runs):
                begun = time.perf_counter()
                net(x)
                float_ms.append(1e3 * (time.perf_counter() - begun))
            c_ms.append(float(subprocess.check_output([program, str(runs)])))
    found = {"network": name, "float_ms": min(float_ms), "c_ms": min(c_ms)}
    return found | {"c_by_float": found["c_ms"] / found["float_ms"]}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=50, help="images in a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", default="results/c-export-x86.json")
    options = parser.parse_args()
    rows = []
    for name in NETWORKS:
        rows.append(race(name, options.runs, options.rounds))
        print(rows[-1], flush=True)
    about = {"kept": KEPT, "values": "p4", "threads": 1, "runs": options.runs, "rounds": options.rounds}
    record(options.out, {**about, "rows": rows})


if __name__ == "__main__":
    main()
