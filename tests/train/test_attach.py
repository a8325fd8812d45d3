"""attach() and its handle in the loops that people write, each against the same training written out by hand."""

import copy
import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
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
from torch import Tensor, nn

import membound as mb

LR = 0.05
MIXED = {"fc1": mb.chain(mb.l2_decay(0.3), mb.l1_shrink(0.2)), "fc2": mb.l0_project(3, every=2)}
MIXED_BEFORE = {"fc1.weight": lambda w, g, step: g + 0.3 * w}
MIXED_AFTER = {
    "fc1.weight": lambda w, step: shrink(w, LR * 0.2),
    "fc2.weight": lambda w, step: project(w, 3) if step % 2 == 0 else w,
}


def momentum(model: nn.Module, **how: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), LR, momentum=0.9, **how)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


# Steps and progress


def test_steps_count_from_one_and_progress_ends_at_one() -> None:
    seen: list[tuple[int, float | None]] = []

    def note(progress: float) -> float:
        seen.append((reg.step, progress))
        return 0.0

    model = make_net()
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"fc1": mb.l1_subgradient(note)}, total_steps=4)
    assert (reg.step, reg.progress) == (0, 0.0)
    train(model, optimizer, make_batches(6))
    assert [progress for _, progress in seen] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert (reg.step, reg.progress) == (6, 1.0)


@pytest.mark.parametrize("every", [1, 3, 5])
def test_a_projection_runs_when_the_step_is_a_multiple_of_every(every: int) -> None:
    model = make_net()
    optimizer = momentum(model)
    mb.attach(optimizer, model, {"fc1": mb.l0_project(4, every=every)})
    nonzeros = []
    for batch in make_batches(10):
        train(model, optimizer, [batch])
        nonzeros.append(int(model.fc1.weight.count_nonzero()))
    assert nonzeros == [4 if step % every == 0 else 12 for step in range(1, 11)]


def test_without_total_steps_there_is_no_progress_and_no_schedule() -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(4)})
    assert reg.progress is None
    reg.detach()
    with pytest.raises(mb.RuleError, match=r"the rule for 'fc2\.weight' has a schedule: .*total_steps"):
        mb.attach(momentum(model), model, {"fc1": mb.l2_decay(0.1), "fc2": mb.l0_project(mb.ramp(1.0, 0.1))})


@pytest.mark.parametrize("total_steps", [0, -5, 2.5, True, math.nan, math.inf, "100", "many", [10]])
def test_total_steps_is_a_whole_number_from_one(total_steps: Any) -> None:
    model = make_net()
    with pytest.raises(mb.RuleError, match=r"total_steps=.* cannot be"):
        mb.attach(momentum(model), model, {"fc1": mb.l2_decay(0.1)}, total_steps=total_steps)


# finish and detach


def test_finish_applies_the_value_at_progress_one_once_and_detaches() -> None:
    model, batches = make_net(), make_batches(8)
    optimizer = momentum(model)
    rule = mb.l0_project(mb.ramp(12, 3, shape="linear"), every=2)
    reg = mb.attach(optimizer, model, {"fc1": rule}, total_steps=6)
    expected = train_by_hand(
        model,
        batches[:3],
        Sgd(LR, 0.9),
        after={"fc1.weight": lambda w, step: project(w, 9) if step == 2 else w},
    )
    train(model, optimizer, batches[:3])
    assert_same(model, expected)
    reg.finish()
    expected["fc1.weight"] = project(expected["fc1.weight"], 3)
    assert_same(model, expected)
    assert reg.finished
    assert reg.progress == 1.0

    train(model, optimizer, batches[3:])  # a plain optimizer again
    assert int(model.fc1.weight.count_nonzero()) == 12
    assert reg.step == 3
    before = weights_of(model)
    reg.finish()
    assert_same(model, before, tolerance=0)


def test_finish_holds_also_where_no_step_was_made_and_where_a_layer_is_frozen() -> None:
    model = make_net()
    expected = project(model.fc1.weight, 2)
    model.fc1.requires_grad_(False)
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(2)})
    reg.finish()
    assert_same_bits(model.fc1.weight, expected)


def test_detach_leaves_the_weights_and_the_optimizer_alone() -> None:
    model, batches = make_net(), make_batches(4)
    optimizer = momentum(model)
    expected = train_by_hand(model, batches, Sgd(LR, 0.9))
    reg = mb.attach(optimizer, model, MIXED)
    reg.detach()
    reg.detach()
    train(model, optimizer, batches)
    assert_same(model, expected)
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


# projected


