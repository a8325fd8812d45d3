"""Networks that an app opens as it runs: the outputs are those of the runtime, and what is damaged is refused."""

import ctypes
import shutil
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from cpp_library import Library, build_library, kernels, pointer
from hypothesis import given
from hypothesis import strategies as st
from nets import FORMATS, VALUES, normal, stored, thin
from profiles import chiefly, examples
from torch import nn

import membound as mb
from membound.capture import capture
from membound.data import Preprocess
from membound.errors import ModelError
from membound.export.cpp_file import FILE_FORMAT, MAGIC, file_bytes
from membound.store.file import read, read_bytes, to_bytes
from membound.store.graph import Graph, Node
from membound.store.model import Model

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
CLASSES = ["cat", "dog", "owl"]
SHAPE = (2, 8, 8)


def preprocess(mean: float) -> Preprocess:
    return Preprocess(scale=1 / 64, mean=np.array([mean, mean + 1]), std=np.array([0.5, 0.25]))


def layers(*middle: nn.Module, outputs: int = 3) -> nn.Module:
    torch.manual_seed(len(middle))
    return nn.Sequential(nn.Conv2d(2, 6, 3), *middle, nn.Flatten(), nn.LazyLinear(outputs)).eval()


def save(path: Path, module: nn.Module, mean: float = 100.0, classes: list[str] | None = CLASSES) -> Path:
    x = torch.zeros(1, *SHAPE)
    module(x)  # which gives lazy layers their shapes
    mb.save(module, path, x, values="f32", preprocess=preprocess(mean), classes=classes)
    return path


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    mb.export_cpp(save(folder / "net.safetensors", layers(nn.ReLU())), folder / "cpp")
    return Library(build_library(folder / "cpp", kernels()))


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Path:
    """Other layers, another mean."""
    module = layers(nn.Hardswish(), nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return save(tmp_path_factory.mktemp("newer") / "net.safetensors", module, mean=80.5)


@pytest.fixture(scope="module")
def content(newer) -> bytes:
    return file_bytes(read(newer))


def run(library: Library, network: ctypes.c_void_p, pixels: np.ndarray) -> np.ndarray:
    """The scores of one image, [C, H, W]."""
    steps = (ctypes.c_ssize_t(n) for n in (64, 8, 1))
    x, out = np.empty(pixels.shape, np.float32), np.empty(library.sizes["OUTPUTS"], np.float32)
    size = ctypes.c_size_t(8), ctypes.c_size_t(8)
    assert library["prepare_for"](network, pointer(pixels), *size, *steps, pointer(x)) == 0
    assert library["run"](network, pointer(x), pointer(out)) == 0
    return out


def test_a_file_gives_what_the_runtime_gives_of_it(app, newer, tmp_path):
    """Of another network than the one that is compiled in, bit for bit, prepared as that one needs it."""
    assert mb.export_cpp_file(newer, tmp_path / "newer.net") == (tmp_path / "newer.net").stat().st_size
    why = ctypes.create_string_buffer(200)
    path = str(tmp_path / "newer.net").encode()
    network = ctypes.c_void_p(app["open_file"](path, 1, why, ctypes.c_size_t(200)))
    assert network, why.value
    net, pixels = mb.load(newer, threads=1), np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
    wanted = net(net.preprocess(pixels[None]))[0]
    assert np.array_equal(run(app, network, pixels), wanted)
    assert app["memory"](network) > (tmp_path / "newer.net").stat().st_size
    assert app["id"](network).decode() == sha256(newer.read_bytes()).hexdigest()[:16]
    own = app.open()
    assert app["id"](own) not in (b"", app["id"](network))
    assert not np.array_equal(run(app, own, pixels), wanted)
    app["close"](own)
    app["close"](network)


def test_bytes_are_copied_from_any_address(app, content, newer):
    moved = ctypes.create_string_buffer(b"\x00" + content, len(content) + 1)
    why = ctypes.create_string_buffer(200)
    size = ctypes.c_size_t(len(content)), 2, why, ctypes.c_size_t(200)
    network = ctypes.c_void_p(app["open_bytes"](ctypes.byref(moved, 1), *size))
    assert network, why.value
    ctypes.memset(moved, 0, len(moved))
    pixels, net = np.full(SHAPE, 7, np.uint8), mb.load(newer, threads=2)
    assert np.array_equal(run(app, network, pixels), net(net.preprocess(pixels[None]))[0])
    app["close"](network)


@pytest.mark.parametrize(
    ("module", "options", "says"),
    [
        (
            layers(nn.ReLU(), outputs=4),
            {"classes": None},
            "the file's network has inputs 2x8x8, outputs 4, images of 8 x 8 in uint8; this program",
        ),
        (
            layers(nn.ReLU()),
            {"classes": ["cat", "dog", "cow"]},
            "the names of the file's classes, or their order, are not those",
        ),
        (layers(nn.ReLU()), {"classes": None}, "; this program needs inputs 2x8x8, outputs 3, images"),
    ],
)
def test_a_network_that_gives_something_else_is_refused(app, module, options, says, tmp_path):
    network, why = app.open_bytes(file_bytes(read(save(tmp_path / "other.safetensors", module, **options))))
    assert not network
    assert says in why


def signed(content: bytes) -> bytes:
    """With the length and checksum that belong to it."""
    return MAGIC + struct.pack("<QQ", len(content) + 24, zlib.crc32(content)) + content


def test_other_formats_and_operators_are_refused(app, content):
    other = signed(bytes([FILE_FORMAT + 1]) + content[25:])
    assert (
        f"the file has format {FILE_FORMAT + 1}, and this program reads format {FILE_FORMAT}"
        in app.open_bytes(other)[1]
    )
    network, why = app.open_bytes(signed(content[24:].replace(b"maxpool", b"newpool", 1)))
    assert not network
    assert "an operator that cannot be run: newpool" in why


def test_a_program_can_ask_which_engine_a_network_has(app, newer):
    """An update may have another one than the app."""
    for engine in ("int8", "float"):
        network, why = app.open_bytes(file_bytes(read(newer), engine))
        assert network, why
        assert app["engine"](network).decode() == engine
        app["close"](network)
    own = app.open()
    assert app["engine"](own) == b"float"
    app["close"](own)
    assert (app["engine"](None), app["id"](None)) == (b"", b"")


def test_the_format_of_files_has_a_number_that_is_raised_with_it():
    """If this fails and apps that are installed could not read the file, or would run it wrongly: raise FILE_FORMAT."""
    header = (Path(__file__).parents[2] / "src" / "kernels" / "app.h").read_text()
    assert f"kFileFormat = {FILE_FORMAT};" in header
    values = np.arange(20, dtype=np.float32) - 9
    graph = Graph((1, 5, 5), (Node("conv", (0,), {"act": ("relu",)}, {"w": "c.weight", "b": "c.bias"}),), 1)
    model = Model(graph, {"c.weight": values[:18].reshape(2, 1, 3, 3), "c.bias": values[18:]})
    small = read_bytes(to_bytes(model))
    body = file_bytes(small)[24:].replace(small.id.encode(), b"")
    assert (FILE_FORMAT, f"{zlib.crc32(body):08x}") == (1, "43baf0c0")


def test_what_is_no_such_file_is_refused(app, content, tmp_path):
    for bad, says in (
        (b"", "not a network file for an app"),
        (b"x" * 100, "not a network file for an app"),
        (content[:23], "not a network file for an app"),
        (content[:-1], f"cut short, or has more than its own bytes: {len(content) - 1} of {len(content)}"),
        (content + b"0", "cut short, or has more"),
        (content[:1000] + bytes([content[1000] ^ 1]) + content[1001:], "its checksum does not match"),
    ):
        network, why = app.open_bytes(bad)
        assert not network
        assert says in why
    why = ctypes.create_string_buffer(20)  # which is too short for all of it
    assert not app["open_file"](str(tmp_path / "none").encode(), 1, why, ctypes.c_size_t(20))
    assert why.value == b"the file cannot be "
    assert not app["open_file"](None, 1, None, ctypes.c_size_t(0))
    assert not app["open_bytes"](content, ctypes.c_size_t(len(content)), 300, None, ctypes.c_size_t(0))


@examples(300, few=60)
@given(data=st.data())
def test_damage_with_the_right_checksum_is_refused_or_opens(app, content, data):
    """Numbers anywhere in the plan, index and sizes: no crash, and nothing is opened without a reason if refused."""
    body = bytearray(content[24:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        parts = st.sampled_from(
            [b"\0", b"\1", b"\2", b"\7", b"\x7f", b"\xff" * 4 + b"\7", b"\xff" * 8, b"\xff" * 12]
        )
        part = data.draw(parts)[: len(body) - at]
        body[at : at + len(part)] = part
    network, why = app.open_bytes(signed(bytes(body)))
    assert bool(network) != bool(why)
    app["close"](network)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A network, and its app, which knows nothing about images."""
    module = layers(nn.ReLU())
    module(torch.zeros(1, *SHAPE))
    model, folder = capture(module, torch.zeros(1, *SHAPE)), tmp_path_factory.mktemp("bare")
    mb.export_cpp(mb.Net(stored(model)), folder / "cpp")
    return model, Library(build_library(folder / "cpp", kernels()))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("values", chiefly(["f32", "p4"], VALUES))
def test_every_format_and_type_of_values(bare, format, values):
    whole, library = bare
    model = stored(thin(whole, "0.5"), format, values)
    network, why = library.open_bytes(file_bytes(model))
    assert network, why
    x, out = normal(1, 1, *SHAPE), np.empty(3, np.float32)
    assert library["run"](network, pointer(x), pointer(out)) == 0
    library["close"](network)
    assert np.array_equal(out, mb.Net(model, threads=1)(x)[0])


@pytest.mark.parametrize("format", [each for each in FORMATS if each != "dense"])
def test_an_index_that_leaves_the_weight_is_refused(bare, format):
    """With the right checksum: all bits of where each weight's values are become ones, or of rice zeros."""
    whole, library = bare
    model = stored(thin(whole, "0.5"), format)
    body = file_bytes(model)[24:]
    for name, tensor in model.tensors.items():
        for array in tensor.arrays if name.endswith("weight") else ():
            if array.nbytes:
                bad = body.replace(
                    array.tobytes(), (b"\0" if format == "rice" else b"\xff") * array.nbytes, 1
                )
                assert bad != body
                network, why = library.open_bytes(signed(bad))
                assert not network
                assert "a plan that cannot be" in why or "the file is damaged" in why


@pytest.mark.parametrize("values", ["p2", "p4", "p8", "f16"])
def test_it_is_about_as_large_as_the_model_file(values, tmp_path):
    """Apps download it."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()) for _ in range(6)]
    x = torch.randn(1, 8, 12, 12)
    mb.save(
        nn.Sequential(*layers).eval(),
        tmp_path / "net.safetensors",
        x,
        values=values,
        calibrate=torch.randn(4, 8, 12, 12),
    )
    size = (tmp_path / "net.safetensors").stat().st_size
    assert mb.export_cpp_file(tmp_path / "net.safetensors", tmp_path / "net.net") <= 1.1 * size + 512


def test_what_python_refuses(newer, tmp_path):
    with pytest.raises(ModelError, match="is the model file itself"):
        mb.export_cpp_file(newer, newer)
    with pytest.raises(ModelError, match="there is no folder"):
        mb.export_cpp_file(newer, tmp_path / "no" / "where.net")
    assert mb.load(newer)  # which is as it was
