"""What sparse training is measured against: ways to make a trained network smaller without training it so.

    threshold_   every weight below delta becomes zero (the paper's 'thresholding')
    prune_       every layer keeps its largest weights, so many or such a part (post-training magnitude pruning)
    factorise    a fully-connected layer becomes the product of two thin ones (low rank)

Fewer hidden units are an argument of the zoo's networks; uniform counts are a strategy of fit.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from membound.errors import RuleError
from membound.modules import plain_keys
from membound.train.projection import project_
from membound.train.rules import select
from membound.train.schedules import Number
from membound.train.updates import keep_count, l0_project


@torch.no_grad()
def threshold_(model: nn.Module, delta: float, layers: Sequence[str] = ("*",)) -> dict[str, int]:
    """Set every weight of these layers with |w| < delta to zero; what each has left.

    >>> layer = nn.Linear(2, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.5, -0.01], [0.02, -0.3]]))
    >>> threshold_(layer, 0.1)
    {'weight': 2}
    """
    if not delta >= 0:
        raise RuleError(f"the threshold must be a number of at least 0, got {delta!r}")
    left = {}
    for name, weight in _weights(model, layers).items():
        weight.masked_fill_(weight.abs() < delta, 0.0)
        left[name] = int(weight.count_nonzero())
    return left


@torch.no_grad()
def prune_(model: nn.Module, keep: Mapping[str, Number]) -> dict[str, int]:
    """Keep the largest weights of each layer, by pattern a count (int) or a fraction (float); what each has left.

    >>> prune_(nn.Linear(10, 10), {"*": 0.2})
    {'weight': 20}
    """
    rules = {pattern: l0_project(number) for pattern, number in keep.items()}
    left = {}
    for name, (weight, pattern) in select(model, rules).items():
        project_(weight, keep_count(keep[pattern], weight.numel()))
        left[name] = int(weight.count_nonzero())
    return left


def density_threshold(state: Mapping[str, Tensor], names: Sequence[str], density: float) -> float:
    """The delta at which thresholding keeps this part of all these weights together.

    >>> density_threshold({"a": torch.arange(10.0)}, ["a"], 0.3)
    7.0
    """
    everything = torch.cat([state[name].detach().abs().flatten() for name in names])
    count = min(max(round(density * everything.numel()), 1), everything.numel())
    return float(everything.kthvalue(everything.numel() - count + 1).values)


@torch.no_grad()
def factorise(model: nn.Module, layer: str, rank: int) -> nn.Module:
    """A copy of the network in which the fully-connected `layer` is the best product of two of this rank.

    By the singular value decomposition W = U S V: the first has the weight sqrt(S) V, the second U sqrt(S) and the
    bias. The parts are called `layer.0` and `layer.1`; together they have rank (inputs + outputs) weights.

    >>> net = factorise(nn.Sequential(nn.Linear(8, 6)), "0", rank=2)
    >>> [tuple(p.shape) for p in net.parameters()]
    [(2, 8), (6, 2), (6,)]
    """
    found = copy.deepcopy(model)
    part = dict(found.named_modules()).get(layer)
    if not isinstance(part, nn.Linear):
        there = [name for name, each in found.named_modules() if isinstance(each, nn.Linear)]
        raise RuleError(f"{layer!r} is not a fully connected layer: there are {', '.join(there) or 'none'}")
    most = min(part.in_features, part.out_features)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= most:
        raise RuleError(f"'{layer}' cannot have rank {rank!r}: take a whole number from 1 to {most}")
    u, s, v = torch.linalg.svd(part.weight.double(), full_matrices=False)
    root = s[:rank].sqrt()
    first = nn.Linear(part.in_features, rank, bias=False)
    second = nn.Linear(rank, part.out_features, bias=part.bias is not None)
    first.weight.copy_(root[:, None] * v[:rank])
    second.weight.copy_(u[:, :rank] * root)
    if part.bias is not None:
        second.bias.copy_(part.bias)
    parent, _, name = layer.rpartition(".")
    setattr(found.get_submodule(parent), name, nn.Sequential(first, second).to(part.weight))
    return found


def _weights(model: nn.Module, layers: Sequence[str]) -> dict[str, nn.Parameter]:
    chosen = select(model, dict.fromkeys(layers, l0_project(1.0)))
    return plain_keys({name: weight for name, (weight, _) in chosen.items()})
