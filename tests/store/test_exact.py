"""values="auto": nothing is rounded, and few values take few bits."""

import numpy as np
import pytest

from membound.store.exact import exact_type
from membound.store.formats import best_format, decode, encode
from membound.store.values import value_type


def weight(levels, density, shape=(30, 70), seed=0):
    """Some of so many numbers, each of which is there, at random places."""
    rng = np.random.default_rng(seed)
    entries = rng.normal(size=levels).astype(np.float32)
    flat = np.where(rng.random(shape) < density, rng.choice(entries, shape), np.float32(0)).reshape(-1)
    flat[:levels] = entries
    return flat.reshape(shape)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5, 15, 16, 17, 32, 100, 255, 256])
@pytest.mark.parametrize("density", [0.03, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("prefer", ["bytes", "speed"])
def test_few_values_are_kept_to_the_bit_in_few_bits(levels, density, prefer):
    array = weight(levels, density)
    kind = exact_type(array)
    stored = encode(array, best_format(array.shape, array, kind, prefer, packed=True), kind)
    np.testing.assert_array_equal(decode(stored), array)
    assert stored.scales is None
    least = max(1, int(np.ceil(np.log2(levels))))
    recurs = 2 * len(np.unique(array[array != 0])) <= np.count_nonzero(array)
    if recurs:
        assert value_type(kind).bits in (least, least + 1)  # one more where 0 has a code of its own


def test_many_values_stay_float32():
    assert exact_type(weight(257, 1.0)) == "f32"
    rng = np.random.default_rng(0)
    assert exact_type(rng.normal(size=(40, 40)).astype(np.float32)) == "f32"


def test_a_palette_that_would_take_more_than_it_saves_is_not_used():
    assert exact_type(np.array([[1.1, 2.3]], np.float32)) == "f32"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_float32(bad):
    array = weight(4, 1.0)
    array[0, 0] = bad
    assert exact_type(array) == "f32"
