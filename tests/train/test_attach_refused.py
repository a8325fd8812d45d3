"""What attach() and its handle refuse, and what only looks as if it should be."""

import gc
import math
from typing import Any

import pytest
import torch
from attached import LR, MIXED, MIXED_AFTER, MIXED_BEFORE, momentum, weights_of
from by_hand import (
    Sgd,
    assert_same,
    loss_of,
    make_batches,
    make_net,
    project,
    shrink,
    train,
    train_by_hand,
)
from torch import nn

import membound as mb

# What is refused


@pytest.mark.parametrize("rule", [mb.l2_decay(0.1), mb.l1_subgradient(0.1)])
def test_sparse_gradients_are_refused_by_penalties_in_the_gradient(rule: Any) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 2, sparse=True)})
    optimizer = torch.optim.SGD(model.parameters(), LR)
    mb.attach(optimizer, model, {"words": rule})
    model["words"](torch.tensor([1, 3])).sum().backward()
    with pytest.raises(mb.RuleError, match=r"'words\.weight': its gradient is sparse: .*sparse=False"):
        optimizer.step()


def test_sparse_gradients_are_right_with_updates_of_the_weight() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"words": nn.Embedding(5, 2, sparse=True, dtype=torch.float64)})
    optimizer = torch.optim.SGD(model.parameters(), LR)
    mb.attach(optimizer, model, {"words": mb.chain(mb.l1_shrink(0.2), mb.l0_project(4, every=1))})
    expected = model["words"].weight.detach().clone()
    expected[[1, 3]] -= LR
    model["words"](torch.tensor([1, 3])).sum().backward()
    optimizer.step()
    torch.testing.assert_close(
        model["words"].weight.detach(), project(shrink(expected, LR * 0.2), 4), rtol=1e-14, atol=0
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("when", ["step", "finish"])
def test_a_weight_that_is_not_finite_stops_training_with_its_name(value: float, when: str) -> None:
    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(0.5, every=2)})
    train(model, optimizer, make_batches(1))
    with torch.no_grad():
        model.fc2.weight[1, 1] = value
    says = r"'fc2\.weight' has a weight that is NaN or infinite after step %d: .*learning rate"
    if when == "finish":
        with pytest.raises(mb.TrainingError, match=says % 1):
            reg.finish()
        assert not reg.finished
    else:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        with pytest.raises(mb.TrainingError, match=says % 2):
            optimizer.step()


def test_finish_changes_all_weights_or_none() -> None:
    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(0.5, every=2)})
    with torch.no_grad():
        model.fc2.weight[1, 1] = math.nan
    before = weights_of(model)
    with pytest.raises(mb.TrainingError, match=r"'fc2\.weight'"):
        reg.finish()
    torch.testing.assert_close(weights_of(model), before, rtol=0, atol=0, equal_nan=True)
    with torch.no_grad():
        model.fc2.weight[1, 1] = 0.0
    reg.finish()  # what was wrong can be mended
    assert [layer.nonzeros <= layer.bound for layer in reg.report().layers] == [True, True]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "the saved state is None: load what state_dict"),
        ([1], r"the saved state is \[1\]"),
        ({}, "the saved state lacks finished, layers, step, total_steps"),
        ({"step": "three"}, "step='three': a whole number from 0"),
        ({"step": -1}, "step=-1"),
    ],
)
def test_a_state_that_is_none_of_ours_is_refused(state: Any, says: str) -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l2_decay(0.1)})
    with pytest.raises(mb.RuleError, match=says):
        reg.load_state_dict({**reg.state_dict(), **state} if isinstance(state, dict) and state else state)
    assert reg.step == 0


def test_two_attaches_on_one_weight_are_refused_until_the_first_is_over() -> None:
    model = make_net()
    optimizer = momentum(model)
    first = mb.attach(optimizer, model, {"fc1": mb.l2_decay(0.1)})
    for again in (optimizer, momentum(model)):
        with pytest.raises(
            mb.RuleError, match=r"'fc1\.weight' is still under an earlier attach\(\): call its finish\(\)"
        ):
            mb.attach(again, model, {"*": mb.l1_shrink(0.1)})
    second = mb.attach(optimizer, model, {"fc2": mb.l1_shrink(0.1)})  # another layer is free
    first.finish()
    second.detach()
    mb.attach(optimizer, model, {"*": mb.l1_shrink(0.1)})


def test_a_handle_goes_with_its_optimizer() -> None:
    model = make_net()
    mb.attach(momentum(model), model, {"*": mb.l1_shrink(0.1)})
    gc.collect()
    mb.attach(momentum(model), model, {"*": mb.l1_shrink(0.1)})


def test_two_optimizers_of_one_model_have_a_handle_each() -> None:
    model, batches = make_net(), make_batches(6)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)
    optimizers = [torch.optim.SGD(layer.parameters(), LR, momentum=0.9) for layer in (model.fc1, model.fc2)]
    for optimizer, (pattern, rule) in zip(optimizers, MIXED.items(), strict=True):
        mb.attach(optimizer, model, {pattern: rule})
    for batch in batches:
        model.zero_grad()
        loss_of(model, batch).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert_same(model, expected)


def test_a_step_inside_a_cuda_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, MIXED)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(mb.RuleError, match="CUDA graph would not count when replayed"):
        train(model, optimizer, make_batches(1))
    assert reg.step == 0


@pytest.mark.parametrize("optimizer", [None, "sgd", object(), nn.Linear(1, 1), torch.optim.SGD])
def test_what_is_no_optimizer_is_refused(optimizer: Any) -> None:
    with pytest.raises(mb.RuleError, match=rf"needs a torch optimizer, not {type(optimizer).__name__}"):
        mb.attach(optimizer, make_net(), MIXED)


def test_model_and_optimizer_swapped_are_told_apart() -> None:
    model = make_net()
    with pytest.raises(
        mb.RuleError, match=r"needs a torch optimizer, not Net: attach\(optimizer, model, rules\)"
    ):
        mb.attach(model, momentum(model), MIXED)


@pytest.mark.parametrize("base", [torch.optim.Optimizer, object], ids=["Accelerate", "Lightning"])
def test_wrappers_whose_hooks_never_run_are_unwrapped(base: Any) -> None:
    model, batches = make_net(), make_batches(4)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9), MIXED_BEFORE, MIXED_AFTER)

    class Wrapper(base):
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

    optimizer = momentum(model)
    reg = mb.attach(Wrapper(optimizer), model, MIXED)
    assert reg.optimizer is optimizer
    train(model, optimizer, batches)
    assert_same(model, expected)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_momentum_of_weights_without_gradient_does_not_become_denormal(kind: type) -> None:
    """A cut-off unit's momentum decays; as denormal numbers it would make every step on a CPU slow."""

    def smallest_momentum(attached: bool) -> float:
        model = nn.Linear(4, 4, bias=False)
        optimizer = kind(
            model.parameters(), **({"lr": 0.01, "momentum": 0.9} if kind is torch.optim.SGD else {})
        )
        if attached:
            mb.attach(optimizer, model, {"*": mb.l0_project(8, every=50)})
        for step in range(1200):
            model.weight.grad = torch.full((4, 4), 1.0 if step == 0 else 0.0)
            optimizer.step()
        state = optimizer.state[model.weight]
        buffer = state.get("momentum_buffer", state.get("exp_avg"))
        nonzero = buffer[buffer != 0].abs()
        return float(nonzero.min()) if len(nonzero) else 0.0

    assert 0 < smallest_momentum(attached=False) < 1e-38
    assert smallest_momentum(attached=True) == 0.0
