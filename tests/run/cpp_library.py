"""An exported C++ folder as a shared library, called by way of its C header."""

import ctypes
import fcntl
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
FLAGS = (
    "-std=c++17",
    "-O0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
)


@cache
def kernels() -> Path:
    """The kernels as they were compiled for the extension; if that is not here or is older, compiled once."""
    newest = max(path.stat().st_mtime for path in (ROOT / "src" / "kernels").iterdir())
    found = [path for path in (ROOT / "build").glob("*/libmembound_core.a") if path.stat().st_mtime > newest]
    usable = [path for path in found if not path.parent.name.startswith("drivers")]
    if usable:
        return max(usable, key=lambda path: path.stat().st_mtime)
    folder = ROOT / "build" / "app-kernels"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several processes build it once
        run("cmake", "-S", ROOT, "-B", folder, "-DMEMBOUND_BUILD_PYTHON=OFF")
        run("cmake", "--build", folder, "--parallel", "2", "--target", "membound_core")
    return folder / "libmembound_core.a"


def build_library(folder: Path, kernels: Path, *, prefix: str = "net", compiler: str = "c++") -> Path:
    """The network with kernels that are compiled already."""
    library = folder / f"lib{prefix}.so"
    sources = [folder / f"{prefix}.cpp", folder / "weights.cpp", kernels]
    run(compiler, *FLAGS, f"-I{folder}", *sources, "-o", library)
    return library


def run(*command: object, at: Path | None = None) -> str:
    done = subprocess.run([*map(str, command)], cwd=at, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Library:
    """The functions of net.h."""

    def __init__(self, path: Path, prefix: str = "net") -> None:
        self._library, self._prefix = ctypes.CDLL(str(path)), prefix
        text = (path.parent / f"{prefix}.h").read_text()
        found = re.findall(rf"^#define {prefix.upper()}_(\w+) (\d+)", text, re.MULTILINE)
        self.sizes = {name: int(value) for name, value in found}
        for name, result in {
            "open": ctypes.c_void_p, "open_batch": ctypes.c_void_p, "close": None, "memory": ctypes.c_size_t,
            "open_file": ctypes.c_void_p, "open_bytes": ctypes.c_void_p,
            "engine": ctypes.c_char_p, "id": ctypes.c_char_p,
            "best": ctypes.c_uint32, "class": ctypes.c_char_p, "error": ctypes.c_char_p,
        }.items():  # fmt: skip
            if f" {prefix}_{name}(" in text or f"*{prefix}_{name}(" in text:
                self[name].restype = result

    def __getitem__(self, name: str):
        return getattr(self._library, f"{self._prefix}_{name}")

    def open(self, threads: int = 1, max_batch: int = 1) -> ctypes.c_void_p:
        return ctypes.c_void_p(self["open_batch"](threads, ctypes.c_size_t(max_batch)))

    def open_bytes(self, content: bytes, threads: int = 1) -> tuple[ctypes.c_void_p, str]:
        """A network of a file's bytes, and why it is none."""
        why = ctypes.create_string_buffer(300)
        size = ctypes.c_size_t(len(content)), threads, why, ctypes.c_size_t(len(why))
        return ctypes.c_void_p(self["open_bytes"](content, *size)), why.value.decode(errors="replace")

    def run(
        self, x: np.ndarray, outputs: tuple[int, ...], threads: int = 1, max_batch: int = 1
    ) -> np.ndarray:
        """Of a network of one input and one output, a batch."""
        out = np.empty((len(x), *outputs), np.float32)
        network = self.open(threads, max_batch)
        assert network
        code = self["run_batch"](network, pointer(x), ctypes.c_size_t(len(x)), pointer(out))
        assert code == 0
        self["close"](network)
        return out

    def prepare(self, pixels: np.ndarray, order: str) -> np.ndarray | None:
        """One image, or None if it is refused."""
        height, width = pixels.shape[:2] if order == "hwc" else pixels.shape[1:]
        out = np.full([self.sizes[name] for name in ("CHANNELS", "HEIGHT", "WIDTH")], np.nan, np.float32)
        size = ctypes.c_size_t(height), ctypes.c_size_t(width)
        code = self[f"prepare_{order}"](pointer(pixels), *size, pointer(out))
        assert code in (0, 1)
        return out if code == 0 else None


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
