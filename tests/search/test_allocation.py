"""Counts from scores: against the definitions, weight by weight, and against the bytes of real tensors."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from membound.errors import MemboundError
from membound.search.allocation import (
    POINTS,
    SCORES,
    ByteCost,
    NonzeroCost,
    allocate,
    proportional_curve,
    score_curves,
)
from membound.store.formats import exact_bytes
from membound.store.sizes import our_sizes

QUICK = {"conv1": (32, 3, 5, 5), "conv2": (32, 32, 5, 5), "fc1": (64, 1024), "fc2": (10, 64)}
weights = st.lists(
    st.sampled_from([0.0, 0.5, -0.5, 1.0, -2.0, 3.0]) | st.floats(-4, 4), min_size=1, max_size=30
)
layers = st.dictionaries(st.sampled_from("abcd"), weights, min_size=1)


def score_curve(weight, score):
    return score_curves({"weight": weight}, score)["weight"]


def curves_of(given_weights, score):
    return {name: score_curve(torch.tensor(values), score) for name, values in given_weights.items()}


def lamp_by_definition(values):
    """The score of every weight, in its place."""
    magnitudes = np.abs(np.asarray(values, np.float32)).astype(np.float64)
    scores = []
    for place, own in enumerate(magnitudes):
        larger = (magnitudes > own) | ((magnitudes == own) & (np.arange(len(magnitudes)) <= place))
        total = np.square(magnitudes[larger]).sum()
        scores.append(own**2 / total if total > 0 else 0.0)
    return scores


def byte_cost(shapes, values):
    """The cost of layers whose values all have one type."""
    return partial(ByteCost(shapes), types=dict.fromkeys(shapes, values))


def random_layers(seed=0, scale=1.0):
    numbers = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=numbers) * scale / math.sqrt(math.prod(shape[1:]))
        for name, shape in QUICK.items()
    }


# scores


@given(weights)
@example([0.0])
@example([2.0] * 7)
@example([1e-30, 1.0])
def test_lamp_is_what_its_definition_says_at_every_rank(values):
    curve = score_curve(torch.tensor(values), "lamp")
    assert curve.ranks.tolist() == list(range(1, len(values) + 1))
    expected = sorted(lamp_by_definition(values), reverse=True)
    np.testing.assert_allclose(curve.scores, expected, rtol=1e-9, atol=1e-300)
    assert (np.diff(curve.scores) <= 0).all()


@given(weights)
def test_magnitudes_are_what_they_are(values):
    expected = np.sort(np.abs(np.asarray(values, np.float32)))[::-1]
    assert score_curve(torch.tensor(values), "magnitude").scores.tolist() == expected.tolist()


@given(weights, st.sampled_from(["lamp", "magnitude"]), st.floats(1e-6, 5))
def test_the_weights_above_a_threshold_are_counted_one_by_one(values, score, threshold):
    curve = score_curve(torch.tensor(values), score)
    for level in (threshold, *curve.scores[curve.scores > 0]):
        found = curve.counts_above(np.array([level]))[0]
        assert found == max(1, np.count_nonzero(curve.scores >= level))


def test_a_large_layer_is_interpolated_closely():
    values = torch.randn(300_000, generator=torch.Generator().manual_seed(1))
    squares = np.sort(values.abs().double().numpy())[::-1] ** 2
    exact = squares / squares.cumsum()
    curve = score_curve(values, "lamp")
    assert len(curve.ranks) <= POINTS
    assert curve.ranks[0] == 1
    assert curve.ranks[-1] == curve.size == len(values)
    for rank in (1, 10, 700, 3_001, 50_000, 123_456, 299_000):
        (found,) = curve.counts_above(exact[rank - 1 : rank])
        assert abs(found - rank) <= max(1, 2e-3 * rank)


def test_half_precision_and_strided_weights_score_alike():
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(2)).half()
    expected = score_curve(weight.float(), "lamp").scores
    assert score_curve(weight, "lamp").scores.tolist() == expected.tolist()
    assert score_curve(weight.t(), "lamp").scores.tolist() == expected.tolist()
    assert score_curve(weight.double(), "lamp").scores.tolist() == expected.tolist()


def test_an_unknown_score_is_refused():
    with pytest.raises(MemboundError, match="no score 'fisher': choose lamp, magnitude, uniform"):
        score_curve(torch.ones(3), "fisher")


# allocation


def slack(curves, counts, cost, bound):
    """What one more weight in every layer that can take one would cost beyond the bound."""
    more = {name: min(count + 1, curves[name].size) for name, count in counts.items()}
    return cost(more) - bound


@given(layers, st.sampled_from(SCORES), st.floats(0, 130))
def test_counts_are_within_the_bound_and_use_it(given_weights, score, bound):
    curves = curves_of(given_weights, score)
    counts = allocate(curves, NonzeroCost(), bound)
    assert all(type(count) is int for count in counts.values())
    assert all(1 <= counts[name] <= curve.size for name, curve in curves.items())
    if sum(counts.values()) == sum(curve.size for curve in curves.values()):
        assert sum(counts.values()) <= bound or set(counts.values()) == {1}
    elif bound >= len(curves):
        assert sum(counts.values()) <= bound < sum(counts.values()) + len(curves)
    else:
        assert set(counts.values()) == {1}


@given(layers, st.sampled_from(["lamp", "magnitude"]), st.integers(0, 130))
def test_every_weight_that_is_kept_scores_at_least_as_much_as_any_that_is_not(given_weights, score, bound):
    """By brute force over all weights: nothing outside beats anything inside, but for the one that each layer keeps."""
    curves = curves_of(given_weights, score)
    counts = allocate(curves, NonzeroCost(), bound)
    inside = [float(s) for name, curve in curves.items() for s in curve.scores[1 : counts[name]]]
    outside = [float(s) for name, curve in curves.items() for s in curve.scores[counts[name] :]]
    if inside and outside:
        assert min(inside) >= max(outside) * (1 - 1e-4) or min(inside) < 1e-29


@given(layers, st.sampled_from(SCORES), st.lists(st.floats(0, 600), min_size=2, max_size=6))
def test_a_larger_bound_takes_nothing_from_any_layer(given_weights, score, bounds):
    curves = curves_of(given_weights, score)
    shapes = {name: (1, curve.size) for name, curve in curves.items()}
    for cost in (NonzeroCost(), byte_cost(shapes, "f16")):
        found = [allocate(curves, cost, bound) for bound in sorted(bounds)]
        for smaller, larger in pairwise(found):
            assert all(smaller[name] <= larger[name] for name in curves)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("values", ["f16", "f32"])
def test_bytes_of_a_real_network_are_used_to_the_last_few(score, values):
    found = random_layers()
    curves = {name: score_curve(weight, score) for name, weight in found.items()}
    cost = byte_cost(QUICK, values)
    for bound in (700, 5_000, 40_000, 150_000):
        counts = allocate(curves, cost, bound)
        assert bound - 40 <= cost(counts) <= bound
        assert slack(curves, counts, cost, bound) > 0


@pytest.mark.parametrize("bound", [0, -5.0, 3])
def test_a_bound_that_nothing_meets_leaves_one_weight_a_layer(bound):
    curves = {name: score_curve(weight, "lamp") for name, weight in random_layers().items()}
    assert allocate(curves, NonzeroCost(), bound) == dict.fromkeys(QUICK, 1)


@pytest.mark.parametrize("score", SCORES)
def test_a_bound_that_all_meets_keeps_everything(score):
    curves = {name: score_curve(weight, score) for name, weight in random_layers().items()}
    sizes = {name: math.prod(shape) for name, shape in QUICK.items()}
    for bound in (math.inf, sum(sizes.values())):
        assert allocate(curves, NonzeroCost(), bound) == sizes
    assert sum(allocate(curves, NonzeroCost(), sum(sizes.values()) - 1).values()) < sum(sizes.values())


def test_lamp_does_not_care_for_the_scale_of_a_layer_and_magnitude_does():
    plain, scaled = random_layers(), random_layers()
    scaled["fc1"] = scaled["fc1"] * 100
    found = {}
    for score in ("lamp", "magnitude"):
        found[score] = [
            allocate({name: score_curve(w, score) for name, w in net.items()}, NonzeroCost(), 9_000)["fc1"]
            for net in (plain, scaled)
        ]
    assert found["lamp"][0] == pytest.approx(found["lamp"][1], abs=2)
    assert found["magnitude"][1] > 8_900 > 2 * found["magnitude"][0]


def test_uniform_gives_every_layer_the_same_part():
    curves = {name: score_curve(weight, "uniform") for name, weight in random_layers().items()}
    for part in (0.02, 0.3, 0.9):
        total = sum(curve.size for curve in curves.values())
        counts = allocate(curves, NonzeroCost(), part * total)
        for name, curve in curves.items():
            assert counts[name] == pytest.approx(part * curve.size, rel=2e-3, abs=1)


def test_proportions_are_kept_until_a_layer_is_full():
    curves = {
        "a": proportional_curve(5_000, 300),
        "b": proportional_curve(100_000, 100),
        "c": proportional_curve(20, 10),
    }
    assert allocate(curves, NonzeroCost(), 410) == pytest.approx({"a": 300, "b": 100, "c": 10}, abs=1)
    assert allocate(curves, NonzeroCost(), 205) == pytest.approx({"a": 150, "b": 50, "c": 5}, abs=1)
    assert allocate(curves, NonzeroCost(), 4_020) == pytest.approx({"a": 3000, "b": 1000, "c": 20}, abs=2)
    full = allocate(curves, NonzeroCost(), 25_020)
    assert (full["a"], full["c"]) == (5_000, 20)
    assert full["b"] == pytest.approx(20_000, abs=2)


@pytest.mark.parametrize("score", ["lamp", "magnitude"])
@pytest.mark.parametrize("value", [0.0, 0.25])
def test_weights_that_are_all_the_same_share_the_bound(score, value):
    """No threshold can tell them apart, and yet the bound is not left unused."""
    curves = {
        "a": score_curve(torch.full((1000,), value), score),
        "b": score_curve(torch.full((3000,), value), score),
    }
    counts = allocate(curves, NonzeroCost(), 2_000)
    assert 1_990 <= sum(counts.values()) <= 2_000
    if score == "magnitude":
        assert counts["b"] == pytest.approx(3 * counts["a"], abs=3)


def test_a_layer_of_zeros_leaves_the_bound_to_the_others():
    curves = {"dead": score_curve(torch.zeros(1000), "lamp"), "alive": score_curve(torch.randn(1000), "lamp")}
    assert allocate(curves, NonzeroCost(), 500) == {"dead": 1, "alive": 499}


def test_layers_of_one_weight():
    curves = {
        "one": score_curve(torch.tensor([0.1]), "lamp"),
        "other": score_curve(torch.tensor([[3.0]]), "lamp"),
    }
    for bound in (0, 1, 2, math.inf):
        assert allocate(curves, NonzeroCost(), bound) == {"one": 1, "other": 1}


# costs


def sizes_by_hand(rows, columns, nonzeros, values):
    """The formulas of docs/FORMAT.md."""
    size, v = rows * columns, {"f16": 2, "f32": 4}[values]
    far = (1 - nonzeros / size) ** 256
    fillers = round(nonzeros * far / (1 - far)) if nonzeros else 0
    return {
        "dense": size * v,
        "csr": (2 if nonzeros < 65536 else 4) * (rows + 1) + nonzeros * ((2 if columns <= 65536 else 4) + v),
        "bitmask": math.ceil(size / 8) + nonzeros * v,
        "delta": (nonzeros + fillers) * (1 + v),
        "indexed": nonzeros * (4 + v),
    }


@given(
    st.lists(st.tuples(st.integers(1, 700), st.integers(1, 900)), min_size=1, max_size=4),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.sampled_from(["f16", "f32"]),
)
@example([(2, 70_000), (1, 1), (4, 40_000)], [0.9, 1.0, 0.5, 0.0], "f16")  # wide columns, many row pointers
def test_the_cost_of_bytes_is_that_of_the_best_formats(shapes, parts, values):
    named = {str(number): shape for number, shape in enumerate(shapes)}
    counts = {
        name: round(part * math.prod(shape))
        for (name, shape), part in zip(named.items(), parts, strict=False)
    }
    cost = byte_cost(named, values)
    expected = sum(min(sizes_by_hand(*named[name], count, values).values()) for name, count in counts.items())
    assert cost(counts) == expected
    for name, count in counts.items():
        assert our_sizes(named[name], count, values) == sizes_by_hand(*named[name], count, values)
    many = cost({name: np.array([0, count, count]) for name, count in counts.items()})
    assert many.tolist() == [0, expected, expected]


@pytest.mark.parametrize(("values", "value_bytes"), [("f16", 2), ("f32", 4)])
@pytest.mark.parametrize("part", [0.0005, 0.004, 0.03, 0.2, 0.6, 1.0])
def test_the_cost_of_bytes_is_close_to_those_of_random_tensors(values, value_bytes, part):
    rng = np.random.default_rng(3)
    for name, shape in QUICK.items():
        count = max(round(part * math.prod(shape)), 1)
        flat = np.zeros(math.prod(shape), np.float32)
        flat[rng.choice(flat.size, count, replace=False)] = rng.normal(1, 0.1, count)
        real = min(exact_bytes(flat.reshape(shape), values).values())
        assert byte_cost(QUICK, values)({name: count}) == pytest.approx(
            real, rel=0.05, abs=2 * (1 + value_bytes)
        )
