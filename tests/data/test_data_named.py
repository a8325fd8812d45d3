"""MNIST and CIFAR-10: the real files, and every way in which a file can be wrong."""

import gzip
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from membound import data
from membound.data import fetch, named
from membound.errors import DataError

needs_cifar10 = pytest.mark.skipif(
    not data.available("cifar10"), reason="CIFAR-10 is not here: set MEMBOUND_DATA to a folder that holds it"
)
NAMES = list(named.MNIST_SHA256)


def idx(array, magic=b"\0\0\x08"):
    return magic + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def mnist_copy(tmp_path, monkeypatch):
    """A copy of MNIST that MEMBOUND_DATA points at, to be damaged."""
    shutil.copytree(fetch.find("mnist", tuple(NAMES)), tmp_path / "mnist", copy_function=shutil.copyfile)
    monkeypatch.setenv("MEMBOUND_DATA", str(tmp_path))
    return tmp_path / "mnist"


def test_mnist_is_the_real_one():
    mnist = data.load("mnist")
    facts = data.describe(mnist)
    assert facts["images"] == {"train": 60000, "test": 10000}
    assert facts["shape"] == [1, 28, 28]
    assert facts["labels"]["test"] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert facts["mean"][0] / 255 == pytest.approx(0.1307, abs=5e-5)
    assert facts["std"][0] / 255 == pytest.approx(0.3081, abs=5e-5)
    assert mnist.train.images.dtype == np.uint8
    assert mnist.train.images.flags.writeable  # torch warns about arrays that are not


@needs_cifar10
def test_cifar10_is_the_real_one():
    cifar10 = data.load("cifar10")
    facts = data.describe(cifar10)
    assert facts["images"] == {"train": 50000, "test": 10000}
    assert facts["shape"] == [3, 32, 32]
    assert facts["labels"] == {"train": [5000] * 10, "test": [1000] * 10}
    assert np.array(facts["mean"]) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert np.array(facts["std"]) / 255 == pytest.approx([0.2470, 0.2435, 0.2616], abs=5e-5)
    assert cifar10.classes[cifar10.test.labels[0]] == "cat"
    assert cifar10.train.images.flags.c_contiguous


@needs_cifar10
def test_the_mean_image_is_the_one_that_caffe_computed():
    roots = [Path(os.environ.get("MEMBOUND_DATA", "")), Path(data.__file__).parents[4] / "shared" / "data"]
    files = [root / "caffemodels" / "cifar10_mean.binaryproto" for root in roots]
    proto = next((path for path in files if path.is_file()), None)
    if proto is None:
        pytest.skip("cifar10_mean.binaryproto is neither under MEMBOUND_DATA nor under ../shared/data")
    content = proto.read_bytes()
    start = content.index(b"\x2a\x80\x60") + 3  # field 5, packed floats, 12288 bytes
    caffe = np.frombuffer(content, "<f4", 3072, start).reshape(3, 32, 32)
    ours = data.mean_image(data.load("cifar10").train)
    np.testing.assert_allclose(ours, caffe, rtol=1e-5)


@needs_cifar10
@pytest.mark.parametrize(("damage", "said"), [("flip", "not the official file"), ("cut", "30,729,999 bytes")])
def test_a_damaged_cifar10_batch_is_refused(tmp_path, monkeypatch, damage, said):
    folder = tmp_path / named.CIFAR10_FOLDER
    folder.mkdir()
    for name in named.CIFAR10_SHA256:
        (folder / name).symlink_to(named.NAMED["cifar10"].find() / name)
    content = bytearray((folder / "data_batch_1.bin").read_bytes())
    content[1234] ^= 1
    (folder / "data_batch_1.bin").unlink()
    (folder / "data_batch_1.bin").write_bytes(content[:-1] if damage == "cut" else content)
    monkeypatch.setenv("MEMBOUND_DATA", str(tmp_path))
    with pytest.raises(DataError, match=said) as caught:
        data.load("cifar10")
    assert "data_batch_1.bin" in str(caught.value)


