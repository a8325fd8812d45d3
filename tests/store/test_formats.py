"""Storage formats: every tensor comes back bit for bit, in exactly the bytes that were promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from profiles import examples

from membound.errors import ModelError
from membound.store.formats import best_format, decode, encode, exact_bytes, fast_format
from membound.store.layouts import LAYOUTS
from membound.store.sizes import our_sizes

TINY = np.float32(1e-45)  # the smallest float32


def bits(array):
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def without_negative_zeros(array):
    return np.where(array == 0, np.float32(0), array)


@st.composite
def tensors(draw):
    """Arrays of any density: special values, and nonzeros at drawn distances around what formats can express."""
    if draw(st.booleans()):
        shape = draw(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
        numbers = st.one_of(st.just(0.0), st.just(-0.0), st.floats(width=32, allow_nan=False))
        return draw(arrays(np.float32, shape, elements=numbers))
    distances = draw(st.lists(st.sampled_from([1, 2, 3, 255, 256, 257, 512, 513, 1000]), max_size=12))
    tail = draw(st.sampled_from([0, 1, 255, 256, 700]))
    rows = draw(st.sampled_from([1, 3, 7]))
    places = np.cumsum(distances, dtype=np.int64) - 1
    size = -(-(sum(distances) + tail) // rows) * rows
    flat = np.zeros(size, np.float32)
    flat[places] = draw(st.sampled_from([1.5, -2.0, TINY, 3e38]))
    return flat.reshape(rows, -1)


@pytest.mark.parametrize("format", LAYOUTS)
@given(array=tensors())
@examples(150)
def test_f32_is_exact_and_has_the_promised_bytes(format, array):
    encoded = encode(array, format)
    expected = array if format == "dense" else without_negative_zeros(array)
    assert np.array_equal(bits(decode(encoded)), bits(expected))
    assert decode(encoded).shape == array.shape
    assert encoded.nbytes == exact_bytes(array, packed=True)[format]
    assert encoded.nonzeros == np.count_nonzero(array)
    if format not in ("delta", "rice"):  # those of nonzeros at random places
        assert encoded.nbytes == our_sizes(array.shape, encoded.nonzeros)[format]


@pytest.mark.parametrize("format", LAYOUTS)
@given(array=tensors())
@examples(100)
def test_f16_is_the_nearest_and_what_becomes_zero_is_not_stored(format, array):
    array = np.clip(array, -65504, 65504)
    with np.errstate(under="ignore"):
        expected = array.astype(np.float16)
    encoded = encode(array, format, "f16")
    assert np.array_equal(decode(encoded), expected.astype(np.float32))
    assert encoded.values.dtype == np.float16
    assert encoded.nonzeros == np.count_nonzero(expected)
    assert encoded.nbytes == exact_bytes(array, "f16", packed=True)[format]
    if format not in ("dense", "delta"):
        assert len(encoded.values) == encoded.nonzeros


@given(array=tensors(), value_type=st.sampled_from(["f32", "f16"]))
@examples(100)
def test_the_best_format_has_the_fewest_bytes(array, value_type):
    array = np.clip(array, -65504, 65504)
    best = encode(array, best_format(array.shape, array, value_type), value_type)
    assert best.nbytes == min(
        encode(array, format, value_type).nbytes for format in LAYOUTS if format != "rice"
    )


@pytest.mark.parametrize(
    ("distances", "entries"),
    [([1], 1), ([255], 1), ([256], 1), ([257], 2), ([512], 2), ([513], 3), ([256, 256, 257], 4), ([], 0)],
)
def test_delta_fills_distances_over_256(distances, entries):
    flat = np.zeros(sum(distances) + 300, np.float32)
    flat[np.cumsum(distances, dtype=np.int64) - 1] = 1
    encoded = encode(flat, "delta")
    assert len(encoded.values) == len(encoded.arrays[0]) == entries
    fillers = encoded.values == 0
    assert (encoded.arrays[0][fillers] == 255).all()
    assert np.array_equal(decode(encoded), flat)


@pytest.mark.parametrize(("columns", "kind"), [(65536, np.uint16), (65537, np.uint32)])
def test_csr_columns_are_narrow_up_to_65536(columns, kind):
    array = np.zeros((2, columns), np.float32)
    array[0, 0] = array[1, -1] = 1
    encoded = encode(array, "csr")
    assert encoded.arrays[0].dtype == kind
    assert encoded.arrays[0].tolist() == [0, columns - 1]
    assert np.array_equal(decode(encoded), array)
    assert encoded.nbytes == exact_bytes(array)["csr"]


@pytest.mark.parametrize(("nonzeros", "kind"), [(65535, np.uint16), (65536, np.uint32)])
def test_csr_pointers_are_narrow_up_to_65535(nonzeros, kind):
    array = np.zeros(90_000, np.float32)
    array[:nonzeros] = 1
    array = array.reshape(300, 300)
    encoded = encode(array, "csr")
    assert encoded.arrays[1].dtype == kind
    assert encoded.arrays[1][-1] == nonzeros
    assert np.array_equal(decode(encoded), array)
    assert encoded.nbytes == exact_bytes(array)["csr"]


def test_each_format_as_the_contract_has_it():
    array = np.array([[0, 0, 5, 0, 0], [0, -0.0, 0, 0, 0], [7, 0, 0, 0, 9]], np.float32)
    assert encode(array, "bitmask").arrays[0].tolist() == [0b00000100, 0b01000100]
    assert encode(array, "indexed").arrays[0].tolist() == [2, 10, 14]
    csr = encode(array, "csr")
    assert tuple(array.tolist() for array in csr.arrays) == ([2, 0, 4], [0, 1, 1, 3])
    assert encode(array, "delta").arrays[0].tolist() == [2, 7, 3]
    assert encode(array, "dense").values.tolist() == array.reshape(-1).tolist()
    assert (*csr.matrix, csr.size, csr.nonzeros) == (3, 5, 3, 0, 15, 3)


@pytest.mark.parametrize("format", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0), (1,), (2, 3, 0, 5)])
def test_shapes_at_the_edge(format, shape):
    array = np.ones(shape, np.float32)
    encoded = encode(array, format)
    assert np.array_equal(decode(encoded), array)
    assert encoded.nbytes == exact_bytes(array, packed=True)[format]


@pytest.mark.parametrize("format", LAYOUTS)
def test_views_are_stored_as_they_look(format):
    array = np.arange(24, dtype=np.float32).reshape(4, 6).T[::2]
    assert np.array_equal(decode(encode(array, format)), array)


def test_f16_that_overflows_is_refused():
    with pytest.raises(ModelError, match=r"the value 70000 does not fit f16.*store the values as f32"):
        encode(np.array([1, 7e4], np.float32), "csr", "f16")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda array: encode(array, "coo"), "no storage format 'coo': the formats are dense, csr"),
        (lambda array: encode(array, "csr", "f8"), "no value type 'f8': the types are f32, f16"),
        (lambda array: best_format((3,), array, prefer="taste"), "no preference 'taste'"),
    ],
)
def test_what_there_is_not_is_refused(call, words):
    with pytest.raises(ModelError, match=words):
        call(np.ones(3, np.float32))


def test_speed_prefers_what_is_fast():
    assert fast_format((1000, 1000), 400_000) == "dense"
    assert fast_format((1000, 1000), 399_999) == "csr"
    assert fast_format((32, 32), 1) == fast_format((9000,), 1) == "dense"
    assert best_format((100, 100), np.eye(100, dtype=np.float32), prefer="speed") == "csr"
