"""The packages that read ONNX files, imported as little as it takes, and what is wrong with a file in a line."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from membound.errors import WeightsError, install
from membound.zoo.onnx_integers import without_integers_
from membound.zoo.wire import Malformed, fields

UNUSED = "torchvision"  # onnx2torch imports it for two operators of detection, which membound does not run


def onnx2torch(path: str | Path) -> Any:
    """The package, without torchvision: its wheels fit one build of torch only, and nothing here needs it."""
    if importlib.util.find_spec("onnx2torch") is None:
        raise WeightsError(f"{path}: reading ONNX takes onnx2torch: {install('onnx')}")
    try:
        with _without_torchvision():
            import onnx2torch as package
    except Exception as error:
        raise WeightsError(
            f"{path} was not read: the installed package onnx2torch cannot be imported: {first_line(error)}; "
            f"install it again: pip uninstall onnx2torch, then {install('onnx')}"
        ) from error
    return package


def load_checked(path: str | Path) -> Any:
    """The file as ONNX's own message, which is valid and in floats."""
    import onnx

    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:
        if _is_cut_short(Path(path).read_bytes()):
            raise WeightsError(
                f"{path} is cut short: it ends after {Path(path).stat().st_size:,} bytes, in the middle of the "
                "network: copy or export it again"
            ) from error
        raise WeightsError(f"{path} is not a valid ONNX file: {first_line(error)}") from error
    without_integers_(path, model)
    return model


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _is_cut_short(content: bytes) -> bool:
    """Whether a message of protobuf ends before its last field does; a model's first field is its version.

    >>> _is_cut_short(bytes([0x08, 0x07, 0x3A, 0x05, 0x00])), _is_cut_short(b"no network")
    (True, False)
    """
    if content[:1] != b"\x08":
        return not content
    try:
        for _ in fields(memoryview(content)):
            pass
    except Malformed as error:
        return "where" in str(error) or "past the end" in str(error)
    return False


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """An empty torchvision while onnx2torch is imported, unless one is loaded already."""
    if UNUSED in sys.modules or "onnx2torch" in sys.modules:
        yield
        return
    package, operators = ModuleType(UNUSED), ModuleType(f"{UNUSED}.ops")
    names = {UNUSED: package, operators.__name__: operators}
    setattr(package, "ops", operators)  # noqa: B010 - as an import does
    for name in ("nms", "box_convert", "roi_align"):
        setattr(operators, name, _refuse)
    sys.modules.update(names)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _refuse(*_: Any, **__: Any) -> Any:
    raise WeightsError("operators of torchvision (NonMaxSuppression, RoiAlign) are not supported")
