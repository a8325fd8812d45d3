"""Folders of images: every kind that Pillow reads, every layout, and everything that can be wrong."""

import os
import shutil
import sys
import threading
import warnings

import numpy as np
import pytest

from membound import data
from membound.data import FolderSplit
from membound.data.pictures import decode, decode_mask, decode_sized
from membound.errors import DataError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
RNG = np.random.default_rng(0)


def picture(path, width=8, height=8, **options):
    """A random RGB image, written to `path`; returns its pixels."""
    pixels = RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def tree(root, halves=("",), classes=("cat", "dog"), count=5, **options):
    for half in halves:
        for name in classes:
            for number in range(count):
                picture(root / half / name / f"{number}.png", **options)
    return root


def names(split):
    return [os.path.join(*path.split(os.sep)[-2:]) for path in split.paths]


def test_a_split_layout(tmp_path):
    dataset = data.load(tree(tmp_path / "pets", ("train", "val")))
    assert (dataset.name, dataset.classes, dataset.shape) == ("pets", ("cat", "dog"), (3, 8, 8))
    assert dataset.notes == ()
    assert dataset.train.labels.tolist() == [0] * 5 + [1] * 5
    assert names(dataset.test)[:2] == ["cat/0.png", "cat/1.png"]
    pixels = np.asarray(Image.open(dataset.train.paths[7]))
    image = dataset.train.read(np.array([7]))
    assert image.dtype == np.uint8
    assert np.array_equal(image[0], pixels.transpose(2, 0, 1))
    assert data.describe(dataset)["dtype"] == "uint8"


@pytest.mark.parametrize("half", ["valid", "validation", "test", "Test"])
def test_other_names_of_the_test_split(tmp_path, half):
    assert len(data.load(tree(tmp_path, ("train", half))).test) == 10


def test_test_is_preferred_to_val_unless_it_has_no_classes(tmp_path):
    tree(tmp_path, ("train", "val"))
    tree(tmp_path, ("test",), count=2)
    dataset = data.load(tmp_path)
    assert len(dataset.test) == 4
    assert dataset.notes == ("val/ was not used: test/ is the test split",)
    shutil.rmtree(tmp_path / "test")
    picture(tmp_path / "test" / "unlabelled.png")
    assert len(data.load(tmp_path).test) == 10


def test_a_drawn_split_is_seeded_and_stratified(tmp_path):
    tree(tmp_path, count=10)
    first, again, other = (data.load(tmp_path, seed=seed, test_fraction=0.3) for seed in (0, 0, 1))
    assert np.bincount(first.test.labels).tolist() == [3, 3]
    assert first.test.paths == again.test.paths != other.test.paths
    assert not set(first.train.paths) & set(first.test.paths)
    assert "fraction of 0.3, seed 0" in first.notes[-1]
    for fraction in (0, 1, -0.1, float("nan")):
        with pytest.raises(DataError, match="test fraction"):
            data.load(tmp_path, test_fraction=fraction)


def test_a_class_may_be_called_train(tmp_path):
    assert data.load(tree(tmp_path, classes=("bus", "train"))).classes == ("bus", "train")
    assert data.load(tree(tmp_path / "more", classes=("test", "train"))).classes == ("test", "train")


@pytest.mark.parametrize(
    ("width", "height", "expected"), [(30, 30, 30), (40, 30, 30), (300, 300, 256), (None, None, 64)]
)
def test_the_default_size(tmp_path, width, height, expected):
    tree(tmp_path, width=width or 20, height=height or 20)
    if width is None:
        picture(tmp_path / "cat" / "large.png", 64, 64)
    assert data.load(tmp_path).shape == (3, expected, expected)


def test_a_folder_is_read_at_height_and_width(tmp_path):
    found = data.load(tree(tmp_path), size=(4, 7))
    assert found.shape == (3, 4, 7)
    assert found.train.read(np.arange(1)).shape == (1, 3, 4, 7)
    assert data.load(tmp_path, size=(5, 5)).train.size == 5


