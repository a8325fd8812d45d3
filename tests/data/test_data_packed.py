"""Packed images: the same pixels as from their files, decoded once; and what happens when things go wrong."""

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from membound import data
from membound.data import packed
from membound.data.packed import PackedSplit, pack
from membound.data.pictures import CorruptImageError, FolderSplit
from membound.errors import DataError


@pytest.fixture
def folder(tmp_path):
    """Two classes of pictures of many sizes and kinds."""
    random = np.random.default_rng(0)
    for number in range(14):
        place = tmp_path / "photos" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(random.integers(0, 256, (40 + number, 50, 3), np.uint8))
        if number == 3:
            image = image.convert("CMYK")
        if number == 4:
            image = image.convert("L")
        image.save(place / f"{number:02d}.{'jpg' if number == 3 else 'png'}")
    return tmp_path / "photos"


def split_of(folder, size=32) -> FolderSplit:
    paths = tuple(sorted(str(path) for path in folder.rglob("*.*")))
    return FolderSplit(paths, np.array(["ab".index(path.split(os.sep)[-2]) for path in paths]), size)


@pytest.mark.parametrize("few", [2000, 0], ids=["threads", "processes"])
def test_packed_images_are_the_images(folder, tmp_path, few, monkeypatch):
    monkeypatch.setattr(packed, "FEW", few)
    monkeypatch.setattr(packed, "BLOCK", 5)
    split = split_of(folder)
    found, dropped = pack(split, tmp_path / "cache")
    assert dropped == 0
    assert found.shape == split.shape
    np.testing.assert_array_equal(found.labels, split.labels)
    np.testing.assert_array_equal(found.read(np.arange(14)), split.read(np.arange(14)))
    some = found.take(np.array([5, 5, 0]))
    np.testing.assert_array_equal(some.read(np.array([1, 2])), split.read(np.array([5, 0])))
    with ThreadPoolExecutor(4) as pool:
        for row, image in enumerate(
            pool.map(lambda i: pickle.loads(pickle.dumps(found)).read([i]), range(14))
        ):
            np.testing.assert_array_equal(image, split.read([row]))


def test_images_are_decoded_once_and_again_when_a_file_changes(folder, tmp_path, monkeypatch):
    made = []
    make = packed._make
    monkeypatch.setattr(packed, "_make", lambda split, base: made.append(base) or make(split, base))
    for _ in range(2):
        pack(split_of(folder), tmp_path / "cache")
    assert len(made) == 1
    pack(split_of(folder, 24), tmp_path / "cache")
    assert len(made) == 2
    Image.new("RGB", (60, 60), "red").save(folder / "a" / "00.png")
    found, _ = pack(split_of(folder), tmp_path / "cache")
    assert len(made) == 3
    assert found.read([0])[0, :, 0, 0].tolist() == [255, 0, 0]


def test_what_cannot_be_decoded_is_named_or_left_out(folder, tmp_path):
    bad = folder / "b" / "05.png"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(CorruptImageError, match=r"05\.png"):
        pack(split_of(folder), tmp_path / "cache")
    found, dropped = pack(split_of(folder), tmp_path / "cache", skip_corrupt=True)
    assert (len(found), dropped) == (13, 1)
    whole = split_of(folder)
    good = [index for index, path in enumerate(whole.paths) if not path.endswith("05.png")]
    np.testing.assert_array_equal(found.read(np.arange(13)), whole.read(np.array(good)))
    dataset = data.load(folder, size=32, cache=tmp_path / "cache", skip_corrupt=True)
    assert "images left out because they cannot be decoded: 1" in dataset.notes
    assert isinstance(dataset.train, PackedSplit)


def test_a_packing_that_was_cut_off_is_made_anew(folder, tmp_path):
    cache = tmp_path / "cache"
    pack(split_of(folder), cache)
    (about,) = cache.glob("*.json")
    (images,) = cache.glob("*.images.npy")
    content = images.read_bytes()
    images.write_bytes(content[:500])
    found, _ = pack(split_of(folder), cache)
    np.testing.assert_array_equal(found.read(np.arange(14)), split_of(folder).read(np.arange(14)))
    about.write_text("[]")
    pack(split_of(folder), cache)
    about.unlink()  # killed before the last word
    found, _ = pack(split_of(folder), cache)
    assert json.loads(about.read_text())["bad"] == []
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_a_file_that_goes_while_it_is_used_is_named(folder, tmp_path):
    found, _ = pack(split_of(folder), tmp_path / "cache")
    os.unlink(found.path)
    with pytest.raises(DataError, match="will be made anew"):
        found.read([0])


def test_a_cache_that_cannot_be_written_is_refused(folder, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "open_memmap", full)
    with pytest.raises(DataError, match=r"No space left on device: choose another cache folder"):
        pack(split_of(folder), tmp_path / "cache")
    with pytest.raises(DataError, match="cache are for folders"):
        data.load("mnist", cache=tmp_path)
