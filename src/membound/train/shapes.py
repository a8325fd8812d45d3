"""What to do about examples of a shape that a network does not take."""

import math
import re
from itertools import islice

from torch import nn

OVER_TIME = "Conv2d of (k, 1) takes a sequence as [channels, time, 1]"


def advise_shape(shape: tuple[int, ...], why: str, model: nn.Module, reading: str = "") -> str | None:
    """What the network takes, and how to give x so; None if that cannot be told. `why` is what `explain_refusal` says.

    `reading` says how an .npz was read: only there is a layout to give. It is empty where x comes from Python.

    >>> why, read = "layer '0' takes 6 channels and gets 1; change that layer", "x_train is [9, 6, 50, 1], read as NHWC"
    >>> advise_shape((1, 6, 50), why, nn.Conv2d(6, 8, 3), read)
    "layer '0' takes 6 channels and gets 1; x_train is [9, 6, 50, 1], read as NHWC: give the layout NCHW"
    >>> advise_shape((28, 28), "layer '0' takes 28 channels and gets 1", nn.Conv2d(28, 8, 3))
    'gray images are [n, 1, 28, 28]: give x[:, None]'
    >>> advise_shape((3, 64), "layer '0' takes 3 channels and gets 1", nn.Conv2d(3, 8, (5, 1)))
    'Conv2d of (k, 1) takes a sequence as [channels, time, 1]: give x[..., None]'
    >>> advise_shape((64, 64, 3), "layer '0' takes 3 channels and gets 64; change that layer", nn.Conv2d(3, 8, 3))
    "layer '0' takes 3 channels and gets 64; Conv2d takes [channels, height, width]: give x.transpose(0, 3, 1, 2)"
    >>> advise_shape((64, 3), "layer '0' takes 3 channels and gets 64; change that layer", nn.Conv1d(3, 8, 3))
    "layer '0' takes 3 channels and gets 64; Conv1d takes [channels, time]: give x.transpose(0, 2, 1)"
    >>> advise_shape((6, 1), "layer '0' takes 6 features and gets 1", nn.Linear(6, 2))
    "layer '0' takes 6 features and gets 1; Linear takes features: give x of [n, 6], x.reshape(len(x), -1)"
    """
    if (resized := _advise_size(shape, why)) is not None:
        return f"{why.partition(';')[0]}; {resized}"
    wide, along = next(_parts(model, nn.Conv2d), None), next(_parts(model, nn.Conv1d), None)
    if isinstance(wide, nn.Conv2d) and len(shape) == 2:
        return _advise_flat(
            shape, wide, reading
        )  # torch takes two axes for one image, and blames some later layer
    if isinstance(wide, nn.Conv2d):
        advice = _advise_images(shape, why, wide, reading)
    elif isinstance(along, nn.Conv1d):
        advice = _advise_sequences(shape, along.in_channels, reading)
    else:
        advice = advise_features(shape, model, reading)
    return None if advice is None else f"{why.partition(';')[0]}; {advice}"


def advise_features(shape: tuple[int, ...], model: nn.Module, reading: str = "") -> str | None:
    """For a network of linear layers alone that gets more than one axis."""
    first = next(_parts(model, nn.Linear), None)
    others = (nn.Flatten, nn.Unflatten, nn.Embedding, nn.RNNBase, nn.MultiheadAttention, nn.Conv1d, nn.Conv2d)
    if not isinstance(first, nn.Linear) or len(shape) < 2 or next(_parts(model, *others), None) is not None:
        return None
    fits = ", x.reshape(len(x), -1)" if math.prod(shape) == first.in_features else ""
    return f"Linear takes features: {_verb(reading)} x of [n, {first.in_features}]{fits}"


