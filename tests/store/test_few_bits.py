"""Values of few bits: what is kept exactly, what is quantized and how well, what it takes; against plain numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from membound.errors import ModelError
from membound.store.bits import pack, packed_bytes, unpack, unpack_all
from membound.store.formats import (
    best_format,
    decode,
    encode,
    exact_bytes,
    expected_bytes,
    matrix_shape,
    scale_rows,
)
from membound.store.layouts import LAYOUTS, RICE, Matrix
from membound.store.palette import KINDS, Palette, linear
from membound.store.quantize import means

CODES = [f"p{bits}" for bits in range(1, 9)]


def as_number(numbers, bits):
    """All of them as one large number, the plainest packing there is."""
    return sum(int(number) << (place * bits) for place, number in enumerate(numbers))


@given(bits=st.integers(1, 15), seed=st.integers(0, 99), count=st.integers(0, 40))
@examples(200)
def test_packed_numbers(bits, seed, count):
    numbers = np.random.default_rng(seed).integers(0, 1 << bits, count)
    packed = pack(numbers, bits)
    assert len(packed) == packed_bytes(count, bits) == -(-count * bits // 8)
    assert int.from_bytes(packed.tobytes(), "little") == as_number(numbers, bits)
    assert unpack_all(packed, bits, count).tolist() == numbers.tolist()
    if count > 8:
        assert unpack(packed, bits, 8, count).tolist() == numbers[8:].tolist()


def test_packed_numbers_cross_chunks(monkeypatch):
    from membound.store import bits as module

    monkeypatch.setattr(module, "CHUNK", 16)
    numbers = np.arange(100) % 32
    assert int.from_bytes(pack(numbers, 5).tobytes(), "little") == as_number(numbers, 5)
    assert unpack_all(pack(numbers, 5), 5, 100).tolist() == numbers.tolist()


def few_valued(draw, levels):
    """A tensor of up to `levels` different nonzeros, all exact in f16 or not."""
    shape = draw(st.sampled_from([(), (7,), (1, 1), (3, 40), (4, 2, 3, 3), (2, 900), (40, 0)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    table = rng.standard_normal(draw(st.integers(1, levels))).astype(np.float32)
    if draw(st.booleans()):
        table = table.astype(np.float16).astype(np.float32)
    table[table == 0] = 1
    keep = draw(st.sampled_from([0, 0.01, 0.1, 0.5, 1]))
    array = np.where(rng.random(shape) < keep, rng.choice(table, shape), 0).astype(np.float32)
    scales = rng.uniform(0.1, 3, matrix_shape(shape)[0]).astype(np.float16) * rng.choice([-1, 1])
    return array, scales.astype(np.float32) if draw(st.booleans()) else None


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("format", LAYOUTS)
@given(data=st.data())
@examples(60)
@pytest.mark.one_in(4)
def test_few_values_are_exact(format, kind, data):
    levels = 2 ** int(kind[1:])
    room = levels - (format in ("dense", "delta"))  # one for 0
    array, scales = few_valued(data.draw, min(room, 60))
    if kind in ("p7", "p8"):
        array = array.astype(np.float16).astype(np.float32)  # else only what recurs is kept
    encoded = encode(array, format, kind, scales)
    assert np.array_equal(decode(encoded), array if scales is None else scale_rows(array, scales))
    assert encoded.type_name == kind
    assert encoded.nonzeros == np.count_nonzero(array)
    assert len(encoded.palette.entries) <= levels
    assert not np.signbit(encoded.palette.entries[encoded.palette.entries == 0]).any()
    assert len(encoded.values) == -(-encoded.count * int(kind[1:]) // 8)
    sizes = exact_bytes(array, kind)
    table = encoded.palette.nbytes + (0 if encoded.scales is None else encoded.scales.nbytes)
    if format != "delta":  # the same but for what was taken for the palette and the scales
        full = min(levels, np.count_nonzero(array)) * 2 if kind < "p7" else 4
        assert encoded.nbytes - table == sizes[format] - full - 2 * matrix_shape(array.shape)[0]


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("format", LAYOUTS)
@pytest.mark.parametrize("scaled", [False, True])
def test_many_values_are_quantized(format, kind, scaled):
    rng, bits = np.random.default_rng(3), int(kind[1:])
    array = (rng.standard_normal((30, 400)) * rng.uniform(0.1, 10, (30, 1))).astype(np.float32)
    array[rng.random(array.shape) > 0.2] = 0
    array[4] = 0
    scales = rng.uniform(-3, 3, 30).astype(np.float32) if scaled else None
    wanted = array if scales is None else scale_rows(array, scales)
    encoded = encode(array, format, kind, scales)
    found = decode(encoded)
    # The best that 2^b levels can do on a normal distribution leaves about this much of its variance (Max, 1960).
    least = [0.3634, 0.1175, 0.03454, 0.009497, 0.002499, 0.0006442]
    sizes = np.square(wanted).sum(axis=1)
    share = np.mean(np.square(found - wanted).sum(axis=1)[sizes > 0] / sizes[sizes > 0])
    fewer = bits - (format in ("dense", "delta"))  # a level is taken by 0; of one bit, half of what there are
    assert share <= 1.3 * least[fewer - 1] if 1 <= fewer <= 6 else share <= (1 if bits == 1 else 2e-3)
    assert ((found == 0) >= (wanted == 0)).all()
    assert encoded.nonzeros == np.count_nonzero(found)
    assert (encoded.palette.kind == "linear") == (bits >= 7)
    assert np.array_equal(decode(encode(array, format, kind, scales)), found)


def test_whole_numbers_reach_the_largest_magnitude_of_each_row():
    rng = np.random.default_rng(0)
    array = rng.standard_normal((5, 3000)).astype(np.float32)
    encoded = encode(array, "dense", "p8")
    steps = np.abs(array).max(axis=1) / 127
    assert np.allclose(encoded.scales, steps, rtol=1e-3)
    assert encoded.palette.entries.tolist() == list(range(-128, 128))
    assert (np.abs(decode(encoded) - array) <= 0.501 * steps[:, None] + 0.07 * steps[:, None]).all()


def test_the_smallest_palette_that_is_exact():
    def kind(values, bits="p4"):
        return encode(np.array(values, np.float32).reshape(1, -1), "csr", bits).palette

    assert kind([0.25, -0.5, 0.75, 1.75]).kind == "linear"
    assert kind([0.25, -0.5, 0.75, 1.75]).step == 0.25
    assert kind([0.5, -0.75, 1.5]).kind == "linear"  # of half the smallest magnitude
    assert kind([1, -31, 0.5, 3, 40]).kind == "i8"
    assert kind([1.5, -2.25, 0.099975586, 9]).kind == "f16"
    assert kind([1.5, 0.1, 9]).kind == "f32"
    assert kind([1.5, 1e5, 77.7]).kind == "f32"
    for made in (kind([1, -31, 0.5, 3, 40]), kind([1.5, 0.1, 9]), kind([0.25, -0.5])):
        stored = 0 if made.kind == "linear" else len(made.table) * KINDS[made.kind].itemsize
        assert made.nbytes == stored + 4 * (made.kind in ("i8", "linear"))


def test_scales_are_f32_where_f16_is_too_coarse():
    array = np.array([[1, 2], [3, 0]], np.float32)
    assert encode(array, "csr", "p2", np.array([1, 0.3], np.float32)).scales.dtype == np.float16
    for far in (1e5, 1e-7):
        encoded = encode(array, "csr", "p2", np.array([1, far], np.float32))
        assert encoded.scales.dtype == np.float32
        assert decode(encoded)[1, 0] == np.float32(3) * np.float32(far)


def test_a_row_whose_scale_is_0_has_no_values():
    encoded = encode(np.array([[1, 2], [3, 4]], np.float32), "csr", "p2", np.array([0, 2], np.float32))
    assert decode(encoded).tolist() == [[0, 0], [6, 8]]
    assert encoded.nonzeros == 2


def test_floats_take_the_scales_in():
    array, scales = np.array([[1, 2], [3, 4]], np.float32), np.array([0.5, 2], np.float32)
    for kind in ("f32", "f16"):
        encoded = encode(array, "csr", kind, scales)
        assert encoded.scales is None
        assert decode(encoded).tolist() == [[0.5, 1], [6, 8]]


def test_dense_is_not_chosen_where_0_would_take_the_place_of_a_value():
    array = np.array([1, 2, 3, 4] * 300 + [0] * 40, np.float32).reshape(40, 31)
    for prefer, format in (("bytes", "rice"), ("speed", "csr")):
        assert best_format(array.shape, array, "p2", prefer) == format
        assert best_format(array.shape, array, "p3", prefer) == "dense"
    assert best_format(array.shape, np.minimum(array, 3), "p2") == "dense"
    many = np.where(array == 0, 0, np.random.default_rng(0).standard_normal(array.shape)).astype(np.float32)
    found = [best_format(array.shape, many, kind, "speed") for kind in ("p2", "p3", "p4", "p8")]
    assert found == ["csr", "csr", "dense", "dense"]  # of sixteen levels one is not missed


@pytest.mark.parametrize("kind", ["f32", "p3"])
def test_rice_by_its_definition(kind):
    """Bit by bit, as docs/FORMAT.md says."""
    rng = np.random.default_rng(5)
    for keep in (0, 1, 2, 30, 400, 2000):
        flat = np.zeros(2000, np.float32)
        flat[rng.choice(2000, keep, replace=False)] = rng.choice([1, 2, 3], keep)
        encoded = encode(flat.reshape(20, 100), "rice", kind)
        high, low = (np.unpackbits(array, bitorder="little").tolist() for array in encoded.arrays)
        k, places, at, position = encoded.parameter, [], 0, -1
        for number in range(keep):
            above = 0
            while not high[at]:
                above, at = above + 1, at + 1
            at += 1
            below = sum(bit << place for place, bit in enumerate(low[number * k : (number + 1) * k]))
            position += (above << k) + below + 1
            places.append(position)
        assert places == np.flatnonzero(flat).tolist()
        assert not any(high[at:])
        assert len(high) - at < 8


@pytest.mark.parametrize("density", [0.003, 0.01, 0.03, 0.1, 0.3, 0.6])
def test_rice_costs_little_more_than_the_entropy_of_random_places(density):
    rng, size = np.random.default_rng(1), 200_000
    keep = round(size * density)
    array = np.zeros(size, np.float32)
    array[rng.choice(size, keep, replace=False)] = 1
    encoded = encode(array.reshape(400, 500), "rice")
    positions = sum(each.nbytes for each in encoded.arrays)
    entropy = -size * (density * np.log2(density) + (1 - density) * np.log2(1 - density)) / 8
    assert entropy <= positions <= entropy * (1.06 if density < 0.5 else 1.12)
    assert positions == RICE.index_bytes_at(np.flatnonzero(array), Matrix(400, 500, keep))
    assert abs(RICE.index_bytes(Matrix(400, 500, keep)) - positions) <= 0.01 * positions


def test_expected_bytes_of_arrays_are_those_of_numbers():
    counts = np.array([[0, 1, 5], [100, 3000, 20_000]])
    for kind in (*CODES, "f16"):
        found = expected_bytes(100, 200, counts, kind, packed=True)
        for name, sizes in found.items():
            for place, count in np.ndenumerate(counts):
                assert int(expected_bytes(100, 200, int(count), kind, packed=True)[name]) == sizes[place]


@pytest.mark.parametrize("kind", ["p2", "p4", "p8"])
@pytest.mark.parametrize("keep", [0, 1, 40, 1000, 12_000])
def test_expected_bytes_are_those_of_random_places(kind, keep):
    rng = np.random.default_rng(keep)
    array = np.zeros(30_000, np.float32)
    array[rng.choice(array.size, keep, replace=False)] = rng.standard_normal(keep)
    exact = exact_bytes(array.reshape(100, 300), kind)
    expected = expected_bytes(100, 300, keep, kind)
    assert exact.keys() == expected.keys()
    for name, size in exact.items():
        if name == "dense" and keep <= 1 and kind != "p8":
            continue  # a 0 and one other value are exact
        assert abs(size - int(expected[name])) <= max(3, 0.01 * size), name


def test_means_find_clusters_and_are_in_order():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(center, 0.01, 100) for center in (-3, -1, 0.5, 4)])
    assert np.allclose(means(values, 4), [-3, -1, 0.5, 4], atol=0.01)
    assert means(np.ones(10), 4).tolist() == [1]
    assert means(np.zeros(0), 4).tolist() == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: encode(np.array([[np.nan]]), "csr", "p4"), "not finite, which p4 cannot store"),
        (lambda: encode(np.ones((2, 3)), "csr", "p4", np.ones(3)), r"scales of shape \(3,\) for 2 rows"),
        (lambda: encode(np.ones((2, 3)), "csr", "f32", np.ones(3)), r"scales of shape \(3,\) for 2 rows"),
        (lambda: Palette("f8", np.ones(2)), "no kind of palette 'f8': the kinds are f32, f16, i8, linear"),
    ],
)
def test_what_cannot_be(call, words):
    with pytest.raises(ModelError, match=words):
        call()


def test_linear_palettes_have_an_exact_0():
    for bits in range(1, 9):
        assert linear(bits, 0.3).entries[1 << (bits - 1)] == 0


def test_all_of_int8_is_whole_numbers_times_a_step():
    """A calibration may choose -128; a table of 256 entries would be larger, and ONNX would not be int8."""
    array = np.arange(-128, 128, dtype=np.float32).reshape(4, 64) * 0.5
    found = encode(array, "dense", "p8")
    assert found.palette.kind == "linear"
    np.testing.assert_array_equal(decode(found), array)
