"""Several processes, by torchrun: who am I, how many are we, and sums over all of us."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from membound.errors import MemboundError
from membound.train.sharded import is_sharded, shard_

Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """This process among all; a process started without torchrun is alone."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    def share(self) -> slice:
        """This process's images of every global batch."""
        return slice(self.rank, None, self.size)

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        if self.size == 1:
            return list(values)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the leader's running statistics, so that all evaluate what is saved."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def share_weights(self, model: nn.Module) -> None:
        """Give every process the leader's weights and statistics, so that all begin alike."""
        if self.size > 1:
            model.load_state_dict(self.from_leader(model.state_dict))

    def from_leader(self, make: Callable[[], Found]) -> Found:
        """What `make` gives in the leader, in all processes; or the error that it raises there."""
        if self.size == 1:
            return make()
        found: list[Any] = [None, None]
        if self.leads:
            try:
                found[0] = make()
            except MemboundError as error:
                found[1] = error
        dist.broadcast_object_list(found, 0)
        if found[1] is not None:
            raise found[1]
        result: Found = found[0]
        return result

    def parallel(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model with gradients averaged over all processes."""
        if self.size == 1 or is_sharded(next(model.parameters())):  # FSDP averages by itself
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
            return DistributedDataParallel(model, device_ids=[device.index])
        return DistributedDataParallel(model)

    def shard_(self, model: nn.Module, device: torch.device) -> None:
        """Spread the parameters over all processes."""
        if self.size == 1:
            raise MemboundError(
                "sharding is for several processes, and there is one: start them with torchrun, or leave it out",
                about="shard",
            )
        if device.type == "cuda":
            nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        shard_(model, device)

    def agree(self, wish: bool) -> bool:
        """What the leader wishes, in all processes."""
        return wish if self.size == 1 else bool(self.sum(float(wish and self.leads))[0])


def lost_another(error: BaseException) -> bool:
    """Whether an error says that another process is gone."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    signs = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Timed out waiting")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def gradients_wait(network: nn.Module, wait: bool) -> Iterator[None]:
    """Inside, gradients are added up in each process, if they are to `wait` for others before they are averaged."""
    if isinstance(network, DistributedDataParallel):
        with network.no_sync() if wait else nullcontext():
            yield
        return
    if hasattr(network, "set_requires_gradient_sync"):  # FSDP2
        network.set_requires_gradient_sync(not wait)  # type: ignore[operator]
    yield


def join(device: torch.device) -> World:
    """Join the processes that torchrun started, where it did."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World()
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=10))
    return World(dist.get_rank(), dist.get_world_size())


def leads(device: str | None) -> bool:
    """Whether this process, on this device, is the one that writes files and prints."""
    return join(choose_device(device or "auto")).leads


def choose_device(name: str) -> torch.device:
    """'auto' is CUDA where there is one; under torchrun each process takes its own."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
        raise MemboundError(
            f"there is no device {name!r}: choose auto, cpu, cuda or a cuda:N", about="device"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MemboundError(
            f"device {name!r}: torch sees no CUDA device here; choose cpu or auto", about="device"
        )
    index = int(name.removeprefix("cuda").removeprefix(":") or os.environ.get("LOCAL_RANK", "0"))
    if index >= torch.cuda.device_count():
        raise MemboundError(
            f"device {name!r}: there is no CUDA device {index}; torch sees {torch.cuda.device_count()}, counted from 0",
            about="device",
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
