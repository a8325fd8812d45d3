"""From a picture to its class in C++, as in an app: examples/app, built by its CMakeLists.txt.

    python benchmarks/app.py --out results/app-arm.json

Networks with a tenth of their weights in 4 bits, which random weights time as well as trained ones. The picture has
640 x 480 pixels. `prepare_ms` is the resize and the crop, `run_ms` the network, both on one thread: the least time of
all rounds counts, in which the float32 runtime (`float_ms`) takes its turns.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _record import ROOT, arguments, record
from c_export import KEPT, make_file
from c_export import NETWORKS as SMALL

import membound as mb

NETWORKS = SMALL | {"efficientnet_lite0": (mb.zoo.efficientnet_lite0, (3, 224, 224))}
PICTURE = (480, 640, 3)


def build_app(file: Path, folder: Path, shape: tuple[int, ...]) -> Path:
    """The program around the exported network."""
    images = np.random.default_rng(0).integers(0, 256, (32, *shape), np.uint8)
    mb.export_c(file, folder / "c", images=images)
    source, build = ROOT / "examples" / "app", folder / "build"
    configure = ["cmake", "-S", source, "-B", build, f"-DNET={folder / 'c'}"]
    for command in (configure, ["cmake", "--build", build]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return build / "classify"


def write_picture(path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, PICTURE, np.uint8)
    path.write_bytes(b"P6 %d %d 255\n" % (PICTURE[1], PICTURE[0]) + pixels.tobytes())


def least_float(net: mb.Net, x: Any, runs: int) -> float:
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        net(x)
        taken.append(1e3 * (time.perf_counter() - begun))
    return min(taken)


def measure(name: str, runs: int, rounds: int) -> dict[str, Any]:
    """The least milliseconds of both parts, and of the float32 runtime."""
    build, shape = NETWORKS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_file(build, shape, folder / "net.safetensors")
        program = build_app(folder / "net.safetensors", folder, shape)
        write_picture(folder / "picture.ppm")
        net = mb.load(folder / "net.safetensors", threads=1)
        x = np.random.default_rng(1).random((1, *shape), np.float32)
        found: list[tuple[float, ...]] = []
        for _ in range(rounds):
            said = subprocess.check_output([program, folder / "picture.ppm", "1", str(runs)], text=True)
            parts = re.search(r"prepare ([\d.]+) ms, run ([\d.]+) ms", said)
            assert parts is not None
            found.append((*map(float, parts.groups()), least_float(net, x, runs)))
    prepare_ms, run_ms, float_ms = map(min, zip(*found, strict=True))
    return {"network": name, "prepare_ms": prepare_ms, "run_ms": run_ms, "float_ms": float_ms}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=20, help="pictures in a round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", default="results/app-arm.json")
    options = parser.parse_args()
    rows = []
    for name in NETWORKS:
        rows.append(measure(name, options.runs, options.rounds))
        print(rows[-1], flush=True)
    about = {"kept": KEPT, "values": "p4", "threads": 1, "picture": PICTURE}
    record(options.out, {**about, "runs": options.runs, "rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
