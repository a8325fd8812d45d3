"""Weights that a layer computes before each pass: pruned by torch.nn.utils.prune, normalized, or parametrized.

What the optimizer holds is another parameter (`weight_orig`, `parametrizations.weight.original`), and the `weight` is
written anew from it, so that no rule on the weight would last.
"""

import copy
from collections.abc import Collection, Iterator

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from membound.errors import MemboundError, RuleError

WAYS = {  # how a tensor comes to be computed, and what makes it a parameter again
    "pruned by torch.nn.utils.prune": "torch.nn.utils.prune.remove(layer, '{0}')",
    "normalized by torch.nn.utils.weight_norm": "torch.nn.utils.remove_weight_norm(layer, '{0}')",
    "normalized by torch.nn.utils.spectral_norm": "torch.nn.utils.remove_spectral_norm(layer, '{0}')",
    "parametrized": "torch.nn.utils.parametrize.remove_parametrizations(layer, '{0}')",
}
PRUNED, SCALED, SPECTRAL, PARAMETRIZED = WAYS
SHOWN = 8  # layers that an error names


def computed_tensors(layer: nn.Module) -> Iterator[tuple[str, str]]:
    """The tensors that a layer computes, each with the way.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
    >>> list(computed_tensors(layer))
    [('weight', 'pruned by torch.nn.utils.prune')]
    """
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, BasePruningMethod):
            yield hook._tensor_name, PRUNED
        elif isinstance(hook, WeightNorm):
            yield hook.name, SCALED
        elif isinstance(hook, SpectralNorm):
            yield hook.name, SPECTRAL
    found = getattr(layer, "parametrizations", None)
    if isinstance(found, nn.ModuleDict):
        yield from ((name, PARAMETRIZED) for name in found)


def refuse_computed(found: Collection[tuple[str, str, str]]) -> None:
    """Raise for these layers, each with its tensor and the way that it is computed, if there are any."""
    if not found:
        return
    _, tensor, way = next(iter(found))
    alike = [layer or "the model" for layer, *rest in found if rest == [tensor, way]]
    names = ", ".join(repr(name) for name in alike[:SHOWN])
    more = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
    are = "layers {} are" if len(alike) > 1 else "layer {} is"
    raise RuleError(
        f"{are.format(names + more)} {way}, which computes the {tensor} anew before every pass: "
        f"make it a parameter first, with {WAYS[way].format(tensor)}"
    )


def check_copied(model: nn.Module) -> None:
    """Refuse what torch cannot copy, because a layer keeps the tensor that it computed."""
    layers = [(name, *each) for name, layer in model.named_modules() for each in computed_tensors(layer)]
    refuse_computed([each for each in layers if each[2] in (PRUNED, SCALED)])


def copied(model: nn.Module) -> nn.Module:
    """A copy of a network; one that cannot be copied is refused in a line."""
    check_copied(model)
    try:
        return copy.deepcopy(model)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise MemboundError(
            f"the network cannot be copied ({reason}): remove what it keeps of a forward pass, such as a tensor with a "
            "gradient, or pass a function that makes the network"
        ) from error