@examples(30)
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_idx_files_are_read_back(tmp_path_factory, shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path_factory.mktemp("idx") / "x.gz"
    path.write_bytes(gzip.compress(idx(array)))
    assert np.array_equal(named.read_idx(path), array)


def zipped(content):
    """Without the time, which would make the name of a test differ between the processes that run it."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "begins with nothing"),
        (b"garbage, not gzip", "gzip"),
        (zipped(b""), "begins with nothing"),
        (zipped(b"\0\0"), "begins with 00 00"),
        (zipped(idx(np.zeros(3, np.uint8), b"\0\0\x0d")), "begins with 00 00 0d 01"),
        (zipped(b"\0\0\x08\0"), "0 dimensions"),
        (zipped(b"\0\0\x08\x03\0\0"), "malformed idx header"),
        (zipped(idx(np.zeros((2, 3), np.uint8))[:-1]), "5 bytes of data"),
        (zipped(idx(np.zeros((2, 3), np.uint8)) + b"\0"), "7 bytes of data"),
        (zipped(b"\0\0\x08\x03" + b"\xff" * 12), "0 bytes of data"),
        (zipped(idx(np.zeros(5000, np.uint8)))[:-20], "gzip"),
        (zipped(idx(np.arange(250, dtype=np.uint8)))[:-8] + b"\0" * 8, "gzip"),
    ],
)
def test_malformed_idx_files_are_refused(tmp_path, content, said):
    path = tmp_path / "digits.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        named.read_idx(path)
    assert str(path) in str(caught.value)


def test_a_damaged_mnist_file_is_named(mnist_copy):
    path = mnist_copy / NAMES[2]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=NAMES[2]):
        data.load("mnist")


def test_counts_that_disagree_are_refused(mnist_copy):
    path = mnist_copy / NAMES[1]
    path.write_bytes(gzip.compress(idx(np.zeros(59999, np.uint8))))
    with pytest.raises(DataError, match=r"train-labels.*\[59999\] labels for 60000 images"):
        data.load("mnist")


def test_images_of_another_size_are_refused(mnist_copy):
    (mnist_copy / NAMES[0]).write_bytes(gzip.compress(idx(np.zeros((60000, 2, 2), np.uint8))))
    with pytest.raises(DataError, match=r"train-images.*\[n, 28, 28\]"):
        data.load("mnist")


def test_a_well_formed_file_that_is_not_mnist_is_refused(mnist_copy):
    (mnist_copy / NAMES[3]).write_bytes(gzip.compress(idx(np.zeros(10000, np.uint8))))
    with pytest.raises(DataError, match=r"t10k-labels.*not the official file"):
        data.load("mnist")


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_unpacks_only_what_is_wanted(tmp_path):
    archive = tar(
        tmp_path / "a.tar.gz", {"set/a.bin": b"A", "set/b.bin": b"B", "../evil": b"!", "set/no": b"!"}
    )
    named.unpack(archive, "set", ("a.bin", "b.bin"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["a.bin", "b.bin"]
    assert (tmp_path / "set" / "b.bin").read_bytes() == b"B"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "set"]
    assert not (tmp_path.parent / "evil").exists()


def test_archives_that_lead_outside_are_refused(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", {"../evil": b"!"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        named.unpack(archive, "..", ("evil",), tmp_path)
    assert not (tmp_path.parent / "evil").exists()


def test_links_and_lacks_in_archives_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("set/a.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"lacks set/a\.bin"):
        named.unpack(tmp_path / "a.tar.gz", "set", ("a.bin",), tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(DataError, match="cannot be unpacked"):
        named.unpack(tmp_path / "a.tar.gz", "set", ("a.bin",), tmp_path)


@pytest.mark.parametrize("options", [{"layout": "NHW"}, {"size": 32}, {"skip_corrupt": True}])
def test_options_of_other_sources_are_refused(options):
    with pytest.raises(DataError, match="leave"):
        data.load("mnist", **options)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("minst", "did you mean mnist"),
        ("MNIST", "did you mean mnist"),
        ("cifar-10", "did you mean cifar10"),
        (
            "zzz",
            r"allowed are mnist, cifar10, a folder of class folders or of images/ and masks/, or an \.npz",
        ),
        ("", "no data set ''"),
        (
            "missing.npz",
            r"there is no file missing\.npz: check the path; allowed are mnist, cifar10, a folder",
        ),
    ],
)
def test_unknown_sources_list_what_is_allowed(source, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        data.load(source)
    assert not data.available(source)


def test_a_file_of_another_kind_and_a_near_path(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "x.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"x\.csv is not a data set"):
        data.load(tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"did you mean .*photos"):
        data.load(tmp_path / "photo")


def test_files_are_found_on_the_search_path(tmp_path, monkeypatch):
    np.savez(
        tmp_path / "mine.npz",
        x_train=np.zeros((2, 4, 4), np.uint8),
        y_train=[0, 1],
        x_test=np.zeros(1),
        y_test=[0],
    )
    monkeypatch.setenv("MEMBOUND_DATA", str(tmp_path))
    assert data.available("mine.npz")


def test_the_package_imports_neither_torch_nor_pillow_nor_pooch():
    program = (
        "import sys, membound.data as d; d.load('mnist'); "
        "print([m for m in ('torch', 'PIL', 'pooch', 'rich', 'requests') if m in sys.modules])"
    )
    source = str(Path(data.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        check=True,
    )
    assert done.stdout.strip() == "[]"
