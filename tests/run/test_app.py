"""examples/app: what an app calls gives the pixels of net.read and the numbers of the engine, in C, C++ and Java."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from app_library import (
    APP,
    SIDE,
    STRICT,
    UTF_8,
    Picture,
    compile_app,
    compile_java,
    draw,
    java,
    jdk,
    prepared,
    program,
)  # fmt: skip
from cpp_library import run
from PIL import Image
from torch import nn

import membound as mb

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


def small(channels: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 11 * 11, 5)]
    return nn.Sequential(*layers).eval()


NAMES = ["ox", "née", "owl 🦉", "fox", "yak"]


def exported(channels: int, folder: Path) -> tuple[mb.Net, Path]:
    """A network, and its C++; one of color has names of classes."""
    file = folder / "net.safetensors"
    prepare = mb.data.Preprocess(scale=1 / 128, mean=[128.0] * channels)
    classes = NAMES if channels == 3 else None
    example = torch.zeros(1, channels, SIDE, SIDE)
    mb.save(small(channels), file, example, preprocess=prepare, classes=classes)
    mb.export_cpp(file, folder / "cpp")
    return mb.load(file, threads=1), folder / "cpp"


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Callable[[int], tuple[mb.Net, Path]]:
    """A network of so many channels and its C++, which several tests compile against."""
    return cache(lambda channels: exported(channels, tmp_path_factory.mktemp("app")))


@pytest.fixture(scope="module", params=[1, 3])
def app(request, network) -> tuple[int, mb.Net, ctypes.CDLL]:
    net, folder = network(request.param)
    compile_app(folder, folder / "app.so")
    return request.param, net, ctypes.CDLL(str(folder / "app.so"))


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
    of_a_camera = np.ascontiguousarray(with_alpha[:, :, [2, 1, 0, 3]])
    assert np.array_equal(found, prepared(library, of_a_camera, channels, padding=5, bgra=1))


def test_an_image_gets_the_scores_of_the_runtime(app):
    channels, net, library = app
    image = np.random.default_rng(3).integers(0, 256, (1, channels, SIDE, SIDE), np.uint8)
    rows = np.ascontiguousarray(image[0].transpose(1, 2, 0))
    scores = np.zeros(library.classifier_outputs(), np.float32)
    best = library.classifier_run(ctypes.c_void_p(rows.ctypes.data), ctypes.c_void_p(scores.ctypes.data))
    assert library.classifier_input_bytes() == image.size
    assert np.array_equal(scores, net(net.preprocess(image))[0])
    assert best == scores.argmax()


@pytest.mark.parametrize(
    "wrong",
    [{"width": 0}, {"height": 0}, {"pixel_bytes": 2}, {"row_bytes": 29}, {"pixels": None}, {"bgra": 2}],
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


@pytest.mark.parametrize("channels", [1, 3])
def test_the_program_of_the_page_runs(network, tmp_path, channels):
    """On a frame in color, of which a gray network must not take red alone."""
    net, folder = network(channels)
    source = program("app.cpp", tmp_path)
    code, camera = source.read_text(), "  net *network = net_open(1);"
    assert camera in code
    drawn = "  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>(i * i / 7 + (i % 4) * 60);\n"
    scores = '  for (float score : scores) std::printf("%a\\n", score);\n  net_close'
    source.write_text(code.replace(camera, drawn + camera).replace("  net_close", scores))
    compile_app(folder, tmp_path / "app", source)
    at = np.arange(4 * SIDE * SIDE)
    frame = (at * at // 7 + at % 4 * 60).astype(np.uint8).reshape(SIDE, SIDE, 4)[:, :, :3]
    gray = (frame @ [0.299, 0.587, 0.114] + 0.5).astype(np.uint8)[..., None]
    image = (gray if channels == 1 else frame).transpose(2, 0, 1)[None]
    best, *found = run(tmp_path / "app").split()
    wanted = net(net.preprocess(np.ascontiguousarray(image)))[0]
    assert int(best) == wanted.argmax()
    assert np.array_equal([float.fromhex(each) for each in found], wanted)


def test_updates_of_the_page_and_of_the_example(network, tmp_path):
    """A newer network from a file; the one that is compiled in, where there is none that can be opened."""
    net, folder = network(3)
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 20 * 20, 5)).eval()
    prepare = mb.data.Preprocess(scale=1 / 64, mean=[100.0] * 3)
    mb.save(
        module,
        tmp_path / "newer.safetensors",
        torch.zeros(1, 3, SIDE, SIDE),
        preprocess=prepare,
        classes=NAMES,
    )
    mb.export_cpp_file(tmp_path / "newer.safetensors", tmp_path / "newer.net")
    newer = mb.load(tmp_path / "newer.safetensors", threads=1)
    compile_app(folder, tmp_path / "update", program("update.cpp", tmp_path))
    black = np.zeros((1, 3, SIDE, SIDE), np.uint8)
    for file, wanted in ((tmp_path / "newer.net", newer), (tmp_path / "none", net)):
        assert float.fromhex(run(tmp_path / "update", file)) == wanted(wanted.preprocess(black))[0, 0]
    compile_app(folder, tmp_path / "classify", APP / "main.cpp")
    Image.fromarray(draw(30, 30)).save(tmp_path / "picture.ppm")
    given = [tmp_path / "classify", tmp_path / "picture.ppm", 1, 1]
    scores = newer(newer.preprocess(net.read(tmp_path / "picture.ppm")))[0]
    done = run(*given, tmp_path / "newer.net")
    assert done.startswith(f"class {scores.argmax()}: {NAMES[scores.argmax()]}, score {scores.max():.6g}\n")
    words = [*map(str, given), str(folder / "net.h")]
    refused = subprocess.run(words, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not a network file for an app" in refused.stderr


def test_android_has_all_that_the_class_for_it_needs(tmp_path):
    """No java.awt, no javax.imageio: those are for the desktop's main alone."""
    if shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    run("javac", "--limit-modules", "java.base", "-d", tmp_path, APP / "Classifier.java")


