"""Byte accounting: the paper's numbers for AlexNet, and ours beside them."""

import numpy as np
import pytest

import membound as mb
from membound.errors import ModelError
from membound.search.checks import LEAST_FILE
from membound.store.formats import exact_bytes
from membound.store.sizes import our_sizes, total_bytes

MIB = 2**20
SHAPES = {
    "conv1": (96, 3, 11, 11), "conv2": (256, 48, 5, 5), "conv3": (384, 256, 3, 3), "conv4": (384, 192, 3, 3),
    "conv5": (256, 192, 3, 3), "fc6": (4096, 9216), "fc7": (4096, 4096), "fc8": (1000, 4096),
}  # fmt: skip
KEPT = {"fc6": 3_000_000, "fc7": 3_000_000, "fc8": 400_000}


def test_no_file_is_smaller_than_what_a_bound_may_be(tmp_path):
    torch = pytest.importorskip("torch")

    class Least(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.a(x)

    sizes = [
        mb.save(Least(), tmp_path / "net.safetensors", torch.zeros(1, 1), values=values).file_bytes
        for values in ("f16", "p1")
    ]
    assert LEAST_FILE < min(sizes) < LEAST_FILE + 64


def alexnet(kept):
    weights = {name: (shape, kept.get(name, int(np.prod(shape)))) for name, shape in SHAPES.items()}
    return weights | {f"{name}.bias": (shape[:1], shape[0]) for name, shape in SHAPES.items()}


def test_dense_alexnet_has_233_mb():
    assert total_bytes(alexnet({}), "dense") == 4 * 60_965_224
    assert round(total_bytes(alexnet({}), "dense") / MIB) == 233


def test_the_papers_sparse_alexnet_has_58_mb():
    indexed = total_bytes(alexnet(KEPT), dict.fromkeys(KEPT, "indexed"))
    assert round(indexed / MIB) == 58


def test_the_best_of_the_papers_formats_gives_40_3_mib_and_ours_less():
    paper = total_bytes(alexnet(KEPT), "best")
    ours = total_bytes(alexnet(KEPT), "best", "ours")
    assert round(paper / MIB, 1) == 40.3
    assert round(ours / MIB, 1) == 38.6
    assert total_bytes(alexnet(KEPT), "best", "ours", values="f16") < ours / 1.5


@pytest.mark.parametrize("keep", [0, 1, 30, 300, 3000, 30_000, 300_000])
def test_expected_bytes_are_those_of_random_places(keep):
    array = np.zeros(300_000, np.float32)
    array[np.random.default_rng(0).choice(array.size, keep, replace=False)] = 1
    array = array.reshape(500, 600)
    expected, exact = our_sizes(array.shape, keep), exact_bytes(array)
    assert expected.keys() == exact.keys()
    for format in exact.keys() - {"delta"}:
        assert expected[format] == exact[format]
    assert expected["delta"] == pytest.approx(exact["delta"], rel=0.1 if keep > 10 else 1)


def test_a_format_that_there_is_not_is_refused():
    with pytest.raises(ModelError, match="fc: there is no format 'csr': take best, dense, bitmask, indexed"):
        total_bytes({"fc": ((3, 4), 2)}, "csr")
