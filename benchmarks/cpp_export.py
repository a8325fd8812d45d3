"""C++ of `membound export --cpp` beside the same network in Python and as the C of `export --c`, and a resize.

    python benchmarks/cpp_export.py --out results/cpp-export-arm.json
    python benchmarks/cpp_export.py --sizes --out results/cpp-export-size-x86.json

Networks with a tenth of their weights in 4 bits, which random weights time as well as trained ones, on one thread, one
image at a time. `cpp_ms` is net_run of the exported folder, by its own main.cpp; `python_ms` is net(x) of the same
file, `c_ms` the integer C. `resize_ms` is what examples/app takes to resize and crop a picture of 640 x 480 pixels. All
take turns, and the least time of all rounds counts. `binary_bytes` is the stripped program, `weight_bytes` its weights,
`code_bytes` the rest of it. With --sizes only these, which need no quiet machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _record import ROOT, arguments, record
from c_export import KEPT, build_program, make_file
from c_export import NETWORKS as SMALL

import membound as mb

NETWORKS = SMALL | {"efficientnet_lite0": (mb.zoo.efficientnet_lite0, (3, 224, 224))}
PICTURE = (480, 640, 3)


def build_app(file: Path, folder: Path) -> tuple[Path, Path, int]:
    """The example around the exported network, the network's own example, and the bytes of its weights."""
    made, fresh = folder / "cpp", folder / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    weight_bytes = mb.export_cpp(file, fresh).weight_bytes
    if made.exists():  # of another network: the kernels are the same, and compiled
        for name in ("net.h", "net.cpp", "weights.cpp", "net_test.h", "net_test.cpp", "main.cpp"):
            shutil.copy(fresh / name, made / name)
    else:
        shutil.copytree(fresh, made)
    build = folder / "build"
    for command in (
        ["cmake", "-S", ROOT / "examples" / "app", "-B", build, f"-DNET={made}"],
        ["cmake", "--build", build],
        ["c++", "-std=c++17", "-O2", "-s", "-pthread", f"-I{made}", made / "main.cpp", build / "net" / "libnet.a",
         build / "net" / "libmembound_kernels.a", "-o", folder / "main"],
    ):  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return build / "classify", folder / "main", weight_bytes


def write_picture(path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, PICTURE, np.uint8)
    path.write_bytes(b"P6 %d %d 255\n" % (PICTURE[1], PICTURE[0]) + pixels.tobytes())


def least_python(net: mb.Net, x: Any) -> float:
    """As main.cpp does: up to 1000 runs in a second."""
    taken: list[float] = []
    started = time.perf_counter()
    while len(taken) < 1000 and time.perf_counter() < started + 1:
        begun = time.perf_counter()
        net(x)
        taken.append(1e3 * (time.perf_counter() - begun))
    return min(taken)


def number(pattern: str, *command: object) -> float:
    found = re.search(pattern, subprocess.check_output([*map(str, command)], text=True))
    assert found is not None
    return float(found[1])


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """The least milliseconds of each, in this many rounds; of none, sizes only."""
    build, shape = NETWORKS[name]
    file, picture, image = folder / f"{name}.safetensors", folder / "picture.ppm", folder / "image.raw"
    make_file(build, shape, file)
    classify, main, weight_bytes = build_app(file, folder)
    binary = main.stat().st_size
    sizes = {
        "file_bytes": file.stat().st_size,
        "weight_bytes": weight_bytes,
        "binary_bytes": binary,
        "code_bytes": binary - weight_bytes,
    }
    if not rounds:
        return {"network": name, **sizes}
    in_c = build_program(file, folder / f"{name}-c", shape)
    write_picture(picture)
    pixels = np.random.default_rng(2).integers(0, 256, (*shape[1:], shape[0]), np.uint8)
    image.write_bytes(pixels.tobytes())
    net = mb.load(file, threads=1)
    x = net.preprocess(np.ascontiguousarray(pixels.transpose(2, 0, 1))[None])
    found = [
        {
            "cpp_ms": number(r"([\d.]+) ms", main, image, 1),
            "python_ms": least_python(net, x),
            "c_ms": number(r"([\d.]+)", in_c, 10),
            "resize_ms": number(r"prepare ([\d.]+) ms", classify, picture, 1, 20),
        }
        for _ in range(rounds)
    ]
    return {"network": name} | {key: min(each[key] for each in found) for key in found[0]} | sizes


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sizes", action="store_true", help="measure no times")
    parser.add_argument("--out", default="results/cpp-export-arm.json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in NETWORKS:
            rows.append(measure(name, Path(place), 0 if options.sizes else options.rounds))
            print(rows[-1], flush=True)
    about: dict[str, Any] = {"kept": KEPT, "values": "p4"}
    if not options.sizes:
        about |= {"threads": 1, "picture": PICTURE, "rounds": options.rounds}
    record(options.out, {**about, "rows": rows})


if __name__ == "__main__":
    main()
