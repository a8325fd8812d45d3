"""C++ for apps: what a folder computes is what the runtime computes, bit for bit, by way of its C header."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from cpp_library import ROOT, Library, build_library, kernels, pointer, pointers, run
from nets import ISAS, normal, one_node, stored
from profiles import chiefly
from torch import nn

import membound as mb
from membound.data import Preprocess
from membound.errors import ModelError
from membound.export import c_source
from membound.export.cpp_file import file_bytes
from membound.export.cpp_project import kernel_files
from membound.export.folder import MANIFEST
from membound.store.file import write

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
CLASSES = [*"012345678", 'nine "é" \\ ?']
PREPROCESS = Preprocess(scale=0.0039, mean=np.array([33.1]), std=np.array([0.3]))


def sparse_(net: nn.Module, keep: float = 0.1) -> nn.Module:
    """A network with weights of which most are zero."""
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim > 1:
                weight *= torch.rand(weight.shape, generator=chance) < keep
    return net.eval()


def exported(net: nn.Module, shape: tuple[int, ...], folder: Path, values: str = "auto", **options) -> mb.Net:
    mb.save(net, folder / "net.safetensors", torch.zeros(1, *shape), values=values, **options)
    mb.export_cpp(folder / "net.safetensors", folder / "cpp")
    return mb.load(folder / "net.safetensors", threads=1)


@pytest.fixture(scope="session")
def lenet(tmp_path_factory):
    """LeNet as a folder, compiled."""
    folder = tmp_path_factory.mktemp("cpp")
    torch.manual_seed(0)
    net = exported(sparse_(mb.zoo.lenet()), (1, 28, 28), folder, "p4", preprocess=PREPROCESS, classes=CLASSES)
    return folder, net, Library(build_library(folder / "cpp", kernels()))


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("max_batch", [1, 4])
def test_the_outputs_are_those_of_the_runtime(lenet, threads, max_batch):
    folder, _, library = lenet
    x = normal(1, 5, 1, 28, 28)
    wanted = mb.load(folder / "net.safetensors", threads=threads, max_batch=max_batch)(x)
    found = library.run(x, (10,), threads, max_batch)
    assert np.array_equal(found, wanted)
    assert [library["best"](pointer(row)) for row in found] == wanted.argmax(1).tolist()


@needs_compiler
def test_pixels_are_prepared_as_in_python(lenet):
    _, net, library = lenet
    pixels = np.random.default_rng(0).integers(0, 256, (1, 28, 28), np.uint8)
    wanted = net.preprocess(pixels[None])[0]
    assert np.array_equal(library.prepare(pixels, "chw"), wanted)
    assert np.array_equal(library.prepare(np.ascontiguousarray(pixels.transpose(1, 2, 0)), "hwc"), wanted)
    assert library.prepare(np.zeros((1, 28, 29), np.uint8), "chw") is None


@needs_compiler
def test_what_the_header_says(lenet):
    _, net, library = lenet
    assert library.sizes == {
        "CHANNELS": 1, "HEIGHT": 28, "WIDTH": 28, "INPUT_FLOATS": 784, "OUTPUTS": 10, "CLASSES": 10,
        "IMAGE_HEIGHT": 28, "IMAGE_WIDTH": 28, "TAKES_PIXELS": 1, "FILE_FORMAT": 1,
    }  # fmt: skip
    names = [library["class"](number) for number in range(11)]
    assert [name.decode() for name in names[:10]] == CLASSES
    assert names[10] is None
    network = library.open()
    memory = net.memory()
    assert 0 < library["memory"](network) - memory.working < 1.2 * memory.weights
    library["close"](network)
    library["close"](None)


@needs_compiler
def test_wrong_arguments_are_codes(lenet):
    _, _, library = lenet
    network, x, out = library.open(), np.zeros(784, np.float32), np.zeros(10, np.float32)
    for arguments in ((None, x, out), (network, None, out), (network, x, None)):
        given = [pointer(each) if isinstance(each, np.ndarray) else each for each in arguments]
        assert library["run"](*given) == 1
    assert library["run"](network, pointer(x), pointer(out)) == 0
    library["close"](network)
    assert [bool(library.open(threads)) for threads in (-1, 257)] == [False, False]
    assert not library.open(1, 0)
    assert not library.open(1, 1 << 20)
    assert all(library["error"](code) for code in range(6))


@needs_compiler
@pytest.mark.parametrize(("compiler", "kind"), [("cc", ("c", "c99")), ("c++", ("c++", "c++17"))])
def test_the_header_is_plain_c(lenet, compiler, kind, tmp_path):
    folder, _, _ = lenet
    source = tmp_path / "app.c"
    source.write_text('#include "net.h"\nint main(void) { net_close(net_open(1)); return NET_OK; }\n')
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")
    run(compiler, "-x", kind[0], f"-std={kind[1]}", *strict, f"-I{folder / 'cpp'}", source)


@needs_compiler
def test_a_program_in_c_links_with_it(lenet, tmp_path):
    """And needs no header but that one."""
    folder, net, _ = lenet
    source, program = tmp_path / "app.c", tmp_path / "app"
    source.write_text(
        '#include <stdio.h>\n#include "net.h"\nstatic float x[NET_INPUT_FLOATS], y[NET_OUTPUTS];\nint main(void) {\n'
        '  net *n = net_open(1);\n  int code = net_run(n, x, y);\n  printf("%d %a\\n", code, y[3]);\n'
        "  net_close(n);\n  return code;\n}\n"
    )
    run(
        "cc",
        source,
        f"-I{folder / 'cpp'}",
        f"-L{folder / 'cpp'}",
        "-lnet",
        f"-Wl,-rpath,{folder / 'cpp'}",
        "-o",
        program,
    )
    code, number = run(program).split()
    assert (code, float.fromhex(number)) == ("0", float(net(np.zeros((1, 1, 28, 28), np.float32))[0, 3]))


class Ports(nn.Module):
    """Words and an image, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, words, image):
        return {"mixed": self.mix(self.words(words)).mean(1), "image": image * 2}


