"""How good a network is on a split."""

from dataclasses import dataclass

import torch
from torch import nn

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


@torch.no_grad()
def evaluate(
    model: nn.Module, feeder: Feeder, batch_size: int = 500, world: World | None = None, bf16: bool = False
) -> Score:
    """Accuracy and mean loss over the whole split; the model's mode is left as it was."""
    world = world or World()
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=feeder.device)
    loss = torch.zeros((), dtype=torch.float64, device=feeder.device)
    try:
        for x, y in feeder.batches(whole(feeder.split, batch_size, world.share())):
            with torch.autocast(feeder.device.type, torch.bfloat16, enabled=bf16):
                scores = model(x)
            correct += (scores.argmax(1) == y).sum()
            loss += nn.functional.cross_entropy(scores.double(), y, reduction="sum")
    finally:
        for module, mode in modes:
            module.training = mode
    right, total = world.sum(int(correct), float(loss))
    return Score(len(feeder.split), int(right), total / len(feeder.split))
