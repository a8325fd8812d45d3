"""Weights that are sharded over processes (FSDP2, a DTensor): counted and saved without gathering them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from membound.errors import RuleError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

LARGE = 1 << 20  # parameters of a layer that is gathered on its own; smaller ones are together


def is_sharded(weight: Tensor) -> bool:
    """Whether a weight is spread over processes; FSDP2's parameters are."""
    return type(weight.data).__name__ == "DTensor"


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


def count_empty(weight: Tensor) -> int:
    """Rows and columns of a weight, its outputs and inputs, that are all zero; in all processes together."""
    if weight.ndim < 2:
        return 0
    there = local_part(weight) != 0
    rows = _sum((~there.flatten(1).any(1)).sum(), weight)
    columns = _sum(there.transpose(0, 1).flatten(1).any(1).long(), weight)
    return int(rows) + int((columns == 0).sum())


def all_finite(weight: Tensor) -> bool:
    """In all processes."""
    bad = (~local_part(weight).isfinite()).any().long()
    return int(_sum(bad, weight)) == 0


def highest(value: Tensor, weight: Tensor) -> Tensor:
    """The highest of what the processes that share a weight have."""
    group = shard_group(weight) if is_sharded(weight) else None
    if group is not None:
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group)
    return value


def _sum(value: Tensor, weight: Tensor) -> Tensor:
    return reduced(value, shard_group(weight) if is_sharded(weight) else None)


def reduced(value: Tensor, group: Any) -> Tensor:
    """The sum over the processes of a group, in place."""
    if group is not None:
        dist.all_reduce(value, group=group)
    return value
