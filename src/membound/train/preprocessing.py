"""How images become inputs for one network: Caffe's way for the zoo, normalised channels for everybody else."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from membound.data import Preprocess, Split, channel_moments, mean_channels, mean_image
from membound.data.several import inputs_of
from membound.errors import DataError
from membound.store.rules import MAX_WINDOW
from membound.zoo.solver import Solver

WORDS = ("image", "channel", "none")
CONSTANT = float(np.finfo(np.float32).eps)  # a deviation of so much of the mean is that of rounding
LISTED = 4  # numbers of channels that a line shows
NAMED = {"imagenet": "0.485,0.456,0.406/0.229,0.224,0.225"}  # what most published weights were trained with


def solver_of(model: nn.Module) -> Solver | None:
    """The Caffe solver that a network of the zoo comes with."""
    solver = getattr(model, "caffe_solver", None)
    return solver if isinstance(solver, Solver) else None


def stated(text: str, channels: int) -> Preprocess:
    """Means of channels, and after a slash their deviations; of pixels from 0 to 1 if none is above 1, else to 255.

    >>> stated("127.5/63.75", 1).to_json() == stated("0.5/0.25", 1).to_json()
    True
    >>> stated("imagenet", 3).mean.round().tolist()
    [124.0, 116.0, 104.0]
    """
    try:
        parts = [[float(each) for each in part.split(",")] for part in NAMED.get(text, text).split("/")]
        mean, std = parts if len(parts) == 2 else (parts[0], [1.0 if max(parts[0]) <= 1 else 255.0])
        if len(parts) > 2 or min(std) <= 0 or min(mean) < 0 or max(*mean, *std) > 255:
            raise ValueError
    except ValueError:
        raise DataError(
            f"there is no mean {text!r}: choose {', '.join(WORDS)} or imagenet, or give numbers of channels and "
            "after a slash deviations, of pixels from 0 to 1 or from 0 to 255: 0.485,0.456,0.406/0.229,0.224,0.225",
            about="mean",
        ) from None
    std = std * channels if len(std) == 1 else std
    if not len(mean) == len(std) == channels:
        raise DataError(f"mean {text!r} is for {len(mean)} channels, images have {channels}", about="mean")
    most = 255 if max(*mean, *(std if len(parts) == 2 else mean)) <= 1 else 1
    return Preprocess(mean=most * np.array(mean, np.float32), std=most * np.array(std, np.float32))


def features_as_they_are(takes: str) -> Preprocess:
    """Of examples without channels: bytes become numbers up to 1, floating point is taken as prepared."""
    return Preprocess(scale=1 / 255) if takes == "uint8" else Preprocess(takes=takes)


def standardized(split: Split, takes: str) -> Preprocess:
    """(x - mean) / deviation of each channel, as measured: each number of features [F] is a channel of its own.

    There may be hundreds of them, and the file holds their means and deviations, so those get few digits.
    """
    if len(split.shape) != 3 and (inputs_of(split) is not None or split.shape[0] > MAX_WINDOW):
        return features_as_they_are(
            takes
        )  # several inputs have no common channels, and a file no longer lists
    mean, std = channel_moments(split)
    varies = std > CONSTANT * np.abs(mean)
    std = np.where(varies, std, np.float32(1))
    if len(split.shape) != 3:
        mean, std = few_digits(mean, std)
    return Preprocess(mean=mean, std=std, takes=takes)


def few_digits(mean: npt.NDArray[Any], std: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both rounded to the third digit of the deviation, so that a mean is off by at most 1/200 of it.

    >>> [each.tolist() for each in few_digits(np.array([2.613579, -51234.5]), np.array([0.031234, 6789.0]))]
    [[2.6136, -51230.0], [0.0312, 6790.0]]
    """
    digits = 2 - np.floor(np.log10(std.astype(np.float64))).astype(int)
    rounded = [
        np.array([round(float(x), int(n)) for x, n in zip(each, digits, strict=True)]) for each in (mean, std)
    ]
    return rounded[0], rounded[1]


