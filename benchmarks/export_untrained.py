"""What `membound export` costs a trained network in accuracy, without training: values of 8 to 3 bits, calibrated.

    python examples/mlperf_resnet8.py pretrainedResnet.h5 mlperf.safetensors
    python benchmarks/export_untrained.py resnet8 cifar10 mlperf.safetensors --out results/export-untrained.json

Each row is `membound export NET --init WEIGHTS --values ... --data DATA`, measured on the test images through the
runtime. The bytes are those of the whole file. Calibration reads a few hundred training images and no labels.
"""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from _record import arguments, record

from membound.cli import main as membound

VALUES = ("p8", "p6", "p5", "p4", "p3")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("net")
    parser.add_argument("data")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [export(options.net, options.data, options.weights, values) for values in VALUES]
    record(options.out, {"net": options.net, "data": options.data, "rows": rows})


def export(net: str, data: str, weights: Path, values: str) -> dict[str, Any]:
    """The file before (as float32) and after, as the command says it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["export", net, "--init", str(weights), "--values", values, "--data", data]
        said = io.StringIO()
        try:
            with redirect_stdout(said):
                membound([*command, "--out", f"{folder}/net.safetensors", "--json"])
        except SystemExit as ended:
            if ended.code:
                raise
    found = json.loads(said.getvalue())
    row = {"values": values} | {
        when: {key: found[when][key] for key in ("accuracy", "errors", "images", "file_bytes")}
        for when in ("before", "after")
    }
    print(row)
    return row


if __name__ == "__main__":
    main()
