"""Linear layers of many vectors, products of values and permutations, on sizes around squares, panels and groups."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nets import FORMATS, VALUES, check, normal, one_node, stored, thinned
from profiles import examples

from membound.run import Net

# Squares are of 4, 8 or 16, groups of 4 or 8 vectors, panels of 4 to 48 rows of the weight, 128 of its columns.
AROUND = st.one_of(st.integers(1, 20), st.sampled_from([23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 65]))
DEPTHS = st.one_of(st.integers(1, 20), st.sampled_from([64, 127, 128, 129, 200, 257]))


@examples(150)
@given(
    vectors=AROUND,
    columns=DEPTHS,
    rows=AROUND,
    format=st.sampled_from(FORMATS),
    values=st.sampled_from(VALUES),
    thin=st.sampled_from(["1", "0.5", "0.1", "rows"]),
    act=st.sampled_from([None, ("relu",), ("gelu",)]),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(49, 129, 49, "dense", "p4", "1", ("gelu",), True, 0)
@example(17, 257, 1, "dense", "f16", "1", None, False, 1)
@example(9, 3, 65, "csr", "f32", "0.1", ("relu",), True, 2)
def test_linear_layers_of_many_vectors(vectors, columns, rows, format, values, thin, act, bias, seed):
    tensors = {"w": thinned(normal(seed, rows, columns) * columns**-0.5, thin, seed)}
    if bias:
        tensors["b"] = normal(seed + 1, rows)
    model = stored(
        one_node("linear", (vectors, columns), {"act": act} if act else {}, tensors), format, values
    )
    check(
        model, normal(seed + 2, 2, vectors, columns), tolerance=2e-5, max_batch=2, usual=0.3, threads=(1, 3)
    )


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 33])
def test_a_smaller_batch_takes_the_room_of_the_largest(count):
    tensors = {"w": normal(0, 50, 130), "b": normal(1, 50)}
    model = stored(one_node("linear", (130,), {}, tensors))
    x = normal(2, count, 130)
    whole = Net(model, max_batch=33)(x)
    assert abs(whole - Net(model, max_batch=1)(x)).max() < 1e-4


@examples(100)
@given(rows=AROUND, columns=AROUND, seed=st.integers(0, 1000))
@example(1, 65, 0)
@example(48, 17, 0)
def test_turned_matrices(rows, columns, seed):
    model = stored(one_node("permute", (rows, columns), {"axes": (1, 0)}))
    check(model, normal(seed, 2, rows, columns), tolerance=0.0)
