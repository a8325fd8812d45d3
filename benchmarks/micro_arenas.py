"""RAM of TensorFlow Lite Micro for the networks of tools/micro_networks.py, beside ours: the arena of its interpreter.

    python benchmarks/micro_arenas.py --out results/micro-arenas.json

Each network is written anew in Keras with the same layers, converted to int8 by TensorFlow's converter, and opened by
the interpreter of the package tflite-micro with ever smaller arenas. Weights are random: arenas do not depend on them.
Convolutions pad as SAME does, so that no tensor is padded apart. The packages tensorflow-cpu and tflite-micro come from
the package index. Neither side's stack and code are counted.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from _arena import arena_of
from _keras import in_keras
from _record import ROOT, arguments, record

sys.path.insert(0, str(ROOT / "tools"))
from micro_networks import NETWORKS, micro, mobilenet

NAMES = ("lenet", "resnet8", "mobilenet", "dscnn", "quick")


def converted(network: Any) -> bytes:
    """In int8, calibrated on noise."""
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    draw = np.random.default_rng(0)
    shape = network.inputs[0].shape
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([draw.random(shape, np.float32)] for _ in range(8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in NAMES:
        model = mobilenet(96) if name == "mobilenet" else NETWORKS[name]()
        memory = micro(model).memory()
        file = converted(in_keras(model))
        rows.append({
            "name": name, "tflm_arena_bytes": arena_of(file), "tflite_bytes": len(file), "ram_bytes": memory.context,
            "arena_bytes_rows": memory.rows, "arena_bytes_whole": memory.whole,
        })  # fmt: skip
        print(rows[-1], flush=True)
    if options.out is not None:
        record(options.out, {"tensorflow": tf.__version__, "rows": rows})


if __name__ == "__main__":
    main()
