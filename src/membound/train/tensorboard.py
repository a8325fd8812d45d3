"""Curves for TensorBoard, where it is installed: of a training run of ours, and of a report in anybody's loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from membound.errors import MemboundError, install
from membound.train.reports import Report


class Writer(Protocol):
    """What a SummaryWriter has, of torch, tensorboardX or anybody's."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


def check_installed() -> None:
    """Before training, so that its absence costs nothing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MemboundError(f"TensorBoard is not installed: {install('tensorboard')}") from None


def report_scalars(report: Report) -> dict[str, int]:
    """Nonzeros and bytes by their tags: of every layer under a rule, and in all, with every bound imposed."""
    bounded = report.at_bound()
    found = {"nonzeros": bounded.nonzeros, "bytes": bounded.bytes}
    for layer in bounded.layers:
        found |= {f"nonzeros/{layer.name}": layer.nonzeros, f"bytes/{layer.name}": layer.bytes}
    return found


def log_report(writer: Writer, report: Report, step: int) -> None:
    """Add nonzeros and bytes, of every layer under a rule and in all, as they would be deployed at this step.

    Between two projections the weights are dense; what is logged has every bound imposed. In a loop of your own:
    `log_report(writer, reg.report(), reg.step)`.
    """
    for tag, value in report_scalars(report).items():
        writer.add_scalar(tag, value, step)


class Curves:
    """One run's curves, in a file that grows with every evaluation: TensorBoard reads several files by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None

    def add(self, step: int, scalars: Mapping[str, float], report: Report | None) -> None:
        """Add one evaluation; it can be looked at right away."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # A run that goes on from a checkpoint evaluates steps again: what is there from this step on is dropped.
            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        if report is not None:
            log_report(self._writer, report, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
