"""Model files on microcontrollers: flash, RAM, code, instructions on emulated boards, and what int8 costs in accuracy.

    python benchmarks/micro.py lenet.safetensors=mnist resnet8.safetensors=cifar10 --out results/micro.json

A file is calibrated on training images of its data, exported as C, compiled and run on each board whose compiler and
emulator are installed, where outputs must be the engine's. Accuracy is that of all test images through the C code in
the extension, beside the network in floating point. Instructions are not cycles.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _record import arguments, keep_rows, record
from numpy.typing import NDArray

from membound.data import load
from membound.export.micro import Calibrated, calibrate, facts_of
from membound.run.micro_net import MicroNet

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from emulated_boards import BOARDS, run_on
from micro_networks import NETWORKS, micro, mobilenet, some_images


def in_files(found: Calibrated) -> dict[str, Any]:
    """The facts by the names that the saved results have: there flash is constants, and RAM the context."""
    facts = facts_of(found)
    return facts | {"flash_bytes": facts["constant_bytes"], "ram_bytes": facts["context_bytes"]}


def measure(file: str, data: str) -> dict[str, Any]:
    found = calibrate(file, data, None, None)
    row = {"name": Path(file).stem, "data": Path(data).name, **in_files(found)}
    row["file_bytes"] = found.net.model.file_bytes
    return row | on_boards(row["name"], found.net, load(data).test.read(np.arange(2)))


def measure_made(name: str) -> dict[str, Any]:
    """A network of random weights: nothing of its accuracy is known."""
    net = micro(mobilenet(96) if name == "mobilenet" else NETWORKS[name]())
    row = {"name": f"{name}, random weights", **in_files(Calibrated(net))}
    row["file_bytes"] = net.model.file_bytes
    return row | on_boards(row["name"], net, some_images(net.model, 2))


def on_boards(name: str, net: MicroNet, images: NDArray[np.uint8]) -> dict[str, Any]:
    """Instructions, stack and code on each board; outputs must be the engine's."""
    wanted = np.empty((len(images), int(np.prod(net.output_shape))), np.int8)
    net._core.run(images.reshape(len(images), -1), wanted, net.plan.net.takes_pixels)
    row: dict[str, Any] = {}
    row["multiplications"] = sum(net.plan.multiplications(n) for n in range(len(net.plan.net.ops)))
    row["boards"] = {}
    for place, board in BOARDS.items():
        if not board.is_here:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ran = run_on(board, net, images, Path(folder) / "c")
        assert np.array_equal(ran.outputs, wanted), place
        row["boards"][place] = {
            "instructions": ran.instructions or None,
            "stack_bytes": ran.stack,
            "code_bytes": ran.code,
        }
        print(name, place, row["boards"][place], flush=True)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE=DATA")
    parser.add_argument(
        "--made",
        action="store_true",
        help="networks of random weights, too: tools/micro_networks.py has them",
    )
    parser.add_argument("--beside", type=Path, help="a record whose rows of other names are kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [measure(*each.split("=", 1)) for each in options.files]
    rows += [measure_made(name) for name in NETWORKS if options.made]
    if options.out is not None:
        before = None if options.beside is None else json.loads(options.beside.read_text())
        record(options.out, keep_rows(before, rows))


if __name__ == "__main__":
    main()
