""".npz data sets: what is read, and what is refused in one line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from membound import data
from membound.data.npz import channels_first, reading_notes
from membound.data.numbering import check_numbering
from membound.errors import DataError

RNG = np.random.default_rng(0)


def arrays(**changes):
    x = RNG.integers(0, 256, (6, 8, 8), dtype=np.uint8)
    good = {"x_train": x, "y_train": np.arange(6) % 3, "x_test": x[:2], "y_test": np.array([0, 2])}
    return {**good, **changes}


def save(folder, **content):
    np.savez(folder / "set.npz", **content)
    return folder / "set.npz"


def test_gray_bytes(tmp_path):
    content = arrays()
    dataset = data.load(save(tmp_path, **content))
    assert (dataset.name, dataset.shape, dataset.classes) == ("set", (1, 8, 8), ("0", "1", "2"))
    assert np.array_equal(dataset.train.images[:, 0], content["x_train"])
    assert dataset.test.labels.tolist() == [0, 2]
    assert data.describe(dataset)["labels"] == {"train": [2, 2, 2], "test": [1, 0, 1]}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_float32(tmp_path, dtype):
    x = RNG.normal(size=(6, 5, 8, 3)).astype(dtype)
    dataset = data.load(str(save(tmp_path, **arrays(x_train=x, x_test=x[:2]))))
    assert dataset.train.images.dtype == np.float32
    assert np.array_equal(dataset.train.images, x.transpose(0, 3, 1, 2).astype(np.float32))


def test_label_columns_and_gaps_are_allowed(tmp_path):
    labels = np.array([[0], [5], [0], [5], [0], [2]], np.uint8)
    dataset = data.load(save(tmp_path, **arrays(y_train=labels)))
    assert len(dataset.classes) == 6
    assert dataset.train.labels.tolist() == [0, 5, 0, 5, 0, 2]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_a_layout_is_told_only_beyond_doubt(a, b, c):
    x = RNG.integers(0, 256, (2, a, b, c), dtype=np.uint8)
    if (a in (1, 3, 4)) == (c in (1, 3, 4)):
        with pytest.raises(DataError, match="layout="):
            channels_first(x, None)
    elif a in (1, 3, 4):
        assert np.array_equal(channels_first(x, None), x)
    else:
        assert np.array_equal(channels_first(x, None), np.moveaxis(x, 3, 1))
    assert np.array_equal(channels_first(x, "NCHW"), x)
    assert np.array_equal(channels_first(x, "NHWC"), np.moveaxis(x, 3, 1))


def test_an_ambiguous_layout_can_be_said(tmp_path):
    x = np.zeros((6, 3, 8, 3), np.uint8)
    path = save(tmp_path, **arrays(x_train=x, x_test=x[:2]))
    with pytest.raises(
        DataError,
        match=r"set\.npz: x_train: shape .* may be NCHW \(C = 3\) or NHWC \(C = 3\): say which with layout=,",
    ):
        data.load(path)
    assert data.load(path, layout="NHWC").shape == (3, 3, 8)
    assert data.load(path, layout="NCHW").shape == (3, 8, 3)


@pytest.mark.parametrize(("ndim", "layout"), [(3, "NCHW"), (3, "NHWC"), (4, "NHW"), (3, "CHWN"), (4, "nchw")])
def test_a_layout_that_does_not_fit_is_refused(tmp_path, ndim, layout):
    x = np.zeros((6, 8, 8) if ndim == 3 else (6, 1, 8, 8), np.uint8)
    with pytest.raises(DataError, match="allowed are"):
        data.load(save(tmp_path, **arrays(x_train=x, x_test=x[:2])), layout=layout)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x_train": np.array([None] * 6)}, "pickle"),
        ({"y_train": np.array(list("abcdef"), object)}, "pickle"),
        ({"x_train": np.zeros((6, 8, 8), np.int64)}, "x_train is int64"),
        ({"x_train": np.zeros((6, 8, 8), bool)}, "x_train is bool"),
        ({"x_train": np.full((6, 8, 8), np.nan)}, "NaN"),
        ({"x_test": np.full((2, 8, 8), np.inf)}, "x_test holds values that are not finite"),
        ({"x_train": np.full((6, 8, 8), 1e300)}, "not finite in float32"),
        ({"x_train": np.zeros((0, 8, 8), np.uint8)}, "no images"),
        (
            {"x_train": np.zeros((6, 64), np.uint8), "x_test": np.zeros((2, 64), np.uint8)},
            r"features are floating point .*; uint8 is for images, \[n, H, W\]",
        ),
        (
            {"x_train": np.zeros((6, 1, 8, 8), np.uint8)},
            r"x_train has shape \[6, 1, 8, 8\], x_test \[2, 8, 8\]:",
        ),
        (
            {"x_train": np.zeros((6, 1, 1, 8, 8)), "x_test": np.zeros((2, 1, 1, 8, 8))},
            r"not a batch of images: .*; features are \[n, F\], sequences \[n, channels, time, 1\]",
        ),
        ({"x_train": np.zeros((6, 9, 9), np.uint8)}, "alike"),
        (
            {"y_train": np.array(["walk"] * 6)},
            "y_train: labels are texts, such as 'walk': number the classes from 0",
        ),
        ({"y_train": np.arange(5)}, "y_train: 6 examples but 5 labels"),
        ({"y_test": np.arange(6)}, "y_test: 2 examples but 6 labels"),
        (
            {"y_train": np.arange(6) % 3 / 1.0},
            r"they must be alike; for classes, save y_train.astype\(np.int64\)$",
        ),
        ({"y_train": np.arange(6) / 3}, r"alike; to predict numbers, save y_test.astype\(np.float32\)$"),
        ({"y_train": np.eye(6, dtype=int) * 300}, "masks are class numbers"),
        (
            {"y_train": np.eye(6, dtype=int)},
            r"int64 \[6, 6\], one-hot: for classes, save their numbers, y.argmax\(1\)",
        ),
        (
            {"y_train": np.eye(6, dtype=np.float32), "y_test": np.eye(2, 6, dtype=np.float32)},
            "one-hot: for classes",
        ),
        ({"y_train": np.arange(6) - 1}, "negative"),
        ({"y_train": np.zeros(6, int)}, "one class only"),
        ({"y_train": np.arange(6) * 10**9}, "without wide gaps"),
    ],
)
def test_bad_content_is_refused_with_the_name(tmp_path, changes, said):
    path = save(tmp_path, **arrays(**changes))
    with pytest.raises(DataError, match=said) as caught:
        data.load(path)
    assert "set" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_that_were_saved_as_floats_get_a_note(dtype, tmp_path):
    x, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 10
    both = arrays(x_train=x, y_train=labels.astype(dtype), x_test=x, y_test=labels.astype(dtype))
    found = data.load(save(tmp_path, **both))
    name = np.dtype(dtype).name
    said = f"y_train is {name}, so this is regression; if its 10 whole values are classes, save y as integers"
    assert (found.task, list(found.notes)) == ("regression", [said])
    assert reading_notes(found) == [said]
    assert data.load(save(tmp_path, **arrays(x_train=x, y_train=labels, x_test=x, y_test=labels))).notes == ()
    values = (labels + 0.5).astype(dtype)
    assert data.load(save(tmp_path, **arrays(x_train=x, y_train=values, x_test=x, y_test=values))).notes == ()


def test_bytes_and_floats_do_not_mix(tmp_path):
    x = np.zeros((6, 8, 8), np.uint8)
    for changes, said in (
        ({"x_test": x[:2].astype(np.float32)}, "x_train is uint8 but x_test is float32"),
        ({"x_train": x.astype(np.float64)}, "x_train is float64 but x_test is uint8"),
    ):
        with pytest.raises(DataError, match=said):
            data.load(save(tmp_path, **arrays(**changes)))
    both = arrays(x_train=x.astype(np.float64), x_test=x[:2].astype(np.float32))
    assert data.load(save(tmp_path, **both)).test.images.dtype == np.float32  # all floats become float32


def test_missing_arrays_are_listed(tmp_path):
    with pytest.raises(DataError, match="lacks y_train, y_test: it has x_train, x_test"):
        data.load(save(tmp_path, x_train=np.zeros(1), x_test=np.zeros(1)))


def test_files_that_are_not_npz(tmp_path):
    path = save(tmp_path, **arrays())
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2], whole[:200] + b"\xff" * 50 + whole[250:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"set\.npz"):
            data.load(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(path)
    with pytest.raises(DataError, match=r"not an \.npz"):
        data.load(path)


def test_a_file_that_is_cut_short_is_called_that(tmp_path):
    file = save(tmp_path, **arrays())
    whole = file.read_bytes()
    for size in (200, len(whole) - 30):
        file.write_bytes(whole[:size])
        with pytest.raises(
            DataError, match=r"set.npz is cut short: its end is missing; copy or write it again$"
        ):
            data.load(file)


def test_a_text_file_is_called_no_npz(tmp_path):
    (tmp_path / "bad.npz").write_text("x\n")
    with pytest.raises(DataError, match=r"bad\.npz is not an \.npz file: write one with np\.savez$"):
        data.load(tmp_path / "bad.npz")


def test_numbers_that_no_label_has(tmp_path):
    gap = arrays(y_train=np.array([0, 1, 2, 0, 1, 4]))
    dataset = data.load(save(tmp_path, **gap))
    noted = "no example has class 3, and the largest label is 4: check the labels"
    assert noted in dataset.notes
    assert noted in reading_notes(dataset)
    check_numbering(dataset)  # one of five
    wide = data.load(save(tmp_path, **arrays(y_train=np.array([0, 1, 2, 0, 1, 12]))))
    wanted = (
        "set: labels are 0, 1, 2 and 12, so there would be 13 classes, 9 of them without an example: renumber them, "
        "or name all classes in an array of strings, classes, in the file to confirm"
    )
    with pytest.raises(DataError, match=f"^{wanted}$"):
        check_numbering(wide)
    names = [f"kind {number}" for number in range(13)]
    named = data.load(save(tmp_path, **arrays(y_train=np.array([0, 1, 2, 0, 1, 12]), classes=names)))
    assert named.classes == tuple(names)
    assert not named.notes
    check_numbering(named)
    with pytest.raises(DataError, match="classes has 2 names, and labels go up to 2"):
        data.load(save(tmp_path, **arrays(classes=["a", "b"])))
    with pytest.raises(DataError, match="must be the names of the classes"):
        data.load(save(tmp_path, **arrays(classes=np.arange(3))))
