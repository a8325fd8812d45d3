"""Every update against its equation, on its own, chained and scheduled, with every optimizer it must be right with."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from by_hand import Adam, Sgd, assert_same, make_batches, make_net, project, shrink, train, train_by_hand
from torch import Tensor, nn

import membound as mb
from membound.train.updates import Moment, Update, keep_count

STEPS = 12
LR = 0.05

# What each optimizer is called, how it is written by hand, and what torch calls it.
OPTIMIZERS: dict[str, tuple[Callable[[], Any], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (lambda: Sgd(LR), lambda w, **how: torch.optim.SGD(w, LR, **how)),
    "momentum": (lambda: Sgd(LR, 0.9), lambda w, **how: torch.optim.SGD(w, LR, momentum=0.9, **how)),
    "nesterov": (
        lambda: Sgd(LR, 0.9, nesterov=True),
        lambda w, **how: torch.optim.SGD(w, LR, momentum=0.9, nesterov=True, **how),
    ),
    "adam": (lambda: Adam(LR), lambda w, **how: torch.optim.Adam(w, LR, **how)),
    "adamw": (
        lambda: Adam(LR),
        lambda w, **how: torch.optim.AdamW(w, LR, weight_decay=0.0, **how),
    ),
}
IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def strength_at(step: int) -> float:
    """What `mb.ramp(0.0, 0.3, shape='linear')` is over STEPS steps, written out."""
    return 0.3 * step / STEPS


def count_at(step: int) -> int:
    """What `mb.ramp(12, 3, until=0.5)` is over STEPS steps, written out: cubic, then constant."""
    progress = step / STEPS
    return 3 if progress >= 0.5 else round(3 + 9 * (1 - progress / 0.5) ** 3)


# The update, what it does to fc1's gradient before the step, and what it does to fc1's weight after it.
UPDATES: dict[str, tuple[Update, Any, Any]] = {
    "l2_decay": (mb.l2_decay(0.3), lambda w, g, step: g + 0.3 * w, None),
    "l1_subgradient": (mb.l1_subgradient(0.2), lambda w, g, step: g + 0.2 * w.sign(), None),
    "l1_shrink": (mb.l1_shrink(0.2), None, lambda w, step: shrink(w, LR * 0.2)),
    "l0_project": (
        mb.l0_project(keep=5, every=4),
        None,
        lambda w, step: project(w, 5) if step % 4 == 0 else w,
    ),
    "l0_project of a fraction": (
        mb.l0_project(keep=0.25, every=1),
        None,
        lambda w, step: project(w, 3),
    ),
    "chain": (
        mb.chain(mb.l2_decay(0.3), mb.l1_subgradient(0.1), mb.l1_shrink(0.2), mb.l0_project(6, every=3)),
        lambda w, g, step: g + 0.3 * w + 0.1 * w.sign(),
        lambda w, step: project(shrink(w, LR * 0.2), 6) if step % 3 == 0 else shrink(w, LR * 0.2),
    ),
    "chain of chains": (
        mb.chain(
            mb.chain(mb.l2_decay(0.1), mb.l2_decay(0.2)), mb.chain(mb.l1_shrink(0.1), mb.l1_shrink(0.3))
        ),
        lambda w, g, step: g + 0.3 * w,
        lambda w, step: shrink(shrink(w, LR * 0.1), LR * 0.3),
    ),
    "scheduled l2_decay": (
        mb.l2_decay(mb.ramp(0.0, 0.3, shape="linear")),
        lambda w, g, step: g + strength_at(step) * w,
        None,
    ),
    "scheduled l1_subgradient": (
        mb.l1_subgradient(mb.ramp(0.0, 0.3, shape="linear")),
        lambda w, g, step: g + strength_at(step) * w.sign(),
        None,
    ),
    "scheduled l1_shrink": (
        mb.l1_shrink(lambda progress: 0.3 * progress),
        None,
        lambda w, step: shrink(w, LR * strength_at(step)),
    ),
    "scheduled l0_project": (
        mb.l0_project(mb.ramp(12, 3, until=0.5), every=2),
        None,
        lambda w, step: project(w, count_at(step)) if step % 2 == 0 else w,
    ),
    "scheduled chain": (
        mb.chain(
            mb.l2_decay(mb.constant(0.3)), mb.l1_shrink(mb.steps({0.0: 0.4, 0.5: 0.0})), mb.l0_project(8, 5)
        ),
        lambda w, g, step: g + 0.3 * w,
        lambda w, step: (lambda v: project(v, 8) if step % 5 == 0 else v)(
            shrink(w, LR * 0.4) if step < STEPS / 2 else w
        ),
    ),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("how", IMPLEMENTATIONS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.one_in(4)
def test_an_update_is_its_equation_with_every_optimizer(optimizer: str, how: str, update: str) -> None:
    by_hand, make = OPTIMIZERS[optimizer]
    rule, before, after = UPDATES[update]
    model, batches = make_net(), make_batches(STEPS)
    expected = train_by_hand(
        model,
        batches,
        by_hand(),
        before={"fc1.weight": before} if before else None,
        after={"fc1.weight": after} if after else None,
    )
    actual = make(model.parameters(), **IMPLEMENTATIONS[how])
    mb.attach(actual, model, {"fc1": rule}, total_steps=STEPS)
    train(model, actual, batches)
    assert_same(model, expected)


def test_adamw_keeps_its_own_decay_beside_other_updates() -> None:
    model, batches = make_net(), make_batches(STEPS)
    expected = train_by_hand(
        model,
        batches,
        Adam(LR, decoupled_decay=0.1),
        before={"fc2.weight": lambda w, g, step: g + 0.1 * w.sign()},
        after={"fc1.weight": lambda w, step: shrink(w, LR * 0.2)},
    )
    optimizer = torch.optim.AdamW(model.parameters(), LR, weight_decay=0.1)
    mb.attach(optimizer, model, {"fc1": mb.l1_shrink(0.2), "fc2": mb.l1_subgradient(0.1)})
    train(model, optimizer, batches)
    assert_same(model, expected)


def test_chain_applies_in_the_order_given() -> None:
    weight = torch.tensor([4.0, 3.0, 2.0, 1.0])
    moment = Moment(step=1, progress=None, lr=1.0)
    project_first, shrink_first = weight.clone(), weight.clone()
    cut_to_the_mean = Update(("mean",), (), after=lambda w, moment: w.sub_(w.mean()))
    mb.chain(mb.l0_project(2, every=1), cut_to_the_mean).after(project_first, moment)
    mb.chain(cut_to_the_mean, mb.l0_project(2, every=1)).after(shrink_first, moment)
    assert project_first.tolist() == [2.25, 1.25, -1.75, -1.75]
    assert shrink_first.tolist() == [1.5, 0.0, 0.0, -1.5]


# What the module says about learning rate and momentum


def still(size: int = 4, start: float = 100.0) -> nn.Linear:
    """A layer whose loss is flat, so that only the regularization moves it."""
    layer = nn.Linear(size, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(layer.weight, start)
    return layer


def move_of_last_step(
    rule: Update, lr: float, momentum: float, steps: int = 200, start: float = 100.0
) -> float:
    layer = still(start=start)
    optimizer = torch.optim.SGD(layer.parameters(), lr, momentum=momentum)
    mb.attach(optimizer, layer, {"weight": rule})
    before = start
    for _ in range(steps):
        before = layer.weight[0, 0].item()
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
    return before - layer.weight[0, 0].item()


@pytest.mark.parametrize("lr", [0.1, 0.02])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_amplifies_l1_in_the_gradient_and_not_the_shrinkage(lr: float, momentum: float) -> None:
    strength = 0.03
    in_gradient = move_of_last_step(mb.l1_subgradient(strength), lr, momentum)
    in_weight = move_of_last_step(mb.l1_shrink(strength), lr, momentum)
    assert in_gradient == pytest.approx(lr * strength / (1 - momentum), rel=1e-6)
    assert in_weight == pytest.approx(lr * strength, rel=1e-6)


def test_at_momentum_09_l1_shrink_wants_ten_times_the_strength_of_l1_subgradient() -> None:
    in_gradient = move_of_last_step(mb.l1_subgradient(0.03), 0.1, 0.9)
    assert move_of_last_step(mb.l1_shrink(0.3), 0.1, 0.9) == pytest.approx(in_gradient, rel=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_amplifies_l2_decay(momentum: float) -> None:
    """A slow decay goes as exp(-lr lambda steps / (1 - momentum)), once the velocity has built up."""
    layer = still(start=1.0)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01, momentum=momentum)
    mb.attach(optimizer, layer, {"weight": mb.l2_decay(0.01)})
    for _ in range(2000):
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
    rate = 0.01 * 0.01 / (1 - momentum)
    assert -math.log(layer.weight[0, 0].item()) == pytest.approx(rate * 2000, rel=0.01)


def test_a_projected_weight_comes_back_when_the_loss_pulls_on_it() -> None:
    layer = still(size=2, start=1.0)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    mb.attach(optimizer, layer, {"weight": mb.l0_project(1, every=2)})
    for step in range(1, 5):
        layer.weight.grad = torch.tensor([[0.0, -3.0]], dtype=torch.float64)
        optimizer.step()
        if step == 2:  # 1.0 and 1.6: the second stays
            assert layer.weight.tolist() == [[0.0, pytest.approx(1.6)]]
    assert layer.weight.tolist() == [[0.0, pytest.approx(2.2)]]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("rule", [mb.l2_decay(0.3), mb.l1_subgradient(0.3), mb.l1_shrink(0.3)])
def test_penalties_pull_towards_zero_also_where_the_optimizer_maximizes(make: Any, rule: Update) -> None:
    model, minus = make_net(), make_net()
    up, down = make(model.parameters(), LR, maximize=True), make(minus.parameters(), LR)
    mb.attach(up, model, {"fc1": rule})
    mb.attach(down, minus, {"fc1": rule})
    for batch in make_batches(STEPS):
        for network, optimizer, sign in ((model, up, -1), (minus, down, 1)):
            optimizer.zero_grad()
            (sign * (network(batch[0]) - batch[1]).square().mean()).backward()
            optimizer.step()
    assert_same(model, {name: weight.detach() for name, weight in minus.named_parameters()})


# hold


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_hold_keeps_zeros_at_zero_and_leaves_the_rest_to_the_optimizer(optimizer: str) -> None:
    by_hand, make = OPTIMIZERS[optimizer]
    model, batches = make_net(), make_batches(STEPS)
    with torch.no_grad():
        model.fc1.weight.copy_(project(model.fc1.weight, 5))
    zeros = model.fc1.weight == 0
    expected = train_by_hand(
        model, batches, by_hand(), after={"fc1.weight": lambda w, step: w.masked_fill(zeros, 0.0)}
    )
    actual = make(model.parameters())
    mb.attach(actual, model, {"fc1": mb.hold()})
    train(model, actual, batches)
    assert_same(model, expected)
    assert int(model.fc1.weight.count_nonzero()) == 5


def test_hold_goes_together_with_every_other_update_and_with_itself() -> None:
    model, batches = make_net(), make_batches(STEPS)
    with torch.no_grad():
        model.fc1.weight.copy_(project(model.fc1.weight, 5))
    zeros = model.fc1.weight == 0
    expected = train_by_hand(
        model,
        batches,
        Sgd(LR, 0.9),
        before={"fc1.weight": lambda w, g, step: g + 0.3 * w},
        after={"fc1.weight": lambda w, step: w.masked_fill(zeros, 0.0)},
    )
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9)
    mb.attach(optimizer, model, {"fc1": mb.chain(mb.hold(), mb.l2_decay(0.3), mb.hold())})
    train(model, optimizer, batches)
    assert_same(model, expected)


# Types of weights


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_updates_on_every_float_type(dtype: torch.dtype) -> None:
    weight = torch.tensor([1.0, -0.5, 0.25, -0.125, 0.0, -2.0], dtype=dtype)  # all exact in every type
    moment = Moment(step=1, progress=None, lr=0.5)
    weight.grad = torch.ones_like(weight)
    mb.chain(mb.l2_decay(0.5), mb.l1_subgradient(0.25)).before(weight, moment)
    assert weight.grad.tolist() == [1.75, 0.5, 1.375, 0.6875, 1.0, -0.25]
    mb.chain(mb.l1_shrink(0.5), mb.l0_project(2, every=1)).after(weight, moment)
    assert weight.tolist() == [0.75, 0.0, 0.0, 0.0, 0.0, -1.75]
    assert weight.dtype == dtype


def test_the_scale_of_a_grad_scaler_does_not_overflow_a_half() -> None:
    weight = torch.tensor([2.0, -4.0], dtype=torch.float16)
    weight.grad = torch.zeros_like(weight)
    moment = Moment(step=1, progress=None, lr=0.1, grad_scale=torch.tensor(2.0**16))
    mb.l2_decay(2.0**-11).before(weight, moment)
    assert weight.grad.tolist() == [64.0, -128.0]


def test_a_learning_rate_in_a_tensor() -> None:
    weight = torch.tensor([0.5, -0.2])
    mb.l1_shrink(1.0).after(weight, Moment(step=1, progress=None, lr=torch.tensor(0.125)))
    assert weight.tolist() == [0.375, pytest.approx(-0.075)]


def test_a_shrinkage_hides_no_nan() -> None:
    weight = torch.tensor([math.nan, math.inf, 1.0])
    mb.l1_shrink(1.0).after(weight, Moment(step=1, progress=None, lr=0.5))
    assert math.isnan(weight[0])
    assert weight[1:].tolist() == [math.inf, 0.5]


# keep


@pytest.mark.parametrize(
    ("keep", "size", "count"),
    [
        (0.05, 500, 25),
        (7, 500, 7),
        (0, 10, 0),
        (1, 10, 1),
        (1.0, 10, 10),
        (10, 10, 10),
        (0.5, 0, 0),
        (0.01, 10, 0),
    ],
)
def test_an_int_keeps_a_count_and_a_float_a_fraction(keep: float, size: int, count: int) -> None:
    assert keep_count(keep, size) == count


@pytest.mark.parametrize(
    "keep", [-1, -0.1, 0.0, 1.5, math.nan, math.inf, True, "half", None, torch.tensor(0.5)]
)
def test_a_keep_that_cannot_be_is_refused_at_once(keep: Any) -> None:
    with pytest.raises(mb.RuleError, match="keep"):
        mb.l0_project(keep)


def test_a_fraction_above_one_is_told_about_counts() -> None:
    with pytest.raises(
        mb.RuleError, match=r"keep=50\.0 is not a fraction above 0, up to 1: write an int for a count"
    ):
        mb.l0_project(50.0)


@pytest.mark.parametrize("every", [0, -1, 2.5, True, None, "often"])
def test_every_is_a_whole_number_from_one(every: Any) -> None:
    with pytest.raises(mb.RuleError, match="every must be a whole number of steps from 1, got"):
        mb.l0_project(0.5, every=every)


# Strengths


@pytest.mark.parametrize("make", [mb.l2_decay, mb.l1_subgradient, mb.l1_shrink])
@pytest.mark.parametrize("strength", [-1e-4, math.nan, math.inf, True, "5e-4", None, [1.0]])
def test_a_strength_that_cannot_be_is_refused_at_once(make: Any, strength: Any) -> None:
    with pytest.raises(mb.RuleError, match=rf"{make.__name__} takes a finite strength of at least 0"):
        make(strength)


@pytest.mark.parametrize("make", [mb.l2_decay, mb.l1_subgradient, mb.l1_shrink])
@pytest.mark.parametrize("value", [math.nan, -0.5, math.inf, None, True])
def test_a_schedule_whose_strength_cannot_be_stops_with_the_layers_name(make: Any, value: Any) -> None:
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), LR)
    mb.attach(
        optimizer, model, {"fc2": make(lambda progress: 0.1 if progress < 0.5 else value)}, total_steps=4
    )
    train(model, optimizer, make_batches(1))
    with pytest.raises(mb.RuleError, match=rf"'fc2\.weight': {make.__name__} takes .*, got {value}"):
        train(model, optimizer, make_batches(1))


@pytest.mark.parametrize("value", [math.nan, -0.5, 1.5, 9, -1, None])
def test_a_schedule_whose_keep_cannot_be_stops_with_the_layers_name(value: Any) -> None:
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), LR)
    keep = mb.l0_project(lambda progress: value if progress == 0.5 else 0.5, every=1)
    mb.attach(optimizer, model, {"fc2": keep}, total_steps=4)
    train(model, optimizer, make_batches(1))
    with pytest.raises(mb.RuleError, match=r"'fc2\.weight': keep"):
        train(model, optimizer, make_batches(1))


# chain


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        ((), "chain takes one or more updates"),
        ((0.1,), "argument 1 is 0.1, not an update$"),
        ((mb.l2_decay(0.1), 3), "argument 2 is 3, not an update$"),
        ((mb.l2_decay(0.1), None), "argument 2 is None, not an update$"),
        (([mb.l2_decay(0.1)],), "argument 1 is .*, not an update$"),
    ],
)
def test_chain_takes_updates_only(updates: Any, says: str) -> None:
    with pytest.raises(mb.RuleError, match=says):
        mb.chain(*updates)


def test_a_palette_of_bits_is_told_its_levels() -> None:
    with pytest.raises(
        mb.RuleError, match="palette takes levels, every, begin, not bits: levels=16 is for 4 bits"
    ):
        mb.palette(bits=4)  # type: ignore[arg-type]


def test_the_tightest_bound_of_a_chain_counts() -> None:
    weight = torch.arange(1.0, 11.0)
    rule = mb.chain(mb.l0_project(0.5, every=2), mb.l0_project(3, every=3))
    assert rule.bound is not None
    assert rule.bound(10, None) == 3
    for step, left in ((1, 10), (2, 5), (3, 3)):
        rule.after(weight, Moment(step=step, progress=None, lr=0.1))
        assert int(weight.count_nonzero()) == left


def test_scheduled_says_whether_progress_matters() -> None:
    assert not mb.chain(mb.l2_decay(0.1), mb.hold()).scheduled
    assert mb.chain(mb.l2_decay(0.1), mb.l0_project(mb.ramp(1.0, 0.1))).scheduled


def test_a_moment_gives_sgd_and_shrinkage_the_same_learning_rate() -> None:
    """delta = lr lambda, exactly, whatever the gradient: two weights beyond and one below the threshold."""
    layer = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    start: Tensor = torch.tensor([[0.5, -0.25, 0.01]], dtype=torch.float64)
    layer.weight.data.copy_(start)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.125)
    mb.attach(optimizer, layer, {"weight": mb.l1_shrink(0.5)})
    layer.weight.grad = torch.zeros_like(layer.weight)
    optimizer.step()
    assert layer.weight.tolist() == [[0.5 - 0.0625, -0.25 + 0.0625, 0.0]]


def test_an_update_of_ones_own_runs_in_a_chain():
    def clip(limit):
        def after(weight, moment):
            weight.clamp_(-limit, limit)

        return Update(("clip",), (limit,), after=after)

    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.no_grad():
        net.weight.mul_(10)
    regularizer = mb.attach(optimizer, net, {"*": mb.chain(mb.l0_project(6, every=1), clip(0.25))})
    net(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    assert float(net.weight.detach().abs().max()) == 0.25
    regularizer.finish()
    assert int(net.weight.count_nonzero()) == 6
