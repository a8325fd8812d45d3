"""Which blob of a Caffe model belongs to which parameter of a network: checked before any copy."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from membound.errors import WeightsError
from membound.specs import choices

Array = npt.NDArray[np.float32]
Pair = tuple[nn.Parameter, Array]


def place(net: nn.Module, layers: Mapping[str, Sequence[Array]], names: Mapping[str, str]) -> list[Pair]:
    """Pair every parameter of `net` with its value, or say why that cannot be.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> place(net, {"ip": [np.ones((1, 1, 1, 2), np.float32)]}, {"ip": ""})[0][1].tolist()
    [[1.0, 1.0]]
    """
    modules = {
        name: module for name, module in net.named_modules() if any(True for _ in module.parameters(False))
    }
    targets = _targets(getattr(net, "caffe_names", {}), list(layers), list(modules), names)
    pairs: list[Pair] = []
    for caffe, target in targets.items():
        pairs += _pairs(caffe, target, modules[target], layers[caffe])
    return pairs


def _targets(
    usual: Mapping[str, str], layers: list[str], modules: list[str], names: Mapping[str, str]
) -> dict[str, str]:
    """The module's name for each layer of the file: one to one, and nothing is left over."""
    for caffe, target in names.items():
        if caffe not in layers:
            raise WeightsError(f"names maps {caffe!r}, no layer of the file; {choices(caffe, layers)}")
        if target not in modules:
            raise WeightsError(
                f"names maps {caffe!r} to {target!r}, no layer of the network; {choices(target, modules)}"
            )
    targets = {caffe: names.get(caffe, usual.get(caffe, caffe)) for caffe in layers}
    for caffe, target in targets.items():
        if target not in modules:
            raise WeightsError(
                f"layer {caffe[:80]!r} has no place in the network; {choices(target, modules)}; "
                f"map it with names={{{caffe[:80]!r}: ...}}"
            )
    taken: dict[str, str] = {}
    for caffe, target in targets.items():
        if target in taken:
            raise WeightsError(f"layers {taken[target]!r} and {caffe!r} both go to {target!r}; give names=")
        taken[target] = caffe
    for module in modules:
        if module not in taken:
            raise WeightsError(
                f"the file has nothing for the network's layer {module!r}; {choices(module, layers)}; "
                "if none is missing, map one with names="
            )
    return targets


def _pairs(caffe: str, target: str, module: nn.Module, blobs: Sequence[Array]) -> list[Pair]:
    parameters = dict(module.named_parameters(recurse=False))
    where = f"layer {caffe!r} to {target!r}"
    if unknown := sorted(parameters.keys() - {"weight", "bias"}):
        raise WeightsError(
            f"{where}: the module has {', '.join(unknown)}; only weight and bias can be loaded"
        )
    wanted = [name for name in ("weight", "bias") if name in parameters]
    values, masks = blobs[: len(wanted)], blobs[len(wanted) :]
    if len(values) < len(wanted) or len(masks) > len(wanted):
        raise WeightsError(f"{where}: {len(blobs)} blobs where the module has {' and '.join(wanted)}")
    pairs = []
    for i, (name, value) in enumerate(zip(wanted, values, strict=True)):
        parameter = parameters[name]
        fitted = _fitted(value, parameter, f"{where}: {name}")
        if i < len(masks):
            mask = _fitted(masks[i], parameter, f"{where}: the blob after the weights, a mask of {name},")
            if not np.isin(mask, (0, 1)).all():
                raise WeightsError(f"{where}: the blob after the weights is not a mask of 0 and 1")
            fitted = np.where(mask != 0, fitted, np.float32(0))
        pairs.append((parameter, fitted))
    return pairs


def _fitted(value: Array, parameter: nn.Parameter, where: str) -> Array:
    """The blob in the parameter's shape: the same up to leading ones, which old files add."""
    found, wanted = list(value.shape), list(parameter.shape)
    if _without_leading_ones(found) != _without_leading_ones(wanted):
        raise WeightsError(f"{where} is {found} in the file and {wanted} in the network")
    if parameter.is_meta or not parameter.is_floating_point():
        raise WeightsError(f"{where}: a parameter of {parameter.dtype} on {parameter.device} takes no values")
    limit = torch.finfo(parameter.dtype).max
    if value.size and max(-float(value.min()), float(value.max())) > limit:
        raise WeightsError(f"{where} has values beyond {limit:g}, the greatest {parameter.dtype}")
    return value.reshape(wanted)


def _without_leading_ones(shape: list[int]) -> list[int]:
    first = next((i for i, dim in enumerate(shape) if dim != 1), len(shape))
    return shape[first:]