def test_inside_projected_the_network_is_at_the_bound_and_outside_as_before() -> None:
    model, batches = make_net(), make_batches(6)
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"fc*": mb.l0_project(mb.ramp(8, 2, shape="linear"))}, total_steps=6)
    for step, batch in enumerate(batches, 1):
        train(model, optimizer, [batch])
        before = weights_of(model)
        with reg.projected():
            count = 8 - step  # of 8 to 2 over 6 steps
            for layer in (model.fc1, model.fc2):
                assert int(layer.weight.count_nonzero()) == count
            assert_same_bits(model.fc1.weight, project(before["fc1.weight"], count))
            assert_same_bits(model.fc1.bias, before["fc1.bias"])
        for name, weight in model.named_parameters():
            assert_same_bits(weight, before[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("flush", [False, True], ids=["denormals kept", "denormals flushed"])
@pytest.mark.parametrize("keep", [0, 2, 4, 12])
def test_projected_restores_the_very_bits(dtype: torch.dtype, flush: bool, keep: int) -> None:
    model = make_net(dtype)
    tiny = 2 * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # a denormal
    values = [-0.0, 0.0, tiny, -tiny, 1.0, -1.0, 1.0, 2.0, -0.0, tiny, 3.0, torch.finfo(dtype).max]
    model.fc1.weight.data.copy_(torch.tensor(values, dtype=dtype).view(4, 3))
    before = model.fc1.weight.detach().clone()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(keep)})
    try:
        if not torch.set_flush_denormal(flush) and flush:
            pytest.skip("this CPU does not flush denormals")
        with reg.projected():
            pass
        assert_same_bits(model.fc1.weight, before)
    finally:
        torch.set_flush_denormal(False)


def test_projected_restores_after_an_exception() -> None:
    model = make_net()
    before = model.fc1.weight.detach().clone()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(2)})
    with pytest.raises(KeyError), reg.projected():  # noqa: PT012
        assert int(model.fc1.weight.count_nonzero()) == 2
        raise KeyError
    assert_same_bits(model.fc1.weight, before)
    with reg.projected():  # and it can be opened again
        assert int(model.fc1.weight.count_nonzero()) == 2


def test_projected_restores_what_it_dropped_before_a_weight_that_is_not_finite() -> None:
    model = make_net()
    model.fc2.weight.data[0, 0] = math.nan
    before = weights_of(model)
    reg = mb.attach(momentum(model), model, {"fc*": mb.l0_project(2)})
    with pytest.raises(mb.TrainingError, match=r"'fc2\.weight' has a weight that is NaN"), reg.projected():
        pass
    for name, weight in model.named_parameters():
        assert_same_bits(weight, before[name])


def test_projected_forbids_a_step_a_finish_and_itself_inside() -> None:
    model, (batch,) = make_net(), make_batches(1)
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"fc1": mb.l0_project(2)})
    loss_of(model, batch).backward()
    before = weights_of(model)
    for forbidden in (optimizer.step, reg.finish, lambda: reg.projected().__enter__()):
        with pytest.raises(mb.TrainingError, match=r"projected\(\)"), reg.projected():
            forbidden()
        assert_same(model, before, tolerance=0)
    assert reg.step == 0
    assert not reg.finished
    optimizer.step()
    assert reg.step == 1


def test_projected_saves_only_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(9), "fc2": mb.l2_decay(0.1)})
    saved: list[Tensor] = []
    drop = reg._drop

    def note(target: Any) -> tuple[Tensor, Tensor, Tensor]:
        result = drop(target)
        saved.append(result[2])
        return result

    monkeypatch.setattr(reg, "_drop", note)
    with reg.projected():
        assert [values.shape for values in saved] == [(3,)]  # of 12 weights, and nothing of fc2
        assert saved[0].untyped_storage().nbytes() == 3 * 8


def test_projected_works_in_inference_mode_and_after_finish() -> None:
    model, (batch,) = make_net(), make_batches(1)
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(2)})
    before = model.fc1.weight.detach().clone()
    with torch.inference_mode(), reg.projected():
        inside = model(batch[0])
    assert_same_bits(model.fc1.weight, before)
    reg.finish()
    with torch.no_grad(), reg.projected():
        assert torch.equal(model(batch[0]), inside)
    assert int(model.fc1.weight.count_nonzero()) == 2


# report


def test_report_counts_nonzeros_and_bytes_in_the_papers_formats() -> None:
    model = nn.Sequential(nn.Linear(40, 10), nn.Linear(10, 10), nn.Linear(10, 2))
    rules = {"0": mb.l0_project(5), "1": mb.l0_project(mb.ramp(1.0, 0.5)), "2": mb.l1_shrink(0.0)}
    reg = mb.attach(torch.optim.SGD(model.parameters(), 0.1), model, rules, total_steps=10)
    assert [layer.bound for layer in reg.report().layers] == [5, 100, None]
    reg.finish()
    first, second, third = reg.report().layers
    assert (first.name, first.shape, first.size, first.nonzeros) == ("0.weight", (10, 40), 400, 5)
    assert (first.bound, first.format, first.bytes) == (5, "indexed", 5 * 8)
    assert (second.bound, second.nonzeros, second.format, second.bytes) == (50, 50, "bitmask", 13 + 50 * 4)
    assert (third.bound, third.nonzeros, third.format, third.bytes) == (None, 20, "dense", 80)
    assert (reg.report().nonzeros, reg.report().bytes) == (75, 40 + 213 + 80)
    header, *rows, total = str(reg.report()).splitlines()
    assert header.split() == ["layer", "shape", "nonzeros", "kept", "bound", "bytes", "format"]
    assert rows[0].split() == ["0.weight", "10x40", "5", "1.25%", "5", "40", "indexed"]
    assert total.split() == ["all", "75", "333"]