@needs_compiler
def test_several_inputs_and_outputs(tmp_path):
    words, image = torch.tensor([[1, 6, 0]]), torch.rand(1, 2, 3, 3)
    mb.save(Ports().eval(), tmp_path / "net.safetensors", (words, image))
    mb.export_cpp(tmp_path / "net.safetensors", tmp_path / "cpp")
    library = Library(build_library(tmp_path / "cpp", kernels()))
    assert (library.sizes["INPUT_ARRAYS"], library.sizes["OUTPUT_ARRAYS"]) == (2, 2)
    assert [library.sizes[f"INPUT_{number}_FLOATS"] for number in (0, 1)] == [3, 18]
    wanted = mb.load(tmp_path / "net.safetensors")(words.numpy(), image.numpy())
    given = [words.numpy().astype(np.float32), image.numpy()]
    found = [np.empty_like(array) for array in wanted.values()]
    network = library.open()
    assert library["run"](network, pointers(given), pointers(found)) == 0
    for name, array in zip(wanted, found, strict=True):
        assert np.array_equal(array, wanted[name])
    given[0][0, 1] = 7  # the embedding ends at 6
    assert library["run"](network, pointers(given), pointers(found)) == 3
    assert library["run"](network, (ctypes.c_void_p * 2)(), pointers(found)) == 1
    library["close"](network)


