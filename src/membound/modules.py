"""What training and capturing both know of a torch module: its plain names, bounds noted on its layers, why it refuses.

It only looks at modules that are there, and imports no torch.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

FITTED = "_membound_file_bytes"  # in the __dict__ of a network that fit gave: what its own file takes
NOTE = "_membound_bounds"  # in the __dict__ of a layer: how many nonzeros each of its parameters may have


def plain_name(name: str) -> str:
    """A name without what torch.compile puts into it.

    >>> plain_name("_orig_mod.features.0.weight")
    'features.0.weight'
    """
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def plain_keys(named: Mapping[str, Any]) -> dict[str, Any]:
    """The same under plain names; 'module.' goes where every name has it, as DistributedDataParallel's do.

    >>> plain_keys({"module._orig_mod.fc1.weight": 1, "module.fc1.bias": 2})
    {'fc1.weight': 1, 'fc1.bias': 2}
    """
    plain = {plain_name(name): value for name, value in named.items()}
    prefix = wrapping(plain)
    return {name.removeprefix(prefix): value for name, value in plain.items()}


def wrapping(names: Mapping[str, Any]) -> str:
    """The 'module.' that all of these begin with, once for every wrapper."""
    prefix = ""
    while names and all(name.startswith(f"{prefix}module.") for name in names):
        prefix += "module."
    return prefix


def broken(model: "nn.Module") -> Iterator[tuple[str, int, int]]:
    """The weights that have more nonzeros than was promised: their names, how many, and how many were promised."""
    found: dict[str, tuple[Tensor, int]] = {}
    for path, layer in model.named_modules():
        for key, allowed in layer.__dict__.get(NOTE, {}).items():
            weight = layer._parameters.get(key)
            if weight is not None:
                found[f"{path}.{key}".lstrip(".")] = weight, allowed
    for name, (weight, allowed) in plain_keys(found).items():
        if (nonzeros := _count_nonzeros(weight)) > allowed:
            yield name, nonzeros, allowed


def _count_nonzeros(weight: "Tensor") -> int:
    """In all processes together, where the weight is sharded over some."""
    total: Any = (weight.detach() != 0).sum()
    return int(total.full_tensor() if hasattr(total, "full_tensor") else total)


CHANNELS = re.compile(r"to have (\d+) channels, but got (\d+) channels")
FEATURES = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((?:\d+)x(\d+) and (\d+)x(?:\d+)\)")
DIMENSIONS = re.compile(
    r"Expected (\d)D \(unbatched\) or .*input to conv\dd, but got input of size: \[([\d, ]+)\]"
)
WHOLE = re.compile(r"(unsigned char|long int|Byte|Long|Int|Char)\)? (and|but).*([Ff]loat|should be the same)")
TOO_SMALL = re.compile(r"Output size is too small|size can't be greater than actual input")
MOST = 140  # letters of a reason that is not known here


def explain_refusal(error: BaseException, model: "nn.Module") -> str:
    """Why a network does not take an input, and what to do: the layer that fails, and what torch says, in short.

    >>> from torch import nn, zeros
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    >>> for shape in ((1, 3, 6, 6), (1, 1, 8, 8)):
    ...     try:
    ...         net(zeros(shape))
    ...     except RuntimeError as error:
    ...         print(explain_refusal(error, net))
    layer '0' takes 1 channel and gets 3; change that layer or convert the input
    layer '2' takes 64 features and gets 144; give inputs of the size that the network was made for, or pool before it
    """
    text, layer = " ".join(str(error).split()), _failing_layer(error, model)
    where = f"layer {layer!r}" if layer else "a layer"
    if found := CHANNELS.search(text):
        takes, gets = found.groups()
        channels = "channel" if takes == "1" else "channels"
        return f"{where} takes {takes} {channels} and gets {gets}; change that layer or convert the input"
    if found := FEATURES.search(text):
        gets, takes = (f"{int(number):,}" for number in found.groups())
        advice = "give inputs of the size that the network was made for, or pool before it"
        return f"{where} takes {takes} features and gets {gets}; {advice}"
    if found := DIMENSIONS.search(text):
        takes, gets = found[1], found[2].count(",")
        return f"{where} takes examples of {takes} dimensions and gets {gets}"
    if WHOLE.search(text):
        return (
            f"{where} computes in float32 and gets whole numbers; give it x.float(), prepared as in training"
        )
    if TOO_SMALL.search(text):
        return f"nothing is left for {where}; give larger inputs, or pool less before it"
    reason = str(error).strip().splitlines()[0].strip() if text else "no message"
    kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
    short = reason if len(reason) <= MOST else f"{reason[:MOST].rsplit(' ', 1)[0]} ..."
    return f"{f'layer {layer!r}: ' if layer else ''}{kind}{short}"


def _failing_layer(error: BaseException, model: "nn.Module") -> str:
    """The name of the innermost module that was running when an error came up; empty if none is known."""
    names = {id(module): plain_name(name) for name, module in model.named_modules()}
    found, trace = "", error.__traceback__
    while trace is not None:
        found = names.get(id(trace.tb_frame.f_locals.get("self")), found)
        trace = trace.tb_next
    return found
