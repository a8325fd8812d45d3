"""Splits, seeded choices and statistics, against plain numpy and pinned values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from membound import data
from membound.data import ArraySplit, Dataset
from membound.errors import DataError


def split_of(labels):
    images = np.arange(len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    return ArraySplit(images, np.asarray(labels))


def chosen(split):
    return split.images.ravel().astype(int).tolist()


def random_split(seed, count=150, dtype=np.uint8):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3, 5, 4)).astype(np.uint8)
    if dtype == np.float32:
        images = (images / 7 + 1000).astype(np.float32)
    return ArraySplit(images, rng.integers(0, 4, count))


class Streamed:
    """A split that is not in memory, as a folder is."""

    def __init__(self, split):
        self.inner, self.labels, self.shape = split, split.labels, split.shape

    def __len__(self):
        return len(self.inner)

    def read(self, indices):
        return self.inner.read(indices)

    def take(self, indices):
        return Streamed(self.inner.take(indices))


def test_read_and_take_choose_in_order_with_repeats():
    split = split_of([3, 1, 2])
    taken = split.take(np.array([2, 0, 2]))
    assert chosen(taken) == [2, 0, 2]
    assert taken.labels.tolist() == [2, 3, 2]
    assert taken.labels.dtype == np.int64
    assert split.read(np.array([1])).tolist() == [[[[1.0]]]]
    assert split.shape == (1, 1, 1)
    assert len(split.take(np.array([], int))) == 0


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([3], "allowed are 0 to 2"),
        ([-1], "from -1"),
        ([0.5], "integers"),
        ([[0]], "integers"),
        ([True], "bool"),
    ],
)
def test_bad_indices_are_refused(indices, said):
    with pytest.raises(DataError, match=said):
        split_of([0, 1, 2]).read(np.array(indices))


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (np.zeros((2, 1, 1, 1), np.int16), [0, 1], "uint8 or float32"),
        (np.zeros((2, 1, 1), np.uint8), [0, 1], r"\[n, C, H, W\]"),
        (np.zeros((2, 1, 1, 1), np.uint8), [0], "2 examples but 1 labels"),
        (np.zeros((2, 1, 1, 1), np.uint8), [0, -1], "negative"),
        (np.zeros((2, 1, 1, 1), np.uint8), [0, 1.5], "integers"),
    ],
)
def test_bad_arrays_are_refused(images, labels, said):
    with pytest.raises(DataError, match=said):
        ArraySplit(images, np.array(labels))


def test_a_dataset_checks_its_halves():
    small, large = split_of([0, 1]), ArraySplit(np.zeros((1, 3, 2, 2), np.uint8), np.array([0]))
    with pytest.raises(DataError, match="alike"):
        Dataset("x", small, large, ("a", "b"))
    with pytest.raises(DataError, match="label 1, but there are 1 classes"):
        Dataset("x", small, small, ("a",))
    with pytest.raises(DataError, match="test split has no images"):
        Dataset("x", small, small.take(np.array([], int)), ("a", "b"))


def test_choices_are_pinned():
    """The same seed must give the same images for ever: results are reproduced from it."""
    split = split_of(np.arange(20) % 3)
    train, validation = data.validation_split(split, 6, seed=1)
    assert chosen(validation) == [0, 10, 11, 13, 15, 17]
    assert chosen(train) == [i for i in range(20) if i not in chosen(validation)]
    assert chosen(data.validation_split(split, 0.3, seed=1, stratified=False)[1]) == [0, 4, 9, 10, 13, 15]
    assert chosen(data.subsample(split, 5, seed=7)) == [1, 5, 14, 17, 18]
    assert chosen(data.bag(split, seed=7))[:8] == [13, 2, 17, 15, 7, 18, 15, 7]


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.data())
def test_a_validation_split_is_a_fair_partition(labels, draw):
    split = split_of(labels)
    count = draw.draw(st.integers(1, len(labels) - 1))
    seed = draw.draw(st.integers(0, 1000))
    for stratified in (True, False):
        train, validation = data.validation_split(split, count, seed, stratified)
        assert sorted(chosen(train) + chosen(validation)) == list(range(len(labels)))
        assert len(validation) == count
        assert chosen(train) == sorted(chosen(train))
        if stratified:
            sizes = np.bincount(labels)
            got = np.bincount(validation.labels, minlength=len(sizes))
            assert (np.abs(got - sizes * count / len(labels)) <= 1).all()
            if count <= len(labels) // 2 and (sizes[sizes > 0] >= 2).all():
                assert (np.bincount(train.labels, minlength=len(sizes))[sizes > 0] > 0).all()


@given(st.integers(1, 50), st.integers(0, 99))
def test_subsamples_are_nested_and_bags_full(count, seed):
    split = split_of(np.zeros(50, int))
    draws = [set(chosen(data.subsample(split, size, seed))) for size in (count, 50)]
    assert len(draws[0]) == count
    assert draws[0] <= draws[1]
    assert len(data.bag(split, seed)) == 50


def test_one_seed_drives_independent_choices():
    split = split_of(np.zeros(1000, int))
    draw = set(chosen(data.subsample(split, 300, seed=3)))
    held = set(chosen(data.validation_split(split, 300, seed=3)[1]))
    assert 50 < len(draw & held) < 130


@pytest.mark.parametrize("amount", [0, 3, 4, -1, 0.0, 1.0, 1.5, True, "2", float("nan")])
def test_bad_validation_amounts_are_refused(amount):
    with pytest.raises(DataError):
        data.validation_split(split_of([0, 1, 1]), amount)


def test_a_small_fraction_holds_out_one_image_and_one_image_cannot_be_split():
    train, validation = data.validation_split(split_of([0, 1, 1]), 0.01)
    assert (len(train), len(validation)) == (2, 1)
    with pytest.raises(DataError, match="there is 1 image, and some are held out for validation"):
        data.validation_split(split_of([0]), 0.1)


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(DataError, match="seed"):
        data.bag(split_of([0, 1]), seed)


@pytest.mark.parametrize("count", [0, 4, 1.0, True])
def test_bad_subsamples_are_refused(count):
    with pytest.raises(DataError, match="count from 1 to 3"):
        data.subsample(split_of([0, 1, 1]), count)


@examples(20)
@given(st.integers(0, 10**6), st.sampled_from([np.uint8, np.float32]), st.booleans(), st.integers(1, 200))
def test_statistics_agree_with_numpy_in_double(seed, dtype, streamed, count):
    split = random_split(seed, count, dtype)
    wide = split.images.astype(np.float64)
    used = Streamed(split) if streamed else split
    assert data.mean_image(used).dtype == np.float32
    np.testing.assert_allclose(data.mean_image(used), wide.mean(axis=0), rtol=1e-7)
    np.testing.assert_allclose(data.mean_channels(used), wide.mean(axis=(0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(data.std_channels(used), wide.std(axis=(0, 2, 3)), rtol=2e-7)


def test_statistics_survive_a_large_offset():
    images = (np.arange(64, dtype=np.float32).reshape(-1, 1, 1, 1) % 2) * 0.5 + 65536
    assert data.std_channels(ArraySplit(images, np.zeros(64, int))).tolist() == [0.25]


def test_nothing_has_no_mean():
    empty = split_of([0]).take(np.array([], int))
    with pytest.raises(DataError, match="no images"):
        data.mean_image(empty)
    with pytest.raises(DataError, match="no images"):
        data.bag(empty)


def test_describe_samples_a_large_streamed_split(monkeypatch):
    monkeypatch.setattr("membound.data.statistics.DESCRIBED", 100)
    streamed = Streamed(random_split(0))
    facts = data.describe(Dataset("x", streamed, streamed, tuple("abcd")))
    assert (facts["mean_of"], facts["images"]["train"]) == (100, 150)
