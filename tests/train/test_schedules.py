"""Schedules against their formulas, at and between the ends."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import membound as mb
from membound.errors import RuleError
from membound.train.schedules import value_at

progresses = st.floats(0, 1)
values = st.floats(0, 1e3, allow_subnormal=False)


@given(progresses, st.one_of(values, st.integers(0, 1000)))
def test_constant_is_the_same_throughout(progress: float, value: float) -> None:
    assert mb.constant(value)(progress) is value


@given(progresses, values, values)
def test_linear_ramp(progress: float, start: float, end: float) -> None:
    ramp = mb.ramp(start, end, shape="linear")
    assert ramp(progress) == pytest.approx((1 - progress) * start + progress * end, rel=1e-9, abs=1e-9)


@given(progresses, values, values)
def test_cubic_ramp(progress: float, start: float, end: float) -> None:
    expected = end + (start - end) * (1 - progress) ** 3
    assert mb.ramp(start, end)(progress) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert mb.ramp(start, end, shape="cubic")(progress) == mb.ramp(start, end)(progress)


@given(progresses, values, values)
def test_cosine(progress: float, start: float, end: float) -> None:
    expected = end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
    assert mb.cosine(start, end)(progress) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (mb.ramp(1.0, 0.2, 0.25, 0.75, shape="linear"), {0.0: 1.0, 0.25: 1.0, 0.5: 0.6, 0.75: 0.2, 1.0: 0.2}),
        (mb.ramp(1.0, 0.2, 0.25, 0.75), {0.0: 1.0, 0.25: 1.0, 0.5: 0.3, 0.75: 0.2, 1.0: 0.2}),
        (mb.cosine(1.0, 0.2, 0.25, 0.75), {0.0: 1.0, 0.25: 1.0, 0.5: 0.6, 0.75: 0.2, 1.0: 0.2}),
        (
            mb.steps({0.5: 0.1, 0.0: 1.0, 0.75: 0.01}),
            {0.0: 1.0, 0.49: 1.0, 0.5: 0.1, 0.74: 0.1, 0.75: 0.01, 1: 0.01},
        ),
    ],
)
def test_begin_and_until(schedule: Any, expected: dict[float, float]) -> None:
    assert {at: schedule(at) for at in expected} == pytest.approx(expected)


@pytest.mark.parametrize("make", [mb.ramp, mb.cosine])
def test_the_ends_are_met_exactly(make: Any) -> None:
    schedule = make(0.1, 0.7, begin=0.1, until=0.3)
    assert (schedule(0.0), schedule(0.1), schedule(0.3), schedule(1.0)) == (0.1, 0.1, 0.7, 0.7)


@pytest.mark.parametrize("make", [mb.ramp, mb.cosine])
@given(progress=progresses)
def test_two_counts_give_counts(make: Any, progress: float) -> None:
    count = make(400, 20, begin=0.2)(progress)
    assert type(count) is int
    assert 20 <= count <= 400


@pytest.mark.parametrize("at", [0.0, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize(
    "schedule",
    [
        mb.ramp(1, 0.05, begin=0.2),
        mb.cosine(1, 0.05, begin=0.2),
        mb.ramp(0.05, 1, until=0.8),
        mb.steps({0.0: 1, 0.5: 0.05}),
    ],
)
def test_one_beside_a_fraction_is_the_whole_and_not_a_single_weight(schedule: Any, at: float) -> None:
    assert type(schedule(at)) is float


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: mb.ramp(1.0, 0.1, begin=0.5, until=0.5), "begin=0.5 to until=0.5"),
        (lambda: mb.ramp(1.0, 0.1, begin=-0.1), "begin=-0.1"),
        (lambda: mb.ramp(1.0, 0.1, until=1.1), "until=1.1"),
        (lambda: mb.ramp(1.0, 0.1, begin=math.nan), "begin=nan"),
        (lambda: mb.cosine(1.0, 0.1, begin=0.9, until=0.1), "begin=0.9 to until=0.1"),
        (lambda: mb.ramp(1.0, 0.1, shape="square"), "'linear' and 'cubic', not 'square'"),
        (lambda: mb.ramp(500, 0.05), "500, 0.05 mixes counts and fractions"),
        (lambda: mb.cosine(0.5, 20), "0.5, 20 mixes counts and fractions"),
        (lambda: mb.steps({0.0: 500, 0.5: 0.1}), "500, 0.1 mixes counts and fractions"),
        (lambda: mb.steps({0.5: 0.1}), "at progress 0"),
        (lambda: mb.steps({}), "at progress 0"),
        (lambda: mb.steps({0.0: 1.0, 100: 0.1}), "between 0 and 1"),
    ],
)
def test_schedules_that_cannot_be(make: Any, says: str) -> None:
    with pytest.raises(mb.RuleError, match=says):
        make()


def test_a_number_is_itself_and_a_schedule_needs_progress() -> None:
    assert value_at(0.05, None) == 0.05
    assert value_at(lambda progress: 2 * progress, 0.25) == 0.5
    with pytest.raises(mb.RuleError, match="total_steps"):
        value_at(mb.constant(1.0), None)


def test_numbers_of_numpy_are_numbers() -> None:
    assert mb.ramp(np.float32(1.0), np.float64(0.5), shape="linear")(0.5) == 0.75


@pytest.mark.parametrize(
    "make",
    [
        lambda: mb.ramp("a", 1),
        lambda: mb.ramp(1, None),
        lambda: mb.ramp(1.0, True),
        lambda: mb.ramp(1.0, 0.1, begin="a"),
        lambda: mb.ramp(1.0, 0.1, until=None),
        lambda: mb.cosine([1], 0.1),
        lambda: mb.steps({0.0: "a"}),
        lambda: mb.steps({0.0: 1.0, "b": 0.5}),
        lambda: mb.steps(0.5),
    ],
)
def test_what_is_not_a_number_is_refused_in_one_line(make) -> None:
    with pytest.raises(mb.RuleError) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (
            lambda: 0.1,
            r"a schedule takes \(\), and is called with \(progress\): write a schedule\(progress\)",
        ),
        (lambda progress: {0.0: 1.0}[progress + 2], r"a schedule failed at progress 0(\.05)? with KeyError"),
    ],
)
def test_a_schedule_of_ones_own_that_fails_is_named(keep, says):
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train():
        mb.attach(optimizer, net, {"*": mb.l0_project(keep, every=1)}, 20)
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()

    with pytest.raises(RuleError, match=says):
        train()
