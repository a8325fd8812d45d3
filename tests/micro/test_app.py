"""examples/app: what an app calls gives the pixels of net.read and the numbers of the engine, in C, C++ and Java."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import membound as mb
from membound.run.micro_net import MicroNet

APP = Path(__file__).parents[2] / "examples" / "app"
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SIDE = 24
pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


class Picture(ctypes.Structure):
    _fields_ = [
        ("pixels", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("width", "height", "pixel_bytes", "row_bytes")),
    ]


def small(channels: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 11 * 11, 5)]
    return nn.Sequential(*layers).eval()


def exported(channels: int, folder: Path) -> tuple[MicroNet, Path]:
    """A network as the device runs it, and its C."""
    file = folder / "net.safetensors"
    prepare = mb.data.Preprocess(scale=1 / 128, mean=[128.0] * channels)
    mb.save(small(channels), file, torch.zeros(1, channels, SIDE, SIDE), preprocess=prepare)
    images = np.random.default_rng(0).integers(0, 256, (32, channels, SIDE, SIDE), np.uint8)
    return mb.export_c(file, folder / "c", images=images), folder / "c"


def library(folder: Path) -> ctypes.CDLL:
    """classifier.cpp and the network, to be called from here."""
    sources = [str(folder / name) for name in ("net.c", "membound_micro.c", "membound_micro_conv.c")]
    subprocess.run(["cc", "-O1", "-fPIC", "-c", *sources], cwd=folder, check=True)
    objects = [str(Path(source).with_suffix(".o")) for source in sources]
    build = [
        "c++",
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        *STRICT,
        f"-I{folder}",
        str(APP / "classifier.cpp"),
    ]
    subprocess.run([*build, *objects, "-o", str(folder / "app.so")], check=True)
    return ctypes.CDLL(str(folder / "app.so"))


@pytest.fixture(scope="module", params=[1, 3])
def app(request, tmp_path_factory) -> tuple[int, MicroNet, ctypes.CDLL]:
    net, folder = exported(request.param, tmp_path_factory.mktemp("app"))
    return request.param, net, library(folder)


def draw(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Waves and noise, [height, width, 3]."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 7 + y / 13), np.cos(x / 5), np.sin(y / 3)], -1)
    noise = np.random.default_rng(seed).normal(0, 20, waves.shape)
    return (128 + 100 * waves + noise).clip(0, 255).astype(np.uint8)


def prepared(app: ctypes.CDLL, pixels: np.ndarray, channels: int, padding: int = 0) -> np.ndarray:
    """[C, H, W] of what the app makes of a picture whose rows end with some spare bytes."""
    height, width, depth = pixels.shape
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (0, padding)))
    picture = Picture(rows.ctypes.data, width, height, depth, rows.shape[1])
    image = np.zeros((SIDE, SIDE, channels), np.uint8)
    assert app.classifier_prepare(ctypes.byref(picture), ctypes.c_void_p(image.ctypes.data)) == 0
    return image.transpose(2, 0, 1)


SIZES = [(24, 24), (25, 24), (640, 480), (37, 91), (7, 5), (24, 300), (1, 40), (900, 31), (255, 256)]


@pytest.mark.parametrize("size", SIZES)
def test_a_picture_becomes_the_image_that_python_reads(app, size, tmp_path):
    channels, net, library = app
    pixels = draw(*size)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    wanted = net.read(tmp_path / "picture.png")
    found = prepared(library, pixels, channels).astype(int)
    # Pillow takes the columns of a tall picture first, and gray between two numbers is rounded by float32.
    assert np.abs(found - wanted[0]).max() <= 1
    if channels == 3 and size[1] <= 2 * size[0]:
        assert np.array_equal(found, wanted[0])
    with_alpha = np.dstack([pixels, np.full(pixels.shape[:2], 9, np.uint8)])
    assert np.array_equal(found, prepared(library, with_alpha, channels, padding=5))


def test_an_image_gets_the_scores_of_the_engine(app):
    channels, net, library = app
    image = np.random.default_rng(3).integers(0, 256, (1, channels, SIDE, SIDE), np.uint8)
    rows = np.ascontiguousarray(image[0].transpose(1, 2, 0))
    scores = np.zeros(library.classifier_outputs(), np.float32)
    best = library.classifier_run(ctypes.c_void_p(rows.ctypes.data), ctypes.c_void_p(scores.ctypes.data))
    assert library.classifier_input_bytes() == image.size
    np.testing.assert_allclose(scores, net(image)[0], rtol=1e-6)
    assert best == scores.argmax()


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"height": 0}, {"pixel_bytes": 2}, {"row_bytes": 29}, {"pixels": None}]
)
def test_a_picture_that_cannot_be_is_refused(app, wrong):
    _, _, library = app
    pixels = draw(10, 8)
    fields = {"pixels": pixels.ctypes.data, "width": 10, "height": 8, "pixel_bytes": 3, "row_bytes": 30}
    assert library.classifier_classify(ctypes.byref(Picture(**(fields | wrong))), None) == -1
    assert library.classifier_classify(ctypes.byref(Picture(**fields)), None) >= 0


def test_the_bridging_header_is_objective_c():
    if shutil.which("clang") is None:
        pytest.skip("there is no clang")
    header = APP / "Classifier-Bridging-Header.h"
    subprocess.run(["clang", "-x", "objective-c", "-fsyntax-only", *STRICT, str(header)], check=True)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_folder_builds_and_says_what_it_lacks(tmp_path):
    refused = subprocess.run(
        ["cmake", "-S", APP, "-B", tmp_path / "none", "-DNET=nowhere"], capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert "there is no net.h: pass -DNET=FOLDER" in " ".join(refused.stderr.split())

    net, folder = exported(3, tmp_path)
    javac = shutil.which("javac")
    java = {} if javac is None else {"JAVA_HOME": str(Path(os.path.realpath(javac)).parents[1])}
    for command in (
        ["-S", APP, "-B", tmp_path / "build", f"-DNET={folder}"],
        ["--build", tmp_path / "build"],
    ):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL, env=os.environ | java)
    Image.fromarray(draw(64, 48)).save(tmp_path / "picture.png")
    Image.fromarray(draw(64, 48)).save(tmp_path / "picture.ppm")
    scores = net(net.read(tmp_path / "picture.png"))[0]
    wanted = f"class {scores.argmax()}, score "
    done = subprocess.run(
        [tmp_path / "build" / "classify", tmp_path / "picture.ppm", "2", "3"], capture_output=True, text=True
    )
    assert done.stdout.startswith(wanted), done.stderr
    assert "pictures a second on 2 threads" in done.stdout
    assert float(done.stdout.split()[3]) == pytest.approx(scores.max(), rel=1e-4)
    if not (tmp_path / "build" / "libclassifier.so").exists():
        return  # no JDK
    subprocess.run(["javac", "-d", tmp_path, APP / "Classifier.java"], check=True)
    command = ["java", "-cp", tmp_path, f"-Djava.library.path={tmp_path / 'build'}", "Classifier"]
    done = subprocess.run([*command, tmp_path / "picture.png"], capture_output=True, text=True)
    assert wanted in done.stdout, done.stderr


def test_a_file_that_is_no_picture_is_refused(tmp_path):
    _, folder = exported(3, tmp_path)
    sources = [APP / "main.cpp", APP / "classifier.cpp"]
    runtime = [folder / name for name in ("net.c", "membound_micro.c", "membound_micro_conv.c")]
    for source in runtime:
        subprocess.run(["cc", "-c", source], cwd=folder, check=True)
    program = [
        "c++",
        "-std=c++17",
        "-pthread",
        f"-I{folder}",
        *sources,
        *(each.with_suffix(".o") for each in runtime),
    ]
    subprocess.run([*program, "-o", tmp_path / "classify"], check=True)
    (tmp_path / "cut.ppm").write_bytes(b"P6 8 8 255\n" + bytes(17))
    for name in ("cut.ppm", "missing.ppm"):
        done = subprocess.run([tmp_path / "classify", tmp_path / name], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.endswith("not a picture in binary PPM (P6) with 8 bits\n")