CHECK = """import java.nio.ByteBuffer;

public final class Check {
    public static void main(String[] words) {
        int width = 30, height = 20, rowBytes = 4 * width + 8, size = rowBytes * (height - 1) + 4 * width;
        ByteBuffer pixels = ByteBuffer.allocateDirect(size);
        for (int i = 0; i < size; i++) pixels.put(i, (byte) (i * i / 7));
        try {
            Classifier.open(257);
        } catch (IllegalArgumentException error) {
            System.out.println(error.getMessage());
        }
        System.out.println(Classifier.open("n\\u00e9e.net", 2));
        System.out.println(Classifier.open("missing", 2));
        for (float score : Classifier.scores(pixels, width, height, rowBytes))
            System.out.println(Float.toHexString(score));
        for (int i = -1; i < 6; i++) System.out.println(Classifier.name(i).codePoints().boxed().toList());
        try {
            Classifier.scores(ByteBuffer.allocateDirect(size - 1), width, height, rowBytes);
        } catch (IllegalArgumentException error) {
            System.out.println(error.getMessage());
        }
    }
}
"""


def test_java_calls_the_network(network, tmp_path):
    """Names in any script, an update, threads, and a plane of a camera whose last row has no padding."""
    home = jdk()
    if home is None or not (home / "include" / "linux").is_dir():
        pytest.skip("there is no JDK")
    net, folder = network(3)
    update = tmp_path / "née.net"
    mb.export_cpp_file(net, update)
    (tmp_path / "Check.java").write_text(CHECK)
    compile_java(home, folder, tmp_path, tmp_path / "Check.java")
    rows, padded = np.zeros((20, 128), np.uint8), np.arange(128 * 19 + 120)
    rows.reshape(-1)[: len(padded)] = padded * padded // 7
    Image.fromarray(rows[:, :120].reshape(20, 30, 4)[:, :, :3]).save(tmp_path / "frame.png")
    wanted = net(net.preprocess(net.read(tmp_path / "frame.png")))[0]
    refused, opened, second, *scores = java(tmp_path, "Check")
    assert refused.startswith("no network can be opened: threads go from 0 to 256")
    assert (opened, second) == ("null", "another network is open already: the first call decides")
    assert np.array_equal([float.fromhex(score) for score in scores[:5]], wanted)
    names = ["", *NAMES, ""]
    assert scores[5:12] == [str([ord(letter) for letter in name]) for name in names]
    assert scores[12] == "the buffer is smaller than the picture"
    best = wanted.argmax()
    (said,) = java(tmp_path, "ClassifyPicture", "frame.png")
    assert said.startswith(f"class {best}: ")
    assert float(said.split("score ")[1]) == pytest.approx(wanted[best], rel=1e-6)


