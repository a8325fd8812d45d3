"""How images become inputs for one network: Caffe's way for the zoo, normalised channels for everybody else."""

import numpy as np
from torch import nn

from membound.data import Preprocess, Split, channel_moments, mean_channels, mean_image
from membound.errors import DataError
from membound.zoo.solver import Solver


def solver_of(model: nn.Module) -> Solver | None:
    """The Caffe solver that a network of the zoo comes with."""
    solver = getattr(model, "caffe_solver", None)
    return solver if isinstance(solver, Solver) else None


def preprocess_for(model: nn.Module, split: Split, mean: str | None = None) -> Preprocess:
    """The preprocessing of `model`, its mean taken from `split`; `mean` overrides: image, channel or none."""
    solver = solver_of(model)
    takes = str(split.read(np.zeros(1, np.intp)).dtype)
    if mean not in (None, "image", "channel", "none"):
        raise DataError(f"there is no mean {mean!r}: choose image, channel or none", about="mean")
    if len(split.shape) != 3 and mean in (None, "none"):  # features have no channels to be made alike
        return Preprocess(scale=1 / 255) if takes == "uint8" else Preprocess(takes=takes)
    if len(split.shape) != 3:
        raise DataError(
            f"there is no mean by {mean} of examples of shape {tuple(split.shape)}: leave it out",
            about="mean",
        )
    if solver is None and mean is None:
        channels, std = channel_moments(split)
        return Preprocess(mean=channels, std=std.clip(min=1e-6), takes=takes)
    kind = mean or (solver.mean if solver else None)
    values = mean_image(split) if kind == "image" else mean_channels(split) if kind == "channel" else None
    if solver is None:
        return Preprocess(scale=1 / 255, mean=values, takes=takes)
    crop = solver.crop
    if crop is not None and crop > min(split.shape[1:]):
        raise DataError(
            f"the network takes crops of {crop} pixels, the images are {split.shape[1:]}: read them at a larger size",
            about="size",
        )
    return Preprocess(scale=solver.scale, mean=values, crop=crop, mirror=solver.mirror, takes=takes)
