"""examples/app of a network that gives masks of images that are not square: its numbers are those of Python."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from app_library import APP, Picture, compile_app, compile_java, draw, java, jdk, prepared, program
from cpp_library import run
from PIL import Image
from torch import nn

import membound as mb

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
HIGH, WIDE = 18, 30  # of a network whose images are not square


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory) -> tuple[mb.Net, Path]:
    """A network of masks of half the size of its images, and its C++."""
    folder = tmp_path_factory.mktemp("masks")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(4, 3, 1)).eval()
    prepare = mb.data.Preprocess(scale=1 / 128, mean=[128.0] * 3)
    mb.save(module, folder / "net.safetensors", torch.zeros(1, 3, HIGH, WIDE), preprocess=prepare)
    mb.export_cpp(folder / "net.safetensors", folder / "cpp")
    return mb.load(folder / "net.safetensors", threads=1), folder / "cpp"


@pytest.fixture(scope="module")
def oblong(segmenter) -> tuple[mb.Net, ctypes.CDLL]:
    net, folder = segmenter
    compile_app(folder, folder / "app.so")
    return net, ctypes.CDLL(str(folder / "app.so"))


def digits(width: int, height: int) -> np.ndarray:
    """A picture of handwritten digits side by side, in color, [height, width, 3]."""
    down, across = -(-height // 28), -(-width // 28)
    images = mb.data.load("mnist").test.read(range(3 * down * across))[:, 0]
    sheets = images.reshape(3, down, across, 28, 28).swapaxes(2, 3).reshape(3, 28 * down, 28 * across)
    return np.ascontiguousarray(sheets[:, :height, :width].transpose(1, 2, 0))


OBLONG = [
    (30, 18),
    (60, 36),
    (640, 480),
    (480, 640),
    (320, 192),
    (31, 18),
    (30, 19),
    (7, 5),
    (900, 31),
    (29, 900),
]


@pytest.mark.parametrize("size", OBLONG)
def test_images_that_are_not_square(oblong, size, tmp_path):
    """The image, the scores and the mask of a picture, against Python's."""
    net, library = oblong
    pixels = digits(*size)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    wanted = net.read(tmp_path / "picture.png")
    found = prepared(library, pixels, 3, shape=(HIGH, WIDE))
    assert np.array_equal(found, wanted[0])
    scores = np.zeros(net.output_shape, np.float32)
    picture = Picture(pixels.ctypes.data, *size, 3, 3 * size[0])
    assert library.classifier_outputs() == scores.size
    assert library.classifier_classify(ctypes.byref(picture), ctypes.c_void_p(scores.ctypes.data)) == 0
    expected = net(net.preprocess(wanted))[0]
    assert np.array_equal(scores, expected)
    mask = np.zeros((library.classifier_mask_height(), library.classifier_mask_width()), np.uint8)
    assert mask.shape == (9, 15)
    assert library.classifier_mask(ctypes.byref(picture), ctypes.c_void_p(mask.ctypes.data)) == 0
    assert np.array_equal(mask, expected.argmax(0))


def test_masks_of_the_page_and_of_the_example(segmenter, tmp_path):
    net, folder = segmenter
    compile_app(folder, tmp_path / "mask", program("mask.cpp", tmp_path))
    gray = net(net.preprocess(np.full((1, 3, HIGH, WIDE), 128, np.uint8)))[0].argmax(0)
    assert run(tmp_path / "mask") == f"{(gray == 1).sum()} pixels of class 1\n"
    pixels = draw(64, 48)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    wanted = net(net.preprocess(net.read(tmp_path / "picture.png")))[0].argmax(0)
    compile_app(folder, tmp_path / "classify", APP / "main.cpp")
    Image.fromarray(pixels).save(tmp_path / "picture.ppm")
    counts = np.bincount(wanted.ravel())
    said = "".join(f"class {c}: {count} pixels\n" for c, count in enumerate(counts))
    done = run(tmp_path / "classify", tmp_path / "picture.ppm")
    assert done.startswith(said)
    assert done.endswith("engine float\n")


def test_java_makes_masks(segmenter, tmp_path):
    home = jdk()
    if home is None or not (home / "include" / "linux").is_dir():
        pytest.skip("there is no JDK")
    net, folder = segmenter
    compile_java(home, folder, tmp_path)
    Image.fromarray(draw(64, 48)).save(tmp_path / "picture.png")
    wanted = net(net.preprocess(net.read(tmp_path / "picture.png")))[0].argmax(0)
    said = "".join(f"class {c}: {count} pixels\n" for c, count in enumerate(np.bincount(wanted.ravel())))
    assert java(tmp_path, "ClassifyPicture", tmp_path / "picture.png") == said.splitlines()
