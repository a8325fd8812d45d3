"""examples/app as a library, compiled once for each network: helpers of its tests."""

import ctypes
import os
import re
import shutil
from pathlib import Path

import numpy as np
from cpp_library import kernels, run

APP = Path(__file__).parents[2] / "examples" / "app"
PAGE = APP.parents[1] / "docs" / "APP.md"
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SIDE = 24
UTF_8 = ["-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]  # up to Java 17, and from 18 on


class Picture(ctypes.Structure):
    _fields_ = [
        ("pixels", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("width", "height", "pixel_bytes", "row_bytes", "bgra")),
    ]


class Frame(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in "yuv"),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "width", "height", "y_row_bytes", "uv_row_bytes", "uv_pixel_bytes", "turn", "video_range",
            )
        ),
    ]  # fmt: skip


def compile_once(source: Path, folder: Path, *flags: str) -> Path:
    """The object of a source beside the network that it is for."""
    target = folder / f"{source.stem}.o"
    if not target.exists():
        run(
            "c++", "-std=c++17", "-fPIC", "-pthread", *flags, f"-I{folder}", "-c", source, "-o", target
        )  # fmt: skip
    return target


def compile_app(folder: Path, target: Path, *sources: Path) -> None:
    """The example's sources and a network, with kernels that are compiled already."""
    own = [compile_once(source, folder, "-O1", *STRICT) for source in (APP / "classifier.cpp", *sources)]
    network = [compile_once(folder / name, folder) for name in ("net.cpp", "weights.cpp")]
    shared = ["-shared"] if target.suffix == ".so" else []
    run("c++", "-pthread", *shared, *own, *network, kernels(), "-o", target)


def draw(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Waves and noise, [height, width, 3]."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 7 + y / 13), np.cos(x / 5), np.sin(y / 3)], -1)
    noise = np.random.default_rng(seed).normal(0, 20, waves.shape)
    return (128 + 100 * waves + noise).clip(0, 255).astype(np.uint8)


def prepared(
    app: ctypes.CDLL, pixels: np.ndarray, channels: int, padding: int = 0, bgra: int = 0,
    shape: tuple[int, int] = (SIDE, SIDE),
) -> np.ndarray:  # fmt: skip
    """[C, H, W] of what the app makes of a picture whose rows end with some spare bytes."""
    height, width, depth = pixels.shape
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (0, padding)))
    picture = Picture(rows.ctypes.data, width, height, depth, rows.shape[1], bgra)
    image = np.zeros((*shape, channels), np.uint8)
    assert app.classifier_prepare(ctypes.byref(picture), ctypes.c_void_p(image.ctypes.data)) == 0
    return image.transpose(2, 0, 1)


def program(name: str, folder: Path) -> Path:
    """A block of C++ of the page, as a file."""
    found = re.findall(r"^```cpp\n// (\w+\.cpp)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [file for file, _ in found] == ["app.cpp", "mask.cpp", "update.cpp"]
    (folder / name).write_text(dict(found)[name])
    return folder / name


def jdk() -> Path | None:
    """Where jni.h is, under include."""
    javac = shutil.which("javac")
    home = None if javac is None else Path(os.path.realpath(javac)).parents[1]
    return home if home is not None and (home / "include" / "jni.h").is_file() else None


def compile_java(home: Path, network: Path, target: Path, *more: Path) -> None:
    """The classes of the example, and their library with a network."""
    include = [f"-I{home / 'include'}", f"-I{home / 'include' / 'linux'}"]
    compile_once(APP / "classifier_jni.cpp", network, "-O1", *STRICT, *include)
    compile_app(network, target / "libclassifier.so", APP / "classifier_jni.cpp")
    run("javac", "-d", target, APP / "Classifier.java", APP / "ClassifyPicture.java", *more)


def java(folder: Path, *words: object) -> list[str]:
    library = [f"-Djava.library.path={folder}", *UTF_8]
    return run("java", "-cp", folder, *library, *words, at=folder).splitlines()
