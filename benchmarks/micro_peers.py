"""Instructions of MLPerf Tiny's ResNet-8 by CMSIS-NN's int8 kernels, beside files of ours, on the same emulated boards.

    python benchmarks/micro_peers.py --cmsis ../cmsis-nn --tflite pretrainedResnet_quant.tflite \\
        resnet8.safetensors=cifar10 --out results/micro-peers.json

With --beside, rows of an earlier record are kept, if CMSIS-NN takes the same instructions now as it did then.

CMSIS-NN's sources are compiled from the path given, with -O3 and newlib's memcpy, by the macros of each board: plain C
on a Cortex-M3, DSP instructions on M4 and M7, vectors on M55. Its outputs are compared with LiteRT's where that is
installed. Ours are compiled with -O2. The packages `tflite` (to read the file), `ai-edge-litert` and `tflite-micro`
(its arena) come from the package index. Instructions are not cycles.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _cmsis import write_cmsis
from _record import arguments, keep_rows, record
from numpy.typing import NDArray

from membound.data import load
from membound.export.micro import calibrate

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from emulated_boards import BOARDS, run_on, run_program, write_images

PLACES = {name: BOARDS[name] for name in ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55-mve")}


def by_litert(file: Path, images: NDArray[np.uint8]) -> NDArray[np.int8] | None:
    """The outputs of the published file, by another interpreter."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        return None
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    net = Interpreter(str(file), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    net.allocate_tensors()
    found = []
    for image in images:
        given = (image.transpose(1, 2, 0).astype(np.int16) - 128).astype(np.int8)[None]
        net.set_tensor(net.get_input_details()[0]["index"], given)
        net.invoke()
        found.append(net.get_tensor(net.get_output_details()[0]["index"])[0].copy())
    return np.array(found)


def race_cmsis(file: Path, cmsis: Path, images: NDArray[np.uint8]) -> dict[str, Any]:
    """On each board: instructions, and whether the outputs are LiteRT's."""
    wanted, rows = by_litert(file, images), {}
    sources = sorted(
        path
        for part in ("Convolution", "FullyConnected", "NNSupport", "Pooling", "Softmax", "BasicMath")
        for path in (cmsis / "Source" / f"{part}Functions").glob("*.c")
        if not path.stem.endswith(("f16", "f32", "flt"))
    )
    for name, board in PLACES.items():
        if not board.is_here:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "c"
            write_cmsis(file, folder)
            write_images(images, folder)
            flags = [
                "-O3",
                "-DHAS_LIBC",
                f"-I{cmsis / 'Include'}",
                "-ffunction-sections",
                "-Wl,--gc-sections",
                "-w",
            ]
            _, outputs, instructions = run_program(
                board, folder, [folder / "net.c", *sources], flags, len(images), ("-lc",)
            )
        same = None if wanted is None else bool(np.array_equal(outputs, wanted))
        off = None if wanted is None else int(np.abs(outputs - wanted).max())
        rows[name] = {
            "instructions": instructions,
            "outputs_are_those_of_litert": same,
            "largest_difference": off,
        }
        print("cmsis-nn", name, rows[name], flush=True)
    return rows


def race_ours(file: str, data: str, images: NDArray[np.uint8]) -> dict[str, Any]:
    found = calibrate(file, data, None, None)
    rows = {}
    for name, board in PLACES.items():
        if board.is_here:
            with tempfile.TemporaryDirectory() as folder:
                ran = run_on(board, found.net, images, Path(folder) / "c")
            assert np.array_equal(ran.outputs, found.net.integers(images)), name
            rows[name] = {"instructions": ran.instructions, "code_bytes": ran.code}
            print(file, name, rows[name], flush=True)
    memory = found.net.memory()
    return {
        "name": Path(file).stem, "accuracy": found.accuracy, "constant_bytes": memory.constants,
        "ram_bytes": memory.context,
        "boards": rows,
    }  # fmt: skip


def measured_arena(file: Path) -> int | None:
    """The arena of a file, where the package that knows it is installed."""
    if importlib.util.find_spec("tflite_micro") is None:
        return None
    from _arena import arena_of

    return arena_of(file.read_bytes())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE=DATA")
    parser.add_argument("--cmsis", type=Path, required=True, help="a checkout of CMSIS-NN")
    parser.add_argument(
        "--tflite", type=Path, required=True, help="the published pretrainedResnet_quant.tflite"
    )
    parser.add_argument("--beside", type=Path, help="a record whose rows are kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    images = np.asarray(load("cifar10").test.read(np.arange(2)))
    peer = race_cmsis(options.tflite, options.cmsis, images)
    ours = [race_ours(*each.split("=", 1), images) for each in options.files]
    for row in ours:
        for name, board in row["boards"].items():
            board["of_cmsis"] = round(board["instructions"] / peer[name]["instructions"], 3)
            print(row["name"], name, board["of_cmsis"])
    about = {
        "file_bytes": options.tflite.stat().st_size,
        "tflm_arena_bytes": measured_arena(options.tflite),
    }
    before = None if options.beside is None else json.loads(options.beside.read_text())
    if before is not None:
        if before["cmsis_nn"]["boards"] != peer:
            sys.exit(
                f"CMSIS-NN is not what it was in {options.beside}: race all files anew, without --beside"
            )
        about["tflm_arena_bytes"] = about["tflm_arena_bytes"] or before["cmsis_nn"]["tflm_arena_bytes"]
    if options.out is not None:
        record(options.out, {"cmsis_nn": {**about, "boards": peer}, **keep_rows(before, ours)})


if __name__ == "__main__":
    main()
