"""Rows of a weight by their numbers: every layout, type of values and instruction set, and numbers that no row has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nets import FORMATS, ISAS, VALUES, expected, normal, one_node, stored

from membound.errors import ModelError
from membound.run import Net


@pytest.mark.parametrize("isa", ISAS)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 70),
    shape=st.lists(st.integers(1, 4), max_size=3),
    keep=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    layout=st.sampled_from(FORMATS),
    values=st.sampled_from(VALUES),
    seed=st.integers(0, 99),
)
def test_rows(isa, rows, columns, shape, keep, layout, values, seed):
    chance = np.random.default_rng(seed)
    weight = normal(seed, rows, columns) * (chance.random((rows, columns)) < keep)
    model = stored(one_node("embedding", shape, tensors={"w": weight}), layout, values)
    x = chance.integers(0, rows, (3, *shape)).astype(np.float32)
    found = Net(model, isa=isa, threads=2, max_batch=2)(x)
    np.testing.assert_array_equal(found, expected(model, x).astype(np.float32))


@pytest.mark.parametrize("number", [-1.0, 5.0, 1e30, 0.5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_of_no_row_are_refused_and_the_network_goes_on(number, threads):
    model = stored(one_node("embedding", (4,), tensors={"w": normal(1, 5, 3)}))
    net = Net(model, threads=threads, max_batch=2)
    x = np.zeros((3, 4), np.float32)
    x[1, 2] = number
    with pytest.raises(ModelError, match="is not one of the 5 rows"):
        net(x)
    assert net(np.zeros((3, 4), np.float32)).shape == (3, 4, 3)