def describe(preprocess: Preprocess) -> str:
    """How images are prepared, in few words.

    >>> describe(stated("0.5/0.25", 1))
    'mean 127.5, std 63.75 of pixels from 0 to 255'
    """
    said = [
        f"{name} " + ("an image" if value.ndim == 3 else _list_channels(value, ".4g"))
        for name, value in (("mean", preprocess.mean), ("std", preprocess.std))
        if value is not None
    ]
    said += [f"scale {preprocess.scale:.4g}"] if preprocess.scale != 1 else []
    kind = " of pixels from 0 to 255" if preprocess.takes == "uint8" else ""
    return f"{', '.join(said) or 'nothing'}{kind}"


def _list_channels(numbers: npt.NDArray[Any], form: str) -> str:
    """A number for each channel, or one where all are prepared alike, as for microcontrollers.

    >>> _list_channels(np.array([121.0, 121.0]), ".1f"), _list_channels(np.array([121.0, 120.0]), ".1f")
    ('121.0', '121.0, 120.0')
    """
    shown = [format(each, form) for each in numbers]
    if len(set(shown)) == 1:
        return shown[0]
    rest = [f"and {len(shown) - LISTED} more"] if len(shown) > LISTED else []
    return ", ".join([*shown[:LISTED], *rest])


def say_measured(used: Preprocess, data: str) -> str | None:
    """What was chosen for an ONNX file, that does not say it: wrong, it costs accuracy. None where nothing was."""
    if used.mean is None or used.std is None:
        return None
    if used.takes == "float32":
        return (
            f"prepared  each channel by its mean and deviation in {data}: an .onnx file does not say how inputs were "
            "prepared for it. If they were taken as they are, give the mean none"
        )
    mean, std = (_list_channels(value, ".1f") for value in (used.mean, used.std))
    channels = len(used.mean)
    zeros, ones = (",".join(each * channels) for each in "01")
    imagenet = "; if with ImageNet's mean and deviation, the mean imagenet" if channels == 3 else ""
    return (
        f"prepared  (pixel - {mean}) / {std}, the mean and deviation of {data}: an .onnx file does not say how images "
        f"were prepared for it. If they were divided by 255, give the mean {zeros}/{ones}{imagenet}"
    )


def preprocess_for(model: nn.Module, split: Split, mean: str | None = None) -> Preprocess:
    """The preprocessing of `model`, its mean taken from `split`; `mean` overrides.

    It is image, channel or none; or imagenet, or numbers of channels, as `stated` reads them.
    """
    solver = solver_of(model)
    takes = str(split.read(np.zeros(1, np.intp)).dtype)
    if mean is not None and mean not in WORDS:
        return replace(stated(mean, split.shape[0]), takes=takes, crop=solver.crop if solver else None)
    if len(split.shape) != 3:
        return _for_features(split, takes, mean)
    if solver is None and mean is None:
        return standardized(split, takes)
    kind = mean or (solver.mean if solver else None)
    values = mean_image(split) if kind == "image" else mean_channels(split) if kind == "channel" else None
    if solver is None:
        return Preprocess.measured(values, scale=1 / 255, takes=takes)
    crop = solver.crop
    if crop is not None and crop > min(split.shape[1:]):
        raise DataError(
            f"the network takes crops of {crop} pixels, the images are {split.shape[1:]}: read them at a larger size",
            about="size",
        )
    return Preprocess.measured(values, scale=solver.scale, crop=crop, mirror=solver.mirror, takes=takes)


def _for_features(split: Split, takes: str, mean: str | None) -> Preprocess:
    """Of examples that are no images: floats are standardized, unless they shall stay as they are."""
    if mean == "none" or (mean is None and takes == "uint8"):
        return features_as_they_are(takes)
    if mean == "image" or takes == "uint8":
        allowed = "none" if takes == "uint8" else "channel or none"
        raise DataError(
            f"there is no mean {mean!r} of {takes} examples of shape {list(split.shape)}: choose {allowed}, or leave "
            "it out",
            about="mean",
        )
    return standardized(split, takes)
