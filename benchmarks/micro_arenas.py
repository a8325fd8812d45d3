"""RAM of TensorFlow Lite Micro for the networks of tools/micro_networks.py, beside ours: the arena of its interpreter.

    python benchmarks/micro_arenas.py --out results/micro-arenas.json

Each network is written anew in Keras with the same layers, converted to int8 by TensorFlow's converter, and opened by
the interpreter of the package tflite-micro with ever smaller arenas. Weights are random: arenas do not depend on them.
Convolutions pad as SAME does, so that no tensor is padded apart. The packages tensorflow-cpu and tflite-micro come from
the package index. Neither side's stack and code are counted.
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from _arena import arena_of
from _record import ROOT, arguments, record

sys.path.insert(0, str(ROOT / "tools"))
from micro_networks import NETWORKS, micro, mobilenet

from membound.store.graph import Node
from membound.store.model import StoredModel
from membound.store.operators import attributes

NAMES = ("lenet", "resnet8", "mobilenet", "dscnn", "quick")
ACTS = {None: None, ("relu",): "relu", ("clip", 0.0, 6.0): "relu6"}


def in_keras(model: StoredModel) -> Any:
    """The same layers, channels last."""
    channels, height, width = model.shapes[0]
    values = [tf.keras.Input((height, width, channels), batch_size=1)]
    for number, node in enumerate(model.graph.nodes, 1):
        values.append(_layer(model, node, [values[v] for v in node.inputs]))
        wanted = model.shapes[number]
        found = tuple(values[-1].shape[1:])
        assert math.prod(found) == math.prod(wanted), (node.op, found, wanted)
    return tf.keras.Model(values[0], values[model.graph.output])


def _layer(model: StoredModel, node: Node, inputs: list[Any]) -> Any:
    a, layers = attributes(node), tf.keras.layers
    x = inputs[0]
    if node.op == "conv":
        out, _, kh, kw = model.tensors[node.tensors["w"]].shape
        pad = "same" if any(a["pad"]) else "valid"
        if a["groups"] > 1:
            x = layers.DepthwiseConv2D((kh, kw), a["stride"], pad)(x)
        else:
            x = layers.Conv2D(out, (kh, kw), a["stride"], pad)(x)
        return _act(x, a["act"])
    if node.op == "linear":
        return _act(layers.Dense(model.tensors[node.tensors["w"]].shape[0])(x), a["act"])
    if node.op in ("maxpool", "avgpool"):
        pool = layers.MaxPooling2D if node.op == "maxpool" else layers.AveragePooling2D
        even = any(a["pad"]) or any(a.get("over", (0, 0)))
        return pool(a["kernel"], a["stride"], "same" if even else "valid")(x)
    if node.op == "add":
        return _act(layers.Add()(inputs), a["act"])
    if node.op in ("mean", "adaptive"):
        return layers.GlobalAveragePooling2D(keepdims=node.op == "adaptive")(x)
    if node.op == "act":
        return _act(x, a["act"])
    assert node.op == "reshape", node.op
    return layers.Flatten()(x)


def _act(x: Any, act: Any) -> Any:
    name = ACTS[act if act is None else tuple(act)]
    return x if name is None else tf.keras.layers.Activation(name)(x)


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
