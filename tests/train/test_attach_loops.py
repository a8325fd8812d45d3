"""attach() in every kind of loop and on every kind of model, against the same by hand."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import LR, MIXED, MIXED_AFTER, MIXED_BEFORE, momentum, weights_of
from by_hand import (
    Adam,
    Net,
    Sgd,
    assert_same,
    assert_same_bits,
    loss_of,
    make_batches,
    make_net,
    project,
    shrink,
    train,
    train_by_hand,
)
from profiles import full
from ranks import start
from torch import Tensor, nn

import membound as mb

# Loops


def test_groups_with_different_learning_rates() -> None:
    model, batches = make_net(), make_batches(8)
    by_hand = {"fc1": Sgd(0.05, 0.9), "fc2": Sgd(0.01, 0.9)}
    expected = train_by_hand(
        model,
        batches,
        lambda name, w, g: by_hand[name[:3]](name, w, g),
        after={
            "fc1.weight": lambda w, step: shrink(w, 0.05 * 0.2),
            "fc2.weight": lambda w, step: shrink(w, 0.01 * 0.2),
        },
    )
    groups = [{"params": model.fc1.parameters()}, {"params": model.fc2.parameters(), "lr": 0.01}]
    optimizer = torch.optim.SGD(groups, 0.05, momentum=0.9)
    mb.attach(optimizer, model, {"*": mb.l1_shrink(0.2)})
    train(model, optimizer, batches)
    assert_same(model, expected)


@pytest.mark.parametrize("made_first", ["scheduler", "attach"])
def test_learning_rate_schedulers(made_first: str) -> None:
    model, batches = make_net(), make_batches(9)
    hand = Sgd(LR)

    def hand_step(name: str, weight: Tensor, grad: Tensor) -> Tensor:
        return hand(name, weight, grad)

    def hand_shrink(weight: Tensor, step: int) -> Tensor:
        result = shrink(weight, hand.lr * 0.2)
        hand.lr = LR * 0.5 ** (step // 3)  # for the next step; fc2 is the last layer that has a weight
        return result

    expected = train_by_hand(
        model, batches, hand_step, after={"fc2.bias": lambda w, step: hand_shrink(w, step)}
    )
    optimizer = torch.optim.SGD(model.parameters(), LR)
    if made_first == "attach":
        mb.attach(optimizer, model, {"fc2.bias": mb.l1_shrink(0.2)})
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    if made_first == "scheduler":
        mb.attach(optimizer, model, {"fc2.bias": mb.l1_shrink(0.2)})
    for batch in batches:
        train(model, optimizer, [batch])
        scheduler.step()
    assert_same(model, expected)


def test_gradient_accumulation_is_one_step_of_the_whole_batch() -> None:
    model, batches = make_net(), make_batches(12)
    whole = [
        (torch.cat([x for x, _ in batches[i : i + 3]]), torch.cat([y for _, y in batches[i : i + 3]]))
        for i in range(0, 12, 3)
    ]
    expected = train_by_hand(model, whole, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, MIXED)
    for at, batch in enumerate(batches, 1):
        (loss_of(model, batch) / 3).backward()
        if at % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
    assert reg.step == 4
    assert_same(model, expected)


@pytest.mark.parametrize("how", ["positional", "keyword"])
@pytest.mark.parametrize("make", [Sgd, Adam])
def test_a_closure_runs_once_and_the_penalties_come_after_it(how: str, make: Any) -> None:
    model, batches = make_net(), make_batches(6)
    expected = train_by_hand(model, batches, make(LR), MIXED_BEFORE, MIXED_AFTER)
    optimizer = (torch.optim.SGD if make is Sgd else torch.optim.Adam)(model.parameters(), LR)
    mb.attach(optimizer, model, MIXED)
    calls = 0
    for batch in batches:

        def closure(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        loss = optimizer.step(closure) if how == "positional" else optimizer.step(closure=closure)
        assert isinstance(loss, Tensor)
    assert calls == len(batches)
    assert_same(model, expected)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_under_a_projection_is_lbfgs_and_then_the_projection(line_search: str | None) -> None:
    model, by_hand, (batch,) = make_net(), make_net(), make_batches(1)

    def minimize(network: Net, optimizer: torch.optim.Optimizer) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(network, batch)
            loss.backward()
            return loss

        optimizer.step(closure)

    make: Callable[[Net], torch.optim.Optimizer] = lambda network: torch.optim.LBFGS(  # noqa: E731
        network.parameters(), max_iter=5, line_search_fn=line_search
    )
    optimizer, plain = make(model), make(by_hand)
    reg = mb.attach(optimizer, model, {"fc1": mb.l0_project(4, every=2)})
    for step in range(1, 5):
        minimize(model, optimizer)
        minimize(by_hand, plain)
        if step % 2 == 0:
            by_hand.fc1.weight.data = project(by_hand.fc1.weight, 4)
        assert_same(model, weights_of(by_hand), tolerance=0)
    assert reg.step == 4


def test_hold_keeps_the_zeros_from_before_the_step_where_a_closure_runs_often() -> None:
    model, (batch,) = make_net(), make_batches(1)
    model.fc1.weight.data = project(model.fc1.weight, 4)
    zeros = model.fc1.weight == 0
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    mb.attach(optimizer, model, {"fc1": mb.hold()})

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(model.fc1.weight == 0, zeros)


# Models


def test_tied_weights_are_updated_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.encoder = nn.Linear(3, 3, bias=False, dtype=torch.float64)
            self.decoder = nn.Linear(3, 3, bias=False, dtype=torch.float64)
            self.decoder.weight = self.encoder.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(torch.tanh(self.encoder(x)))[:, :2]

    model, batches = Tied(), make_batches(6)
    expected = train_by_hand(
        model,
        batches,
        Sgd(LR, 0.9),
        before={"encoder.weight": lambda w, g, step: g + 0.3 * w},
        after={"encoder.weight": lambda w, step: shrink(w, LR * 0.2)},
    )
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"*": mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2))})
    train(model, optimizer, batches)
    assert_same(model, expected)
    assert [layer.name for layer in reg.report().layers] == ["encoder.weight"]


@pytest.mark.parametrize(
    "rule", [mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2), mb.l0_project(4, every=1)), mb.hold()]
)
def test_a_frozen_layer_is_left_alone_until_it_thaws(rule: Any) -> None:
    model, batches = make_net(), make_batches(6)
    optimizer = momentum(model)
    mb.attach(optimizer, model, {"fc1": rule})
    model.fc1.requires_grad_(False)
    before = model.fc1.weight.detach().clone()
    train(model, optimizer, batches[:3])
    assert_same_bits(model.fc1.weight, before)

    hand = Sgd(LR, 0.9)  # momentum of fc2 is as in the optimizer, that of fc1 begins
    hand.velocity = {
        name: optimizer.state[weight]["momentum_buffer"].clone()
        for name, weight in model.named_parameters()
        if weight in optimizer.state
    }
    model.fc1.requires_grad_(True)
    decays = "l2_decay" in rule.kinds
    expected = train_by_hand(
        model,
        batches[3:],
        hand,
        before={"fc1.weight": lambda w, g, step: g + 0.3 * w} if decays else None,
        after={"fc1.weight": lambda w, step: project(shrink(w, LR * 0.2), 4)} if decays else None,
    )
    train(model, optimizer, batches[3:])
    assert_same(model, expected)


def test_a_weight_without_a_gradient_is_left_alone_as_the_optimizer_does() -> None:
    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(
        optimizer, model, {"*": mb.chain(mb.l2_decay(1.0), mb.l1_shrink(1.0), mb.l0_project(1, every=1))}
    )
    before = weights_of(model)
    model.fc1(torch.ones(1, 3, dtype=torch.float64)).sum().backward()  # fc2 takes no part
    optimizer.step()
    assert_same_bits(model.fc2.weight, before["fc2.weight"])
    assert int(model.fc1.weight.count_nonzero()) == 1
    assert reg.step == 1


def add_layer(model: Net, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(5)
    model.fc3 = nn.Linear(2, 2, dtype=torch.float64)
    model.forward = lambda x: model.fc3(model.fc2(torch.tanh(model.fc1(x))))
    optimizer.add_param_group({"params": model.fc3.parameters(), "lr": 0.01})


def test_a_layer_added_later_comes_under_its_rule_with_its_learning_rate() -> None:
    model, batches = make_net(), make_batches(6)
    optimizer = torch.optim.SGD(model.parameters(), LR)
    mb.attach(optimizer, model, {"fc*": mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2))})
    train(model, optimizer, batches[:3])
    add_layer(model, optimizer)
    rates = {"fc1": Sgd(LR), "fc2": Sgd(LR), "fc3": Sgd(0.01)}
    names = ("fc1.weight", "fc2.weight", "fc3.weight")
    expected = train_by_hand(
        model,
        batches[3:],
        lambda name, w, g: rates[name[:3]](name, w, g),
        before=dict.fromkeys(names, lambda w, g, step: g + 0.3 * w),
        after={name: lambda w, step, lr=rates[name[:3]].lr: shrink(w, lr * 0.2) for name in names},
    )
    train(model, optimizer, batches[3:])
    assert_same(model, expected)


def test_a_layer_added_after_the_last_step_is_finished_too() -> None:
    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"fc*": mb.l0_project(2)})
    add_layer(model, optimizer)
    with reg.projected():
        assert int(model.fc3.weight.count_nonzero()) == 2
    assert [layer.nonzeros for layer in reg.report().layers] == [12, 8, 4]
    assert reg.state_dict()["layers"] == ["fc1.weight", "fc2.weight", "fc3.weight"]
    reg.finish()
    assert [layer.nonzeros for layer in reg.report().layers] == [2, 2, 2]


def test_a_weight_that_is_replaced_in_model_and_optimizer_is_the_one_that_is_updated() -> None:
    model = make_net()
    optimizer = momentum(model)
    mb.attach(optimizer, model, {"fc1": mb.l0_project(2, every=1)})
    model.fc1.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    optimizer.param_groups[0]["params"][0] = model.fc1.weight
    train(model, optimizer, make_batches(1))
    assert int(model.fc1.weight.count_nonzero()) == 2


def test_loading_the_optimizers_state_replaces_its_groups_and_breaks_nothing() -> None:
    model, batches = make_net(), make_batches(6)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)
    optimizer = momentum(model)
    mb.attach(optimizer, model, MIXED)
    for batch in batches:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(model, optimizer, [batch])
    assert_same(model, expected)


def test_a_learning_rate_that_a_loaded_state_brings_is_the_one_that_shrinks() -> None:
    model = make_net()
    optimizer, other = torch.optim.SGD(model.parameters(), LR), torch.optim.SGD(model.parameters(), 0.5)
    mb.attach(optimizer, model, {"fc1": mb.l1_shrink(0.1)})
    optimizer.load_state_dict(other.state_dict())
    expected = shrink(model.fc1.weight.detach(), 0.5 * 0.1)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(model.fc1.weight.detach(), expected, rtol=1e-14, atol=0)


def test_channels_last_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, dtype=torch.float64)).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(1)
    batches = [
        (
            torch.randn(2, 3, 5, 5, generator=generator, dtype=torch.float64),
            torch.zeros((), dtype=torch.float64),
        )
        for _ in range(4)
    ]
    expected = train_by_hand(
        model,
        batches,
        Sgd(LR, 0.9),
        before={"0.weight": lambda w, g, step: g + 0.3 * w},
        after={
            "0.weight": lambda w, step: (
                project(shrink(w, LR * 0.2), 40) if step % 2 == 0 else shrink(w, LR * 0.2)
            )
        },
    )
    optimizer = momentum(model)
    rule = mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2), mb.l0_project(40, every=2))
    reg = mb.attach(optimizer, model, {"0": rule})
    train(model, optimizer, batches)
    assert_same(model, expected)
    before = model[0].weight.detach().clone()
    with reg.projected():
        pass
    assert torch.equal(model[0].weight, before)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_empty_weights() -> None:
    model = nn.ModuleDict({"none": nn.Linear(0, 3), "fc": nn.Linear(2, 2)})
    optimizer = momentum(model)
    everything = mb.chain(mb.l2_decay(0.1), mb.l1_shrink(0.1), mb.l0_project(0.5, every=1), mb.hold())
    reg = mb.attach(optimizer, model, {"*": everything})
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    with reg.projected():
        pass
    reg.finish()
    assert [layer.nonzeros for layer in reg.report().layers] == [0, 2]
    assert "0.00%" in str(reg.report())


# Compiled


def test_a_compiled_model() -> None:
    model, batches = make_net(), make_batches(6)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(compiled.parameters(), LR, momentum=0.9)
    reg = mb.attach(optimizer, compiled, MIXED)
    for at, batch in enumerate(batches):
        train(compiled, optimizer, [batch])
        if at == 2:
            with torch.no_grad(), reg.projected():  # the compiled code reads the weights that are there
                torch.testing.assert_close(compiled(batch[0]), model(batch[0]), rtol=1e-12, atol=1e-12)
    assert_same(model, expected)
    assert [layer.name for layer in reg.report().layers] == ["fc1.weight", "fc2.weight"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch's own, when it compiles
@pytest.mark.parametrize("make", [full(Sgd), Adam])
def test_a_compiled_step_counts_and_updates_every_time(make: Any) -> None:
    model, batches = make_net(), make_batches(6)
    expected = train_by_hand(model, batches, make(LR), MIXED_BEFORE, MIXED_AFTER)
    optimizer = (torch.optim.SGD if make is Sgd else torch.optim.Adam)(model.parameters(), LR)
    reg = mb.attach(optimizer, model, MIXED)

    @torch.compile(backend="aot_eager")
    def step() -> None:
        optimizer.step()

    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        step()
    assert reg.step == 6
    assert_same(
        model, expected, tolerance=1e-11 if make is Sgd else 1e-5
    )  # compiled, Adam corrects its bias in float32


# Several processes


def train_in_parallel(rank: int, folder: str) -> None:
    """With a plain optimizer, and with one that keeps only its own share of the state."""
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for kind in ("plain", "zero"):
        model = DistributedDataParallel(make_net())
        optimizer = (
            torch.optim.SGD(model.parameters(), LR, momentum=0.9)
            if kind == "plain"
            else ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=LR, momentum=0.9)
        )
        reg = mb.attach(optimizer, model, {f"module.{pattern}": rule for pattern, rule in MIXED.items()})
        for x, y in make_batches(30):
            train(model, optimizer, [(x[rank::2], y[rank::2])])
        names = [layer.name for layer in reg.report().layers]
        result = {"weights": weights_of(model.module), "names": names, "step": reg.step}
        torch.save(result, f"{folder}/{kind}{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_train_as_one_does_on_the_whole_batch(tmp_path: Path) -> None:
    model, batches = make_net(), make_batches(30)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)
    start(train_in_parallel, args=(str(tmp_path),), nprocs=2)
    for run in ("plain0", "plain1", "zero0", "zero1"):
        result = torch.load(tmp_path / f"{run}.pt", weights_only=True)
        assert result["names"] == ["fc1.weight", "fc2.weight"]
        assert result["step"] == 30
        model.load_state_dict(result["weights"])
        assert_same(model, expected, tolerance=1e-10)
