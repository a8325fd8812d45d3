"""Reading Caffe's files: the three encodings, and everything that can be wrong with one."""

import os

import caffe_writer as w
import numpy as np
import pytest
from profiles import full

from membound.errors import WeightsError
from membound.zoo import read_binaryproto, read_caffemodel

RNG = np.random.default_rng(0)
CONV = [RNG.standard_normal(s).astype(np.float32) for s in ((4, 2, 3, 3), (4,))]
FULL = [RNG.standard_normal(s).astype(np.float32) for s in ((5, 6), (5,))]


@pytest.fixture
def read(tmp_path):
    def write_and_read(content):
        (tmp_path / "m.caffemodel").write_bytes(content)
        return read_caffemodel(tmp_path / "m.caffemodel")

    return write_and_read


@pytest.mark.parametrize("version", ["layer", "V1", "V0"])
def test_round_trip(read, version):
    found = read(w.model({"conv": CONV, "ip": FULL}, version))
    assert list(found) == ["conv", "ip"]
    for name, arrays in {"conv": CONV, "ip": FULL}.items():
        for blob, array in zip(found[name], arrays, strict=True):
            assert blob.dtype == np.float32
            assert blob.flags.writeable
            assert blob.flags.aligned
            shape = array.shape if version == "layer" else (1,) * (4 - array.ndim) + array.shape
            assert blob.shape == shape
            np.testing.assert_array_equal(blob.ravel(), array.ravel())


def layer(*blobs, name="a"):
    return w.block(100, w.block(1, name) + b"".join(w.block(7, blob) for blob in blobs))


@pytest.mark.parametrize(
    "blob",
    [
        w.new_shape([3]) + w.floats(5, [1, 2, 3]),
        w.floats(5, [1, 2, 3]) + w.new_shape([3], packed=False),
        w.new_shape([3]) + w.floats(5, [1, 2, 3], packed=False),
        w.new_shape([3]) + w.floats(5, [1]) + w.floats(5, [2], packed=False) + w.floats(5, [3]),
        w.new_shape([3]) + w.floats(8, [1, 2, 3], code="d"),
        w.new_shape([3]) + w.floats(8, [1, 2, 3], code="d", packed=False),
        w.new_shape([3]) + w.floats(5, [9]) + w.floats(8, [1, 2, 3], code="d"),  # doubles win, as in Caffe
        w.new_shape([3]) + w.floats(5, [1, 2, 3]) + w.floats(6, [7, 7, 7]),  # the gradient is passed over
        w.old_shape([3]) + w.new_shape([7]) + w.floats(5, [1, 2, 3]),  # the old sizes win, as in Caffe
    ],
)
def test_ways_to_write_a_blob(read, blob):
    assert read(layer(blob))["a"][0].ravel().tolist() == [1, 2, 3]


def test_a_blob_without_a_shape_is_a_scalar(read):
    assert read(layer(w.floats(5, [4.0])))["a"][0].shape == ()


BAD_BLOBS = {
    "negative size": (w.new_shape([-3]) + w.floats(5, [1]), r"a shape of \[-3\]"),
    "negative old size": (w.number(1, -3) + w.floats(5, [1]), r"a shape of \[-3, 0, 0, 0\]"),
    "a size of zero": (w.new_shape([0, 4]), r"a shape of \[0, 4\]"),
    "sizes that overflow": (w.new_shape([2**31 - 1] * 8) + w.floats(5, [1]), "1 values for a shape of"),
    "a huge size": (w.new_shape([2**62]) + w.floats(5, [1]), "a shape of"),
    "a declared petabyte": (w.new_shape([2**20, 2**30]) + w.floats(5, [1, 2]), "2 values for a shape of"),
    "too many axes": (w.new_shape([1] * 33) + w.floats(5, [1]), "at most 32"),
    "too many axes, in pieces": (w.new_shape([1]) * 40 + w.floats(5, [1]), "at most 32"),
    "too few values": (w.new_shape([2]) + w.floats(5, [1]), r"1 values for a shape of \[2\]"),
    "too many values": (w.new_shape([2]) + w.floats(5, [1, 2, 3]), r"3 values for a shape of \[2\]"),
    "no values": (w.new_shape([2]), "0 values"),
    "nothing": (b"", "0 values"),
    "a part of a value": (w.new_shape([1]) + w.block(5, b"abc"), "3 bytes of values"),
    "NaN": (w.new_shape([2]) + w.floats(5, [1, float("nan")]), "not finite"),
    "infinity": (w.new_shape([2]) + w.floats(5, [float("-inf"), 1]), "not finite"),
    "a double beyond float": (w.new_shape([1]) + w.floats(8, [1e300], code="d"), "not finite"),
    "sizes as bytes": (w.block(1, b"abc") + w.floats(5, [1]), "field 1 has wire type 2"),
    "values as an integer": (w.new_shape([1]) + w.number(5, 1), "field 5 has wire type 0"),
    "a group": (w.varint(5 << 3 | 3), "wire type 3"),
}


