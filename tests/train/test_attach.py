"""The handle that attach() returns: steps, finish, projected, report, checkpoints."""

import copy
import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import LR, MIXED, momentum, weights_of
from by_hand import (
    Net,
    Sgd,
    assert_same,
    assert_same_bits,
    loss_of,
    make_batches,
    make_net,
    project,
    train,
    train_by_hand,
)
from torch import Tensor, nn

import membound as mb
from membound.train.ending import OneShot

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
    with pytest.raises(mb.RuleError, match="total_steps must be a whole number from 1"):
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


@pytest.mark.filterwarnings("ignore::membound.train.ending.OneShot")
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


@pytest.mark.filterwarnings("ignore::membound.train.ending.OneShot")
def test_report_counts_nonzeros_and_bytes_in_the_papers_formats() -> None:
    model = nn.Sequential(nn.Linear(40, 10), nn.Linear(10, 10), nn.Linear(10, 2))
    rules = {"0": mb.l0_project(5), "1": mb.l0_project(mb.ramp(1.0, 0.5)), "2": mb.l1_shrink(0.0)}
    reg = mb.attach(torch.optim.SGD(model.parameters(), 0.1), model, rules, total_steps=10)
    assert [layer.bound for layer in reg.report().layers] == [5, 100, None]
    with pytest.warns(UserWarning, match="before any step"):
        reg.finish()
    first, second, third = reg.report().layers
    assert (first.name, first.shape, first.size, first.nonzeros) == ("0.weight", (10, 40), 400, 5)
    assert (first.bound, first.format, first.bytes) == (5, "indexed", 5 * 8)
    assert (second.bound, second.nonzeros, second.format, second.bytes) == (50, 50, "bitmask", 13 + 50 * 4)
    assert (third.bound, third.nonzeros, third.format, third.bytes) == (None, 20, "dense", 80)
    assert (reg.report().nonzeros, reg.report().bytes) == (75, 40 + 213 + 80)
    plain = reg.report().to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["nonzeros"], plain["bytes"]) == (75, 40 + 213 + 80)
    assert [layer["name"] for layer in plain["layers"]] == [layer.name for layer in reg.report().layers]
    header, *rows, total, _, note = str(reg.report()).splitlines()
    assert header.split() == [
        "layer",
        "shape",
        "nonzeros",
        "kept",
        "bound",
        "bytes",
        "in",
        "float32",
        "format",
    ]
    assert rows[0].split() == ["0.weight", "10x40", "5", "1.25%", "5", "40", "indexed"]
    assert total.split() == ["all", "75", "333"]
    weights = [each.detach() for name, each in model.named_parameters() if name.endswith("weight")]
    empty = sum(int((~(weight != 0).any(axis)).sum()) for weight in weights for axis in (0, 1))
    assert sum(layer.empty for layer in reg.report().layers) == empty
    assert note.startswith(
        f"{empty} rows and columns of these weights are all zero: save leaves out dead channels"
    )


def test_the_bytes_of_a_palette_are_those_that_save_writes(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 60), nn.ReLU(), nn.Linear(60, 10))
    rules = {
        "0": mb.chain(mb.l0_project(0.1, every=2), mb.palette(16, every=2, begin=0.5)),
        "2": mb.l2_decay(0.0),
    }
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    reg = mb.attach(optimizer, model, rules, total_steps=8)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 200)).square().mean().backward()
        optimizer.step()
        if step == 1:
            assert [layer.bits for layer in reg.report().layers] == [32, 32], "it has not begun"
    bounded = reg.report().at_bound()
    reg.finish()
    few, whole = reg.report().layers
    assert (few.bits, whole.bits, whole.bytes) == (4, 32, 4 * 600)
    assert bounded.layers[0].bytes == few.bytes
    mb.save(model.eval(), tmp_path / "net.safetensors", torch.zeros(1, 200))
    stored = next(
        layer for layer in mb.inspect(tmp_path / "net.safetensors")["layers"] if layer["values"] == "p4"
    )
    assert stored["bytes"] == pytest.approx(few.bytes, rel=0.05)
    header, *_, note = (line for line in str(reg.report()).splitlines() if "all zero" not in line)
    assert header.endswith("bytes in 4 bits or float32  format")
    assert "those with a palette in its bits" in note
    assert ">bytes in 4 bits or float32</th>" in reg.report()._repr_html_()