@pytest.mark.parametrize("size", [0, -3, 2.5, True, (4,) * 3, (4, 0), "4x4"])
def test_bad_sizes_are_refused(tmp_path, size):
    with pytest.raises(DataError, match="size"):
        data.load(tree(tmp_path), size=size)


def test_the_shorter_side_is_resized_then_the_centre_cropped(tmp_path):
    ramp = np.broadcast_to(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], (40, 120, 3))
    Image.fromarray(ramp).save(tmp_path / "wide.png")
    Image.fromarray(ramp.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    wide, tall = decode(tmp_path / "wide.png", 20), decode(tmp_path / "tall.png", 20)
    reference = np.asarray(Image.fromarray(ramp).resize((60, 20), Image.Resampling.BILINEAR))[:, 20:40]
    assert np.array_equal(wide, reference)
    assert np.array_equal(tall, reference.transpose(1, 0, 2))
    assert decode(tmp_path / "wide.png", 50).shape == (50, 50, 3)
    for width, height in ((7, 1000), (1000, 7), (1, 1), (13, 11)):
        picture(tmp_path / "odd.png", width, height)
        assert decode(tmp_path / "odd.png", 5).shape == (5, 5, 3)
        assert decode(tmp_path / "odd.png", (3, 8)).shape == (3, 8, 3)


def test_of_height_and_width_a_picture_covers_both_and_its_centre_is_kept(tmp_path):
    ramp = np.broadcast_to(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], (40, 120, 3))
    Image.fromarray(ramp).save(tmp_path / "wide.png")
    resized = np.asarray(Image.fromarray(ramp).resize((60, 20), Image.Resampling.BILINEAR))
    assert np.array_equal(decode(tmp_path / "wide.png", (20, 30)), resized[:, 15:45])
    assert np.array_equal(decode(tmp_path / "wide.png", (10, 60)), resized[5:15])
    Image.fromarray(ramp[..., 0]).save(tmp_path / "mask.png")
    assert decode_mask(tmp_path / "mask.png", (20, 30)).shape == (20, 30)


@pytest.mark.parametrize("suffix", ["png", "PNG", "webp", "bmp", "tiff", "ppm", "gif", "JPG", "jpeg"])
def test_any_kind_of_file(tmp_path, suffix):
    tree(tmp_path)
    options = {"lossless": True} if suffix == "webp" else {}
    pixels = picture(tmp_path / "cat" / f"z.{suffix}", **options)
    split = data.load(tmp_path).train
    image = decode(tmp_path / "cat" / f"z.{suffix}")
    assert any(path.endswith(f"z.{suffix}") for path in (*split.paths, *data.load(tmp_path).test.paths))
    assert image.shape == pixels.shape
    if suffix.lower() not in ("jpg", "jpeg", "gif"):
        assert np.array_equal(image, pixels)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "CMYK", "YCbCr", "I;16", "I;16B"])
def test_any_mode_becomes_rgb(tmp_path, mode):
    gray = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    path = tmp_path / ("x.tiff" if mode in ("CMYK", "YCbCr", "PA", "I;16B") else "x.png")
    if mode.startswith("I;16"):
        Image.fromarray(gray.astype(">u2" if mode == "I;16B" else "<u2") * 257).save(path)
    else:
        Image.fromarray(gray).convert("L" if mode == "PA" else "RGB").convert(mode).save(path)
    image = decode(path)
    assert image.shape == (8, 8, 3)
    tolerance = {"1": 255, "P": 60, "YCbCr": 2}.get(mode, 0)
    assert np.abs(image.astype(int) - gray[..., None]).max() <= tolerance
    assert image.max() > 200 > 50 > image.min()


