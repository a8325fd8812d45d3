"""Model files on microcontrollers: flash, RAM, code, instructions on emulated boards, and what int8 costs in accuracy.

    python benchmarks/micro.py lenet.safetensors=mnist resnet8.safetensors=cifar10 --out results/micro.json

A file is calibrated on training images of its data, exported as C, compiled and run on each board whose compiler and
emulator are installed, where outputs must be the engine's. Accuracy is that of all test images through the C code in
the extension, beside the network in floating point. Instructions are not cycles.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _record import arguments, record

from membound.data import load
from membound.export.micro import calibrate, facts_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "micro"))
from emulated_boards import BOARDS, run_on


def measure(file: str, data: str) -> dict[str, Any]:
    found = calibrate(file, data, None, None)
    net = found.net
    row: dict[str, Any] = {"name": Path(file).stem, "data": Path(data).name, **facts_of(found)}
    row["file_bytes"] = net.model.file_bytes
    row["multiplications"] = sum(net.plan.multiplications(n) for n in range(len(net.plan.net.ops)))
    images = load(data).test.read(np.arange(2))
    row["boards"] = {}
    for name, board in BOARDS.items():
        if not board.is_here:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ran = run_on(board, net, images, Path(folder) / "c")
        assert np.array_equal(ran.outputs, net.integers(images)), name
        row["boards"][name] = {
            "instructions": ran.instructions or None,
            "stack_bytes": ran.stack,
            "code_bytes": ran.code,
        }
        print(row["name"], name, row["boards"][name], flush=True)
    print({key: value for key, value in row.items() if key != "boards"}, flush=True)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE=DATA")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [measure(*each.split("=", 1)) for each in options.files]
    if options.out is not None:
        record(options.out, {"rows": rows})


if __name__ == "__main__":
    main()