@needs_compiler
def test_masks_have_a_class_for_each_pixel(tmp_path):
    torch.manual_seed(0)
    net = exported(nn.Conv2d(2, 3, 3, padding=1).eval(), (2, 6, 5), tmp_path)
    library = Library(build_library(tmp_path / "cpp", kernels()))
    assert [library.sizes[f"OUTPUT_{name}"] for name in ("CHANNELS", "HEIGHT", "WIDTH")] == [3, 6, 5]
    assert "net_best" not in (tmp_path / "cpp" / "net.h").read_text()
    x = normal(1, 1, 2, 6, 5)
    wanted, found, mask = net(x)[0], np.empty((3, 6, 5), np.float32), np.empty((6, 5), np.uint8)
    network = library.open()
    assert library["run"](network, pointer(x), pointer(found)) == 0
    assert library["mask"](pointer(found), pointer(mask)) == 0
    assert library["mask"](None, pointer(mask)) == 1
    library["close"](network)
    assert np.array_equal(found, wanted)
    assert np.array_equal(mask, wanted.argmax(0))
    program, folder = tmp_path / "main", tmp_path / "cpp"
    sources = [folder / name for name in ("main.cpp", "net.cpp", "net_test.cpp", "weights.cpp")]
    run("c++", "-std=c++17", "-pthread", f"-I{folder}", *sources, kernels(), "-o", program)
    counts = np.bincount(net(np.zeros((1, 2, 6, 5), np.float32))[0].argmax(0).ravel(), minlength=3)
    assert run(program).startswith("".join(f"class {c}: {count} pixels\n" for c, count in enumerate(counts)))
    told = run(program, "--check")
    assert told.startswith("self test: 0 of 90 outputs are wrong")
    assert told.endswith(f"kernels: {ISAS[-1]}\n")


@needs_compiler
@pytest.mark.parametrize("shape", [(3,), (3, 5)])
def test_features_and_sequences_are_prepared_by_channel(shape, tmp_path):
    how = Preprocess(mean=np.array([0.1, -2, 30]), std=np.array([0.2, 4, 8]), takes="float32")
    model = replace(one_node("act", shape, {"act": ("relu",)}), preprocess=how.to_json())
    write(tmp_path / "net.safetensors", model)
    mb.export_cpp(tmp_path / "net.safetensors", tmp_path / "cpp")
    library = Library(build_library(tmp_path / "cpp", kernels()))
    numbers, out = normal(1, 1, *shape) * 9, np.empty(shape, np.float32)
    assert library["prepare"](pointer(numbers), pointer(out)) == 0
    assert np.array_equal(out, how(numbers)[0])
    network, why = library.open_bytes(file_bytes(mb.load(tmp_path / "net.safetensors").model))
    assert network, why
    out[:] = 0
    assert library["prepare_for"](network, pointer(numbers), pointer(out)) == 0
    assert np.array_equal(out, how(numbers)[0])
    library["close"](network)


@needs_compiler
def test_mean_images_crops_and_names(tmp_path):
    """Each under its own prefix."""
    image = normal(3, 3, 9, 8) * 50
    model = one_node("act", (3, 5, 5), {"act": ("relu",)})
    files = {
        "cats": Preprocess(scale=0.5, mean=image, std=np.array([2.0, 3.0, 7.0]), crop=5),
        "dogs": Preprocess(scale=1 / 3, crop=5),
        "numbers": Preprocess(mean=np.array([0.1, 0.2, 0.3]), std=np.array([0.2, 0.3, 0.4]), takes="float32"),
    }
    for prefix, how in files.items():
        write(
            tmp_path / "net.safetensors", replace(model, preprocess=how.to_json(), mean_image=how.mean_image)
        )
        mb.export_cpp(tmp_path / "net.safetensors", tmp_path / prefix, prefix=prefix)
        library = Library(build_library(tmp_path / prefix, kernels(), prefix=prefix), prefix)
        side = (5, 5) if prefix == "numbers" else (9, 8)
        pixels = np.random.default_rng(0).integers(0, 256, (3, *side)).astype(how.takes)
        wanted = how(pixels[None])[0]
        assert np.array_equal(library.prepare(pixels, "chw"), wanted)
        assert np.array_equal(library.prepare(np.ascontiguousarray(pixels.transpose(1, 2, 0)), "hwc"), wanted)
        assert (library.prepare(np.zeros((3, 12, 12), how.takes), "chw") is None) == (prefix != "dogs")
        assert library.prepare(np.zeros((3, 4, 8), how.takes), "chw") is None
        flipped = np.ascontiguousarray(
            pixels[::-1].transpose(1, 2, 0)
        )  # BGR, and a fourth channel of nothing
        padded = np.concatenate([flipped, np.zeros((*side, 1), how.takes)], 2)
        out = np.empty((3, 5, 5), np.float32)
        start = ctypes.c_void_p(padded.ctypes.data + 2 * padded.itemsize)
        sizes = [*map(ctypes.c_size_t, side), *map(ctypes.c_ssize_t, (-1, 4 * side[1], 4))]
        assert library["prepare"](start, *sizes, pointer(out)) == 0
        assert np.array_equal(out, wanted)


