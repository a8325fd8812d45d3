"""Damaged Caffe files: whatever the bytes, a WeightsError or finite arrays; never anything else."""

import copy

import caffe_writer as w
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples, full
from torch import nn

from membound.errors import WeightsError
from membound.zoo import load_caffemodel, read_binaryproto, read_caffemodel

RNG = np.random.default_rng(2)
LAYERS = {
    "conv": [RNG.standard_normal(s).astype(np.float32) for s in ((2, 1, 2, 2), (2,))],
    "ip": [RNG.standard_normal(s).astype(np.float32) for s in ((3, 2), (3,))],
}
FILES = [w.model(LAYERS, version) for version in ("layer", "V1", "V0")]
MEAN = w.old_blob(RNG.standard_normal((3, 2, 2)).astype(np.float32))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2)
        self.ip = nn.Linear(2, 3)


NET = Net()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "m.caffemodel"


def require_one_line(error):
    assert "\n" not in str(error)


def check(path, content):
    """Read and load damaged bytes; True if they were accepted."""
    path.write_bytes(content)
    net = copy.deepcopy(NET)
    try:
        for blobs in read_caffemodel(path).values():
            assert all(blob.dtype == np.float32 and np.isfinite(blob).all() for blob in blobs)
            assert sum(blob.nbytes for blob in blobs) <= len(content)
        load_caffemodel(net, path)
    except WeightsError as error:
        require_one_line(error)
        assert all(torch.equal(a, b) for a, b in zip(NET.parameters(), net.parameters(), strict=True))
        return False
    assert all(torch.isfinite(p).all() for p in net.parameters())
    return True


@pytest.mark.parametrize("step", [11, full(1)])
@pytest.mark.parametrize("content", FILES, ids=["layer", "V1", "V0"])
def test_single_bytes(path, content, step):
    """The bytes of a file, each with its bits turned over and set to a few telling values."""
    assert check(path, content)
    accepted = 0
    for at in range(0, len(content), step):
        for byte in {content[at] ^ 1, content[at] ^ 0x80, 0, 0x7F, 0xFF} - {content[at]}:
            accepted += check(path, content[:at] + bytes([byte]) + content[at + 1 :])
    assert accepted > 0  # a changed weight is a weight


mutation = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 4000), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("insert"), st.integers(0, 4000), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("cut"), st.integers(0, 4000), st.integers(1, 40)),
    st.tuples(st.just("repeat"), st.integers(0, 4000), st.integers(1, 200)),
)


@examples(1500)
@given(st.sampled_from(FILES), st.lists(mutation, min_size=1, max_size=4))
def test_mutations(path, content, mutations):
    for kind, at, what in mutations:
        at %= len(content) + 1
        if kind == "set":
            content = content[:at] + what + content[at + len(what) :]
        elif kind == "insert":
            content = content[:at] + what + content[at:]
        elif kind == "cut":
            content = content[:at] + content[at + what :]
        else:
            content = content[: at + what] + content[at:]
    check(path, content)


@examples(500)
@given(st.binary(max_size=300))
def test_any_bytes(path, content):
    check(path, content)


@examples(500)
@given(st.integers(0, len(MEAN) - 1), st.binary(min_size=1, max_size=5))
def test_mean_images(path, at, what):
    path.write_bytes(MEAN[:at] + what + MEAN[at + len(what) :])
    try:
        assert np.isfinite(read_binaryproto(path)).all()
    except WeightsError as error:
        require_one_line(error)
