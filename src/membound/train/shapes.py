"""What to do about examples of a shape that a network does not take."""

import math
import re
from itertools import islice

from torch import nn

IMAGES = "Conv2d takes images: save x of [n, channels, height, width]"
OVER_TIME = "Conv2d of (k, 1) takes a sequence as [channels, time, 1]"
SEQUENCES = f"{OVER_TIME}: save x of [n, channels, time, 1], and give the layout NCHW"


def advise_shape(shape: tuple[int, ...], why: str, model: nn.Module, reading: str = "") -> str | None:
    """What the network takes, and how to save x so; None if that cannot be told. `why` is what `explain_refusal` says.

    `reading` says how an .npz was read, where that is known.

    >>> why, read = "layer '0' takes 6 channels and gets 1; change that layer", "x_train is [9, 6, 50, 1], read as NHWC"
    >>> advise_shape((1, 6, 50), why, nn.Conv2d(6, 8, 3), read)
    'x_train is [9, 6, 50, 1], read as NHWC: give the layout NCHW'
    >>> advise_shape((1, 3, 64), "layer '0' takes 3 channels and gets 1; change that layer", nn.Conv2d(3, 8, 3))
    'the layout NCHW would read 3 channels from x of [n, 3, 64, 1]; if x is [n, 3, 64], save x[..., None] first'
    >>> advise_shape((64, 64, 3), "layer '0' takes 3 channels and gets 64; change that layer", nn.Conv2d(3, 8, 3))
    'the layout NHWC would read 3 channels (of an array, pass x.transpose(0, 3, 1, 2))'
    >>> advise_shape((784,), "layer '0' takes examples of 3 dimensions and gets 1", nn.Conv2d(3, 8, 3))
    'Conv2d takes images: save x of [n, channels, height, width]'
    >>> advise_shape((64, 3), "layer '0' takes 3 channels and gets 64; change that layer", nn.Conv1d(3, 8, 3))
    'Conv1d takes [channels, time]: save x.transpose(0, 2, 1)'
    >>> advise_shape((6, 1), "layer '0' takes 6 features and gets 1", nn.Linear(6, 2))
    'Linear takes features: save x of [n, 6], x.reshape(len(x), -1)'
    """
    takes = re.search(r"takes (\d+) channels? and gets", why)
    channels = int(takes[1]) if takes else None
    wide = next(_parts(model, nn.Conv2d), None)
    if isinstance(wide, nn.Conv2d):
        return _advise_images(shape, why, channels, wide.kernel_size[0] > 1 == wide.kernel_size[1], reading)
    if next(_parts(model, nn.Conv1d), None) is not None:
        return _advise_sequences(shape, channels)
    return advise_features(shape, model)


def advise_features(shape: tuple[int, ...], model: nn.Module) -> str | None:
    """For a network of linear layers alone that gets more than one axis."""
    first = next(_parts(model, nn.Linear), None)
    others = (nn.Flatten, nn.Unflatten, nn.Embedding, nn.RNNBase, nn.MultiheadAttention, nn.Conv1d, nn.Conv2d)
    if not isinstance(first, nn.Linear) or len(shape) < 2 or next(_parts(model, *others), None) is not None:
        return None
    fits = math.prod(shape) == first.in_features
    return f"Linear takes features: save x of [n, {first.in_features}]{', x.reshape(len(x), -1)' if fits else ''}"


def _parts(model: nn.Module, *kinds: type[nn.Module]) -> "islice[nn.Module]":
    return islice((part for part in model.modules() if isinstance(part, kinds)), 1)


def _advise_images(
    shape: tuple[int, ...], why: str, channels: int | None, over_time: bool, reading: str
) -> str | None:
    if len(shape) == 2 and shape[0] == channels:
        return f"{OVER_TIME}: save x[..., None], and give the layout NCHW"
    if len(shape) == 2:
        return (
            "gray images need an axis for their one channel, [n, 1, H, W], as x[:, None] adds it; "
            f"{OVER_TIME}, in the layout NCHW"
        )
    if len(shape) != 3:
        return SEQUENCES if over_time else IMAGES
    if over_time and "nothing is left" in why:
        return SEQUENCES
    if over_time and shape[2] == 1 and shape[1] == channels:
        return f"{OVER_TIME}: save x.transpose(0, 2, 1, 3)"
    layouts = [layout for layout, side in (("NCHW", 1), ("NHWC", 2)) if shape[side] == channels]
    if len(layouts) != 1:
        return None
    if reading:
        saved = "" if reading.endswith(("NHWC", "NCHW")) else "save x[..., None], and "
        return f"{reading}: {saved}give the layout {layouts[0]}"
    said = f"the layout {layouts[0]} would read {channels} channel{'' if channels == 1 else 's'}"
    if layouts == ["NHWC"]:
        return f"{said} (of an array, pass x.transpose(0, 3, 1, 2))"
    flat_x = ", ".join(map(str, ("n", *shape[1:])))
    return f"{said} from x of [{flat_x}, 1]; if x is [{flat_x}], save x[..., None] first"


def _advise_sequences(shape: tuple[int, ...], channels: int | None) -> str | None:
    takes = "Conv1d takes [channels, time]"
    if len(shape) == 2:
        return f"{takes}: save x.transpose(0, 2, 1)" if shape[1] == channels else None
    if len(shape) != 3:
        return f"{takes}: save x of [n, channels, time], and give the layout NCL"
    saved = ": save x[..., 0]" if shape[2] == 1 else ""
    joined = " and give the layout NCL" if saved else " in the layout NCL"
    return f"{takes}{saved},{joined}; for a microcontroller, take Conv2d of (k, 1)"
