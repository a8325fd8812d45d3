"""Files that are no model files, by the end of their names: told apart in words that help more than a broken rule."""

import os
from pathlib import Path

from membound.errors import ModelError

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


def refuse_other_kinds(path: str | os.PathLike[str]) -> None:
    """What is a file, but clearly of another kind than a model file.

    >>> refuse_other_kinds("there/is/no/such.onnx")
    """
    file = Path(path)
    kind = KINDS.get(file.suffix.lower())
    if kind is not None and file.is_file():
        raise ModelError(f"{file} {kind}")