def test_transparent_palettes_do_not_warn(tmp_path):
    image = Image.fromarray(RNG.integers(0, 4, (8, 8), dtype=np.uint8)).convert("P")
    image.save(tmp_path / "x.png", transparency=bytes([0, 128, 255, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(tmp_path / "x.png").shape == (8, 8, 3)


@pytest.mark.parametrize("bits", [8, 16])
def test_exif_orientation_is_honoured(tmp_path, bits):
    gray = np.arange(12, dtype=np.uint16).reshape(3, 4) * 20
    image = Image.fromarray(gray.astype(np.uint8) if bits == 8 else gray * 256)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    image.save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(decode(tmp_path / "x.png")[..., 0], np.rot90(gray, -1))
    assert np.array_equal(decode(tmp_path / "x.png", 3)[..., 0], np.rot90(gray, -1)[:3])
    assert decode_sized(tmp_path / "x.png", 3)[1] == np.rot90(gray).shape, "as a mask of it has to be"


def test_an_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (4, 4), (shade, shade, shade)) for shade in (40, 200)]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert (decode(tmp_path / "x.gif") == 40).all()


def test_files_that_are_not_images_are_noted(tmp_path):
    tree(tmp_path, ("train", "val"))
    for name in ("train/cat/README.txt", "train/dog/data.h5", "val/dog/noext"):
        (tmp_path / name).write_text("x")
    (tmp_path / "train" / "dog" / "broken.png").symlink_to("nowhere")
    (tmp_path / "train" / "cat" / ".DS_Store").write_text("hidden")
    (tmp_path / "train" / "cat" / "._0.png").write_text("hidden")
    (tmp_path / "train" / ".git").mkdir()
    (tmp_path / "stray.png").write_text("beside the splits")
    dataset = data.load(tmp_path)
    assert len(dataset.train) == 10
    assert dataset.notes == (
        "files left out because they are not images: 4 "
        "(train/cat/README.txt, train/dog/broken.png, train/dog/data.h5, ...)",
    )


@pytest.mark.parametrize("content", [b"", b"text", "half", "bits"])
def test_a_corrupt_image_is_named_when_read_or_skipped(tmp_path, content):
    tree(tmp_path, ("train", "val"), width=64, height=64)
    bad = tmp_path / "train" / "cat" / "1.png"
    whole = bad.read_bytes()
    damage = {"half": whole[: len(whole) // 2], "bits": whole[:2000] + b"\0" * 500 + whole[2500:]}
    bad.write_bytes(damage.get(content, content))
    split = data.load(tmp_path, size=64).train
    with pytest.raises(DataError, match=r"cat/1\.png cannot be decoded as an image") as caught:
        split.read(np.arange(3))
    assert "\n" not in str(caught.value)
    assert split.read(np.array([0, 2])).shape == (2, 3, 64, 64)
    dataset = data.load(tmp_path, skip_corrupt=True)
    assert names(dataset.train)[:2] == ["cat/0.png", "cat/2.png"]
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 5
    assert dataset.notes == ("images left out because they cannot be decoded: 1",)
    assert dataset.shape == (3, 64, 64)


def test_a_class_of_corrupt_images_is_an_error(tmp_path):
    tree(tmp_path, classes=("cat", "dog", "eel"))
    for path in (tmp_path / "dog").iterdir():
        path.write_text("x")
    with pytest.raises(DataError, match="no image of these classes can be decoded: dog"):
        data.load(tmp_path, skip_corrupt=True)


def test_floating_point_pixels_are_refused(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "x.tiff")
    with pytest.raises(DataError, match="floating-point"):
        decode(tmp_path / "x.tiff")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda root: root.mkdir(), "no class folders"),
        (lambda root: picture(root / "loose.png"), "no class folders"),
        (lambda root: tree(root, classes=("cat",)), r"one class folder only \(cat\)"),
        (lambda root: (tree(root), (root / "eel").mkdir()), "class folders without images: 'eel'"),
        (
            lambda root: [(root / name).mkdir(parents=True) for name in ("a", "b")],
            "2 class folders, but no images in them",
        ),
        (
            lambda root: (tree(root, ("train",)), tree(root, ("val",), ("cat", "eel"))),
            "dog only in train/; eel only",
        ),
        (lambda root: tree(root, ("train", "val")) and tree(root, ("val",), ("eel",)), "eel only in val/"),
        (lambda root: tree(root, ("train",)), "but no test, val, valid, validation folder"),
        (lambda root: tree(root, count=1), "images, too few to draw a test split"),
    ],
)
def test_bad_folders_are_said_in_one_line(tmp_path, make, said):
    make(tmp_path / "pets")
    with pytest.raises(DataError, match=said) as caught:
        data.load(tmp_path / "pets")
    assert "\n" not in str(caught.value)


