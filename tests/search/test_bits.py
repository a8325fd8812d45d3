"""Bits for each layer: against the definition, and in files that fit writes."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from profiles import chiefly
from small import Small, digits, small_problem
from torch import nn

import membound as mb
from membound.search.bits import FEWEST, FRESH, MOST, WIDE, as_if_trained, choose_types, describe_types
from membound.search.jobs import Job, Order, carry_out
from membound.store.formats import decode
from membound.store.values import value_type

CPU = torch.device("cpu")
GRID = list(product((0.02, 0.1, 0.5), (True, False)))


def tail(count: int, size: int, seed: int) -> torch.Tensor:
    """The `count` largest of `size` normal numbers, the others zero."""
    weight = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    weight[weight.abs().argsort()[: size - count]] = 0
    return weight


def best_error(values: np.ndarray, levels: int) -> float:
    """The squared error of k-means over the sum of squares, by plain iteration from quantiles, zero being a center."""
    values = np.sort(values.astype(np.float64))
    if levels >= len(values):
        return 0.0
    centers = np.quantile(values, (np.arange(levels) + 0.5) / levels)
    for _ in range(60):
        nearest = np.abs(values[:, None] - np.append(centers, 0.0)).argmin(1)
        for number in range(levels):
            if (nearest == number).any():
                centers[number] = values[nearest == number].mean()
    return float(np.square(values[:, None] - np.append(centers, 0.0)).min(1).sum() / np.square(values).sum())


@pytest.mark.parametrize("case", chiefly([(0.02, True), (0.1, False)], GRID))
def test_a_layer_gets_the_bits_whose_error_and_bytes_together_are_least(case):
    (part, fresh), size = case, 6000
    cut = {"a": tail(round(part * size), size, 1), "b": tail(round(part * 400), 400, 2).reshape(20, 20)}
    found = choose_types(cut, {}, FRESH if fresh else None)
    noise = FRESH if fresh else 1 / part
    entropy = -(part * math.log2(part) + (1 - part) * math.log2(1 - part)) / part
    values = cut["a"][
        cut["a"] != 0
    ].numpy()  # the layer with more than half of all weights says what a byte is worth
    price = np.abs(values).min() ** 2 / np.square(values).sum() * 8 / (4 + entropy)
    for name, weight in cut.items():
        values = weight[weight != 0].numpy()
        total = {
            f"p{bits}": noise * best_error(values, 1 << bits)
            + price * (bits * len(values) / 8 + 2 * (1 << bits))
            for bits in range(FEWEST, MOST + 1)
        }
        total[WIDE] = price * (len(values) + 2 * (20 if name == "b" else 1))
        assert float(total[found[name]]) <= 1.25 * float(min(total.values())), (name, found, total)


def test_small_layers_get_more_bits_than_large_ones():
    cut = {"small": tail(40, 400, 1), "large": tail(4000, 40_000, 2)}
    bits = {name: value_type(kind).bits for name, kind in choose_types(cut, {}).items()}
    assert bits["small"] > bits["large"]


def test_where_every_weight_is_kept_bits_are_all_that_can_be_bought():
    assert choose_types({"a": torch.randn(100), "b": torch.randn(5, 5)}, {}) == {"a": WIDE, "b": WIDE}


def test_what_is_measured_has_the_zeros_and_as_many_values_as_there_will_be():
    cut = tail(200, 1000, 3)
    few = as_if_trained(cut, "p3")
    assert torch.equal(few == 0, cut == 0)
    assert len(few[few != 0].unique()) == 8
    assert torch.equal(as_if_trained(cut, "p8"), cut)
    assert torch.equal(as_if_trained(cut, "f16"), cut)


def test_types_for_people():
    assert describe_types({"a": "f16"}) == "f16"
    assert describe_types({"a": "p2", "b": "p8", "c": "p3"}) == "p2 to p8"


@pytest.mark.parametrize("values", ["auto", "p3"])
@pytest.mark.one_in(2)
def test_what_is_trained_is_what_is_stored(values):
    problem = small_problem(values=values)
    ((_, outcome),) = carry_out(problem, [Order(Job("a", 0, limit=2_500))], CPU)
    types = outcome.facts["types"]
    for name, kind in types.items():
        distinct = outcome.state[name][outcome.state[name] != 0].unique()
        if value_type(kind).bits <= MOST:
            assert len(distinct) <= 1 << value_type(kind).bits
    if values == "p3":
        assert types == {name: "p8" if name == "conv1.weight" else "p3" for name in problem.weights}
    stored = problem.files.stored(outcome.state)  # without types it is larger, and the same network
    files = replace(problem.files, types=types)
    assert 0.9 * 2_500 <= files(outcome.state) == outcome.facts["size"] <= 2_500 < stored.file_bytes
    for name, kind in types.items():
        tensor = files.stored(outcome.state).tensors[name]
        assert tensor.type_name == kind
        if value_type(kind).bits <= MOST and tensor.size == outcome.state[name].numel():  # no channel is dead
            np.testing.assert_array_equal(decode(tensor), outcome.state[name].numpy())


def test_where_everything_fits_what_is_left_buys_bits():
    """Few bits hold the whole network here: there are more of them, as many as the limit has room for."""
    problem = small_problem(values="auto")
    whole = {
        kind: replace(problem.files, types=dict.fromkeys(problem.weights, kind)) for kind in ("p4", "p6")
    }
    sizes = {kind: files.dense() for kind, files in whole.items()}
    limit = (sizes["p4"] + sizes["p6"]) // 2
    training = replace(problem.training, fresh=False)
    ((_, outcome),) = carry_out(replace(problem, training=training), [Order(Job("a", 1, limit=limit))], CPU)
    assert all(value_type(kind).bits >= 4 for kind in outcome.facts["types"].values())
    assert 0.9 * limit < outcome.facts["size"] <= limit


class Depthwise(torch.nn.Sequential):
    """A depthwise convolution, which no budget bounds, between others; norms behind all of them."""

    def __init__(self) -> None:
        layers: list[torch.nn.Module] = []
        for inputs, outputs, groups in ((1, 8, 1), (8, 8, 8), (8, 16, 1)):
            layers += [
                torch.nn.Conv2d(inputs, outputs, 3, stride=2, groups=groups, bias=False),
                torch.nn.BatchNorm2d(outputs),
                torch.nn.ReLU(),
            ]
        super().__init__(*layers, torch.nn.Flatten(), torch.nn.Linear(64, 10))


@pytest.mark.parametrize("values", ["auto", "p7"])
@pytest.mark.one_in(2)
def test_wide_types_are_trained_too(values):
    """Weights in 7 and 8 bits are multiples of a step for each row, bounded or not, and stored without an error."""
    problem = small_problem(Depthwise, values=values)
    ((_, outcome),) = carry_out(problem, [Order(Job("a", 1, limit=2_400))], CPU)
    assert "3.weight" not in problem.weights
    kinds = {**problem.rounded, **outcome.facts["types"]}
    wide = {name: kind for name, kind in kinds.items() if value_type(kind).bits > MOST}
    assert "3.weight" in wide
    stored = replace(problem.files, types=outcome.facts["types"]).stored(outcome.state)
    scales = norm_scales(outcome.state)
    for name, kind in wide.items():
        rows = outcome.state[name].flatten(1).double()
        steps = rows.abs().amax(1, keepdim=True).clamp(min=1e-30) / (2 ** (value_type(kind).bits - 1) - 1)
        assert (rows / steps - (rows / steps).round()).abs().max() < 1e-3
        expected = rows * scales[name][:, None] if name in scales else rows
        found = torch.from_numpy(decode(stored.tensors[name])).flatten(1).double()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)


def norm_scales(state):
    """What the norm behind each convolution of `Depthwise` multiplies its rows by."""
    return {
        f"{at}.weight": (state[f"{at + 1}.weight"] / (state[f"{at + 1}.running_var"] + 1e-5).sqrt()).double()
        for at in (0, 3, 6)
    }


def test_fit_chooses_few_bits_and_forces_those_that_are_asked_for(tmp_path):
    split = digits(0, 300)
    data, others = ((each.images, each.labels) for each in (split, digits(300, 400)))
    how = {"val_data": others, "steps": 20, "batch_size": 20, "dense": False}
    chosen, forced, half = (
        mb.fit(Small(), data, "2500", values=values, **how) for values in ("auto", "p2", "f16")
    )
    assert forced.values == "p2 to p8"  # the first layer keeps 8 bits
    assert half.values == "f16"
    assert chosen.values.startswith("p")
    assert forced.facts["nonzeros"] > chosen.facts["nonzeros"] > half.facts["nonzeros"]
    for result in (chosen, forced, half):
        result.save(tmp_path / "net.safetensors")
        assert (tmp_path / "net.safetensors").stat().st_size == result.file_bytes <= 2500
        net = mb.load(tmp_path / "net.safetensors")
        x = torch.from_numpy(net.preprocess(split.images[:50]))
        with torch.no_grad():
            wanted = result.model(x).numpy()
        # Palettes are stored as they were trained; p8, biases and f16 are rounded.
        np.testing.assert_allclose(net(x.numpy()), wanted, atol=0.02 * np.abs(wanted).max())


def test_a_budget_with_room_for_sixteen_bits_saves_none(tmp_path):
    split = digits(0, 300)
    result = mb.fit(Small(), (split.images, split.labels), "90%", steps=10, dense=False)
    assert result.values == "f16"


def test_nonzeros_are_bounded_in_sixteen_bits():
    split = digits(0, 300)
    assert mb.fit(Small(), (split.images, split.labels), nonzeros=500, steps=10, dense=False).values == "f16"


def test_a_budget_that_is_not_used_up_is_said():
    x = torch.randn(60, 32).numpy()
    y = (x[:, 0] > 0).astype(int)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    how = {"steps": 40, "device": "cpu", "progress": False, "dense": False, "test_data": (x, y)}
    for budget, said in (("50%", True), ("25%", False)):
        fitted = mb.fit(net, (x, y), budget=budget, **how)
        words = (
            f"the file takes {fitted.file_bytes:,} of {fitted.limit:,} bytes: it has all weights in 8 bits"
        )
        assert any(note.startswith(words) for note in fitted.facts["tried"]) == said
