"""Files that fit wrote, beside the same networks in int8 in LiteRT (TensorFlow Lite) with its XNNPACK kernels.

    python benchmarks/litert_latency.py lenet-auto.safetensors resnet8-auto.safetensors --out results/litert-arm.json

Each network is written in Keras, dense, as it is left without dead channels, and becomes int8 by TensorFlow's
converter, calibrated on random inputs: times do not depend on weights. membound runs its file in floats and with the
engine int8. All run on one thread, one image at a time, by turns; times are the least processor time of many runs.
Needs the packages tensorflow and ai-edge-litert.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from _keras import in_keras
from _record import arguments, record
from ai_edge_litert.interpreter import Interpreter

import membound as mb
from membound import machine
from membound.store.model import StoredModel

AT_LEAST = 0.002  # seconds that a sample of several runs takes


def in_int8(model: StoredModel) -> bytes:
    """The network, dense, as an int8 .tflite."""
    chance = np.random.default_rng(0)
    channels, height, width = model.shapes[0]
    converter = tf.lite.TFLiteConverter.from_keras_model(in_keras(model))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [chance.normal(size=(1, height, width, channels)).astype(np.float32)] for _ in range(20)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def least_ms(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least processor time of each, by turns."""
    counts = []
    for run in runs:
        run()
        begun = time.process_time()
        run()
        counts.append(max(1, round(AT_LEAST / max(time.process_time() - begun, 1e-6))))
    least = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, (run, count) in enumerate(zip(runs, counts, strict=True)):
            begun = time.process_time()
            for _ in range(count):
                run()
            least[number] = min(least[number], 1000 * (time.process_time() - begun) / count)
    return least


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """One network in both, ours in floats and in 8-bit integers."""
    net, integers = (mb.load(path, threads=1, engine=engine) for engine in ("float", "int8"))
    x = np.random.default_rng(0).normal(size=(1, *net.input_shape)).astype(np.float32)
    file = in_int8(net.model)
    peer = Interpreter(model_content=file, num_threads=1)
    peer.allocate_tensors()
    given = peer.get_input_details()[0]
    peer.set_tensor(given["index"], np.zeros(given["shape"], np.int8))
    ours, ours_int8, theirs = least_ms([lambda: net(x), lambda: integers(x), peer.invoke], rounds)
    row = {
        "network": path.stem,
        "membound_ms": ours,
        "membound_int8_ms": ours_int8,
        "litert_int8_ms": theirs,
        "times": theirs / ours,
        "times_int8": theirs / ours_int8,
        "file_bytes": path.stat().st_size,
        "litert_file_bytes": len(file),
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="model files that fit wrote")
    parser.add_argument("--rounds", type=int, default=200, help="turns that each takes")
    parser.add_argument("--out", type=Path, required=True, help="where the record goes")
    options = parser.parse_args()
    rows = [measure(path, options.rounds) for path in options.files]
    versions = machine.versions(("membound", "numpy", "tensorflow", "ai-edge-litert"))
    record(options.out, {"versions": versions, "rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
