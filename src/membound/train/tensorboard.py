"""Curves for TensorBoard, where it is installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from membound.errors import MemboundError
from membound.train.regularizer import Report


def check_installed() -> None:
    """Before training, so that its absence costs nothing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MemboundError("TensorBoard is not installed: pip install 'membound[tensorboard]'") from None


def write_scalars(folder: Path, entry: Mapping[str, Any], report: Report | None) -> None:
    """Add one evaluation: loss and accuracy, and for each layer under a rule its nonzeros and bytes."""
    from torch.utils.tensorboard import SummaryWriter

    at = entry["iteration"]
    with SummaryWriter(str(folder)) as writer:
        scalars = {name: value for name, value in entry.items() if name not in ("iteration", "seconds")}
        for layer in [] if report is None else report.layers:
            scalars |= {f"nonzeros/{layer.name}": layer.nonzeros, f"bytes/{layer.name}": layer.bytes}
        for name, value in scalars.items():
            writer.add_scalar(name, value, at)