@pytest.mark.parametrize("case", BAD_BLOBS)
def test_bad_blobs_name_file_and_layer(read, case):
    blob, message = BAD_BLOBS[case]
    with pytest.raises(WeightsError, match=rf"m\.caffemodel: layer 'conv9', blob 1.*{message}") as caught:
        read(layer(w.new_shape([1]) + w.floats(5, [1]), blob, name="conv9"))
    assert "\n" not in str(caught.value)


GOOD = layer(w.new_shape([1]) + w.floats(5, [1]))
BAD_FILES = {
    "empty": (b"", "empty"),
    "text": (b'name: "LeNet"\nlayer {\n  name: "data"\n}\n', "not Caffe's binary format"),
    "zeros": (bytes(1000), "field number 0"),
    "ones": (b"\xff" * 1000, "longer than 64 bits"),
    "a varint of 11 bytes": (b"\x08" + b"\x80" * 10 + b"\x01", "longer than 64 bits"),
    "a varint beyond 64 bits": (b"\x08" + b"\xff" * 9 + b"\x02", "longer than 64 bits"),
    "a key beyond 32 bits": (w.varint(1 << 40) + b"\x00", "field number"),
    "an integer cut short": (b"\x08\x80", "past the end"),
    "a length beyond the end": (
        w.varint(100 << 3 | 2) + w.varint(2**63) + b"x",
        "declares 9223372036854775808",
    ),
    "a layer as an integer": (w.number(100, 3), "wire type 0"),
    "no layers": (w.block(1, "a net"), "no layer with weights"),
    "layers without weights": (w.model({}), "no layer with weights"),
    "the same name twice": (GOOD + GOOD, "two layers with weights are called 'a'"),
    "a name that is not text": (layer(w.old_blob(FULL[0]), name=b"\xff\xfe"), "not text"),
    "a name that is a number": (w.block(100, w.number(1, 5)), "wire type 0"),
    "nested without end": (w.block(2, w.block(1, w.block(1, "x"))), "no layer with weights"),
    "a group": (w.varint(9 << 3 | 3), "wire type 3"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(read, case):
    content, message = BAD_FILES[case]
    with pytest.raises(WeightsError, match=rf"m\.caffemodel: .*{message}") as caught:
        read(content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_a_nesting_bomb_is_harmless(read, number):
    bomb = b"\x01"
    for _ in range(3000):
        bomb = w.block(number, bomb)
    with pytest.raises(WeightsError):
        read(bomb)


@pytest.mark.parametrize("version", ["V1", full("layer"), full("V0")])
def test_every_prefix_fails_or_is_a_whole_number_of_layers(read, version):
    content = w.model({"conv": CONV, "ip": FULL}, version)
    whole = 0
    for size in range(len(content)):
        try:
            found = read(content[:size])
        except WeightsError:
            continue
        whole += 1
        assert list(found) in (["conv"], ["conv", "ip"])
    assert whole == 2  # after 'conv'; after 'ip', before the loss layer


def test_paths_that_cannot_be_read(tmp_path, monkeypatch):
    for reader in (read_caffemodel, read_binaryproto):
        with pytest.raises(WeightsError, match=r"none\.caffemodel: No such file"):
            reader(tmp_path / "none.caffemodel")
        with pytest.raises(WeightsError, match="not a regular file"):
            reader(tmp_path)
        with pytest.raises(WeightsError, match="null"):
            reader("a\0b")
        with pytest.raises(WeightsError, match="not a regular file"):
            reader(os.devnull)

        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(WeightsError, match=r"x: Permission denied; give the path"):
                reader("x")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WeightsError, match="not a regular file"):
        read_caffemodel(tmp_path / "pipe")


def test_mean_image(tmp_path):
    path = tmp_path / "mean.binaryproto"
    image = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    for content in (w.old_blob(image), w.new_blob(image), w.new_blob(image[None])):
        path.write_bytes(content)
        np.testing.assert_array_equal(read_binaryproto(path), image)
    for content, message in (
        (w.new_blob(image[0]), r"a blob of \[4, 5\]"),
        (w.new_blob(np.stack([image, image])), r"a blob of \[2, 3, 4, 5\]"),
        (w.new_blob(image * np.float32("nan")), "mean image has values that are not finite"),
        (w.model({"a": CONV}), "field 1 has wire type 2"),
        (w.old_blob(image)[:-1], "declares 240 bytes where 239 are left"),
    ):
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=message):
            read_binaryproto(path)
