"""The same task on a Cortex-M4: a network in int8 by TensorFlow Lite Micro with CMSIS-NN, and one that fit writes.

    membound fit examples.digits:digits --data mnist --target micro --budget 8KB --ram 2KB \\
        --augment shift=2,turn=8,zoom=0.08 --steps 1000 --batch-size 128 --run-dir runs --json \\
        --out digits.safetensors > fit.json
    python benchmarks/micro_tflm.py --sources ../sources --work ../work --mnist digits.safetensors \\
        --dense runs/weights/dense.safetensors --fit fit.json --cifar10 pretrainedResnet_quant.tflite \\
        --out results/micro-tflm.json
    python benchmarks/micro_tflm.py --sources ../sources --work ../work --mnist digits.safetensors \\
        --dense runs/weights/dense.safetensors --keywords --beside results/micro-tflm.json \\
        --out results/micro-tflm.json

MNIST: the dense network of that fit, written in Keras with its weights, is converted to int8 by TensorFlow's converter
and calibrated on training images; ours are the file of that fit, and the dense network in 8 bits. Keywords: the same of
examples/keywords.py, which is fitted here; its words are synthetic. CIFAR-10: MLPerf Tiny's published ResNet-8 in int8,
which has no fit of ours here. With --beside, what is not asked for is kept from an earlier record.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import torch
from _cmsis import Reader
from _keras import in_keras
from _record import ROOT, arguments, keep_rows, record
from _tflm import Sources, build_library, measure
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

import membound as mb
from membound.data import Dataset, load
from membound.micro.code import SOURCES
from membound.run.calibration import calibrate_activations, with_activations
from membound.store.file import read
from membound.store.formats import decode
from membound.store.model import StoredModel

sys.path.insert(0, str(ROOT / "tools"))
from emulated_boards import BOARDS, code_bytes, run_on

sys.path.insert(0, str(ROOT / "examples"))
import keywords
from digits import digits

CALIBRATED_ON, SHOWN = 500, 2  # training images; those that boards run


@dataclass(frozen=True)
class Task:
    """Examples as a file takes them, and prepared by it."""

    train: NDArray[np.float32]  # prepared
    test: NDArray[Any]  # as they are
    labels: NDArray[Any]


def task_of(dataset: Dataset, model: StoredModel) -> Task:
    rows = np.linspace(0, len(dataset.train) - 1, CALIBRATED_ON).astype(np.int64)
    train = np.asarray(mb.Net(model).preprocess(dataset.train.read(rows)), np.float32)
    return Task(train, np.asarray(dataset.test.read(np.arange(len(dataset.test)))), dataset.test.labels)


def in_int8(model: StoredModel, task: Task) -> bytes:
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
    inputs = task.train.transpose(0, 2, 3, 1)
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([each[None]] for each in inputs)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def by_litert(file: bytes, images: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Outputs of its reference kernels, of bytes: q = byte - 128."""
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


