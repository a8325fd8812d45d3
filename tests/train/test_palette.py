"""Palettes: the entries and the table against the same by hand, every kind of loop, resuming, finishing."""

import copy
import io
from typing import Any

import numpy as np
import palette_by_hand as hand
import pytest
import torch
from attached import LR, momentum, weights_of
from by_hand import (
    Adam,
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
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor, nn

import membound as mb
from membound.errors import Diverged, RuleError, TrainingError
from membound.train.grids import Even
from membound.train.magnitudes import NonFiniteError
from membound.train.palette import assigned, count_values, fit_entries, make_table
from membound.train.schedules import steps

from profiles import examples  # isort: skip

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def distinct(weight: Tensor) -> int:
    return len(set(weight.detach().flatten().tolist()) - {0.0})


# Entries and tables


@examples(200)
@given(
    values=arrays.arrays(
        np.float32,
        st.integers(1, 40),
        elements=st.floats(-60000, 60000, width=32) | st.floats(-1, 1, width=32),
    ),
    levels=st.integers(1, 9),
)
def test_entries_are_those_by_hand(values: Any, levels: int) -> None:
    weight = torch.from_numpy(values)
    entries = fit_entries(weight, levels)
    expected = hand.fit(weight, levels)
    assert entries.tolist() == expected + expected[-1:] * (levels - len(expected))
    again = fit_entries(weight * 0.75, levels, entries)
    assert again.unique().tolist() == sorted(set(hand.fit(weight * 0.75, levels, entries.tolist())))


@examples(100)
@given(
    entries=st.lists(st.floats(-10, 10, width=16).filter(bool), min_size=1, max_size=6),
    values=arrays.arrays(np.float32, 30, elements=st.floats(-12, 12, width=32)),
)
def test_weights_become_the_nearest_of_entries_and_zero(entries: Any, values: Any) -> None:
    table = make_table(torch.tensor(entries).sort().values)
    weight = torch.from_numpy(values)
    assert_same_bits(assigned(weight, table), hand.nearest(weight, entries))


def test_the_table_has_every_16_bit_float() -> None:
    """Against distances, all of them at once; what is not finite stays what it is."""
    entries = torch.tensor([-3.5, -0.0078125, 2.0**-24, 0.25, 0.2578125, 1000.0])
    with np.errstate(invalid="ignore"):  # some CPUs tell of NaNs that are widened
        numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    table = make_table(entries).entries.numpy()
    centers = np.sort([0.0, *entries.tolist()])
    finite = np.isfinite(numbers)
    distances = np.abs(numbers[finite][:, None] - centers)
    assert np.array_equal(table[finite], centers[distances.argmin(1)])
    assert np.array_equal(table[~finite], numbers[~finite], equal_nan=True)
    assert not np.signbit(table[[0, 1 << 15]]).any()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("levels", [1, 2, 4, 16, 256])
def test_a_palette_has_at_most_so_many_entries_exact_in_16_bits(dtype: torch.dtype, levels: int) -> None:
    torch.manual_seed(0)
    weight = (torch.randn(50, 80) * 0.05).to(dtype)
    weight[weight.abs() < 0.05] = 0
    entries = fit_entries(weight, levels)
    assert entries.dtype == dtype
    assert entries.shape == (levels,)
    assert torch.equal(entries.half().to(dtype), entries)
    assert (entries != 0).all()
    assert torch.equal(entries, entries.sort().values)
    seen = assigned(weight, make_table(entries))
    assert seen.dtype == dtype
    assert distinct(seen) <= levels
    assert not seen[weight == 0].any()
    assert count_values(seen) == distinct(seen)


@pytest.mark.parametrize("dtype", TYPES)
def test_few_values_stay_as_they_are(dtype: torch.dtype) -> None:
    """Also where they are next to each other, far apart, or as small and as large as can be."""
    values = [2.0**-24, 1.0, 1.0078125, -3.0, -0.0009765625, 65280.0]
    weight = torch.tensor(values * 50 + [0.0] * 100, dtype=dtype)
    for levels in (6, 7, 256):
        entries = fit_entries(weight, levels)
        assert sorted(set(entries.tolist())) == sorted(values)
        assert torch.equal(assigned(weight, make_table(entries)), weight)


@pytest.mark.parametrize("levels", [2, 4, 16])
def test_entries_of_both_signs_stay_where_a_bound_tightens(levels: int) -> None:
    """The smallest entries lie in a gap around zero afterwards: none may change its side."""
    torch.manual_seed(0)
    weight = torch.randn(20_000) * 0.1
    entries = fit_entries(weight, levels)
    for keep in (0.5, 0.2, 0.05, 0.01):
        kept = project(weight, int(keep * len(weight)))
        entries = fit_entries(kept, levels, entries)
        assert abs(int((entries > 0).sum()) - levels // 2) <= levels // 8
        warm, cold = (
            (assigned(kept, make_table(e)) - kept).square().sum()
            for e in (entries, fit_entries(kept, levels))
        )
        assert warm < 1.1 * cold


def test_no_values_at_all_are_no_error() -> None:
    entries = fit_entries(torch.zeros(4, 3), 5)
    assert (entries != 0).all()
    assert not assigned(torch.zeros(4, 3), make_table(entries)).any()


@pytest.mark.parametrize("levels", [2, 4, 8])
def test_entries_are_within_two_percent_of_the_best_there_are(levels: int) -> None:
    """Found by dynamic programming: every way to cut sorted values into intervals, one of which may become zero."""
    torch.manual_seed(1)
    weight = torch.randn(300) * 0.1
    weight[weight.abs() < 0.05] = 0
    weight = weight.half().float()
    x = weight[weight != 0].sort().values.double().numpy()
    sums, squares = np.r_[0, x.cumsum()], np.r_[0, (x * x).cumsum()]
    best = {(0, False): np.r_[0.0, np.full(len(x), np.inf)]}
    for used in range(levels + 1):
        for zero in (False, True):
            cost = best.setdefault((used, zero), np.full(len(x) + 1, np.inf))
            for end in range(1, len(x) + 1):
                start = np.arange(end)
                spread = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
                if used:
                    cost[end] = min(cost[end], (best[used - 1, zero][:end] + spread).min())
                if zero:
                    cost[end] = min(
                        cost[end], (best[used, False][:end] + squares[end] - squares[start]).min()
                    )
    least = min(cost[-1] for cost in best.values())
    error = float(
        (assigned(weight, make_table(fit_entries(weight, levels))) - weight).double().square().sum()
    )
    assert error <= 1.02 * least


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_have_no_entries(bad: float) -> None:
    with pytest.raises(NonFiniteError):
        fit_entries(torch.tensor([1.0, bad]), 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("power", [2, 3, 20, 90])
def test_weights_beyond_16_bits_are_fitted_at_a_power_of_two(dtype: torch.dtype, power: int) -> None:
    """As in front of a batch norm, where any scale is as good: the same entries and weights, times that power."""
    torch.manual_seed(0)
    weight = torch.randn(40, 30).to(dtype)
    weight *= 20_000 / weight.abs().max()
    scale = 2.0**power
    entries, large = fit_entries(weight, 16), fit_entries(weight * scale, 16)
    assert torch.equal(large, entries * scale)
    assert torch.equal(
        fit_entries(weight * scale * 0.75, 16, large), fit_entries(weight * 0.75, 16, entries) * scale
    )
    near = assigned(weight * scale, make_table(large))
    assert_same_bits(near, assigned(weight, make_table(entries)) * scale)
    assert near.isfinite().all()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_weight_that_outgrows_the_table_becomes_the_nearest_entry(dtype: torch.dtype) -> None:
    """Between two fits; what is not finite still shows."""
    table = make_table(torch.tensor([-2.0, 3.0], dtype=dtype))
    large = min(torch.finfo(dtype).max, 1e30)
    weight = torch.tensor([large, -large, float("inf"), float("-inf"), 1.0], dtype=dtype)
    assert assigned(weight, table).tolist() == [3.0, -2.0, float("inf"), float("-inf"), 0.0]


def test_a_network_with_a_large_weight_in_front_of_a_batch_norm_trains_and_is_stored(tmp_path: Any) -> None:
    """Its palette is stored in 16 bits, and the scales of the batch norm make up for the power of two."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)
    )
    with torch.no_grad():
        model[0].weight.mul_(3e6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reg = mb.attach(optimizer, model, {"0": mb.palette(15, every=2)}, total_steps=6)
    x = torch.randn(8, 1, 6, 6)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(8) % 3).backward()
        optimizer.step()
    reg.finish()
    assert model[0].weight.abs().max() > 65504
    assert distinct(model[0].weight) <= 15
    model.eval()
    mb.save(model, tmp_path / "net.safetensors", x, values="p4")
    net = mb.load(tmp_path / "net.safetensors")
    assert net.model.tensors["0.weight"].palette.kind != "f32"
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(net(x.numpy())), model(x), rtol=0.1, atol=0.1)


# Training


def by_hand(keep: int | None, begin: int) -> tuple[dict[str, Any], dict[str, Any]]:
    palettes = {name: hand.ByHand(3, 4, begin, keep) for name in ("fc1.weight", "fc2.weight")}

    def after(name: str, weight: Tensor, step: int) -> Tensor:
        if keep is not None and step % 3 == 0:
            weight = project(weight, keep)
        return palettes[name].after(weight, step)

    names = list(palettes)
    return (
        {name: lambda w, step, name=name: after(name, w, step) for name in names},
        {name: palettes[name].seen for name in names},
    )


OPTIMIZERS = {
    "sgd": (lambda: Sgd(LR, 0.9), lambda w, **how: torch.optim.SGD(w, LR, momentum=0.9, **how)),
    "adamw": (lambda: Adam(LR, 0.1), lambda w, **how: torch.optim.AdamW(w, LR, weight_decay=0.1, **how)),
}


@pytest.mark.parametrize("begin", [0, 5])
@pytest.mark.parametrize("keep", [None, 6])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_straight_through(name: str, keep: int | None, begin: int) -> None:
    """Gradients at the entries, applied to the floats, which the optimizer decays and l0_project projects."""
    mine, make = OPTIMIZERS[name]
    model, batches = make_net(), make_batches(15)
    after, seen = by_hand(keep, max(begin, 1))
    expected = train_by_hand(model, batches, mine(), after=after, seen=seen)
    rule = mb.palette(3, every=4, begin=begin / 15)
    if keep is not None:
        rule = mb.chain(mb.l0_project(keep, every=3), rule)
    reg = mb.attach(make(model.parameters()), model, {"*": rule}, total_steps=15)
    train(model, reg.optimizer, batches[: max(begin, 1) - 1])
    if begin:
        assert distinct(model.fc1.weight) > 3
    train(model, reg.optimizer, batches[max(begin, 1) - 1 :])
    assert distinct(model.fc1.weight) <= 3
    assert_same(model, expected)


def test_penalties_and_shrinkage_act_on_the_floats() -> None:
    model, batches = make_net(), make_batches(9)
    palette = hand.ByHand(2, 4, 1)
    expected = train_by_hand(
        model,
        batches,
        Sgd(LR, 0.9),
        {"fc1.weight": lambda w, g, step: g + 0.3 * w},
        {"fc1.weight": lambda w, step: palette.after(w.sign() * (w.abs() - LR * 0.2).clamp(min=0), step)},
        {"fc1.weight": palette.seen},
    )
    rule = mb.chain(mb.palette(2, every=4, begin=0), mb.l2_decay(0.3), mb.l1_shrink(0.2))
    reg = mb.attach(momentum(model), model, {"fc1": rule})
    train(model, reg.optimizer, batches)
    assert_same(model, expected)


def test_held_zeros_stay_zeros() -> None:
    model, batches = make_net(), make_batches(9)
    with torch.no_grad():
        model.fc1.weight[:2] = 0
    reg = mb.attach(momentum(model), model, {"fc1": mb.chain(mb.hold(), mb.palette(4, every=2, begin=0))})
    train(model, reg.optimizer, batches)
    reg.finish()
    assert not model.fc1.weight[:2].any()
    assert model.fc1.weight[2:].any()
    assert distinct(model.fc1.weight) <= 4


RULES = {
    "fc1": mb.chain(mb.l0_project(6, every=3), mb.palette(3, every=4, begin=0)),
    "fc2": mb.palette(2, 5, 0),
}


def test_a_closure_sees_the_entries() -> None:
    """As a step without one does; and SGD calls it once."""
    plain, closed, batches = make_net(), make_net(), make_batches(12)
    reg = mb.attach(momentum(plain), plain, RULES)
    train(plain, reg.optimizer, batches)
    reg = mb.attach(momentum(closed), closed, RULES)
    for batch in batches:

        def closure(batch: Any = batch) -> Tensor:
            assert reg.step == 0 or distinct(closed.fc2.weight) <= 2
            reg.optimizer.zero_grad()
            loss = loss_of(closed, batch)
            loss.backward()
            return loss

        reg.optimizer.step(closure)
    assert_same(closed, weights_of(plain), 0)


def test_a_closure_that_fails_loses_nothing() -> None:
    model, batches = make_net(), make_batches(6)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches[:3])
    floats = reg.state_dict()["palette"]["fc2.weight"]["floats"]
    with pytest.raises(ZeroDivisionError):
        reg.optimizer.step(lambda: 1 / 0)
    assert_same_bits(reg.state_dict()["palette"]["fc2.weight"]["floats"], floats)
    train(model, reg.optimizer, batches[3:])
    assert distinct(model.fc2.weight) <= 2


def test_lbfgs_may_have_a_palette_at_the_end() -> None:
    model, batch = make_net(), make_batches(1)[0]
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4)
    with pytest.raises(RuleError, match=r"'fc1.weight': LBFGS takes changes of gradients for curvature"):
        mb.attach(optimizer, model, {"*": mb.palette(4)}, total_steps=8)
    reg = mb.attach(optimizer, model, {"*": mb.palette(4, begin=1)}, total_steps=8)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    for _ in range(7):
        optimizer.step(closure)
    assert distinct(model.fc1.weight) == 12
    optimizer.step(closure)
    reg.finish()
    assert distinct(model.fc1.weight) <= 4


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_changes_nothing(fused: bool) -> None:
    model, batches = make_net(), make_batches(8)
    twin = copy.deepcopy(model)
    rules = {"*": mb.chain(mb.l0_project(6, every=3), mb.palette(3, every=4, begin=0))}
    reg = mb.attach(torch.optim.Adam(model.parameters(), LR, fused=fused), model, rules)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    skipped = {2, 5}
    for at, batch in enumerate(batches):
        reg.optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        before, floats = weights_of(model), reg.state_dict()["palette"]
        if at in skipped:
            model.fc1.weight.grad[0, 0] = float("inf")
        scaler.step(reg.optimizer)
        scaler.update()
        if at in skipped:
            assert_same(model, before, 0)
            for name, saved in reg.state_dict()["palette"].items():
                assert_same_bits(saved["floats"], floats[name]["floats"])
            scaler.update(1024.0)
    other = mb.attach(torch.optim.Adam(twin.parameters(), LR, fused=fused), twin, rules)
    train(twin, other.optimizer, [batch for at, batch in enumerate(batches) if at not in skipped])
    assert_same(model, weights_of(twin))


def test_groups_ascent_and_tied_weights() -> None:
    """Going up minus the loss is going down the loss; a tied weight has one palette."""
    model, batches = make_net(), make_batches(9)
    twin = copy.deepcopy(model)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches)
    groups = [{"params": twin.fc2.parameters()}, {"params": twin.fc1.parameters()}]
    other = mb.attach(torch.optim.SGD(groups, LR, momentum=0.9, maximize=True), twin, RULES)
    for batch in batches:
        other.optimizer.zero_grad()
        (-loss_of(twin, batch)).backward()
        other.optimizer.step()
    assert_same(twin, weights_of(model))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    reg = mb.attach(momentum(tied), tied, {"*": mb.palette(3, begin=0)})
    for _ in range(3):
        reg.optimizer.zero_grad()
        tied(torch.randn(5, 4)).square().mean().backward()
        reg.optimizer.step()
    assert list(reg.state_dict()["palette"]) == ["0.weight"]
    reg.finish()
    assert distinct(tied[1].weight) <= 3


def test_a_frozen_layer_is_left_alone_until_finish() -> None:
    model, batches = make_net(), make_batches(5)
    model.fc1.weight.requires_grad_(False)
    before = model.fc1.weight.clone()
    reg = mb.attach(momentum(model), model, {"*": mb.palette(2, every=2, begin=0)})
    train(model, reg.optimizer, batches)
    assert_same_bits(model.fc1.weight, before)
    reg.finish()
    assert distinct(model.fc1.weight) <= 2


def test_a_compiled_model() -> None:
    plain, batches = make_net(), make_batches(12)
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="eager")
    reg = mb.attach(momentum(plain), plain, RULES)
    train(plain, reg.optimizer, batches)
    reg = mb.attach(momentum(compiled), compiled, RULES)
    train(compiled, reg.optimizer, batches)
    assert_same(model, weights_of(plain), 0)


def test_recorded_steps_are_steps() -> None:
    """What is recorded is all that is the same at every step; the rest is done when it is due."""
    rules = {
        "fc1": mb.chain(mb.l2_decay(0.1), mb.l0_project(6, every=3), mb.palette(3, every=4, begin=0.2)),
        "fc2": mb.chain(mb.l1_shrink(0.1), mb.palette(2, every=5, begin=0.4)),
    }
    model, batches = make_net(), make_batches(20)
    twin = copy.deepcopy(model)
    reg = mb.attach(momentum(model), model, rules, total_steps=20)
    train(model, reg.optimizer, batches)
    other = mb.attach(momentum(twin), twin, rules, total_steps=20)
    assert other.recordable
    counts = []
    for batch in batches:
        other.optimizer.zero_grad()
        loss_of(twin, batch).backward()
        with other.recording():
            other.optimizer.step()
        other.step_taken()
        counts.append(other.palettes)
    assert sorted(set(counts)) == [0, 1, 2]
    assert_same(twin, weights_of(model), 0)


def test_what_somebody_writes_to_a_weight_is_taken_over() -> None:
    model, batches = make_net(), make_batches(3)
    reg = mb.attach(torch.optim.SGD(model.parameters(), 0.0), model, {"fc1": mb.palette(3, every=9, begin=0)})
    train(model, reg.optimizer, batches[:1])
    floats = reg.state_dict()["palette"]["fc1.weight"]["floats"]
    entry = model.fc1.weight[0, 0].item()
    with torch.no_grad():
        model.fc1.weight[1] = 7.0
    train(model, reg.optimizer, batches[1:])
    found = reg.state_dict()["palette"]["fc1.weight"]["floats"]
    floats[1] = 7.0
    assert_same_bits(found, floats)
    assert model.fc1.weight[0, 0].item() == entry


def test_levels_may_be_a_schedule() -> None:
    model, batches = make_net(), make_batches(12)
    rules = {"fc1": mb.palette(steps({0.0: 8, 0.5: 4, 0.9: 2}), every=2, begin=0.25)}
    reg = mb.attach(momentum(model), model, rules, total_steps=12)
    found = []
    for batch in batches:
        train(model, reg.optimizer, [batch])
        found.append(distinct(model.fc1.weight))
    assert found[1] == 12
    assert max(found[2:5]) <= 8
    assert max(found[5:11]) <= 4
    assert found[11] <= 2
    reg.finish()
    assert distinct(model.fc1.weight) <= 2


def test_a_channels_last_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
    twin = nn.Conv2d(4, 6, 3)
    twin.load_state_dict(model.state_dict())
    for network in (model, twin):
        reg = mb.attach(momentum(network), network, {"*": mb.palette(4, every=2, begin=0)})
        for seed in range(5):
            torch.manual_seed(seed)
            reg.optimizer.zero_grad()
            network(torch.randn(2, 4, 6, 6)).square().mean().backward()
            reg.optimizer.step()
        reg.finish()
        assert distinct(network.weight) <= 4
    torch.testing.assert_close(model.weight, twin.weight)


# Evaluating and finishing


def test_projected_is_at_the_bound_and_the_palette_and_restores_every_bit() -> None:
    model, batches = make_net(), make_batches(8)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches[:7])  # past a projection: the floats are dense again
    before, state = weights_of(model), reg.state_dict()["palette"]
    entries = set(state["fc1.weight"]["entries"].tolist())
    with reg.projected():
        floats = project(state["fc1.weight"]["floats"], 6)
        assert_same_bits(model.fc1.weight, hand.nearest(floats, sorted(entries)))
        assert [layer.distinct <= layer.levels for layer in reg.report().layers] == [True, True]
    assert_same(model, before, 0)
    after = reg.state_dict()["palette"]
    assert_same_bits(after["fc1.weight"]["floats"], state["fc1.weight"]["floats"])
    twin = make_net()
    other = mb.attach(momentum(twin), twin, RULES)
    train(twin, other.optimizer, batches)
    train(model, reg.optimizer, batches[7:])
    assert_same(model, weights_of(twin), 0)


def test_finish_leaves_few_values_within_the_bound() -> None:
    """Of the floats, projected, then fitted once more; twice is as once."""
    model, batches = make_net(), make_batches(11)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches)
    state = reg.state_dict()["palette"]["fc1.weight"]
    floats = project(state["floats"], 6)
    reg.finish()
    assert_same_bits(model.fc1.weight, hand.nearest(floats, hand.fit(floats, 3, state["entries"].tolist())))
    for layer, levels in zip(reg.report().layers, (3, 2), strict=True):
        assert layer.levels == levels
        assert 1 <= layer.distinct <= levels
    assert int(model.fc1.weight.count_nonzero()) <= 6
    assert torch.equal(model.fc1.weight.half().double(), model.fc1.weight)
    before = weights_of(model)
    reg.finish()
    assert_same(model, before, 0)
    assert reg.state_dict()["palette"] == {}


def test_finish_before_the_palette_has_begun_imposes_it() -> None:
    model, batches = make_net(), make_batches(2)
    reg = mb.attach(momentum(model), model, {"*": mb.palette(2)}, total_steps=100)
    train(model, reg.optimizer, batches)
    assert reg.report().layers[0].levels is None
    with reg.projected():
        assert distinct(model.fc1.weight) == 12
    with pytest.warns(UserWarning, match=r"finish\(\) after 2 steps with total_steps=100"):
        reg.finish()
    assert distinct(model.fc1.weight) <= 2


def test_an_average_gets_entries_of_its_own() -> None:
    model, batches = make_net(), make_batches(12)
    reg = mb.attach(momentum(model), model, RULES)
    average = torch.optim.swa_utils.AveragedModel(model)
    for batch in batches:
        train(model, reg.optimizer, [batch])
        average.update_parameters(model)
    before = weights_of(average)
    with reg.projected(average):
        assert distinct(average.module.fc2.weight) <= 2
    assert_same(average, before, 0)
    reg.finish()
    expected = project(average.module.fc1.weight, 6)
    reg.project_(average)
    assert_same_bits(average.module.fc1.weight, hand.nearest(expected, hand.fit(expected, 3)))
    assert int(average.module.fc1.weight.count_nonzero()) <= 6


def test_projecting_the_network_itself_goes_on_from_there() -> None:
    model, batches = make_net(), make_batches(8)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches[:7])
    floats = project(reg.state_dict()["palette"]["fc1.weight"]["floats"], 6)
    reg.project_(model)
    assert_same_bits(reg.state_dict()["palette"]["fc1.weight"]["floats"], floats)
    assert int(model.fc1.weight.count_nonzero()) <= 6
    train(model, reg.optimizer, batches[7:])
    assert distinct(model.fc1.weight) <= 3


def test_finish_changes_all_weights_or_none() -> None:
    says = "'fc2.weight' has a weight that is NaN or infinite"
    model, batches = make_net(), make_batches(4)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches[:3])
    with torch.no_grad():
        model.fc2.weight[0, 0] = float("nan")
    before = model.fc1.weight.clone()
    with pytest.raises(Diverged, match=says):
        reg.finish()
    assert_same_bits(model.fc1.weight, before)
    assert not reg.finished
    model.zero_grad()
    (0 * model.fc1.weight.sum() + 0 * model.fc2.weight.nan_to_num().sum()).backward()
    reg.optimizer.step()
    with pytest.raises(Diverged, match=says):  # of the step 5, when it is fitted: a zero gradient leaves it
        reg.optimizer.step()


def test_even_levels_are_multiples_of_a_step_for_each_row() -> None:
    model, batches = make_net(), make_batches(6)
    reg = mb.attach(momentum(model), model, {"*": mb.palette(Even(14), every=2, begin=0)})
    train(model, reg.optimizer, batches)
    reg.finish()
    for weight in (model.fc1.weight, model.fc2.weight):
        rows = weight.detach().double()
        multiples = 7 * rows / rows.abs().amax(1, keepdim=True)
        torch.testing.assert_close(multiples, multiples.round(), rtol=0, atol=1e-5)
    assert "values" not in reg.report()._repr_html_()


def test_the_report_shows_values_where_there_is_a_palette() -> None:
    model, batches = make_net(), make_batches(4)
    reg = mb.attach(momentum(model), model, {"fc1": mb.palette(3, begin=0), "fc2": mb.l0_project(4, every=2)})
    train(model, reg.optimizer, batches)
    report = reg.report()
    assert [(layer.levels, layer.distinct) for layer in report.layers] == [(3, 3), (None, None)]
    assert "3 of 3" in str(report)
    assert "values" in report._repr_html_()


# Checkpoints


@pytest.mark.parametrize("at", [2, 6, 7, 12])
@pytest.mark.parametrize("levels", [3, Even(14)])
@pytest.mark.parametrize("weights_first", [True, False])
@pytest.mark.one_in(3)
def test_a_run_goes_on_bit_for_bit(at: int, levels: int, weights_first: bool) -> None:
    """From before the palette begins, from its first step, between two fits, from the end."""
    rules = {"*": mb.chain(mb.l0_project(mb.ramp(1.0, 0.5), every=3), mb.palette(levels, every=4, begin=0.5))}
    model, batches = make_net(), make_batches(12)
    reg = mb.attach(momentum(model), model, rules, total_steps=12)
    train(model, reg.optimizer, batches[:at])
    file = io.BytesIO()
    saved = {"model": model.state_dict(), "optimizer": reg.optimizer.state_dict(), "reg": reg.state_dict()}
    torch.save(saved, file)
    train(model, reg.optimizer, batches[at:])
    reg.finish()

    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    other = make_net(seed=5)
    again = mb.attach(momentum(other), other, rules, total_steps=12)
    if weights_first:
        other.load_state_dict(loaded["model"])
    again.load_state_dict(loaded["reg"])
    other.load_state_dict(loaded["model"])
    again.optimizer.load_state_dict(loaded["optimizer"])
    train(other, again.optimizer, batches[at:])
    again.finish()
    assert_same(other, weights_of(model), 0)


def test_a_state_is_as_of_when_it_was_taken() -> None:
    model, batches = make_net(), make_batches(6)
    reg = mb.attach(momentum(model), model, RULES)
    train(model, reg.optimizer, batches[:3])
    state = reg.state_dict()
    kept = copy.deepcopy(state)
    train(model, reg.optimizer, batches[3:])
    for name, saved in kept["palette"].items():
        assert_same_bits(state["palette"][name]["floats"], saved["floats"])
        assert_same_bits(state["palette"][name]["entries"], saved["entries"])


GOOD = {"floats": torch.zeros(4, 3, dtype=torch.float64), "entries": torch.ones(3, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("palette", "says"),
    [
        (None, "has palette=None"),
        ({"fc3.weight": GOOD}, "no floats and entries of a palette of 'fc3.weight'"),
        ({"fc1.weight": 5}, "no floats and entries of a palette of 'fc1.weight'"),
        ({"fc1.weight": {"floats": GOOD["floats"]}}, "no floats and entries"),
        ({"fc1.weight": {**GOOD, "floats": torch.zeros(3, 4)}}, r"of shape \(3, 4\), here it is \(4, 3\)"),
        (
            {"fc1.weight": {**GOOD, "entries": torch.zeros(3)}},
            "entries of a palette of 'fc1.weight' that cannot be",
        ),
        ({"fc1.weight": {**GOOD, "entries": torch.ones(3, 1)}}, "that cannot be"),
        ({"fc1.weight": {**GOOD, "entries": torch.tensor([np.nan])}}, "that cannot be"),
    ],
)
def test_a_state_that_is_none_of_ours_is_refused(palette: Any, says: str) -> None:
    model = make_net()
    reg = mb.attach(momentum(model), model, RULES)
    state = reg.state_dict()
    with pytest.raises(RuleError, match=says) as found:
        reg.load_state_dict({**state, "palette": palette})
    assert "\n" not in str(found.value)
    assert reg.step == 0
    del state["palette"]
    with pytest.raises(RuleError, match="lacks palette"):
        reg.load_state_dict(state)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"levels": 0}, "levels must be a whole number from 1 to 256, or a schedule of it, got 0"),
        ({"levels": 257}, "got 257"),
        ({"levels": 4.5}, r"got 4\.5"),
        ({"levels": True}, "got True"),
        ({"levels": None}, "got None"),
        ({"every": 0}, "every must be a whole number of steps from 1, got 0"),
        ({"every": 2.5}, "got 2.5"),
        ({"begin": -0.1}, r"begin must be a progress from 0 to 1, such as 0.6, got -0.1"),
        ({"begin": 1.5}, "got 1.5"),
        ({"begin": "soon"}, "got 'soon'"),
    ],
)
def test_what_no_palette_can_be_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(RuleError, match=says) as found:
        mb.palette(**arguments)
    assert "\n" not in str(found.value)


def test_what_cannot_be_attached_is_refused() -> None:
    model = make_net()
    with pytest.raises(
        RuleError, match=r"'fc1.weight' has a schedule or a palette that begins on the way: attach"
    ):
        mb.attach(momentum(model), model, {"*": mb.palette(4)})
    with pytest.raises(RuleError, match="one weight has one palette, and this chain has 2"):
        mb.chain(mb.palette(4), mb.palette(4))
    with pytest.raises(
        RuleError,
        match=r"'fc1.weight' of shape \(4, 3\): palette: levels must be a whole number from 1 to 256",
    ):
        mb.attach(momentum(model), model, {"*": mb.palette(mb.ramp(300, 4))}, total_steps=10)
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(RuleError, match="one tied weight with two different rules"):
        mb.attach(momentum(tied), tied, {"0": mb.palette(4, begin=0), "1": mb.palette(8, begin=0)})
    reg = mb.attach(momentum(model), model, {"*": mb.palette(4, begin=0)})
    with pytest.raises(TrainingError, match=r"finish\(\) inside `with projected\(\)`"), reg.projected():
        reg.finish()