# Checkpoints

RESUMED = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), LR, momentum=0.9, nesterov=True),
    "adam": lambda model: torch.optim.Adam(model.parameters(), LR),
    "fused adamw": lambda model: torch.optim.AdamW(model.parameters(), LR, weight_decay=0.0, fused=True),
}


@pytest.mark.parametrize("make", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("stop", [1, 5, 6, 11])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(make: Any, stop: int, tmp_path: Path) -> None:
    batches = make_batches(12, torch.float32)
    rules = {
        "fc1": mb.chain(mb.l2_decay(mb.ramp(0.0, 0.3)), mb.l0_project(mb.ramp(12, 3), every=3)),
        "fc2": mb.chain(mb.l1_shrink(mb.cosine(0.3, 0.0)), mb.hold()),
    }

    def start() -> tuple[Net, torch.optim.Optimizer, Any]:
        model = make_net(torch.float32)
        optimizer = make(model)
        return model, optimizer, mb.attach(optimizer, model, rules, total_steps=12)

    model, optimizer, reg = start()
    train(model, optimizer, batches)
    reg.finish()
    expected = weights_of(model)

    model, optimizer, reg = start()
    train(model, optimizer, batches[:stop])
    parts = {"model": model, "optimizer": optimizer, "reg": reg}
    torch.save({name: part.state_dict() for name, part in parts.items()}, tmp_path / "saved.pt")

    model, optimizer, reg = start()
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    reg.load_state_dict(saved["reg"])
    assert reg.step == stop
    train(model, optimizer, batches[stop:])
    reg.finish()
    for name, weight in model.named_parameters():
        assert_same_bits(weight, expected[name])


def test_a_finished_state_stays_finished() -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, MIXED)
    reg.finish()
    state = reg.state_dict()
    other = make_net()
    optimizer = momentum(other)
    resumed = mb.attach(optimizer, other, MIXED)
    resumed.load_state_dict(state)
    assert resumed.finished
    assert not optimizer._optimizer_step_pre_hooks
    with pytest.raises(mb.RuleError, match=r"this handle has finished .*: attach\(\) anew"):
        resumed.load_state_dict({**state, "finished": False})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"total_steps": 99}, "total_steps=99, here it is 10: attach the same rules"),
        (
            {"layers": ["fc1.weight"]},
            r"layers=\['fc1\.weight'\], here it is \['fc1\.weight', 'fc2\.weight'\]",
        ),
        (None, "lacks finished, layers, step, total_steps"),
    ],
)
def test_a_state_of_other_rules_is_refused(change: dict[str, Any] | None, says: str) -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, MIXED, total_steps=10)
    state = {} if change is None else {**reg.state_dict(), **change}
    with pytest.raises(mb.RuleError, match=says):
        reg.load_state_dict(state)


def test_the_keys_of_model_and_optimizer_states_stay_as_they_are() -> None:
    model, plain = make_net(), make_net()
    optimizer, dense = momentum(model), momentum(plain)
    mb.attach(optimizer, model, MIXED)
    train(model, optimizer, make_batches(2))
    train(plain, dense, make_batches(2))
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert optimizer.state_dict().keys() == dense.state_dict().keys()
    assert optimizer.state_dict()["param_groups"] == dense.state_dict()["param_groups"]
    copy.deepcopy(model)
    copy.deepcopy(optimizer)


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
@pytest.mark.parametrize("make", [Sgd, Adam])
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
    torch.multiprocessing.spawn(train_in_parallel, args=(str(tmp_path),), nprocs=2)
    for run in ("plain0", "plain1", "zero0", "zero1"):
        result = torch.load(tmp_path / f"{run}.pt", weights_only=True)
        assert result["names"] == ["fc1.weight", "fc2.weight"]
        assert result["step"] == 30
        model.load_state_dict(result["weights"])
        assert_same(model, expected, tolerance=1e-10)


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


def test_two_attaches_on_one_weight_are_refused_until_the_first_is_over() -> None:
    model = make_net()
    optimizer = momentum(model)
    first = mb.attach(optimizer, model, {"fc1": mb.l2_decay(0.1)})
    for again in (optimizer, momentum(model)):
        with pytest.raises(
            mb.RuleError, match=r"'fc1\.weight' is under an earlier attach\(\): call its finish\(\)"
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
