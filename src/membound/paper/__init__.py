"""The paper's figures and tables, each a short module: what it claims, what is trained for it, what came out."""

from importlib import import_module
from types import ModuleType

FIGURES: tuple[str, ...] = (
    "memory",
    "layers",
    "thresholding",
    "partial",
    "kernels",
    "optimization",
    "ensembles",
    "starvation",
    "frontier",
)
LARGE: tuple[str, ...] = ("imagenet",)  # made by name only: needs a folder of images
PANELS: tuple[str, ...] = ("memory", "layers", "partial")  # of LeNet and of CIFAR-10-quick, or of one of them
OF_LENET: tuple[str, ...] = ("frontier",)  # all others are of CIFAR-10-quick


def figure(name: str) -> ModuleType:
    """The module of a figure: `run(lab)` gives its numbers, `claims` and `table` say what is in them."""
    return import_module(f"membound.paper.{name}")
