"""How good a network is on a split."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from membound.errors import DataError, MemboundError
from membound.train.batches import Feeder, whole
from membound.train.parallel import World


@dataclass(frozen=True)
class Score:
    """Classification on one split."""

    images: int
    correct: int
    loss: float

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100.0 * self.correct / self.images

    @property
    def errors(self) -> int:
        return self.images - self.correct


def check_fits(model: nn.Module, feeder: Feeder) -> None:
    """One image through the network, so that what does not fit is said in a line and at once."""
    try:
        feeder.preprocess(feeder.split.read(np.zeros(1, np.int64)))  # numpy's way checks every shape
        x, _ = next(feeder.batches(iter([np.zeros(1, np.int64)])))
        with torch.no_grad(), _in_eval_mode(model):
            scores = model(x)
    except MemboundError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        shape = feeder.split.shape
        raise DataError(
            f"the network does not take images of shape {shape}: {type(error).__name__}: {reason}"
        ) from error
    highest = int(feeder.split.labels.max())
    if not isinstance(scores, Tensor) or scores.dim() != 2 or scores.shape[1] <= highest:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise DataError(
            f"the network gives {found} for one image, the data has labels up to {highest}: "
            f"scores of shape (1, {highest + 1}) are needed"
        )


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@torch.no_grad()
def evaluate(
    model: nn.Module, feeder: Feeder, batch_size: int = 500, world: World | None = None, bf16: bool = False
) -> Score:
    """Accuracy and mean loss over the whole split; the model's mode is left as it was."""
    world = world or World()
    correct = torch.zeros((), dtype=torch.int64, device=feeder.device)
    loss = torch.zeros((), dtype=torch.float64, device=feeder.device)
    with _in_eval_mode(model):
        for x, y in feeder.batches(whole(feeder.split, batch_size, world.share())):
            with torch.autocast(feeder.device.type, torch.bfloat16, enabled=bf16):
                scores = model(x)
            correct += (scores.argmax(1) == y).sum()
            loss += nn.functional.cross_entropy(scores.double(), y, reduction="sum")
    right, total = world.sum(int(correct), float(loss))
    return Score(len(feeder.split), int(right), total / len(feeder.split))
