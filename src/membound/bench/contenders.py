"""The runtimes, each as two steps: import it, then load a network. What is loaded is a function of an array.

All compute in float32 with the same number of threads; OpenVINO's own choice of precision is a contender of its own,
and so are membound, ONNX Runtime and OpenVINO with a network in 8 bits, and LiteRT with a .tflite file of the user's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from membound.bench.litert import find_interpreter, open_file

Array = npt.NDArray[np.float32]
Arrays = list[Array]
Run = Callable[[Arrays], Arrays]  # one for each input; one for each output


@dataclass(frozen=True)
class Files:
    """The network as each contender takes it."""

    model: Path  # ours
    onnx: Path  # dense ONNX
    arrays: Path  # dense arrays (.npz), numbered in the order of the model's tensors
    int8: Path | None = None  # the network in 8 bits, as the contender wants it; or a .tflite file


@dataclass(frozen=True)
class Loaded:
    """A network that is ready, and the precision it computes in."""

    run: Run
    precision: str = "f32"


Load = Callable[[Files, int, int], Loaded]  # files, threads, batch


def ours(engine: Literal["float", "int8"] = "float") -> Load:
    from membound.run.common import compiled_core
    from membound.run.net import load

    compiled_core()  # which load would import, and count

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        net = load(files.model, threads=threads, max_batch=batch, engine=engine)

        def run(arrays: Arrays) -> Arrays:
            found = net(*arrays)
            return (
                list(found.values())
                if isinstance(found, dict)
                else list(found)
                if isinstance(found, tuple)
                else [found]
            )

        return Loaded(run, "f32" if engine == "float" else engine)

    return begin


def torch_eager() -> Load:
    import torch

    from membound.bench.torch_graph import GraphModule
    from membound.store.file import read

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        torch.set_num_threads(threads)
        module = GraphModule(read(files.model), files.arrays)

        def run(arrays: Arrays) -> Arrays:
            with torch.inference_mode():
                return [out.numpy() for out in module(*map(torch.from_numpy, arrays))]

        return Loaded(run)

    return begin


def onnx_runtime(int8: bool = False) -> Load:
    import onnxruntime

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        model = files.int8 if int8 else files.onnx
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

        names = [each.name for each in session.get_inputs()]

        def run(arrays: Arrays) -> Arrays:
            out: Arrays = session.run(None, dict(zip(names, arrays, strict=True)))
            return out

        return Loaded(run, "int8" if int8 else "f32")

    return begin


def openvino(f32: bool = True, int8: bool = False) -> Load:
    import openvino as ov

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        core = ov.Core()
        model = core.read_model(str(files.int8 if int8 else files.onnx))
        shapes = {}
        for number, each in enumerate(model.inputs):
            shapes[number] = [batch, *(dim.get_length() for dim in list(each.partial_shape)[1:])]
        model.reshape(shapes)
        config: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        if f32:
            config["INFERENCE_PRECISION_HINT"] = "f32"
        try:
            compiled = core.compile_model(model, "CPU", config)
        except RuntimeError:  # what is left of float may not fit into float16, OpenVINO's own choice on Arm
            if not int8:
                raise
            compiled = core.compile_model(model, "CPU", config | {"INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        precision = compiled.get_property("INFERENCE_PRECISION_HINT")
        name = precision.to_string() if hasattr(precision, "to_string") else str(precision)

        def run(arrays: Arrays) -> Arrays:
            found = request.infer(dict(enumerate(arrays)), share_inputs=True)
            return [found[number] for number in range(len(model.outputs))]

        return Loaded(run, "int8" if int8 else name)

    return begin


def deepsparse() -> Load:
    from deepsparse import compile_model

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        engine = compile_model(str(files.onnx), batch_size=batch, num_cores=threads)

        def run(arrays: Arrays) -> Arrays:
            out: Arrays = engine.run(arrays)
            return out

        return Loaded(run)

    return begin


def litert() -> Load:
    interpreter = find_interpreter()

    def begin(files: Files, threads: int, batch: int) -> Loaded:
        return Loaded(*open_file(interpreter, files.int8, threads, batch))

    return begin


OURS = "membound"
OURS_INT8 = "membound int8"
OPENVINO_DEFAULT = "openvino default"
LITERT = "litert"
PEERS = ("torch", "onnxruntime", "openvino", "deepsparse")  # the names of their packages
CONTENDERS: dict[str, Callable[[], Load]] = {
    OURS: ours,
    OURS_INT8: lambda: ours("int8"),
    "torch": torch_eager,
    "onnxruntime": onnx_runtime,
    "openvino": openvino,
    OPENVINO_DEFAULT: lambda: openvino(f32=False),
    "deepsparse": deepsparse,
    LITERT: litert,
    "onnxruntime int8": lambda: onnx_runtime(int8=True),
    "openvino int8": lambda: openvino(f32=False, int8=True),
}
