"""Sizes as people write them."""

import pytest

from membound.errors import MemboundError
from membound.store.sizes import best_format, format_sizes
from membound.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("40 KiB", 40960),
        ("40kb", 40000),
        ("1.5 MB", 1_500_000),
        ("2GiB", 2**31),
        ("1TB", 10**12),
        ("7", 7),
        (7, 7),
        ("12 B", 12),
        (".5 KiB", 512),
    ],
)
def test_sizes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "KiB", "-3 KB", "1,000", "3 kilo", "1 2", "nan", "1e3"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(MemboundError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "meant"), [("2K", "2KB"), ("2 m", "2 mB"), ("40Ki", "40KiB")])
def test_a_unit_without_its_b_is_asked_for(text, meant):
    with pytest.raises(MemboundError, match=rf"did you mean {meant}\? Write plain bytes"):
        parse_bytes(text)


def test_sizes_are_written():
    assert [format_bytes(n) for n in (0, 1023, 1024, 1024**2, 3 * 1024**3)] == [
        "0 B", "1023 B", "1.0 KiB", "1.00 MiB", "3.00 GiB",
    ]  # fmt: skip


def test_the_papers_alexnet():
    """233 MB dense; 58 MB with the paper's counts in the indexed format for the three fully-connected layers."""
    layers = {
        "conv1": 96 * 3 * 121, "conv2": 256 * 48 * 25, "conv3": 384 * 256 * 9, "conv4": 384 * 192 * 9,
        "conv5": 256 * 192 * 9, "fc6": 4096 * 9216, "fc7": 4096 * 4096, "fc8": 1000 * 4096,
    }  # fmt: skip
    biases = 96 + 256 + 384 + 384 + 256 + 4096 + 4096 + 1000
    kept = {"fc6": 3_000_000, "fc7": 3_000_000, "fc8": 400_000}
    dense = sum(format_sizes(size, size)["dense"] for size in layers.values()) + 4 * biases
    sparse = 4 * biases + sum(
        format_sizes(size, kept.get(name, size))["indexed" if name in kept else "dense"]
        for name, size in layers.items()
    )
    assert round(dense / 2**20) == 233
    assert round(sparse / 2**20) == 58
    best = 4 * biases + sum(best_format(size, kept.get(name, size))[1] for name, size in layers.items())
    assert round(best / 2**20, 1) == 40.3
