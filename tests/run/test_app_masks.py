"""examples/app of a network that gives masks of images that are not square: its numbers are those of Python."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from app_library import APP, Frame, Picture, compile_app, compile_java, draw, java, jdk, prepared, program
from cpp_library import run
from PIL import Image
from torch import nn

import membound as mb

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
HIGH, WIDE = 18, 30  # of a network whose images are not square
CLASSES = ["sky", "sea", "sand"]


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory) -> tuple[mb.Net, Path]:
    """A network of masks of half the size of its images, and its C++."""
    folder = tmp_path_factory.mktemp("masks")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(4, 3, 1)).eval()
    prepare = mb.data.Preprocess(scale=1 / 128, mean=[128.0] * 3)
    x = torch.zeros(1, 3, HIGH, WIDE)
    mb.save(module, folder / "net.safetensors", x, preprocess=prepare, classes=CLASSES)
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


def to_rgb(y: np.ndarray, u: np.ndarray, v: np.ndarray, video: bool) -> np.ndarray:
    """JPEG's formula, and that of BT.601 video, in float64: u and v are repeated for 2 x 2 pixels."""
    high, wide = y.shape
    u, v = (each.astype(float).repeat(2, 0).repeat(2, 1)[:high, :wide] - 128 for each in (u, v))
    gray = y.astype(float)
    if video:
        gray, u, v = (gray - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    colors = gray + 1.402 * v, gray - 0.344136 * u - 0.714136 * v, gray + 1.772 * u
    return np.floor(np.stack(colors, -1) + 0.5).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(("width", "height"), [(64, 48), (33, 21), (1, 1)])
@pytest.mark.parametrize("layout", ["NV21", "NV12", "planes"])
@pytest.mark.parametrize("video", [False, True])
def test_frames_of_cameras_become_pictures(oblong, width, height, layout, video):
    random = np.random.default_rng(0)
    y = random.integers(0, 256, (height, width), np.uint8)
    u, v = random.integers(0, 256, (2, (height + 1) // 2, (width + 1) // 2), np.uint8)
    rows, step, spare = y, 1, 0
    first, second = u, v
    if layout == "planes":  # with some bytes behind each row
        rows, spare = np.pad(y, ((0, 0), (0, 7))), 3
        first, second = (np.pad(each, ((0, 0), (0, spare))) for each in (u, v))
        places = first.ctypes.data, second.ctypes.data
    else:
        step, pair = 2, np.stack([u, v] if layout == "NV12" else [v, u], -1).reshape(len(u), -1)
        places = (pair.ctypes.data, pair.ctypes.data + 1)[:: 1 if layout == "NV12" else -1]
    sizes = width, height, rows.strides[0], step * u.shape[1] + spare, step
    wanted = to_rgb(y, u, v, video)
    for turn in (0, 90, 180, 270):
        frame = Frame(rows.ctypes.data, *places, *sizes, turn, video)
        right = np.rot90(wanted, -turn // 90)
        found = np.zeros((*right.shape[:2], 4), np.uint8)
        assert oblong[1].classifier_convert(ctypes.byref(frame), ctypes.c_void_p(found.ctypes.data)) == 0
        assert np.abs(found[:, :, :3].astype(int) - right).max() <= int(video), (
            "constants of video are rounded"
        )
        assert (found[:, :, 3] == 255).all()


def test_frames_of_cameras_are_those_of_pillow(oblong):
    """Within its own rounding: a photo of gray and of color in YCbCr."""
    ycc = np.asarray(Image.fromarray(digits(64, 48)).convert("YCbCr"))
    y, u, v = (np.ascontiguousarray(ycc[:, :, channel]) for channel in range(3))
    u, v = (each[::2, ::2].copy() for each in (u, v))
    whole = np.stack([y, *(each.repeat(2, 0).repeat(2, 1) for each in (u, v))], -1)
    wanted = np.asarray(Image.fromarray(whole, "YCbCr").convert("RGB"), int)
    found = np.zeros((48, 64, 4), np.uint8)
    frame = Frame(y.ctypes.data, u.ctypes.data, v.ctypes.data, 64, 48, 64, 32, 1, 0, 0)
    assert oblong[1].classifier_convert(ctypes.byref(frame), ctypes.c_void_p(found.ctypes.data)) == 0
    assert np.abs(found[:, :, :3] - wanted).max() <= 1


@pytest.mark.parametrize(
    "wrong",
    [{"width": 0}, {"y": None}, {"v": None}, {"turn": 45}, {"turn": 360}, {"y_row_bytes": 9}, {"uv_row_bytes": 4},
     {"uv_pixel_bytes": 3}, {"video_range": 2}],
)  # fmt: skip
def test_frames_that_cannot_be_are_refused(oblong, wrong):
    bytes_, out = np.zeros(200, np.uint8), np.zeros(400, np.uint8)
    fields = dict.fromkeys("yuv", bytes_.ctypes.data) | {
        "width": 10, "height": 8, "y_row_bytes": 10, "uv_row_bytes": 5, "uv_pixel_bytes": 1
    }  # fmt: skip
    convert = oblong[1].classifier_convert
    assert convert(ctypes.byref(Frame(**(fields | wrong))), ctypes.c_void_p(out.ctypes.data)) == -1
    assert convert(ctypes.byref(Frame(**fields)), ctypes.c_void_p(out.ctypes.data)) == 0


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
    said = "".join(f"class {c}: {CLASSES[c]}, {count} pixels\n" for c, count in enumerate(counts))
    done = run(tmp_path / "classify", tmp_path / "picture.ppm")
    assert done.startswith(said)
    assert done.endswith("engine float\n")


FRAME = """import java.nio.ByteBuffer;

public final class FrameCheck {
    static ByteBuffer filled(int size, int first) {
        ByteBuffer made = ByteBuffer.allocateDirect(size);
        for (int i = 0; i < size; i++) made.put(i, (byte) ((i + first) * (i + first) / 5));
        return made;
    }

    public static void main(String[] words) {
        int width = 40, height = 26, row = 48;
        ByteBuffer y = filled(row * (height - 1) + width, 0), vu = filled(row * (height / 2 - 1) + width, 9);
        ByteBuffer pixels = ByteBuffer.allocateDirect(4 * width * height);
        vu.position(1);  // NV21: v first
        Classifier.convert(y, vu.slice(), vu, width, height, row, row, 2, 90, pixels);
        for (byte each : Classifier.mask(pixels, height, width, 4 * height)) System.out.print(each + " ");
        System.out.println();
        for (int turn : new int[] {45, 0}) {
            try {
                Classifier.convert(turn == 0 ? vu : y, vu, vu, width, height, row, row, 2, turn, pixels);
            } catch (IllegalArgumentException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
"""


def test_java_makes_masks_of_pictures_and_frames(segmenter, tmp_path):
    home = jdk()
    if home is None or not (home / "include" / "linux").is_dir():
        pytest.skip("there is no JDK")
    net, folder = segmenter
    (tmp_path / "FrameCheck.java").write_text(FRAME)
    compile_java(home, folder, tmp_path, tmp_path / "FrameCheck.java")
    Image.fromarray(draw(64, 48)).save(tmp_path / "picture.png")
    wanted = net(net.preprocess(net.read(tmp_path / "picture.png")))[0].argmax(0)
    said = "".join(f"class {c}: {count} pixels\n" for c, count in enumerate(np.bincount(wanted.ravel())))
    assert java(tmp_path, "ClassifyPicture", tmp_path / "picture.png") == said.splitlines()
    numbers = np.arange(48 * 26 + 9) ** 2 // 5
    y, vu = numbers[: 48 * 26].reshape(26, 48)[:, :40], numbers[9:][: 48 * 13].reshape(13, 48)[:, :40]
    y, u, v = (each.astype(np.uint8) for each in (y, vu[:, 1::2], vu[:, ::2]))
    upright = np.ascontiguousarray(np.rot90(to_rgb(y, u, v, video=False), -1))
    mask, *refused = java(tmp_path, "FrameCheck")
    assert len(set(mask.split())) > 1
    assert np.array_equal(
        [int(each) for each in mask.split()], net(net.preprocess(net.read(upright)))[0].argmax(0).ravel()
    )
    assert refused == [
        "rows are too short, uvPixelBytes is not 1 or 2, or turn is not 0, 90, 180 or 270",
        "y, u, v and pixels must be direct buffers, large enough for the frame",
    ]
