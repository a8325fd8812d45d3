"""A .tflite file in LiteRT (TensorFlow Lite), with its XNNPACK kernels: what many apps ship today."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = (
    "ai_edge_litert",
    "tflite_runtime",
    "tensorflow",
)  # each has the interpreter; the first is LiteRT's own
NAME = "ai-edge-litert"  # on the package index


def installed() -> str | None:
    """The package that runs .tflite files here."""
    return next((name for name in PACKAGES if importlib.util.find_spec(name) is not None), None)


def find_interpreter() -> Any:
    """The class that runs .tflite files, imported."""
    package = installed()
    if package == PACKAGES[0]:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter
    if package == PACKAGES[1]:
        from tflite_runtime.interpreter import Interpreter as Runtime

        return Runtime
    import tensorflow

    return tensorflow.lite.Interpreter


def open_file(
    interpreter: Any, path: Path | None, threads: int, batch: int
) -> tuple[Callable[[list[Any]], list[Any]], str]:
    """What runs a file on batches of this size, and the precision of its weights."""
    runtime = interpreter(model_path=str(path), num_threads=threads)
    (into,) = runtime.get_input_details()
    if batch != into["shape"][0]:
        runtime.resize_tensor_input(into["index"], [batch, *into["shape"][1:]])
    runtime.allocate_tensors()
    (into,), outputs = runtime.get_input_details(), runtime.get_output_details()
    taken: dict[int, Any] = {}  # inputs as the file takes them: an app has them so, and they are not timed

    def run(arrays: list[Any]) -> list[Any]:
        if id(arrays) not in taken:
            taken[id(arrays)] = as_taken(arrays[0], into)
        runtime.set_tensor(into["index"], taken[id(arrays)])
        runtime.invoke()
        return [as_floats(runtime.get_tensor(each["index"]), each) for each in outputs]

    return run, _precision(runtime)


def as_taken(array: Any, into: dict[str, Any]) -> Any:
    """A batch [n, C, H, W] as a file takes it: channels last, where that is its shape, and in its type.

    >>> as_taken(np.zeros((1, 3, 4, 5), np.float32), {"shape": [1, 4, 5, 3], "dtype": np.float32}).shape
    (1, 4, 5, 3)
    >>> int8 = {"shape": [1, 2], "dtype": np.int8, "quantization": (0.5, -1)}
    >>> as_taken(np.array([[0, 100]], np.float32), int8).tolist()
    [[-1, 127]]
    """
    shape = tuple(into["shape"])
    if array.ndim == 4 and array.shape[1:] != shape[1:]:
        array = array.transpose(0, 2, 3, 1)
    if array.shape[1:] != shape[1:]:
        wants, given = "x".join(map(str, shape[1:])), "x".join(map(str, array.shape[1:]))
        raise ValueError(f"the .tflite takes {wants}, and the network {given}: give one for the same inputs")
    kind = np.dtype(into["dtype"])
    if kind.kind == "f":
        return np.ascontiguousarray(array, kind)
    scale, zero = into["quantization"]
    info = np.iinfo(kind)
    return np.clip(np.rint(array / (scale or 1.0)) + zero, info.min, info.max).astype(kind)


def as_floats(array: Any, out: dict[str, Any]) -> Any:
    """What a file gives, as numbers."""
    if np.dtype(out["dtype"]).kind == "f":
        return np.asarray(array, np.float32)
    scale, zero = out["quantization"]
    return ((array.astype(np.float32) - zero) * (scale or 1.0)).astype(np.float32)


def _precision(runtime: Any) -> str:
    """int8 where any weight is: files may take and give floats around it."""
    kinds = {np.dtype(each["dtype"]).name for each in runtime.get_tensor_details()}
    return "int8" if "int8" in kinds else "uint8" if "uint8" in kinds else "f32"
