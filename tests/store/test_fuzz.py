"""Damaged files: whatever the bytes, a network that holds or one ModelError in one line; never anything else."""

import random
from collections import Counter

import mutations
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import chiefly, examples

from membound.errors import ModelError
from membound.store.file import read_bytes
from membound.store.formats import decode, positions
from membound.store.operators import OPERATORS
from membound.store.shapes import infer_shapes

ORIGINALS = mutations.originals()


def require_one_line(error: ModelError) -> None:
    assert "\n" not in str(error)
    str(error).encode()
    assert error.rule is not None


def check(content: bytes) -> str:
    """Read; what was accepted must hold, by the plainest means there are."""
    try:
        found = read_bytes(content)
    except ModelError as error:
        require_one_line(error)
        return f"rule {error.rule}"
    assert infer_shapes(found.graph, {n: t.shape for n, t in found.tensors.items()}) == found.shapes
    for tensor in found.tensors.values():
        if tensor.size < 10**6:
            places = positions(tensor).astype(np.int64)
            assert len(places) == tensor.count
            assert (np.diff(places) > 0).all()
            assert len(places) == 0 or (places[0] >= 0 and places[-1] < tensor.size)
            with np.errstate(all="raise", under="ignore"):
                assert np.isfinite(decode(tensor)).all()
        else:
            assert np.isfinite(tensor.values).all()
        assert tensor.values.ctypes.data % tensor.values.itemsize == 0
    return "accepted"


def test_the_originals_are_sound():
    assert [check(content) for content in ORIGINALS] == ["accepted"] * len(ORIGINALS)
    assert {node.op for node in mutations.every_operator().graph.nodes} == set(OPERATORS)


@pytest.mark.parametrize("seed", chiefly([0], range(4)))
def test_mutations(seed):
    outcomes = Counter()
    for index in range(1000):
        rng = random.Random(seed * 10**9 + index)
        outcomes[check(mutations.mutate(rng.choice(ORIGINALS), rng))] += 1
    assert outcomes["accepted"] < 500
    assert len(outcomes) > 20  # they reach most rules, not only the first


@given(st.binary(max_size=300))
@examples(300)
def test_any_bytes(content):
    check(content)


@given(st.binary(max_size=300))
@examples(300)
def test_any_header(content):
    header = b"{" + content
    header += b" " * (-(8 + len(header)) % 64)
    check(len(header).to_bytes(8, "little") + header)
