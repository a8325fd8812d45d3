"""The l0 projection of a weight that is sharded over processes (FSDP2), without gathering it.

The exact selection is distributed: processes add up histograms of the leading bits of their magnitudes, which narrows
the threshold by eleven bits at a time, then share how many weights each has at the threshold, so that ties go to the
earlier positions, as in one process. What is sent is a few times 2,048 numbers, however large the weight is.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from membound.train.magnitudes import NonFiniteError, bits_of
from membound.train.sharded import local_part, reduced, shard_group

DIGIT = 11  # bits of a magnitude that one histogram tells apart


@torch.no_grad()
def project_sharded_(weight: Tensor, count: int) -> None:
    """Set all but the `count` largest magnitudes of a sharded weight to zero: the same bits as in one process.

    Every process of the weight's mesh must call it, with the same count.
    """
    group, part = shard_group(weight), local_part(weight)
    integer, magnitude, infinity = bits_of(part.dtype)
    flat = part.reshape(-1)
    keys = (flat.view(integer) & magnitude).long()
    if int(reduced((keys >= infinity).any().long(), group)) > 0:
        raise NonFiniteError
    threshold, ties = _threshold(keys, min(count, weight.numel()), magnitude.bit_length(), group)
    survives = keys > threshold
    if ties > 0:
        at = keys == threshold
        survives |= at & (at.cumsum(0) <= ties - _before(at.sum(), group))
    flat.masked_fill_(~survives, 0.0)
    if flat.data_ptr() != part.data_ptr():
        part.copy_(flat.view(part.shape))


def _threshold(keys: Tensor, count: int, bits: int, group: Any) -> tuple[int, int]:
    """The magnitude of the last that survives, and how many of that magnitude do; zeros never do."""
    if count <= 0:
        return (1 << bits) - 1, 0
    prefix, left, unknown = 0, count, bits
    while unknown:
        width = min(DIGIT, unknown)
        unknown -= width
        mine = keys[(keys >> (unknown + width)) == prefix]
        digits = (mine >> unknown) & ((1 << width) - 1)
        histogram = reduced(torch.bincount(digits, minlength=1 << width), group)
        above = histogram.flip(0).cumsum(0).flip(0)  # with this digit or a larger one
        digit = int((above >= left).sum()) - 1
        left -= int(above[digit] - histogram[digit])
        prefix = (prefix << width) | digit
    return prefix, left if prefix > 0 else 0


def _before(mine: Tensor, group: Any) -> int:
    """The sum over the processes whose parts come before this one's."""
    if group is None:
        return 0
    everybody = [torch.zeros_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everybody, mine, group=group)
    return int(sum(int(each) for each in everybody[: dist.get_rank(group)]))
