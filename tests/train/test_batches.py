"""Batches: the order of the images, preprocessing on the device, streaming from folders."""

from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from membound.data import ArraySplit, Preprocess, load
from membound.train import batches
from membound.train.batches import Feeder, index_stream, whole

CPU = torch.device("cpu")


def test_every_image_comes_once_an_epoch_across_batches():
    stream = np.concatenate(list(islice(index_stream(10, 3, seed=0), 10)))
    for epoch in range(3):
        assert sorted(stream[epoch * 10 : epoch * 10 + 10].tolist()) == list(range(10))


@pytest.mark.parametrize("batch_size", [1, 3, 10, 25])
def test_a_stream_can_begin_anywhere(batch_size):
    first = list(islice(index_stream(10, batch_size, seed=7), 12))
    for start in (1, 5, 11):
        assert np.array_equal(next(index_stream(10, batch_size, seed=7, start=start)), first[start])


def test_seeds_and_epochs_differ():
    one, other = (next(index_stream(100, 100, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(one, other)
    first, second = islice(index_stream(100, 100, seed=0), 2)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    "preprocess",
    [
        Preprocess(),
        Preprocess(scale=1 / 256),
        Preprocess(mean=np.array([10.0, 20.0, 30.0]), std=np.array([2.0, 3.0, 4.0])),
        Preprocess(mean=np.random.default_rng(0).random((3, 9, 11)) * 255, crop=6, mirror=True),
    ],
)
def test_the_device_prepares_images_as_numpy_does(preprocess):
    images = np.random.default_rng(1).integers(0, 256, (7, 3, 9, 11)).astype(np.uint8)
    split = ArraySplit(images, np.arange(7) % 2)
    feeder = Feeder(split, preprocess, CPU, torch.float32)
    got = torch.cat([x for x, _ in feeder.batches(whole(split, 3))])
    np.testing.assert_allclose(got.numpy(), preprocess(images), rtol=1e-6, atol=1e-5)


def test_crops_and_mirrors_are_windows_of_the_image_less_its_mean():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 1, 8, 8)).astype(np.uint8)
    mean = rng.random((1, 8, 8)).astype(np.float32) * 100
    split = ArraySplit(images, np.zeros(40, np.int64))
    feeder = Feeder(split, Preprocess(mean=mean, crop=5, mirror=True), CPU, torch.float32)
    indices = [np.arange(40)]
    x, _ = next(feeder.augmented(iter(indices), seed=0))
    seen = set()
    for image, crop in zip(images, x.numpy(), strict=True):
        full = image.astype(np.float32) - mean
        windows = {
            (top, left, flip): window[:, :, ::-1] if flip else window
            for top in range(4) for left in range(4) for flip in (False, True)
            for window in [full[:, top : top + 5, left : left + 5]]
        }  # fmt: skip
        found = [where for where, window in windows.items() if np.array_equal(window, crop)]
        assert len(found) == 1
        seen |= set(found)
    assert len(seen) > 15  # of 32 windows
    again, _ = next(feeder.augmented(iter(indices), seed=0))
    assert torch.equal(x, again)
    other, _ = next(feeder.augmented(iter(indices), seed=0, start=1))
    assert not torch.equal(x, other)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_of_a_batch_make_the_batch(size):
    split = ArraySplit(
        np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6)).astype(np.uint8), np.arange(20)
    )
    feeder = Feeder(split, Preprocess(crop=4, mirror=True), CPU, torch.float32)
    chosen = np.arange(20)
    together, labels = next(feeder.augmented(iter([chosen]), seed=0))
    for rank in range(size):
        x, y = next(feeder.augmented(iter([chosen]), seed=0, part=slice(rank, None, size)))
        assert torch.equal(x, together[rank::size])
        assert torch.equal(y, labels[rank::size])


def test_a_folder_streams_what_it_reads(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for at in range(10):
            Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(
                tmp_path / name / f"{at}.png"
            )
    split = load(str(tmp_path), size=12).train
    feeder = Feeder(split, Preprocess(), CPU, torch.float32)
    assert feeder.images is None
    for (x, y), chosen in zip(feeder.batches(whole(split, 3)), whole(split, 3), strict=True):
        np.testing.assert_array_equal(x.numpy(), split.read(chosen).astype(np.float32))
        np.testing.assert_array_equal(y.numpy(), split.labels[chosen])


def test_rows_come_in_order_across_blocks_whoever_counts(monkeypatch):
    monkeypatch.setattr(batches, "UPLOAD", 3)
    expected = list(islice(index_stream(10, 4, seed=0), 8))
    rows = batches.Rows(index_stream(10, 4, seed=0), torch.device("cpu"))
    for array in expected:
        rows.expect()
        assert rows.take().tolist() == array.tolist()
