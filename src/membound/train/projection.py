"""Exact projection onto the l0 ball, in the fastest way there is for a tensor: C++, a GPU kernel, or torch.

All give the same bits. Weights are ordered by magnitude, ties by position (the earlier one first); a weight
survives when it is nonzero and among the first `count`. Survivors keep their bits, all others become +0.0.
Magnitudes are compared as integers (the float's bits without the sign), so denormals count as what they are even
where arithmetic flushes them to zero.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from membound.errors import RuleError
from membound.train.magnitudes import NonFiniteError, bits_of
from membound.train.projection_sharded import project_sharded_
from membound.train.sharded import is_sharded

Rank = Callable[..., Tensor]  # the scores of the elements of a weight, its first argument


@torch.no_grad()
def project_(weight: Tensor, count: int) -> None:
    """Set all but the `count` largest magnitudes of `weight` to zero.

    >>> weight = torch.tensor([[1.0, -3.0], [2.0, 3.0]])
    >>> project_(weight, 2)
    >>> weight
    tensor([[ 0., -3.],
            [ 0.,  3.]])
    """
    if weight.numel() == 0:
        return
    if is_sharded(weight):
        project_sharded_(weight, count)
        return
    flat = weight.detach().reshape(-1)  # a copy where the weight is not contiguous
    _best_for(flat)(flat, count)
    if flat.data_ptr() != weight.data_ptr():
        weight.copy_(flat.view(weight.shape))


@torch.no_grad()
def project_by_(weight: Tensor, count: int, rank: Rank) -> None:
    """Set all but the `count` elements of the highest rank to zero; of those of rank 0 the largest stay.

    A rank by gradients is 0 wherever a batch has none: were these all to go, far fewer than `count` would be left.

    >>> weight = torch.tensor([1.0, -3.0, 2.0])
    >>> project_by_(weight, 2, lambda weight: torch.tensor([0.5, 0.1, 0.4]))
    >>> weight
    tensor([1., 0., 2.])
    """
    if int(weight.count_nonzero()) > count:
        scores = scores_of(weight, rank)
        unranked = weight.masked_fill(scores != 0, 0.0)
        project_(unranked, max(count - int(scores.count_nonzero()), 0))
        project_(scores, count)
        weight.masked_fill_((scores == 0) & (unranked == 0), 0.0)


def _kind_of(found: object) -> str:
    """
    >>> _kind_of(None), _kind_of(3), _kind_of([1])
    ('None', 'of the type int', 'of the type list')
    """
    return "None" if found is None else f"of the type {type(found).__name__}"


def scores_of(weight: Tensor, rank: Rank) -> Tensor:
    """What `rank` gives for a weight, checked, in a tensor of its own; 0 where the weight is 0."""
    seen = [each for each in (weight, weight.grad) if each is not None]
    before = [each._version for each in seen]
    found = rank(weight)
    if [each._version for each in seen] != before:
        raise RuleError(
            "it writes into the weight or its gradient: give a new tensor, such as weight.abs(), not weight.abs_()"
        )
    if not isinstance(found, Tensor) or found.shape != weight.shape:
        what = f"have shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"are {_kind_of(found)}"
        raise RuleError(f"its scores {what}: give a tensor of the weight's shape, {tuple(weight.shape)}")
    scores = torch.where(weight == 0, 0.0, found.detach().float())
    if not bool((scores.isfinite() & (scores >= 0)).all()):
        if not bool(weight.isfinite().all()):
            raise NonFiniteError
        bad = scores[~(scores.isfinite() & (scores >= 0))][0]
        remedy = "take .abs() of them" if bool(bad.isfinite()) else "look for a division by 0"
        raise RuleError(f"a score is {float(bad):g}: scores are finite, and at least 0; {remedy}")
    return scores


def project_torch_(flat: Tensor, count: int) -> None:
    """The reference, and the fallback for every device and float type: torch alone."""
    integer, magnitude, infinity = bits_of(flat.dtype)
    keys = flat.view(integer) & magnitude
    if bool((keys >= infinity).any()):
        raise NonFiniteError
    if count <= 0:
        flat.zero_()
        return
    threshold = keys.kthvalue(max(len(keys) - count, 0) + 1).values
    survives = keys > threshold
    if threshold > 0:
        ties = keys == threshold
        survives |= ties & (ties.cumsum(0) <= count - survives.sum())
    flat.masked_fill_(~survives, 0.0)


def project_cpp_(flat: Tensor, count: int) -> None:
    """The C++ core's threaded selection, for float32 on the CPU."""
    if _core().project(flat.numpy(), count) < 0:
        raise NonFiniteError


def _best_for(flat: Tensor) -> Any:
    if flat.dtype == torch.float32:
        if flat.device.type == "cpu" and _core() is not None:
            return project_cpp_
        if flat.device.type == "cuda" and _has_triton():
            from membound.train.projection_triton import project_triton_

            return project_triton_
    return project_torch_


@cache
def _core() -> Any:
    try:
        from membound import _core
    except ImportError:  # training works without the compiled extension
        return None
    return _core


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