def test_a_network_is_opened_once(app, tmp_path):
    _, _, library = app
    why = ctypes.create_string_buffer(400)
    assert library.classifier_open(1) == 0
    assert library.classifier_open_update(str(tmp_path / "none").encode(), 1, why, 400) == 0
    assert why.value == b"another network is open already: the first call decides"
    assert library.classifier_open_update(b"", 1, None, 0) == 0


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_a_folder_that_is_none_is_refused(tmp_path):
    command = ["cmake", "-S", APP, "-B", tmp_path / "none", "-DNET=nowhere"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "there is no net.h: pass -DNET=FOLDER" in " ".join(refused.stderr.split())


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
@pytest.mark.parametrize(
    ("module", "shape", "how", "said"),
    [
        (
            nn.Conv2d(3, 2, 8),
            (3, 8, 8),
            mb.data.Preprocess(takes="float32"),
            "this network was trained on floats",
        ),
        (nn.Conv2d(3, 2, 8), (3, 8, 8), None, '(docs/APP.md, "Networks that do not take pixels")'),
        (nn.Linear(4, 2), (4,), None, "this network takes no pictures"),
    ],
)
def test_a_network_that_takes_no_pixels_is_refused_before_anything_compiles(
    module, shape, how, said, tmp_path
):
    mb.save(nn.Sequential(module), tmp_path / "n.safetensors", torch.zeros(1, *shape), preprocess=how)
    mb.export_cpp(tmp_path / "n.safetensors", tmp_path / "net")
    command = ["cmake", "-S", APP, "-B", tmp_path / "build", f"-DNET={tmp_path / 'net'}"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0
    assert said in " ".join(refused.stderr.split())
    assert "Warning" not in refused.stderr


def test_the_program_says_the_class_of_a_picture(network, tmp_path):
    net, folder = network(3)
    compile_app(folder, tmp_path / "classify", APP / "main.cpp")
    check_program(tmp_path / "classify", net, tmp_path)
    (tmp_path / "cut.ppm").write_bytes(b"P6 8 8 255\n" + bytes(17))
    (tmp_path / "deep.ppm").write_bytes(b"P6 8 8 65535\n" + bytes(384))
    (tmp_path / "empty.ppm").touch()
    for words, said in (
        (["cut.ppm"], "cut.ppm: the picture is truncated: it has fewer pixels than its header says\n"),
        (["picture.png"], "picture.png: not a picture in binary PPM (P6) with 8 bits\n"),
        (["missing.ppm"], "missing.ppm: there is no such file, or it cannot be read\n"),
        (["empty.ppm"], "empty.ppm: the file is empty, or a folder\n"),
        (["deep.ppm"], "deep.ppm: not a picture of 8 bits: the largest value of its header is not 255\n"),
        (["picture.ppm", "1", "many"], "many: RUNS is a whole number from 1 to 1000000\n"),
        (["picture.ppm", "1", "0"], "0: RUNS is a whole number from 1 to 1000000\n"),
        (["picture.ppm", "999"], "THREADS is a whole number from 0 (all cores) to 256\n"),
        ([], "usage: ./classify PICTURE.ppm [THREADS [RUNS [UPDATE]]]\n"),
    ):
        done = subprocess.run(["./classify", *words], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.endswith(said)


def check_program(program: Path, net: mb.Net, folder: Path) -> str:
    """What it says of a picture; the beginning."""
    Image.fromarray(draw(64, 48)).save(folder / "picture.png")
    Image.fromarray(draw(64, 48)).save(folder / "picture.ppm")
    scores = net(net.preprocess(net.read(folder / "picture.png")))[0]
    wanted = f"class {scores.argmax()}: {NAMES[scores.argmax()]}, score "
    said = run(program, folder / "picture.ppm", 2, 3)
    assert said.startswith(wanted)
    assert float(said.split("score ")[1].split()[0]) == pytest.approx(scores.max(), rel=1e-4)
    return wanted


@pytest.mark.full
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_folder_builds_and_java_calls_it(tmp_path):
    """All of it, kernels and all, takes a minute or two to compile."""
    net, folder = exported(3, tmp_path)
    java = {} if jdk() is None else {"JAVA_HOME": str(jdk())}
    for command in (
        ["-S", APP, "-B", tmp_path / "build", f"-DNET={folder}"],
        ["--build", tmp_path / "build", "--parallel", "2"],
    ):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL, env=os.environ | java)
    wanted = check_program(tmp_path / "build" / "classify", net, tmp_path)
    if not java:
        return
    run("javac", "-d", tmp_path, APP / "Classifier.java", APP / "ClassifyPicture.java")
    library = [f"-Djava.library.path={tmp_path / 'build'}", *UTF_8]
    assert run("java", "-cp", tmp_path, *library, "ClassifyPicture", tmp_path / "picture.png").startswith(
        wanted
    )
