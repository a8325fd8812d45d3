"""What to say of training and other examples whose shapes differ, though they must be alike."""

from torch import nn

from membound.data.several import inputs_of
from membound.data.splits import Split
from membound.train.evaluation import takes_shape


def say_turned(train: Split, other: Split, name: str) -> str:
    """That one of two halves has the other's images with their channels last, and how to turn them."""
    first, second = tuple(train.shape), tuple(other.shape)
    if first == second or len(first) != 3 or len(second) != 3:
        return ""
    for half, one, its in (("the training data", first, second), (name, second, first)):
        if one == (*its[1:], its[0]) and one[2] in (1, 3):
            last = f"those of {half} have their channels last: give x.transpose(0, 3, 1, 2)"
            return f"; images are [n, C, H, W], and {last}"
    return ""


def say_which(network: nn.Module, train: Split, other: Split, name: str) -> str:
    """Which of two halves the network takes, where it takes one of two shapes."""
    if tuple(train.shape) == tuple(other.shape) or inputs_of(train) is not None:
        return ""
    taken = [takes_shape(network, tuple(split.shape)) for split in (train, other)]
    if taken[0] == taken[1]:
        return ""
    return f"; the network takes those of {'the training data' if taken[0] else name}"
