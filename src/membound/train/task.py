"""What a network is trained for: the loss that is lowered and the score that is reported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from membound.errors import MemboundError, TrainingError, a_kind


@dataclass(frozen=True)
class Task:
    """Classification, or what `loss` and `score` say; both are called with (outputs, targets) of a batch.

    `loss` gives the mean over the batch as a scalar tensor; None is the cross entropy of class scores.
    `score` gives one number, higher is better, and is averaged over the examples, each batch by its size;
    None is accuracy in percent, or minus the loss where `loss` is given.
    Outputs are whatever the network gives: where it is a tuple, the loss gets a tuple.

    >>> regression = Task(loss=nn.functional.mse_loss)
    >>> loss = regression.batch_loss(torch.zeros(4, 1, requires_grad=True), torch.full((4, 1), 3.0))
    >>> float(loss.detach())
    9.0
    """

    loss: Callable[[Any, Tensor], Tensor] | None = None
    score: Callable[[Any, Tensor], Tensor | float] | None = None
    name: str | None = None  # of the score, for people

    def __post_init__(self) -> None:
        for name in ("loss", "score"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TrainingError(
                    f"{name} is {value!r}: it must be a function of (outputs, targets), such as "
                    "torch.nn.functional.mse_loss"
                )
            if isinstance(value, type):
                raise TrainingError(
                    f"{name} is the class {value.__name__}: pass an instance, {value.__name__}()"
                )

    @property
    def classifies(self) -> bool:
        """Whether targets must be class numbers and outputs class scores, as the cross entropy wants them."""
        return self.loss is None

    @property
    def counts(self) -> bool:
        """Whether the score is accuracy, counted in whole examples."""
        return self.loss is None and self.score is None

    def batch_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The mean over the batch, a scalar that can be differentiated (unless gradients are off)."""
        outputs = widen(outputs)
        if self.loss is None:
            return nn.functional.cross_entropy(outputs, targets)
        value = _call("loss", self.loss, outputs, targets)
        if not isinstance(value, Tensor):
            raise TrainingError(
                f"the loss gives {a_kind(value)}: it must give a tensor, the mean over the batch, "
                "without .item() or float()"
            )
        if value.numel() != 1 or not value.is_floating_point():
            raise TrainingError(
                f"the loss gives {_describe(value)} for a batch: it must give one number, such as loss.mean()"
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise TrainingError(
                "the loss cannot be differentiated: it must be computed from the outputs by torch, "
                "without .detach(), .argmax() or torch.no_grad()"
            )
        return value.reshape(())

    @torch.no_grad()
    def batch_score(self, outputs: Any, targets: Tensor) -> Tensor:
        """The score of a batch, a float64 scalar on the targets' device: higher is better."""
        outputs = widen(outputs)
        if self.counts:
            right: Tensor = outputs.argmax(1) == targets
            return 100 * right.double().mean()
        if self.score is None:
            return -self.batch_loss(outputs, targets).double()
        value = _call("score", self.score, outputs, targets)
        try:
            number = torch.as_tensor(value, dtype=torch.float64, device=targets.device)
        except (TypeError, ValueError, RuntimeError):
            number = None
        if number is None or number.numel() != 1:
            raise TrainingError(
                f"the score gives {_describe(value)} for a batch: it must give one number, such as its mean"
            )
        return number.reshape(())


CLASSIFICATION = Task()


def widen(outputs: Any) -> Any:
    """`outputs` with 16-bit floating-point tensors (autocast gives them) made float32, in tuples, lists and dicts too.

    >>> first, rest = widen((torch.ones(1, dtype=torch.bfloat16), [torch.ones(1, dtype=torch.float64)]))
    >>> first.dtype, rest[0].dtype
    (torch.float32, torch.float64)
    """
    return map_tensors(
        lambda value: value.float() if value.is_floating_point() and value.itemsize < 4 else value, outputs
    )


def map_tensors(function: Callable[[Tensor], Tensor], outputs: Any) -> Any:
    """`outputs` with `function` applied to each tensor, in tuples, lists and dicts too."""
    if isinstance(outputs, Tensor):
        return function(outputs)
    if type(outputs) is dict:
        return {key: map_tensors(function, value) for key, value in outputs.items()}
    if isinstance(outputs, tuple) and hasattr(outputs, "_fields"):
        return type(outputs)(*(map_tensors(function, value) for value in outputs))
    if type(outputs) in (tuple, list):
        return type(outputs)(map_tensors(function, value) for value in outputs)
    return outputs


def _call(name: str, function: Callable[[Any, Tensor], Any], outputs: Any, targets: Tensor) -> Any:
    try:
        return function(outputs, targets)
    except MemboundError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        raise TrainingError(
            f"the {name} failed with {type(error).__name__}: {reason} "
            f"(outputs: {_describe(outputs)}; targets: {_describe(targets)})"
        ) from error


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"{a_kind(value)} of {len(value)}"
    return f"{a_kind(value)}"
