"""What training and capturing both know of a torch module: its plain names, and the bounds noted on its layers.

It only looks at modules that are there, and imports no torch.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

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
