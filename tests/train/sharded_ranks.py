"""What the processes of test_sharded.py do: each writes what it saw, the leader what all have together."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.errors import RuleError
from membound.train import sharded
from membound.train.loop import train as train_loop
from membound.train.magnitudes import NonFiniteError
from membound.train.palette import count_values, fit_entries
from membound.train.projection import project_
from membound.train.recipe import Recipe
from membound.train.regularizer import Regularizer
from membound.train.run import Progress, Result, Settings
from membound.train.sharded import count_nonzeros, gathered, is_sharded
from membound.train.updates import Moment

STEPS, BATCH = 30, 12


def join(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet{size}", rank=rank, world_size=size)


def tensors() -> list[torch.Tensor]:
    """Of every float type, with many ties, zeros of both signs, denormals, fewer rows than processes, and one row."""
    random = torch.Generator().manual_seed(0)
    found = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        found.append(torch.randn(37, 11, generator=random).to(dtype))
        found.append((torch.randint(-4, 5, (29, 7), generator=random).to(dtype)) * 0.25)
        found.append(torch.zeros(5, 3, dtype=dtype).copysign(torch.randn(5, 3, generator=random).to(dtype)))
    tiny = torch.randn(16, 4, generator=random) * 1e-41
    return [*found, tiny, torch.randn(2, 5, generator=random), torch.randn(1, 300, generator=random)]


def project_many(rank: int, size: int, folder: str) -> None:
    """Every tensor at many counts, sharded, against the whole in one process."""
    join(rank, size, folder)
    mesh = init_device_mesh("cpu", (size,))
    checked = 0
    for whole in tensors():
        more = {2, whole.numel() // 2} if size > 2 else set()
        for count in {0, 1, whole.numel() // 3, whole.numel() - 1, whole.numel()} | more:
            want = whole.clone()
            project_(want, count)
            sharded = distribute_tensor(whole.clone(), mesh, [Shard(0)])
            project_(sharded, count)
            got = sharded.full_tensor()
            assert got.view(torch.uint8).equal(want.view(torch.uint8)), (whole.dtype, whole.shape, count)
            assert count_nonzeros(sharded) == int(want.count_nonzero())
            for levels in (1, 3, 16):
                entries = fit_entries(sharded, levels)
                assert entries.equal(fit_entries(want, levels)), (whole.dtype, whole.shape, levels)
            assert count_values(sharded) == len(want[want != 0].unique())
            checked += 1
    copied = distribute_tensor(tensors()[0], mesh, [Replicate()])
    project_(copied, 5)
    assert count_nonzeros(copied) == 5
    broken = torch.ones(8, 2)
    broken[0, 0] = float("nan")  # in the first process only: all must say so
    for work in (project_, fit_entries):
        with pytest.raises(NonFiniteError):
            work(distribute_tensor(broken, mesh, [Shard(0)]), 3)
    large = torch.arange(16.0).view(8, 2)
    large[0, 0] = 1e9  # in the first process only: all must divide by the same power of two
    assert fit_entries(distribute_tensor(large, mesh, [Shard(0)]), 3).equal(fit_entries(large, 3))
    (Path(folder) / f"{rank}.txt").write_text(str(checked))
    dist.destroy_process_group()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 33), nn.ReLU(), nn.Linear(33, 21), nn.ReLU(), nn.Linear(21, 4))
    return net.double()


def rules() -> dict:
    return {
        "0": mb.l0_project(mb.ramp(1.0, 0.2, 0.1, 0.8), every=3),
        "2": mb.chain(mb.l2_decay(1e-2), mb.l0_project(100, every=5), mb.palette(8, every=4, begin=0.4)),
        "4": mb.chain(mb.l1_subgradient(1e-3), mb.l1_shrink(1e-3)),
    }


def train(net: nn.Module, share: slice) -> Regularizer:
    """A share of every batch; gradients are averaged by whoever wraps the network."""
    random = torch.Generator().manual_seed(1)
    x, y = torch.randn(240, 10, generator=random).double(), torch.randint(0, 4, (240,), generator=random)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    reg = mb.attach(optimizer, net, rules(), total_steps=STEPS)
    for step in range(STEPS):
        batch = torch.arange(step * BATCH, (step + 1) * BATCH) % 240
        mine = batch[share]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[mine]), y[mine]).backward()
        optimizer.step()
        if step == 17:
            with reg.projected():
                layer = reg.report().layers[1]
                assert layer.nonzeros <= 100
                assert layer.distinct <= 8
    reg.finish()
    return reg


def train_sharded(rank: int, size: int, folder: str) -> None:
    join(rank, size, folder)
    net = network()
    mesh = init_device_mesh("cpu", (size,))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    reg = train(net, slice(rank, None, size))
    whole = {name: value.full_tensor() for name, value in net.state_dict().items()}
    report = {layer.name: layer.nonzeros for layer in reg.report().layers}
    if rank == 0:
        torch.save({"weights": whole, "nonzeros": report}, Path(folder) / "sharded.pt")
    dist.barrier()
    dist.destroy_process_group()


def refuse(rank: int, size: int, folder: str) -> None:
    """A weight that is sharded along its second axis."""
    join(rank, size, folder)
    mesh = init_device_mesh("cpu", (size,))
    net = nn.Linear(6, 6)
    net.weight = nn.Parameter(distribute_tensor(net.weight.detach(), mesh, [Shard(1)]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        mb.attach(optimizer, net, {"*": mb.l0_project(3)})
    except RuleError as error:
        (Path(folder) / f"{rank}.txt").write_text(str(error))
    dist.destroy_process_group()


def everything(rank: int, size: int, folder: str) -> None:
    """What two processes do for the tests, in processes that start once."""
    for name, work in {"project": project_many, "train": train_sharded, "refuse": refuse}.items():
        work(rank, size, f"{folder}/{name}")
    train_run_sharded(rank, size, f"{folder}/run", 2)


def images() -> ArraySplit:
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 53)
    pixels = random.integers(0, 50, (53, 1, 6, 6)).astype(np.uint8)
    pixels[np.arange(53), 0, labels] += 100
    return ArraySplit(pixels, labels)


def convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 7, 3), nn.ReLU(), nn.Flatten(), nn.Linear(112, 33), nn.ReLU(), nn.Linear(33, 4)
    )


def pull(weight: torch.Tensor, moment: Moment) -> None:
    """Adds a part of all gradients so far, which it keeps."""
    total = moment.state.setdefault("total", torch.zeros_like(weight)).add_(weight.grad)
    weight.grad.add_(total, alpha=0.01)


def train_run(run_dir: Path | None, show=None, **settings) -> tuple[nn.Module, Result]:
    """30 steps with momentum, ramps and an uneven number of images."""
    net = convolutional()
    recipe = Recipe("sgd", 30, 10, lambda step: 0.1, weight_decay=1e-3)
    few = mb.palette(4, every=7, begin=0.2)  # the checkpoint that others go on from is in it
    rules = {
        "3": mb.chain(mb.l0_project(mb.ramp(1.0, 0.2, 0.1, 0.8), every=3), few),
        "0": mb.l0_project(40, every=4),
        "5": mb.chain(mb.Update(("pull",), (), before=pull), few),
    }
    chosen = Settings(0, "cpu", "float64", 10, run_dir, 0.0, **settings)
    split = images()
    result = train_loop(
        net, split, recipe, rules, preprocess=Preprocess(1 / 128), held_out=split, settings=chosen, show=show
    )
    return net, result


def train_run_sharded(rank: int, size: int, folder: str, parts: int) -> None:
    """Checkpoints go to `run`, of which a copy is taken on the way."""
    join(rank, size, folder)
    os.environ["WORLD_SIZE"] = str(size)
    run = Path(folder) / "run"

    def copy(progress: Progress) -> None:
        if progress.step == 20:
            shutil.copytree(run, Path(folder) / "halfway")

    sharded.LARGE = 1000  # so that one layer is on its own
    net, result = train_run(run, copy, shard=True, accumulate=parts)
    assert all(is_sharded(weight) for weight in net.parameters())
    whole = gathered(net.state_dict(), keep=rank == 0)
    if rank == 0:
        torch.save({"weights": whole, "errors": result.score.errors}, Path(folder) / "sharded.pt")
    dist.barrier()
    dist.destroy_process_group()


def go_on_sharded(rank: int, size: int, folder: str) -> None:
    join(rank, size, folder)
    os.environ["WORLD_SIZE"] = str(size)
    net, result = train_run(Path(folder) / "halfway", shard=True)
    whole = gathered(net.state_dict(), keep=rank == 0)
    if rank == 0:
        torch.save({"weights": whole, "resumed": result.resumed}, Path(folder) / "went-on.pt")
    dist.barrier()
    dist.destroy_process_group()
