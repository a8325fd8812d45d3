"""net.read: a picture in memory, such as a camera's frame, is what the same picture in a file is, bit for bit."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import membound as mb
from membound.data import Preprocess
from membound.run.calibration import calibrate_activations
from membound.run.micro_net import MicroNet

CHANCE = np.random.default_rng(7)
SHAPES = [(48, 64), (48, 64, 1), (48, 64, 3), (64, 48, 4), (8, 8, 3), (5, 200, 3)]


PIXELS = Preprocess(scale=1 / 255)


def make(path, channels=3, preprocess=PIXELS, classes=None):
    net = nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(72, 3)).eval()
    mb.save(net, path, torch.zeros(1, channels, 8, 8), preprocess=preprocess, classes=classes)
    return path


@pytest.fixture(params=[1, 3], ids=["gray", "colors"])
def net(request, tmp_path):
    return mb.load(make(tmp_path / "net.safetensors", request.param), threads=1)


def pixels(shape):
    return CHANCE.integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_array_and_an_image_are_what_their_file_is(shape, net, tmp_path):
    frame = pixels(shape)
    image = Image.fromarray(frame[:, :, 0] if shape[2:] == (1,) else frame)
    image.save(tmp_path / "frame.png")
    wanted = net.read(tmp_path / "frame.png")
    assert wanted.shape == (1, *net.input_shape)
    before = frame.copy()
    found = net.read(frame, image, str(tmp_path / "frame.png"))
    np.testing.assert_array_equal(found, np.repeat(wanted, 3, 0))
    np.testing.assert_array_equal(frame, before)
    assert net(net.preprocess(found)).shape == (3, 3)


def test_a_frame_in_bgr_turned_around_is_rgb(net):
    frame = pixels((48, 64, 3))
    bgr = np.ascontiguousarray(frame[..., ::-1])
    np.testing.assert_array_equal(net.read(bgr[..., ::-1]), net.read(frame))
    assert (net.read(bgr) != net.read(frame)).any()


def test_the_orientation_of_an_image_is_honored_and_the_image_stays(net, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(pixels((48, 64, 3))).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as image:
        found = net.read(image)
        assert image.size == (64, 48)
        assert image.getexif()[0x0112] == 6
    np.testing.assert_array_equal(found, net.read(tmp_path / "turned.png"))


def test_the_microcontrollers_engine_reads_frames_too(tmp_path):
    net = mb.load(make(tmp_path / "net.safetensors"), threads=1)
    frame = pixels((48, 64, 3))
    inputs = net.read(frame, pixels((64, 48, 3)))
    micro = MicroNet(net.model, activations=calibrate_activations(net.model, net.preprocess(inputs)))
    np.testing.assert_array_equal(micro.read(frame), inputs[:1])
    assert micro(micro.read(frame)).shape == (1, 3)
    with pytest.raises(
        mb.ModelError, match=r"for a frame of any size: net\(net\.preprocess\(net\.read\(frame\)\)\)"
    ):
        micro(frame[None].transpose(0, 3, 1, 2))


def test_the_loop_of_the_howto_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "HOWTO.md").read_text()
    (code,) = re.findall(r"^```python\n(# camera\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    net = mb.load(make(tmp_path / "pi.safetensors", classes=["a", "b", "c"]), threads=1, engine="int8")
    frames = [pixels((48, 64, 3)) for _ in range(4)]  # RGB
    wanted = net(net.preprocess(net.read(*frames))).argmax(1)
    dropped = [(False, None), (True, None), (True, np.zeros((0, 0, 3), np.uint8))]
    shown = [(True, frame[..., ::-1]) for frame in frames]
    camera = iter([shown[0], *dropped, *shown[1:], *30 * [(False, None)]])
    released: list[bool] = []
    opened = SimpleNamespace(
        isOpened=lambda: True, read=lambda: next(camera), release=lambda: released.append(True)
    )
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=lambda number: opened))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "camera.py", "exec"), {})
    assert capsys.readouterr().out.split() == ["abc"[number] for number in wanted]
    assert released == [True]
    assert next(camera, None) is None


REFUSED = {
    "floats": (
        np.zeros((8, 8, 3), np.float32),
        "an array of float32 is not a picture: give pixels from 0 to 255",
    ),
    "whole numbers": (np.zeros((8, 8, 3), np.int64), "an array of int64 is not a picture"),
    "truth": (np.zeros((8, 8), bool), "an array of bool is not a picture"),
    "a row": (
        np.zeros(8, np.uint8),
        r"an array \[8\] is not a picture: give a path, a PIL image, or a uint8 array",
    ),
    "a batch": (np.zeros((2, 8, 8, 3), np.uint8), r"is a batch: .* net.read\(\*frames\)"),
    "channels first": (np.zeros((3, 8, 9), np.uint8), r"channels first: call frame.transpose\(1, 2, 0\)"),
    "two channels": (np.zeros((8, 8, 2), np.uint8), r"an array \[8, 8, 2\] is not a picture"),
    "nothing": (np.zeros((0, 8, 3), np.uint8), r"an array \[0, 8, 3\] is not a picture"),
    "no frame": (None, "None is not a picture: give a path"),
    "a list": (["a.png"], r"a list is not a picture: .* net.read\(\*pictures\)"),
    "a tensor": (torch.zeros(8, 8, 3), r"a Tensor is not a picture: call np.asarray\(...\) on it first"),
    "an image of floats": (
        Image.fromarray(np.zeros((8, 8), np.float32)),
        "this Image cannot be read .floating-point",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_picture_is_refused_in_one_line(kind, net):
    given, says = REFUSED[kind]
    with pytest.raises(mb.DataError, match=says) as refused:
        net.read(given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("shape", [(1, 3, 48, 64), (1, 48, 64, 3), (48, 64, 3)], ids=str)
def test_a_frame_that_was_not_resized_is_sent_to_read(shape, tmp_path):
    file = make(tmp_path / "net.safetensors")
    net = mb.load(file, threads=1)
    with pytest.raises(
        mb.DataError,
        match=r"takes \[n, 3, 8, 8\]: give that; for a picture, use net\.preprocess\(net\.read\(frame\)\)",
    ):
        net.preprocess(pixels(shape))
    advice = (
        r"takes \(batch, 3, 8, 8\); for a frame of any size: net\(net\.preprocess\(net\.read\(frame\)\)\)"
    )
    with pytest.raises(mb.ModelError, match=advice):
        net(pixels(shape).astype(np.float32))


def test_no_advice_where_it_would_not_help(tmp_path):
    net = mb.load(make(tmp_path / "net.safetensors"), threads=1)
    silent = mb.load(make(tmp_path / "silent.safetensors", preprocess=None), threads=1)
    numbers = Preprocess(scale=0.5, takes="float32")
    floats = mb.load(make(tmp_path / "floats.safetensors", preprocess=numbers), threads=1)
    for each, shape in (
        (net, (1, 5, 8, 8)),
        (net, (3, 8, 8)),
        (silent, (1, 3, 9, 9)),
        (floats, (1, 3, 9, 9)),
    ):
        with pytest.raises(mb.ModelError, match=r"takes \(batch, 3, 8, 8\)$"):
            each(np.zeros(shape, np.float32))


@pytest.mark.parametrize("how", [{"mean": np.zeros((3, 8, 8))}, {"crop": 8}], ids=["a mean image", "a crop"])
def test_preprocess_sends_frames_of_a_size_that_it_knows_to_be_wrong_to_read(how):
    with pytest.raises(mb.DataError, match=r"resize them first, as net\.read does"):
        Preprocess(**how)(pixels((1, 3, 6, 6)))
    with pytest.raises(mb.DataError, match=r"they must be \[n, C, H, W\], as net.read\(frame\) gives"):
        Preprocess(**how)(pixels((48, 64, 3)))
