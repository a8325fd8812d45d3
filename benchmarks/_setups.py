"""The networks of the comparisons at equal bytes: how each is made, and how long it is trained on what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _networks import narrow_lenet, narrow_quick
from torch import nn

import membound as mb
from membound.train.preprocessing import preprocess_for
from membound.train.weights import load_weights_
from membound.zoo.efficientnet_lite0 import EfficientNetLite0

# The rows of ImageNet's 1000 classes that are Imagenette's, in the order of its folders.
IMAGENETTE = (0, 217, 482, 491, 497, 566, 569, 571, 574, 701)


@dataclass(frozen=True)
class Setup:
    """How one network is trained."""

    make: Callable[[float], nn.Module]  # of a width
    data: str
    steps: int
    batch_size: int | None = None  # None: as the network's own recipe says
    size: int | None = None  # of images that are read from a folder
    widths: tuple[float, ...] = (1.0,)


SETUPS = {
    "lenet": Setup(narrow_lenet, "mnist", 10_000, widths=(1.0, 0.5, 0.25)),
    "cifar10_quick": Setup(narrow_quick, "cifar10", 20_000, widths=(1.0, 0.5)),
    "resnet8": Setup(
        lambda width: mb.zoo.resnet8(width=round(16 * width)), "cifar10", 12_000, 128, widths=(1.0, 0.5)
    ),
    "efficientnet_lite0": Setup(
        lambda width: mb.zoo.efficientnet_lite0(10), "imagenette160", 1200, 64, size=224
    ),
    "alexnet": Setup(lambda width: mb.zoo.alexnet(10), "imagenette160", 2000, 128, size=256),
}


def trained_network(net: str, path: Path, data: mb.data.Dataset) -> tuple[nn.Module, mb.data.Preprocess]:
    """The network with the weights of a file, and the preprocessing that belongs to them."""
    model = SETUPS[net].make(1.0)
    if not isinstance(model, EfficientNetLite0) or path.suffix not in (".pt", ".pth"):
        return model, load_weights_(model, path) or preprocess_for(model, data.train, "channel")
    published = mb.zoo.efficientnet_lite0(1000)
    load_weights_(published, path)
    state = published.state_dict()
    for name in ("fc.weight", "fc.bias"):
        state[name] = state[name][list(IMAGENETTE)]
    model.load_state_dict(state)
    return model, mb.data.Preprocess(scale=1 / 128, mean=np.full(3, 127, np.float32))
