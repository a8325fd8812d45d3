"""Mixed precision: bf16 autocast, and GradScaler, whose skipped steps must not count."""

from typing import Any

import pytest
import torch
from by_hand import Adam, Sgd, assert_same, loss_of, make_batches, make_net, project, shrink, train_by_hand
from torch import nn

import membound as mb

LR = 0.05
SCALE = 2.0**12  # a power of two, so that scaling changes no digit
RULES = {
    "fc1": mb.chain(mb.l2_decay(0.3), mb.l1_subgradient(0.1), mb.l1_shrink(0.2)),
    "fc2": mb.l0_project(3, every=2),
}
BEFORE = {"fc1.weight": lambda w, g, step: g + 0.3 * w + 0.1 * w.sign()}
AFTER = {
    "fc1.weight": lambda w, step: shrink(w, LR * 0.2),
    "fc2.weight": lambda w, step: project(w, 3) if step % 2 == 0 else w,
}
OPTIMIZERS = {
    "sgd": (lambda: Sgd(LR, 0.9), lambda w, **how: torch.optim.SGD(w, LR, momentum=0.9, **how)),
    "adam": (lambda: Adam(LR), lambda w, **how: torch.optim.Adam(w, LR, **how)),
    "adamw": (lambda: Adam(LR), lambda w, **how: torch.optim.AdamW(w, LR, weight_decay=0.0, **how)),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
every_implementation = pytest.mark.parametrize(
    "how", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=lambda how: "-".join(how)
)


@pytest.fixture
def scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1000)


@pytest.mark.parametrize("unscale_first", [False, True])
@every_implementation
@every_optimizer
def test_skipped_steps_neither_count_nor_change_anything(
    name: str, how: dict[str, bool], unscale_first: bool, scaler: torch.amp.GradScaler
) -> None:
    by_hand, make = OPTIMIZERS[name]
    model, batches = make_net(), make_batches(8)
    # A first step that is skipped leaves torch's fused SGD with an uninitialized momentum, with or without attach().
    overflows = {2, 3, 5} if name == "sgd" and "fused" in how else {0, 3, 4}
    kept = [batch for at, batch in enumerate(batches) if at not in overflows]
    expected = train_by_hand(model, kept, by_hand(), BEFORE, AFTER)
    optimizer = make(model.parameters(), **how)
    reg = mb.attach(optimizer, model, RULES)
    done = 0
    for at, batch in enumerate(batches):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        before = [weight.detach().clone() for weight in model.parameters()]
        if at in overflows:
            model.fc1.weight.grad[0, 0] = float("inf")
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if at in overflows:
            assert all(map(torch.equal, before, model.parameters()))
        else:
            done += 1
        assert reg.step == done
    assert_same(model, expected)


@every_implementation
def test_gradients_clipped_between_unscaling_and_step(
    how: dict[str, bool], scaler: torch.amp.GradScaler
) -> None:
    """The penalties come after the clipping, as an optimizer's own weight decay does."""
    model, batches = make_net(), make_batches(6)
    hand = Sgd(LR, 0.9)
    clip = 0.05

    def clipped(weight: torch.Tensor, grad: torch.Tensor, step: int) -> torch.Tensor:
        return grad.clamp(-clip, clip)

    before = {name: clipped for name, _ in model.named_parameters()}
    before["fc1.weight"] = lambda w, g, step: clipped(w, g, step) + 0.3 * w + 0.1 * w.sign()
    expected = train_by_hand(model, batches, hand, before, AFTER)
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, **how)
    mb.attach(optimizer, model, RULES)
    for batch in batches:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    assert_same(model, expected)


def test_a_disabled_scaler_is_no_scaler() -> None:
    model, batches = make_net(), make_batches(4)
    expected = train_by_hand(model, batches, Sgd(LR), BEFORE, AFTER)
    optimizer = torch.optim.SGD(model.parameters(), LR, fused=True)
    mb.attach(optimizer, model, RULES)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for batch in batches:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert_same(model, expected)


def test_a_step_that_takes_the_scaler_itself_is_refused() -> None:
    class Old(torch.optim.SGD):
        def step(self, closure: Any = None, *, grad_scaler: Any = None) -> Any:
            return super().step(closure)

    model = make_net()
    optimizer = Old(model.parameters(), LR)
    mb.attach(optimizer, model, RULES)
    loss_of(model, make_batches(1)[0]).backward()
    with pytest.raises(mb.RuleError, match=r"grad_scaler=\.\.\.\) hides the gradients' scale"):
        optimizer.step(grad_scaler=torch.amp.GradScaler("cpu"))


@every_implementation
@every_optimizer
def test_bf16_autocast(name: str, how: dict[str, bool]) -> None:
    """Gradients come from bf16 products, the weights and the updates stay in float32."""
    by_hand, make = OPTIMIZERS[name]
    model, batches = make_net(torch.float32), make_batches(6, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(batches[0][0]).dtype == torch.bfloat16
        expected = train_by_hand(model, batches, by_hand(), BEFORE, AFTER)
    optimizer = make(model.parameters(), **how)
    mb.attach(optimizer, model, RULES)
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
    assert_same(model, expected, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", [{"foreach": False}, {"foreach": True}], ids=lambda how: "-".join(how))
def test_weights_in_half_precision(dtype: torch.dtype, how: dict[str, bool]) -> None:
    """One step from powers of two, where every result is exact in eight bits."""
    model = nn.ModuleDict({"fc": nn.Linear(4, 1, bias=False, dtype=dtype)})
    model["fc"].weight.data.copy_(torch.tensor([[1.0, -0.5, 0.25, 2.0]]))
    optimizer = torch.optim.SGD(model.parameters(), 0.5, **how)
    rule = mb.chain(mb.l2_decay(0.5), mb.l1_shrink(0.25), mb.l0_project(2, every=1))
    reg = mb.attach(optimizer, model, {"fc": rule})
    model["fc"].weight.grad = torch.tensor([[1.0, 0.0, -1.0, 0.0]], dtype=dtype)
    optimizer.step()  # g = 1.5, -0.25, -0.875, 1; W = 0.25, -0.375, 0.6875, 1.5; shrunk by 0.125
    assert model["fc"].weight.tolist() == [[0.0, 0.0, 0.5625, 1.375]]
    with reg.projected():
        pass
    assert model["fc"].weight.dtype == dtype
