"""Weights that are sharded over processes (FSDP2, a DTensor): projected, counted and saved without gathering them.

The exact selection is distributed: processes add up histograms of the leading bits of their magnitudes, which narrows
the threshold by eleven bits at a time, then share how many weights each has at the threshold, so that ties go to the
earlier positions, as in one process. What is sent is a few times 2,048 numbers, however large the weight is.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from membound.errors import RuleError
from membound.train.projection import BITS, NonFiniteError, is_sharded

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

DIGIT = 11  # bits of a magnitude that one histogram tells apart
LARGE = 1 << 20  # parameters of a layer that is gathered on its own; smaller ones are together


def shard_(model: nn.Module, device: torch.device) -> None:
    """Spread the parameters of a network over all processes, as FSDP2 does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in list(model.modules()):
        if layer is not model and sum(p.numel() for p in layer.parameters(recurse=False)) >= LARGE:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def shard_like(whole: Tensor, weight: Tensor) -> Tensor:
    """A whole tensor as this process has the weight: its rows of it."""
    from torch.distributed.tensor import DTensor

    sharded: DTensor = weight.data  # type: ignore[assignment]
    mine = whole
    group = shard_group(weight)
    if group is not None:
        chunk = -(-len(whole) // dist.get_world_size(group))  # as torch.chunk has it
        start = dist.get_rank(group) * chunk
        mine = whole[start : start + chunk]
    if mine.shape != sharded.to_local().shape:
        raise ValueError(f"a part of shape {tuple(mine.shape)}, not {tuple(sharded.to_local().shape)}")
    return DTensor.from_local(
        mine.to(sharded.device, copy=True), sharded.device_mesh, sharded.placements,
        shape=sharded.shape, stride=sharded.stride(),
    )  # fmt: skip


def shard_all(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors as this process has those of the same names, where these are sharded and of the same shape."""

    def fits(name: str, value: Tensor) -> bool:
        return name in like and is_sharded(like[name]) and value.shape == like[name].shape

    return {
        name: shard_like(value, like[name]) if fits(name, value) else value for name, value in state.items()
    }


def gathered(state: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The whole tensors on the host, one after another; every process must call it, those that `keep` get them."""
    found = {}
    for name, value in state.items():
        whole = value.full_tensor() if is_sharded(value) else value  # type: ignore[attr-defined]
        if keep:
            found[name] = whole.detach().cpu()
    return found


def local_part(weight: Tensor) -> Tensor:
    """What this process has of a weight: all of it, where it is not sharded."""
    if not is_sharded(weight):
        return weight.detach()
    part: Tensor = weight.detach().to_local()  # type: ignore[attr-defined]
    return part


def check_layout(name: str, weight: Tensor) -> None:
    """Shards must follow one another in memory order, as FSDP's do."""
    if is_sharded(weight):
        try:
            shard_group(weight)
        except RuleError as error:
            raise RuleError(f"'{name}' {error}") from None


def shard_group(weight: Tensor) -> Any:
    """The processes that hold the parts of a weight; None if every process has all of it."""
    sharded: DTensor = weight.data  # type: ignore[assignment]
    over = [number for number, placement in enumerate(sharded.placements) if not placement.is_replicate()]
    for number in over:
        if not sharded.placements[number].is_shard(0):
            raise RuleError(
                f"is sharded as {sharded.placements}: l0_project takes weights that are sharded along their "
                "first axis, as fully_shard does"
            )
    if len(over) > 1:
        raise RuleError(f"is sharded over {len(over)} axes of its mesh: l0_project takes one, and replicas")
    return sharded.device_mesh.get_group(over[0]) if over else None


def count_nonzeros(weight: Tensor) -> int:
    """In all processes together."""
    count = local_part(weight).count_nonzero()
    return int(_sum(count, weight))


def all_finite(weight: Tensor) -> bool:
    """In all processes."""
    bad = (~local_part(weight).isfinite()).any().long()
    return int(_sum(bad, weight)) == 0


def _sum(value: Tensor, weight: Tensor) -> Tensor:
    return _reduced(value, shard_group(weight) if is_sharded(weight) else None)


@torch.no_grad()
def project_sharded_(weight: Tensor, count: int) -> None:
    """Set all but the `count` largest magnitudes of a sharded weight to zero: the same bits as in one process.

    Every process of the weight's mesh must call it, with the same count.
    """
    group, part = shard_group(weight), local_part(weight)
    if part.dtype not in BITS:
        raise RuleError(
            f"l0_project needs weights of type float32, float64, float16 or bfloat16, not {part.dtype}"
        )
    integer, magnitude, infinity = BITS[part.dtype]
    flat = part.reshape(-1)
    keys = (flat.view(integer) & magnitude).long()
    if int(_reduced((keys >= infinity).any().long(), group)) > 0:
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
        histogram = _reduced(torch.bincount(digits, minlength=1 << width), group)
        above = histogram.flip(0).cumsum(0).flip(0)  # with this digit or a larger one
        digit = int((above >= left).sum()) - 1
        left -= int(above[digit] - histogram[digit])
        prefix = (prefix << width) | digit
    return prefix, left if prefix > 0 else 0


def _reduced(value: Tensor, group: Any) -> Tensor:
    if group is not None:
        dist.all_reduce(value, group=group)
    return value


def _before(mine: Tensor, group: Any) -> int:
    """The sum over the processes whose parts come before this one's."""
    if group is None:
        return 0
    everybody = [torch.zeros_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everybody, mine, group=group)
    return int(sum(int(each) for each in everybody[: dist.get_rank(group)]))
