"""Files that are no model files, by the end of their names: told apart in words that help more than a broken rule."""

import os
from pathlib import Path

from membound.errors import ModelError, WeightsError

TOO = "with the command membound export, or with mb.save"
CHECKPOINT = f"is a torch checkpoint, not a model file: make one of it and its network {TOO}"
TFLITE = (
    "is a TensorFlow Lite model, which membound does not read: start from the PyTorch network, or from ONNX"
)
KINDS = {
    ".py": f"is Python source, not a model file: make one of its network {TOO}",
    ".onnx": "is an ONNX model, not a model file: make one with the command membound export, or fit it to a budget "
    "with membound fit",
    **dict.fromkeys(
        (".npz", ".npy"),
        "holds arrays, not a network: name the model file that membound fit or mb.save wrote",
    ),
    ".tflite": TFLITE,
    ".litert": TFLITE,
    **dict.fromkeys((".pt", ".pth", ".ckpt"), CHECKPOINT),
}


def refuse_tflite(path: str | os.PathLike[str]) -> None:
    """What cannot be a network or its weights either.

    >>> refuse_tflite("there/is/no/such.tflite")
    """
    file = Path(path)
    if KINDS.get(file.suffix.lower()) == TFLITE and file.is_file():
        raise ModelError(f"{file} {TFLITE}")


def refuse_as_network(spec: str) -> None:
    """What is given as a network, but named like a file that is none or is not there.

    >>> refuse_as_network("lenet")
    >>> refuse_as_network("there/is/no/such.pt")
    Traceback (most recent call last):
    membound.errors.WeightsError: there/is/no/such.pt: there is no such file
    """
    refuse_tflite(spec)
    kind = Path(spec).suffix.lower()
    if Path(spec).exists() or (kind != ".safetensors" and KINDS.get(kind) not in (TFLITE, CHECKPOINT)):
        return
    nor = "; membound does not read TensorFlow Lite models: start from PyTorch or ONNX"
    raise WeightsError(f"{spec}: there is no such file{nor if KINDS.get(kind) == TFLITE else ''}")


def refuse_other_kinds(path: str | os.PathLike[str]) -> None:
    """What is a file, but clearly of another kind than a model file.

    >>> refuse_other_kinds("there/is/no/such.onnx")
    """
    file = Path(path)
    kind = KINDS.get(file.suffix.lower())
    if kind is not None and file.is_file():
        raise ModelError(f"{file} {kind}")
