"""The same task on a Cortex-M4: a network in int8 by TensorFlow Lite Micro with CMSIS-NN, and one that fit writes.

    membound fit examples.digits:digits --data mnist --target micro --budget 8KB --ram 2KB \\
        --augment shift=2,turn=8,zoom=0.08 --steps 1000 --batch-size 128 --run-dir runs --json \\
        --out digits.safetensors > fit.json
    python benchmarks/micro_tflm.py --sources ../sources --work ../work --mnist digits.safetensors \\
        --dense runs/weights/dense.safetensors --fit fit.json --cifar10 pretrainedResnet_quant.tflite \\
        --out results/micro-tflm.json

MNIST: the dense network of that fit, written in Keras with its weights, is converted to int8 by TensorFlow's converter
and calibrated on training images. CIFAR-10: MLPerf Tiny's published ResNet-8 in int8, which has no fit of ours here.
--sources has checkouts of tflite-micro, cmsis-nn, flatbuffers (v25.9.23), gemmlowp and ruy; the record is of
tflite-micro 90b983c and cmsis-nn 99f736a. The packages tensorflow, tflite and ai-edge-litert come from the package
index.

Flash of TensorFlow Lite Micro is what a linked program has more than the same program without a network, at -Os: code,
the libraries that it calls, and the file. Its RAM is what the arena uses, variables and stack. Ours are as `fit` counts
them. `levels` has flash and the instructions of one image for both -Os and -O2, on an emulated Cortex-M4; instructions
are not cycles. `instructions` are those with -O2. Accuracy is that of all 10,000 test images: of LiteRT, whose outputs
TensorFlow Lite Micro has to give, and of our engine.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import torch
from _cmsis import Reader
from _keras import in_keras
from _record import ROOT, arguments, record
from _tflm import Sources, build_library, measure
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from safetensors.torch import load_file

import membound as mb
from membound.data import Dataset, load
from membound.micro.code import SOURCES
from membound.run.evaluation import evaluate_file
from membound.store.file import read
from membound.store.formats import decode
from membound.store.model import StoredModel

sys.path.insert(0, str(ROOT / "tools"))
from emulated_boards import BOARDS, code_bytes, run_on

sys.path.insert(0, str(ROOT / "examples"))
from digits import digits

CALIBRATED_ON, SHOWN = 500, 2  # training images; those that boards run


def in_int8(model: StoredModel, dataset: Dataset) -> bytes:
    """A stored network with its weights, as the .tflite that TensorFlow's converter makes of it."""
    network = in_keras(model)
    weighted = [layer for layer in network.layers if layer.get_weights()]
    nodes = [node for node in model.graph.nodes if "w" in node.tensors]
    for layer, node in zip(weighted, nodes, strict=True):
        weight, bias = (decode(model.tensors[node.tensors[role]]) for role in ("w", "b"))
        if weight.ndim == 4:
            layer.set_weights([weight.transpose(2, 3, 1, 0), bias])
            channels = len(weight)
        else:  # Keras flattens channels last
            side = weight.shape[1] // channels
            weight = weight.reshape(len(weight), channels, side).transpose(0, 2, 1).reshape(len(weight), -1)
            layer.set_weights([weight.T, bias])
            channels = 1
    rows = np.linspace(0, len(dataset.train) - 1, CALIBRATED_ON).astype(np.int64)
    prepare = mb.Net(model).preprocess
    inputs = np.asarray(prepare(dataset.train.read(rows)), np.float32).transpose(0, 2, 3, 1)
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([each[None]] for each in inputs)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def by_litert(file: bytes, images: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Outputs of its reference kernels, of pixels, which the network's int8 holds exactly: q = pixel - 128."""
    net = Interpreter(model_content=file, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    net.allocate_tensors()
    given, wanted = net.get_input_details()[0], net.get_output_details()[0]
    found = []
    for image in images:
        net.set_tensor(
            given["index"], (image.transpose(1, 2, 0).astype(np.int16) - 128).astype(np.int8)[None]
        )
        net.invoke()
        found.append(net.get_tensor(wanted["index"])[0].copy())
    return np.array(found)


def weigh_peer(file: bytes, dataset: Dataset, sources: Sources, work: Path) -> dict[str, Any]:
    """Accuracy, flash, RAM and instructions of a .tflite."""
    images = np.asarray(dataset.test.read(np.arange(len(dataset.test))))
    outputs = by_litert(file, images)
    reader = Reader(file)
    kinds = [reader.kind(reader.graph.Operators(n)) for n in range(reader.graph.OperatorsLength())]
    shown = images[:SHOWN]
    found = {
        level: measure(file, kinds, images.shape[1:], shown, sources, build_library(sources, work, level), work / "net")
        for level in ("-Os", "-O2")
    }  # fmt: skip
    small, fast = found["-Os"], found["-O2"]
    ram = {
        "arena_bytes": small.arena_bytes,
        "static_bytes": small.static_bytes,
        "stack_bytes": small.stack_bytes,
    }
    return {
        "accuracy": round(100 * float((outputs.argmax(1) == dataset.test.labels).mean()), 2),
        "flash_bytes": small.code_bytes + small.model_bytes,
        "code_bytes": small.code_bytes,
        "constant_bytes": small.model_bytes,
        "ram_bytes": sum(ram.values()),
        **ram,
        "instructions": fast.instructions,
        "levels": {
            level: {
                "flash_bytes": each.code_bytes + each.model_bytes,
                "code_bytes": each.code_bytes,
                "instructions": each.instructions,
            }
            for level, each in found.items()
        },
        "outputs_are_those_of_litert": bool(np.array_equal(small.outputs, outputs[:SHOWN])),
    }


def weigh_ours(path: Path, dataset: Dataset) -> dict[str, Any]:
    """The same of a file that fit wrote."""
    net = mb.load(path, engine="micro")
    images = np.asarray(dataset.test.read(np.arange(SHOWN)))
    memory, levels = net.memory(), {}
    for level in ("-Os", "-O2"):
        with tempfile.TemporaryDirectory() as folder:
            c = Path(folder) / "c"
            ran = run_on(BOARDS["cortex-m4"], net, images, c, level)
            # What the functions of net.c take is counted as at -Os.
            more = code_bytes(BOARDS["cortex-m4"], [c / name for name in SOURCES], c, level) - ran.code
        assert np.array_equal(ran.outputs, net.integers(images).reshape(SHOWN, -1))
        levels[level] = {
            "flash_bytes": memory.flash + more,
            "code_bytes": memory.code + more,
            "instructions": ran.instructions,
        }
    return {
        "accuracy": evaluate_file(net, dataset)["accuracy"],
        "flash_bytes": memory.flash,
        "code_bytes": memory.code,
        "constant_bytes": memory.constants,
        "ram_bytes": memory.ram,
        "context_bytes": memory.context,
        "stack_bytes": memory.stack,
        "instructions": levels["-O2"]["instructions"],
        "levels": levels,
    }


def dense_of(fitted: Path, weights: Path) -> StoredModel:
    """The dense network, prepared as the fitted one is."""
    model = digits()
    model.load_state_dict(load_file(weights))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dense.safetensors"
        prepare = mb.load(fitted).preprocess
        mb.save(model.eval(), path, torch.zeros(1, 1, 28, 28), preprocess=prepare, values="f32")
        return read(path)


def about_fit(path: Path) -> dict[str, Any]:
    """How the file was fitted, and what came of it."""
    said = json.loads(path.read_text())
    (final,), int8 = said["finals"], said["dense"]["int8"]
    return {
        "steps": final["training"]["steps"], "batch_size": final["training"]["batch_size"],
        "augment": final["training"]["augment"], "seed": said["seed"],
        "accuracy": final["accuracy"], **final["micro"],
        "dense_accuracy": said["dense"]["accuracy"],
        "int8": {"accuracy": int8["accuracy"], **int8["micro"]},
    }  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sources", type=Path, required=True, help="a folder of checkouts")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what is built, and kept")
    parser.add_argument("--mnist", type=Path, required=True, help="the file that fit wrote")
    parser.add_argument("--dense", type=Path, required=True, help="weights of the dense network of that fit")
    parser.add_argument("--fit", type=Path, required=True, help="what that fit printed with --json")
    parser.add_argument(
        "--cifar10", type=Path, required=True, help="the published pretrainedResnet_quant.tflite"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = ("tflite-micro", "cmsis-nn", "flatbuffers", "gemmlowp", "ruy")
    sources = Sources(*(options.sources / name for name in names))
    mnist, cifar10 = load("mnist"), load("cifar10")
    file = in_int8(dense_of(options.mnist, options.dense), mnist)
    rows = []
    for data, name, network, found in (
        ("mnist", "tflm", "digits", weigh_peer(file, mnist, sources, options.work)),
        ("mnist", "membound", "digits, fitted", weigh_ours(options.mnist, mnist)),
        ("cifar10", "tflm", "MLPerf Tiny's ResNet-8",
         weigh_peer(options.cifar10.read_bytes(), cifar10, sources, options.work)),
    ):  # fmt: skip
        rows.append({"data": data, "runtime": name, "network": network, **found})
        print(rows[-1], flush=True)
    if options.out is not None:
        record(options.out, {"tensorflow": tf.__version__, "fit": about_fit(options.fit), "rows": rows})


if __name__ == "__main__":
    main()