def bytes_for(file: bytes, prepared: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Numbers as the input of a .tflite rounds them, q + 128."""
    net = Interpreter(model_content=file)
    scale, zero = net.get_input_details()[0]["quantization"]
    return (np.clip(np.rint(prepared / scale) + zero, -128, 127) + 128).astype(np.uint8)


def weigh_peer(
    file: bytes, images: NDArray[np.uint8], labels: NDArray[Any], sources: Sources, work: Path
) -> dict[str, Any]:
    """Accuracy, flash, RAM and instructions of a .tflite; `images` are bytes."""
    outputs = by_litert(file, images)
    reader = Reader(file)
    kinds = [reader.kind(reader.graph.Operators(n)) for n in range(reader.graph.OperatorsLength())]
    shown = images[:SHOWN]
    found = {}
    for level in ("-Os", "-O2"):
        library = build_library(sources, work, level)
        shape, count = images.shape[1:], outputs.shape[1]
        found[level] = measure(file, kinds, shape, shown, sources, library, work / "net", count)
    small, fast = found["-Os"], found["-O2"]
    ram = {
        "arena_bytes": small.arena_bytes,
        "static_bytes": small.static_bytes,
        "stack_bytes": small.stack_bytes,
    }
    return {
        "accuracy": round(100 * float((outputs.argmax(1) == labels).mean()), 2),
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


def weigh_ours(path: Path, task: Task) -> dict[str, Any]:
    """The same of a file of ours."""
    net = mb.load(path, engine="micro")
    given, images = task.test, task.test[:SHOWN]
    if not net.plan.net.takes_pixels:
        given = np.asarray(net.preprocess(given), np.float32)
        images = (net.plan.net.quantizations[0].round(given[:SHOWN]).astype(np.int16) + 128).astype(np.uint8)
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
        "accuracy": round(100 * float((net.integers(given).argmax(1) == task.labels).mean()), 2),
        "flash_bytes": memory.flash,
        "code_bytes": memory.code,
        "constant_bytes": memory.constants,
        "ram_bytes": memory.ram,
        "context_bytes": memory.context,
        "stack_bytes": memory.stack,
        "instructions": levels["-O2"]["instructions"],
        "levels": levels,
    }


def dense_of(model: nn.Module, fitted: Path, weights: Path, values: str = "f32") -> StoredModel:
    """The dense network, prepared as the fitted one is."""
    model.load_state_dict(load_file(weights))
    with tempfile.TemporaryDirectory() as folder:
        path, net = Path(folder) / "dense.safetensors", mb.load(fitted)
        example = torch.zeros(1, *net.input_shape)
        mb.save(model.eval(), path, example, preprocess=net.preprocess, values=values)
        return read(path)


def weigh_dense(model: StoredModel, task: Task) -> dict[str, Any]:
    """A dense network in 8 bits, calibrated as the peer's is, in our runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.safetensors"
        path.write_bytes(b"".join(with_activations(model, calibrate_activations(model, task.train))))
        return weigh_ours(path, task)


def tall_spotter(classes: int = keywords.WORDS, channels: int = keywords.BANDS, width: int = 24) -> nn.Module:
    """The example's network over [bands, frames, 1], which the peer's converter takes."""
    return nn.Sequential(
        nn.Conv2d(channels, width, (5, 1), (2, 1)), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, (5, 1), (2, 1)), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip


def fit_keywords(folder: Path) -> tuple[Path, Path, Task]:
    """The example's fit, the weights of its dense network, and its words."""
    words = folder / "words.npz"
    keywords.write_words(words, 4000)
    with np.load(words) as file:
        x, y = ({half: file[f"{name}_{half}"] for half in ("train", "test")} for name in "xy")
    train, test = ((x[half][..., None], y[half]) for half in ("train", "test"))
    fitted = mb.fit(
        tall_spotter, train, test_data=test, steps=600, run_dir=folder / "runs", **keywords.DEVICE
    )
    fitted.save(folder / "spotter.safetensors")
    prepared = np.asarray(fitted.files.preprocess(train[0][:CALIBRATED_ON]), np.float32)
    weights = folder / "runs" / "weights" / "dense.safetensors"
    return folder / "spotter.safetensors", weights, Task(prepared, *test)


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


def of_both(
    name: str,
    make: Callable[[], nn.Module],
    path: Path,
    weights: Path,
    task: Task,
    sources: Sources,
    work: Path,
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A network that was fitted: dense in their runtime, fitted and dense in ours."""
    file = in_int8(dense_of(make(), path, weights), task)
    net = mb.load(path, engine="micro")
    prepared = np.asarray(net.preprocess(task.test), np.float32)
    images = task.test if net.plan.net.takes_pixels else bytes_for(file, prepared)
    yield "tflm", name, weigh_peer(file, images, task.labels, sources, work)
    yield "membound", f"{name}, fitted", weigh_ours(path, task)
    yield "membound", f"{name}, dense in 8 bits", weigh_dense(dense_of(make(), path, weights, "p8"), task)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sources", type=Path, required=True, help="a folder of checkouts")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what is built, and kept")
    parser.add_argument("--mnist", type=Path, help="the file that fit wrote")
    parser.add_argument("--dense", type=Path, help="weights of the dense network of that fit")
    parser.add_argument("--fit", type=Path, help="what that fit printed with --json")
    parser.add_argument("--keywords", action="store_true", help="examples/keywords.py, fitted here")
    parser.add_argument("--cifar10", type=Path, help="the published pretrainedResnet_quant.tflite")
    parser.add_argument("--beside", type=Path, help="a record whose other rows, and whose fit, are kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = ("tflite-micro", "cmsis-nn", "flatbuffers", "gemmlowp", "ruy")
    sources, work = Sources(*(options.sources / name for name in names)), options.work
    rows: list[dict[str, Any]] = []

    def add(data: str, runtime: str, network: str, found: dict[str, Any]) -> None:
        rows.append(
            {"name": f"{runtime}: {network}", "data": data, "runtime": runtime, "network": network, **found}
        )
        print(rows[-1], flush=True)

    if options.mnist is not None:
        task = task_of(load("mnist"), read(options.mnist))
        for each in of_both("digits", digits, options.mnist, options.dense, task, sources, work):
            add("mnist", *each)
    if options.keywords:
        with tempfile.TemporaryDirectory() as folder:
            path, weights, task = fit_keywords(Path(folder))
            for each in of_both("keywords", tall_spotter, path, weights, task, sources, work):
                add("words", *each)
    if options.cifar10 is not None:
        test = load("cifar10").test
        images = np.asarray(test.read(np.arange(len(test))))
        found = weigh_peer(options.cifar10.read_bytes(), images, test.labels, sources, work)
        add("cifar10", "tflm", "MLPerf Tiny's ResNet-8", found)
    if options.out is not None:
        before = None if options.beside is None else json.loads(options.beside.read_text())
        fit = about_fit(options.fit) if options.fit is not None else (before or {}).get("fit")
        record(options.out, {"tensorflow": tf.__version__, "fit": fit, **keep_rows(before, rows)})


if __name__ == "__main__":
    main()
