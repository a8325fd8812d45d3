"""Preprocessing against a loop over pixels, and its way through JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from membound.data import Preprocess
from membound.errors import DataError
from membound.search.micro import alike


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2, 3, 4]))
def test_a_call_is_the_formula_at_every_pixel(seed, whole, with_std, crop):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (2, 3, 5, 4), dtype=np.uint8)
    mean = rng.uniform(0, 255, (3, 5, 4) if whole else 3).astype(np.float32)
    std = rng.uniform(1, 80, 3).astype(np.float32) if with_std else None
    got = Preprocess(scale=1 / 256, mean=mean, std=std, crop=crop)(images)
    height, width = (crop, crop) if crop else (5, 4)
    top, left = ((5 - crop) // 2, (4 - crop) // 2) if crop else (0, 0)
    assert got.shape == (2, 3, height, width)
    assert got.dtype == np.float32
    for n, c, y, x in np.ndindex(got.shape):
        centre = mean[c, y + top, x + left] if whole else mean[c]
        want = (
            (float(images[n, c, y + top, x + left]) - float(centre))
            / 256
            / (float(std[c]) if with_std else 1)
        )
        assert got[n, c, y, x] == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_the_crop_of_alexnet_starts_at_14():
    row = np.broadcast_to(np.arange(256, dtype=np.float32), (1, 1, 256, 256))
    out = Preprocess(crop=227)(row)
    assert out[0, 0, 0, 0] == 14
    assert out.flags.c_contiguous


def test_the_input_is_left_alone():
    images = np.ones((1, 1, 2, 2), np.float32)
    Preprocess(scale=2, mean=np.ones(1))(images)
    assert (images == 1).all()


@given(
    st.floats(1e-3, 1e3),
    st.none() | st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=4),
    st.none() | st.lists(st.floats(0.125, 300, width=32), min_size=1, max_size=4),
    st.none() | st.integers(1, 500),
    st.booleans(),
    st.sampled_from(["uint8", "float32"]),
)
def test_json_keeps_every_bit(scale, mean, std, crop, mirror, takes):
    before = Preprocess.measured(
        None if mean is None else np.array(mean), scale=scale, std=std, crop=crop, mirror=mirror, takes=takes
    )
    assert Preprocess.from_json(json.loads(json.dumps(before.to_json()))) == before


def test_a_mean_of_images_from_0_to_1_is_refused_with_the_right_one():
    imagenet = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    with pytest.raises(DataError, match="subtracted before the scale") as raised:
        Preprocess(scale=1 / 255, **imagenet)
    assert str(raised.value).endswith("by 255: mean=[123.675, 116.28, 103.53], std=[0.229, 0.224, 0.225]")
    for fields in (
        {"scale": 1 / 255, "mean": [123.675, 116.28, 103.53], "std": imagenet["std"]},
        {"scale": 1 / 255, "mean": [0.0, 0.0, 0.0]},
        {"scale": 1 / 255, "mean": np.full((3, 2, 2), 0.5)},
        {"scale": 1 / 255, "takes": "float32", **imagenet},
        {"scale": 1.0, **imagenet},
    ):
        Preprocess(**fields)


def test_a_measured_mean_may_be_small():
    """That of dark images: what was measured is in pixels, and so is what a file says."""
    dark = Preprocess.measured([0.5], scale=1 / 255)
    assert dark(np.ones((1, 1, 1, 2), np.uint8)).tolist() == [[[[np.float32(0.5) * np.float32(1 / 255)] * 2]]]
    assert Preprocess.from_json(dark.to_json()) == dark
    assert alike(dark, 1) == Preprocess.measured([0.0], scale=1 / 255)
    assert alike(Preprocess.measured([0.8], scale=1 / 255), 1).mean == 1


def test_a_mean_image_travels_beside_the_json():
    before = Preprocess(mean=np.arange(12).reshape(3, 2, 2), crop=1)
    assert before.to_json() == {"mean": "image", "crop": 1}
    after = Preprocess.from_json(before.to_json(), before.mean_image)
    assert after == before
    assert after != Preprocess(mean=np.zeros((3, 2, 2)), crop=1)
    assert Preprocess(mean=np.ones(3)).mean_image is None
    assert Preprocess() != Preprocess(mean=np.ones(3))
    assert Preprocess() != "other"
    with pytest.raises(DataError, match="none was given"):
        Preprocess.from_json(before.to_json())
    with pytest.raises(DataError, match="one was given"):
        Preprocess.from_json({}, before.mean_image)


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 2, 5)])
def test_channels_are_the_first_axis_of_an_example(shape):
    how = Preprocess(mean=np.array([1.0, -2.0, 30.0]), std=np.array([0.5, 4.0, 8.0]), takes="float32")
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    prepared = how(x)
    for channel, (mean, std) in enumerate(zip(how.mean, how.std, strict=True)):
        assert np.array_equal(prepared[:, channel], (x[:, channel] - mean) / std)
    with pytest.raises(
        DataError, match="and C 3, as mean has" if len(shape) < 3 else "2 channels but mean has 3"
    ):
        how(x[:, :2])


@pytest.mark.parametrize(
    "fields",
    [
        {"scael": 1},
        {"scale": "1"},
        {"scale": True},
        {"scale": 0},
        {"scale": float("inf")},
        {"mean": [[1]]},
        {"mean": []},
        {"mean": [None]},
        {"std": "image"},
        {"std": [0.0]},
        {"crop": 0},
        {"crop": 2.5},
        {"mirror": 1},
        {"takes": "int8"},
        {"takes": ["uint8"]},
        [1],
    ],
)
def test_malformed_json_is_refused(fields):
    with pytest.raises(DataError):
        Preprocess.from_json(fields)


@pytest.mark.parametrize(
    ("preprocess", "shape", "said"),
    [
        (Preprocess(mean=np.zeros((1, 2, 2))), (1, 1, 3, 3), "mean image is"),
        (Preprocess(mean=np.zeros(3)), (1, 1, 3, 3), "1 channels but mean has 3"),
        (Preprocess(std=np.ones(1)), (1, 3, 3, 3), "3 channels but std has 1"),
        (Preprocess(crop=4), (1, 1, 3, 5), "does not fit"),
        (Preprocess(std=np.ones(1)), (1, 3, 3), "C, H, W"),
        (Preprocess(takes="float32"), (1, 1, 3, 3), "pixels"),
    ],
)
def test_images_that_do_not_fit_are_refused(preprocess, shape, said):
    with pytest.raises(DataError, match=said):
        preprocess(np.zeros(shape, np.uint8))


def test_what_is_taken_is_said_only_where_the_rest_does_not_tell():
    """Fits on pixels always wrote how they are prepared, and fits on floats that nothing is done."""
    mean = np.zeros(1)
    assert Preprocess(takes="float32").to_json() == {}
    assert Preprocess().to_json() == {"takes": "uint8"}
    assert Preprocess(mean=mean).to_json() == {"mean": [0.0]}
    assert Preprocess(mean=mean, takes="float32").to_json() == {"mean": [0.0], "takes": "float32"}
    assert Preprocess.from_json({}).takes == "float32"
    assert Preprocess.from_json({"scale": 2}).takes == "uint8"
    with pytest.raises(DataError, match="choose uint8 or float32"):
        Preprocess(takes="int8")


def test_what_is_no_image_is_scaled():
    assert Preprocess(scale=0.5)(np.full((2, 3), 4, np.uint8)).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize(
    "fields", [{"mean": np.zeros((2, 2))}, {"mean": [np.nan]}, {"std": np.ones((1, 1, 1))}]
)
def test_bad_arrays_are_refused_at_once(fields):
    with pytest.raises(DataError):
        Preprocess(**fields)


@pytest.mark.parametrize("said", [{"scale": 1 / 255}, {"mean": [33.3]}, {"scale": 1 / 255, "std": [0.3]}])
def test_pixels_that_were_divided_by_255_are_refused(said):
    prepare = Preprocess.from_json(said)
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2) * 30
    for kind in (np.float32, np.float64):
        with pytest.raises(DataError, match=r"from 0 to 1, and pixels from 0 to 255 .* times 255"):
            prepare((pixels / 255).astype(kind))
        np.testing.assert_array_equal(prepare(pixels.astype(kind)), prepare(pixels))
    assert prepare(np.zeros((1, 1, 2, 2), np.float32)).shape == (1, 1, 2, 2), "black is black in both"


def test_images_that_were_prepared_already_are_refused():
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2) * 30
    prepare = Preprocess(mean=[33.3], std=[60.0])
    with pytest.raises(DataError, match=r"hold negative numbers, and pixels .* as they are, as in net\(x\)"):
        prepare(prepare(pixels))
    assert Preprocess(mean=[33.3], takes="float32")(prepare(pixels)).shape == (2, 1, 2, 2)
    assert Preprocess(mean=[33.3])(np.full((2, 1), -4.0)).shape == (2, 1), "no pictures, but readings"


@pytest.mark.parametrize("said", [{"mean": [0.5]}, {"mean": [0.5], "std": [0.25]}, {"scale": 2.0}])
def test_numbers_from_0_to_1_are_prepared_by_what_is_made_for_them(said):
    assert Preprocess.from_json(said)(np.full((1, 1, 2, 2), 0.5, np.float32)).shape == (1, 1, 2, 2)


def test_channels_that_come_last_are_told_how_to_come_first():
    last = np.zeros((4, 6, 6, 3), np.uint8)
    for mean in (np.full(3, 9.0), np.full((3, 6, 6), 9.0)):
        with pytest.raises(DataError, match=r"is NHWC.*images.transpose\(0, 3, 1, 2\)"):
            Preprocess(mean=mean)(last)
        assert Preprocess(mean=mean)(last.transpose(0, 3, 1, 2)).shape == (4, 3, 6, 6)