def test_links_are_followed_and_loops_end(tmp_path):
    tree(tmp_path / "pets")
    picture(tmp_path / "elsewhere" / "deep" / "z.png")
    (tmp_path / "pets" / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "pets" / "dog" / "up").symlink_to("..")
    (tmp_path / "pets" / "dog" / "self").symlink_to(".")
    (tmp_path / "pets" / "dog" / "sister").symlink_to("../cat")
    (tmp_path / "pets" / "dog" / "nowhere").symlink_to("nowhere2")
    for place in (tmp_path / "pets", tmp_path / "pets" / "dog"):
        (place / "ping").symlink_to("pong")
        (place / "pong").symlink_to("ping")
    dataset = data.load(tmp_path / "pets")
    every = sorted(names(dataset.train) + names(dataset.test))
    assert every == sorted([f"{c}/{n}.png" for c in ("cat", "dog") for n in range(5)] + ["deep/z.png"])


def test_order_does_not_depend_on_the_file_system(tmp_path):
    for number in RNG.permutation(20):
        picture(tmp_path / ("b" if number % 2 else "a") / f"{number:02}.png")
    split = data.load(tmp_path, test_fraction=0.1).train
    assert list(split.paths) == sorted(split.paths)


def test_take_and_bag_choose_files(tmp_path):
    split = data.load(tree(tmp_path, ("train", "val"))).train
    taken = split.take(np.array([9, 0, 9]))
    assert names(taken) == ["dog/4.png", "cat/0.png", "dog/4.png"]
    assert taken.labels.tolist() == [1, 0, 1]
    assert np.array_equal(taken.read(np.array([0])), split.read(np.array([9])))
    assert len(data.bag(split)) == 10
    with pytest.raises(DataError, match="allowed are 0 to 9"):
        split.read(np.array([10]))
    with pytest.raises(DataError, match="1 examples but 2 labels"):
        FolderSplit(("x.png",), np.array([0, 1]), 8)


def test_statistics_are_those_of_the_images(tmp_path):
    split = data.load(tree(tmp_path, ("train", "val"), count=70)).train
    images = split.read(np.arange(len(split))).astype(np.float64)
    np.testing.assert_allclose(data.mean_image(split), images.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(data.std_channels(split), images.std(axis=(0, 2, 3)), rtol=1e-6)


def test_threads_may_read_at_once(tmp_path):
    split = data.load(tree(tmp_path, ("train", "val"), width=40, height=31)).train
    want = split.read(np.arange(10))
    wrong = []

    def work(seed):
        for _ in range(10):
            indices = np.random.default_rng(seed).permutation(10)
            if not np.array_equal(split.read(indices), want[indices]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pillow_is_asked_for_by_name(tmp_path, monkeypatch):
    tree(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        DataError, match=r"needs Pillow: in a checkout of membound, pip install '\.\[images\]'"
    ):
        data.load(tmp_path)


@pytest.mark.skipif(not data.available("imagenette160"), reason="Imagenette is not under MEMBOUND_DATA")
def test_real_photographs():
    dataset = data.load("imagenette160")
    assert (len(dataset.train), len(dataset.test), dataset.shape) == (9469, 3925, (3, 160, 160))
    few = dataset.train.read(np.arange(0, 9469, 1000))
    assert 60 < few.mean() < 180
    smaller = data.load("imagenette160", size=64).train.read(np.arange(0, 9469, 1000))
    np.testing.assert_allclose(smaller.mean(axis=(2, 3)), few.mean(axis=(2, 3)), atol=2)
