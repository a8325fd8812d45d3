"""Floats that were prepared outside of the fit: how pixels became them goes into the file, and changes nothing else."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.errors import DataError, MemboundError

PIXELS = mb.data.Preprocess(scale=1 / 255, mean=np.array([127.5]), std=np.array([0.25]))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(64) % 2
    noise = np.random.default_rng(0).integers(0, 60, (64, 1, 8, 8))
    return (noise + 120 * labels[:, None, None, None]).astype(np.uint8), labels


def fit(images, **more):
    pixels, labels = images
    data = torch.from_numpy(PIXELS(pixels)), torch.from_numpy(labels)
    return mb.fit(
        network(), data, budget="1 KB", test_data=data, steps=30, dense=False, progress=False, **more
    )


def test_a_file_of_floats_takes_pixels(images, tmp_path):
    plain, fitted = fit(images), fit(images, pixels=PIXELS)
    assert fitted.file_bytes <= 1000
    assert fitted.accuracy == plain.accuracy == 100.0
    fitted.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors")
    assert net.preprocess.takes == "uint8"
    assert np.array_equal(net(net.preprocess(images[0][:4])), net(PIXELS(images[0][:4])))
    made = mb.export_cpp(tmp_path / "net.safetensors", tmp_path / "cpp")
    assert made.prepares
    assert made.takes_pixels
    assert "NET_TAKES_PIXELS" in (tmp_path / "cpp" / "net.h").read_text()
    plain.save(tmp_path / "plain.safetensors")
    assert not mb.export_cpp(tmp_path / "plain.safetensors", tmp_path / "plain").takes_pixels
    assert "NET_TAKES_PIXELS" not in (tmp_path / "plain" / "net.h").read_text()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"pixels": 3}, "pixels=3: give mb.data.Preprocess"),
        ({"pixels": PIXELS, "preprocess": PIXELS}, "give preprocess instead"),
        ({"pixels": mb.data.Preprocess(takes="float32")}, "from uint8 and without a crop"),
        ({"pixels": mb.data.Preprocess(mean=np.zeros(3))}, "mean"),
        ({"pixels": PIXELS, "target": "micro", "ram": "4 KB"}, "pixels does not go with a microcontroller"),
    ],
)
def test_what_is_refused(images, more, says):
    with pytest.raises(MemboundError, match=re.escape(says)):
        fit(images, **more)


def test_pixels_of_pixels_are_refused(images):
    with pytest.raises(DataError, match="with uint8 images"):
        mb.fit(network(), images, budget="1 KB", test_data=images, steps=5, dense=False, pixels=PIXELS)


def test_pixels_may_come_when_the_file_is_saved(images, tmp_path):
    plain, told = fit(images), fit(images, pixels=PIXELS)
    told.save(tmp_path / "told.safetensors")
    plain.save(tmp_path / "late.safetensors", pixels=PIXELS)
    late = mb.load(tmp_path / "late.safetensors")
    assert late.preprocess == mb.load(tmp_path / "told.safetensors").preprocess
    assert np.array_equal(late(late.preprocess(images[0][:4])), late(PIXELS(images[0][:4])))
    long = mb.data.Preprocess(scale=1 / 255, mean=[127.123456], std=[0.1234567])
    for pixels, says in (
        (3, "pixels is an int"),
        (
            mb.data.Preprocess(mean=np.zeros(3)),
            "pixels has a mean of shape [3], examples have [1, 8, 8]: give [1]",
        ),
        (mb.data.Preprocess(crop=4), "without a crop"),
    ):
        with pytest.raises(MemboundError, match=re.escape(says)):
            plain.save(tmp_path / "no.safetensors", pixels=pixels)
    with pytest.raises(MemboundError, match="this file says already how examples are prepared"):
        told.save(tmp_path / "no.safetensors", pixels=PIXELS)
    tight = dataclasses.replace(plain, limit=plain.file_bytes)
    with pytest.raises(MemboundError, match=r"give pixels to mb\.fit, which makes room for it"):
        tight.save(tmp_path / "no.safetensors", pixels=long)
    assert not (tmp_path / "no.safetensors").exists()


def test_a_fit_on_floats_says_what_an_app_must_do(images, capsys):
    pixels, labels = images
    floats = (PIXELS(pixels), labels)

    def notes(data, **more) -> str:
        mb.fit(network(), data, "1 KB", test_data=data, steps=2, dense=False, **more)
        return capsys.readouterr().err

    assert "an app must prepare pictures in just the same way: pixels=mb.data.Preprocess(...)" in notes(
        floats
    )
    assert "an app must" not in notes(floats, pixels=PIXELS)
    assert "an app must" not in notes((pixels, labels))


def test_a_membound_set_of_floats_takes_no_pixels(images, tmp_path):
    """It is normalized during the fit, which pixels would leave out of the file."""
    x, y = PIXELS(images[0]), images[1]
    np.savez(tmp_path / "floats.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(DataError, match="with a membound Dataset"):
        mb.fit(network(), mb.data.load(tmp_path / "floats.npz"), "1 KB", pixels=PIXELS, steps=2)