def _advise_size(shape: tuple[int, ...], why: str) -> str | None:
    """Of square images whose pixels all go into a linear layer: at which size they would be as many as it takes.

    >>> _advise_size((3, 32, 32), "layer 'fc' takes 2,352 features and gets 3,072; change that layer")
    'the images are 3 x 32 x 32; 2,352 = 3 x 28 x 28: did you mean images of 28 x 28 (size=28)? Or change that layer'
    >>> _advise_size((3, 32, 32), "layer 'fc' takes 2,353 features and gets 3,072; change that layer")
    >>> _advise_size((3, 32, 32), "layer 'fc' takes 2,352 features and gets 32; change that layer")
    """
    found = re.search(r"takes ([\d,]+) features and gets ([\d,]+)", why)
    if found is None or len(shape) != 3 or shape[1] != shape[2]:
        return None
    takes, gets = (int(number.replace(",", "")) for number in found.groups())
    channels, side = shape[0], math.isqrt(takes // shape[0])
    if gets != math.prod(shape) or channels * side * side != takes or side < 2:
        return None
    shown = " x ".join(map(str, shape))
    return (
        f"the images are {shown}; {takes:,} = {channels} x {side} x {side}: did you mean images of {side} x {side} "
        f"(size={side})? Or change that layer"
    )


def _parts(model: nn.Module, *kinds: type[nn.Module]) -> "islice[nn.Module]":
    return islice((part for part in model.modules() if isinstance(part, kinds)), 1)


def _verb(reading: str) -> str:
    return "save" if reading else "give"


def _is_over_time(layer: nn.Conv2d) -> bool:
    return layer.kernel_size[0] > 1 == layer.kernel_size[1]


def _in_layout(reading: str, layout: str) -> str:
    """How a sentence about x goes on where a layout is to be given, too."""
    return f", and give the layout {layout}" if reading else ""


def _advise_flat(shape: tuple[int, ...], layer: nn.Conv2d, reading: str) -> str:
    """Of two axes: gray images, or sequences for Conv2d of (k, 1)."""
    first, second = shape
    if _is_over_time(layer) and layer.in_channels != 1:
        if layer.in_channels == first:
            return f"{OVER_TIME}: {_verb(reading)} x[..., None]{_in_layout(reading, 'NCHW')}"
        if layer.in_channels == second and reading:
            return f"{OVER_TIME}: save x[:, :, None], and give the layout NHWC"
        if layer.in_channels == second:
            return f"{OVER_TIME}: give x.transpose(0, 2, 1)[..., None]"
        shown = f"[n, {layer.in_channels}, time, 1]"
        return f"{OVER_TIME}: {_verb(reading)} x of {shown}{_in_layout(reading, 'NCHW')}"
    if layer.in_channels not in (1, first):  # `fit` tells a function that it has `first` channels
        shown = f"[n, {layer.in_channels}, height, width]"
        return f"Conv2d takes images: {_verb(reading)} x of {shown}{_in_layout(reading, 'NCHW')}"
    if reading:
        return f"{reading}: for gray images, leave out the layout"
    return f"gray images are [n, 1, {first}, {second}]: give x[:, None]"


def _advise_images(shape: tuple[int, ...], why: str, layer: nn.Conv2d, reading: str) -> str | None:
    over_time = _is_over_time(layer)
    if len(shape) != 3 or (over_time and reading and "nothing is left" in why):
        if over_time:
            layout = _in_layout(reading, "NCHW")
            return f"{OVER_TIME}: {_verb(reading)} x of [n, channels, time, 1]{layout}"
        return f"Conv2d takes images: {_verb(reading)} x of [n, channels, height, width]"
    takes = re.search(r"takes (\d+) channels? and gets", why)
    places = [place for place in (1, 2) if takes and shape[place] == int(takes[1])]
    if over_time and not places and "nothing is left" in why and shape[1] == 1:
        return f"{OVER_TIME}: give x.transpose(0, 1, 3, 2)"
    if len(places) != 1:
        return None
    if reading:
        found = _advise_layout(places[0], over_time, reading.rpartition(" ")[2])
        return found and f"{reading}: {found}"
    if over_time:
        axes = [0, 1 + places[0], *(axis for axis in (1, 2, 3) if axis != 1 + places[0])]
        if shape[axes[2] - 1] == 1:  # time is before the axis of one
            axes[2:] = axes[:1:-1]
        return f"{OVER_TIME}: give x.transpose({', '.join(map(str, axes))})"
    moved = "(0, 2, 1, 3)" if places == [1] else "(0, 3, 1, 2)"
    return f"Conv2d takes [channels, height, width]: give x.transpose{moved}"


def _advise_layout(place: int, over_time: bool, read_as: str) -> str | None:
    """How to save an array, and the layout for it; its channels were read as the height (1) or the width (2)."""
    if read_as == "NCHW":
        return "save x.transpose(0, 2, 1, 3)" if place == 1 else "give the layout NHWC"
    if read_as == "NHWC":
        turned = "save x.transpose(0, 2, 1, 3), and " if place == 2 else ""
        return f"{turned}give the layout NCHW"
    if not over_time:
        return None
    return f"save {('x[..., None], and give the layout NCHW', 'x[:, :, None], and give the layout NHWC')[place - 1]}"


def _advise_sequences(shape: tuple[int, ...], channels: int, reading: str) -> str | None:
    takes, verb, layout = "Conv1d takes [channels, time]", _verb(reading), _in_layout(reading, "NCL")
    if len(shape) == 2:
        return f"{takes}: {verb} x.transpose(0, 2, 1)" if channels == shape[1] != shape[0] else None
    if len(shape) == 1 and channels == 1:
        return f"{takes}: {verb} x[:, None]{layout}"
    if len(shape) != 3:
        return f"{takes}: {verb} x of [n, channels, time]{layout}"
    if reading.endswith("one channel"):  # x is [n, channels, time], or the other way round
        turned = "save x.transpose(0, 2, 1), and " if channels == shape[2] != shape[1] else ""
        advice = f"{turned}give the layout NCL"
    elif reading:
        flat = {1: "x[..., 0]"} if reading.endswith("NHWC") else {1: "x[:, 0]"}
        index = flat.get(shape[0]) or ("x[..., 0]" if shape[2] == 1 else None)
        advice = f"save {index or 'x of [n, channels, time]'}, and give the layout NCL"
    else:
        index = "x[..., 0]" if shape[2] == 1 else "x[:, 0]" if shape[0] == 1 else None
        return f"{takes}: give {index or 'x of [n, channels, time]'}"
    return f"{takes}: {advice}"