def test_a_report_without_dead_channels_promises_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    reg = mb.attach(torch.optim.SGD(model.parameters(), 0.1), model, {"*": mb.l2_decay(0.0)})
    assert str(reg.report()).splitlines()[-1].startswith("bytes: these weights in float32")


def test_what_save_gives_says_how_much_was_left_out(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert "left out" not in repr(mb.save(model, tmp_path / "whole.safetensors", torch.zeros(1, 4)))
    with torch.no_grad():
        model[2].weight[:, 1] = 0  # nobody reads this one: 4 weights and a bias before it, 2 behind
    stored = mb.save(model, tmp_path / "net.safetensors", torch.zeros(1, 4))
    assert repr(stored).endswith("nonzeros in 4 tensors, 7 weights of dead channels left out)")


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
    with pytest.raises(mb.RuleError, match=r"this handle has finished .*: attach\(\) again"):
        resumed.load_state_dict({**state, "finished": False})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"total_steps": 99}, "total_steps=99, here it is 10: attach the same rules"),
        (
            {"rules": ["l2_decay(0.5)"]},
            r"is of l2_decay\(0.5\) for 'fc1.weight', and here it is .*: attach the same",
        ),
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


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        (mb.ramp(1.0, 0.5), mb.ramp(1.0, 0.2)),
        (mb.ramp(1.0, 0.5), mb.ramp(1.0, 0.5, shape="linear")),
        (mb.ramp(1.0, 0.5, begin=0.51, until=0.52), mb.ramp(1.0, 0.5, begin=0.53, until=0.54)),
        (mb.cosine(1.0, 0.5), mb.ramp(1.0, 0.5)),
        (lambda progress: 1 - 0.5 * progress, lambda progress: 1 - 0.6 * progress),
        (0.5, mb.ramp(1.0, 0.5)),
    ],
)
def test_a_state_of_another_schedule_is_refused(saved: Any, here: Any) -> None:
    model = make_net()

    def attach(keep: Any) -> Any:
        return mb.attach(momentum(model), model, {"fc1": mb.l0_project(keep)}, total_steps=100)

    first = attach(saved)
    state = json.loads(json.dumps(first.state_dict()))
    first.detach()
    second = attach(here)
    with pytest.raises(
        mb.RuleError, match=r"the saved state is of l0_project\(.* for 'fc1\.weight', and here it is"
    ):
        second.load_state_dict(state)
    second.detach()
    attach(saved).load_state_dict(state)


def test_a_state_of_another_rank_is_refused() -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(0.5, rank=lambda w: w.abs())})
    state = reg.state_dict()
    reg.detach()
    reg = mb.attach(momentum(model), model, {"fc1": mb.l0_project(0.5)})
    with pytest.raises(mb.RuleError, match=r"is of l0_project\(0\.5, 100\) with rank .*lambda"):
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


@pytest.mark.parametrize("total_steps", [None, 5])
def test_one_projection_at_the_end_is_said_to_be_one_shot(total_steps: int | None) -> None:
    model = make_net()
    says = r"every=6 is more than the 5 steps of training: 'fc1\.weight' and 1 more are projected only once"
    optimizer, early = momentum(model), pytest.warns(OneShot, match=says) if total_steps else nullcontext()
    with early:
        reg = mb.attach(optimizer, model, {"*": mb.l0_project(0.5, every=6)}, total_steps=total_steps)
    train(model, optimizer, make_batches(5))
    late = nullcontext() if total_steps else pytest.warns(OneShot, match=says)
    with late:
        reg.finish()


def test_a_bound_that_is_imposed_on_the_way_is_not_one_shot() -> None:
    model = make_net()
    chained = mb.chain(mb.l0_project(0.9, every=9), mb.l0_project(0.5, every=5), mb.l2_decay(1e-4))
    optimizer = momentum(model)
    reg = mb.attach(optimizer, model, {"fc1": chained, "fc2": mb.hold()})
    train(model, optimizer, make_batches(5))
    reg.finish()