def test_the_folder_has_all_that_it_includes_and_nothing_of_python(tmp_path):
    model = stored(one_node("linear", (4,), {}, {"w": normal(0, 3, 4)}))
    mb.export_cpp(mb.Net(model), tmp_path / "cpp")
    names = {path.name for path in (tmp_path / "cpp" / "membound").iterdir()}
    assert {"LICENSE", "kernels.cmake", "net_neon.cpp", "net_avx2.cpp"} <= names
    built = (tmp_path / "cpp" / "membound" / "kernels.cmake").read_text()
    for path in kernel_files():
        text = path.read_text()
        assert set(re.findall(r'#include "([^"]+)"', text)) <= names, path.name
        assert "nanobind" not in text
        assert path.suffix != ".cpp" or re.search(rf"\b{path.stem}\b", built), path.name


@needs_compiler
@pytest.mark.parametrize("prefix", ["net", "cats"])
def test_the_makefile_compiles_each_file_as_cmake_does(prefix, tmp_path):
    if not (shutil.which("cmake") and shutil.which("make")):
        pytest.skip("there is no CMake, or no make")
    model = stored(one_node("linear", (4,), {}, {"w": normal(0, 3, 4)}))
    folder = tmp_path / "cpp"
    mb.export_cpp(mb.Net(model), folder, prefix=prefix)
    run("cmake", "-S", folder, "-B", tmp_path / "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    made = {}
    for line in run("make", "-n", "CXX=c++", at=folder).splitlines():
        if " -c " in line:
            source = Path(line.split(" -c ")[1].split()[0]).name
            made[source] = flags(line)
    assert made == {Path(each["file"]).name: flags(each["command"]) for each in commands}
    assert any("-mavx512f" in each or "-DMEMBOUND_NEON" in each for each in made.values())
    run("make", "-n", "check", at=folder)


def flags(command: str) -> set[str]:
    """What changes the code of a file: of the network and the program, without what only kernels or libraries have."""
    found = {word for word in command.split() if word.startswith(("-m", "-f", "-D", "-O", "-W"))}
    if "membound/" not in command:
        found = {word for word in found if not word.startswith(("-DMEMBOUND", "-f"))}
    return found


def test_what_cannot_be_written_is_refused_in_one_line(tmp_path):
    file = tmp_path / "net.safetensors"
    model = stored(one_node("linear", (4,), {}, {"w": normal(0, 3, 4)}))
    net = mb.Net(model)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").touch()
    for given, folder, options, said in [
        (file, "cpp", {}, "there is no file"),
        (net, "there", {}, "has files in it, and no net.h that membound wrote: name a new folder"),
        (net, "no/where", {}, "there is no folder"),
        (net, "cpp", {"prefix": "Net"}, "prefix='Net' is not a lower-case C name"),
        (net, "cpp", {"prefix": "while"}, "prefix='while' is a reserved word of C or C++"),
        (3, "cpp", {}, "net=3: a path is needed"),
    ]:
        with pytest.raises(ModelError, match=re.escape(said)) as raised:
            mb.export_cpp(given, tmp_path / folder, **options)
        assert "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


def test_an_export_replaces_an_earlier_one_and_nothing_else(tmp_path):
    old, new = (mb.Net(stored(one_node("linear", (4,), {}, {"w": normal(seed, 3, 4)}))) for seed in (0, 1))
    folder = tmp_path / "app"
    assert mb.export_cpp(old, folder).kept == ()
    before = (folder / "weights.cpp").read_bytes()
    (folder / "build").mkdir()
    (folder / "mine.cpp").write_text("int mine;\n")
    (folder / "main.cpp").write_text("int main() {}\n")
    assert mb.export_cpp(new, folder).kept == ("main.cpp",)
    assert (folder / "weights.cpp").read_bytes() != before
    mb.export_cpp(new, tmp_path / "fresh")
    fresh = {path.relative_to(tmp_path / "fresh") for path in (tmp_path / "fresh").rglob("*")}
    assert {path.relative_to(folder) for path in folder.rglob("*")} == fresh | {
        Path("build"),
        Path("mine.cpp"),
    }
    for path in fresh - {Path("main.cpp"), Path("membound")}:
        assert (folder / path).read_bytes() == (tmp_path / "fresh" / path).read_bytes(), path
    assert (folder / "main.cpp").read_text() == "int main() {}\n"
    assert (folder / "mine.cpp").read_text() == "int mine;\n"


def test_files_that_a_version_no_longer_writes_go_unless_they_were_edited(tmp_path):
    net, folder = mb.Net(stored(one_node("linear", (4,), {}, {"w": normal(0, 3, 4)}))), tmp_path / "app"
    mb.export_cpp(net, folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in ("old.h", "edited.h"):
        (folder / "membound" / name).write_text("/* of an earlier version */\n")
        manifest[f"membound/{name}"] = hashlib.sha256(b"/* of an earlier version */\n").hexdigest()
    (folder / "membound" / "edited.h").write_text("/* mine now */\n")
    (tmp_path / "outside.h").write_text("/* mine */\n")
    manifest["../outside.h"] = hashlib.sha256(b"/* mine */\n").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    mb.export_cpp(net, folder)
    assert not (folder / "membound" / "old.h").exists()
    assert (folder / "membound" / "edited.h").exists()
    assert (tmp_path / "outside.h").exists()
    (folder / MANIFEST).write_text("[no json")
    assert mb.export_cpp(net, folder).kept == ()


def test_an_export_of_another_kind_is_left_alone(tmp_path):
    net, folder = mb.Net(stored(one_node("linear", (4,), {}, {"w": normal(0, 3, 4)}))), tmp_path / "c"
    folder.mkdir()
    (folder / "net.h").write_text(f"{c_source.FIRST_LINE}\n")
    with pytest.raises(ModelError, match="holds an export of another kind: name a new folder"):
        mb.export_cpp(net, folder)
    assert [path.name for path in folder.iterdir()] == ["net.h"]


# --- all kinds of networks, and the folder as an app builds it ---


def members() -> nn.Module:
    """Two networks whose outputs are averaged, as fit(members=2) saves them."""
    one, two = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)) for _ in range(2)
    )

    class Members(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = one, two

        def forward(self, x):
            return (self.one(x).softmax(1) + self.two(x).softmax(1)) / 2

    return Members()


class Recurrent(nn.Module):
    """An LSTM's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


OTHERS = {
    "lenet": (mb.zoo.lenet, (1, 28, 28)),
    "cifar10_quick": (mb.zoo.cifar10_quick, (3, 32, 32)),
    "resnet8": (mb.zoo.resnet8, (3, 32, 32)),
    "ds_cnn": (mb.zoo.ds_cnn, (1, 49, 10)),
    "mobilenet_v1": (mb.zoo.mobilenet_v1, (3, 64, 64)),
    "efficientnet_lite0": (mb.zoo.efficientnet_lite0, (3, 64, 64)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (6, 16)),
    "lstm": (Recurrent, (6, 5)),
    "members": (members, (3, 8, 8)),
}


@needs_compiler
@pytest.mark.parametrize("name", chiefly(["unet"], [*OTHERS, *ARCHITECTURES]))
def test_networks_of_every_kind(name, tmp_path):
    torch.manual_seed(0)
    if name in OTHERS:
        make, shape = OTHERS[name]
        net = make()
    else:
        net, shape = build(name)
    for values in ("f32", "f16", "p4", "auto") if name in OTHERS else ("p4",):
        folder = tmp_path / values
        folder.mkdir()
        exported(sparse_(net, 0.3), shape, folder, values)
        library = Library(build_library(folder / "cpp", kernels()))
        x = normal(1, 3, *shape)
        for threads, max_batch in ((1, 1), (2, 1), (2, 3)):
            runtime = mb.load(folder / "net.safetensors", threads=threads, max_batch=max_batch)
            assert np.array_equal(library.run(x, runtime.output_shape, threads, max_batch), runtime(x))
        network, why = library.open_bytes(file_bytes(runtime.model))  # and as a file
        assert network, why
        one = np.empty(runtime.output_shape, np.float32)
        assert library["run"](network, pointer(x[:1]), pointer(one)) == 0
        library["close"](network)
        assert np.array_equal(one, mb.load(folder / "net.safetensors", threads=1)(x[:1])[0])


# --- the self test ---

STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]


def build_check(folder: Path, prefix: str = "net") -> Path:
    """The example with kernels that are compiled already; what is compiled, too, is not compiled again."""
    objects = []
    for name in ("main", prefix, f"{prefix}_test", "weights"):
        objects.append(folder / f"{name}.o")
        if not objects[-1].exists():
            run("c++", "-std=c++17", *STRICT, "-c", folder / f"{name}.cpp", "-o", objects[-1])
    run("c++", "-pthread", *objects, kernels(), "-o", folder / "main")
    return folder / "main"


def check(program: Path, isa: str) -> tuple[int, str]:
    environment = {**os.environ, "MEMBOUND_ISA": isa}
    done = subprocess.run([program, "--check", "2"], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def pixels_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(512, 7))


@needs_compiler
@pytest.mark.parametrize("engine", chiefly(["int8"], ["float", "int8"]))
def test_the_self_test_passes_and_finds_a_damaged_weight(engine, tmp_path):
    """Of pixels, which it prepares. Every instruction set passes; one word of the weights with other signs fails."""
    how = Preprocess(scale=1 / 64, mean=np.array([120.0, 110.0, 100.0]))
    mb.save(pixels_net().eval(), tmp_path / "net.safetensors", torch.zeros(1, 3, 12, 12), preprocess=how)
    folder = tmp_path / "cpp"
    made = mb.export_cpp(tmp_path / "net.safetensors", folder, prefix="cats", engine=engine)
    assert repr(made).endswith(f", changed=None, engine={engine!r})")
    program = build_check(folder, "cats")
    for isa in ISAS:
        code, said = check(program, isa)
        assert code == 0, said
        assert said.startswith("self test: 0 of 7 outputs are wrong, largest difference: ")
    done = subprocess.run([program, "--check", "999"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "self test: the network cannot be opened or run\n")
    (first, *_), weights = (
        re.findall(r"0x\w{16}", (folder / "weights.cpp").read_text()),
        folder / "weights.cpp",
    )
    damaged = f"0x{int(first, 16) ^ 0x8000000080000000:016x}"
    weights.write_text(weights.read_text().replace(first, damaged, 1))
    (folder / "weights.o").unlink()
    code, said = check(build_check(folder, "cats"), "scalar")
    assert (code, bool(re.match(r"self test: [1-7] of 7 outputs are wrong", said))) == (1, True), said


@needs_compiler
@pytest.mark.parametrize("kind", chiefly(["several"], ["numbers", "several"]))
def test_the_self_test_of_other_inputs_and_outputs(kind, tmp_path):
    file, folder = tmp_path / "net.safetensors", tmp_path / "cpp"
    torch.manual_seed(0)
    if kind == "numbers":  # trained on floats
        how = Preprocess(mean=np.array([0.5]), std=np.array([2.0]), takes="float32")
        mb.save(
            nn.Sequential(nn.Flatten(), nn.Linear(20, 4)).eval(),
            file,
            torch.zeros(1, 1, 4, 5),
            preprocess=how,
        )
    else:  # words, of which there are 7, and an image
        mb.save(Ports().eval(), file, (torch.tensor([[1, 6, 0]]), torch.rand(1, 2, 3, 3)))
    mb.export_cpp(file, folder)
    count = {"numbers": 4, "several": 21}[kind]
    assert check(build_check(folder), "scalar")[1].startswith(f"self test: 0 of {count} outputs are wrong")


def build_folder(folder: Path, *options: str) -> Path:
    """The folder as its README says; the example."""
    build = folder.parent / "build"
    run("cmake", "-S", folder, "-B", build, *options)
    run("cmake", "--build", build, "--parallel", "2")
    return build / "main"


def check_example(program: list[object], folder: Path, net: mb.Net, tmp_path: Path) -> None:
    """What the example says of an image, and of files that are none."""
    pixels = np.random.default_rng(2).integers(0, 256, (28, 28, 1), np.uint8)
    (tmp_path / "image.raw").write_bytes(pixels.tobytes())
    scores = net(net.preprocess(pixels.transpose(2, 0, 1)[None]))[0]
    assert run(*program, "--check").startswith("self test: 0 of 10 outputs are wrong")
    said = run(*program, tmp_path / "image.raw", 2)
    best = int(scores.argmax())
    found = re.match(r"best (\d+): (.*), score (\S+)\n[\d.]+ ms, \d+ bytes of memory\n$", said)
    assert (int(found[1]), found[2]) == (best, CLASSES[best])
    assert float(found[3]) == pytest.approx(scores[best], rel=1e-4)
    for wrong, line in (([tmp_path / "none.raw"], "784 numbers"), ([tmp_path / "image.raw", 999], "threads")):
        done = subprocess.run([*map(str, [*program, *wrong])], capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert line in done.stderr


@pytest.mark.full
@needs_compiler
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_folder_builds_alone(lenet, compiler, tmp_path):
    """As its README says; with GCC under sanitizers, whose libraries Clang often lacks."""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    folder, net, _ = lenet
    shutil.copytree(folder / "cpp", tmp_path / "cpp")
    flags = "-Wall -Wextra -Werror -O1"
    if compiler == "g++":
        flags += " -fsanitize=address,undefined -fno-sanitize-recover=all"
    options = {
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_CXX_FLAGS": flags,
        "CMAKE_BUILD_TYPE": "None",
        "MEMBOUND_SANITIZE": "ON",  # without -O3, with which the kernels take minutes to compile
    }
    program = build_folder(tmp_path / "cpp", *(f"-D{name}={value}" for name, value in options.items()))
    check_example([program], folder, net, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("isa", ["avx2", "scalar"])
def test_the_folder_runs_on_x86(lenet, isa, tmp_path):
    """Emulated, where the machine is another."""
    compiler, emulator = shutil.which("x86_64-linux-gnu-g++"), shutil.which("qemu-x86_64")
    if os.uname().machine == "x86_64" or compiler is None or emulator is None:
        pytest.skip("there is no compiler or emulator, or no need of them")
    folder, net, _ = lenet
    shared = ROOT / "build" / "app-x86_64"  # the kernels take minutes
    shutil.rmtree(shared / "cpp", ignore_errors=True)
    shutil.copytree(folder / "cpp", shared / "cpp")
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'src/kernels/toolchains/x86_64-linux-gnu.cmake'}"
    program = build_folder(shared / "cpp", toolchain)
    start = [emulator, "-cpu", "max", "-L", "/usr/x86_64-linux-gnu", "-E", f"MEMBOUND_ISA={isa}", program]
    check_example(start, folder, net, tmp_path)
