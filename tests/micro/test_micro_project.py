"""The exported C: built with the compilers that are here, strictly and under sanitizers, it gives the engine's bits."""

import errno
import json
import os
import pickle
import re
import runpy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from micro_networks import NETWORKS, Builder, micro, prepared, random_network, some_images
from profiles import chiefly, full

import membound as mb
from membound.capture import capture
from membound.cli import main
from membound.errors import ModelError
from membound.export.c_project import project_files, write_project
from membound.export.folder import MANIFEST
from membound.micro.identity import identify
from membound.run.calibration import calibrate_activations, with_activations
from membound.run.files import run_integers
from membound.run.micro_net import MicroNet
from membound.store.file import read_bytes, to_bytes
from membound.units import LEVELS, say_off

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
SANITIZED = ["-Og", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def fed(net: MicroNet, images: np.ndarray) -> tuple[bytes, np.ndarray]:
    """What the program reads of some images, and what it must print of them."""
    if net.plan.net.takes_pixels:
        given, wanted = images, net.integers(images)
    else:
        first = net.plan.net.quantizations[0]
        q = first.round(prepared(net.model, images))
        given = (first.scale * (q.astype(np.float32) - first.zero)).astype(np.float32)
        wanted = net.integers(q)
        assert np.array_equal(wanted, net.integers(given))
        assert np.array_equal(wanted, net.integers((q.astype(np.int16) + 128).astype(np.uint8)))
    return given.reshape(len(images), *net.plan.net.images[0]).transpose(0, 2, 3, 1).tobytes(), wanted


def built(folder: Path, compiler: str, *options: str) -> Path:
    sources = sorted(map(str, folder.glob("*.c")))
    program = folder / f"main-{compiler}"
    subprocess.run([compiler, *STRICT, *options, *sources, "-o", str(program)], check=True)
    return program


def printed(program: Path, given: bytes) -> np.ndarray:
    done = subprocess.run([str(program)], input=given, capture_output=True, check=True)
    return np.array([line.split(b"->")[0].split() for line in done.stdout.splitlines()], int)


def compare(net: MicroNet, folder: Path, compiler: str, *options: str) -> None:
    write_project(folder, net)
    given, wanted = fed(net, some_images(net.model, 3))
    found = printed(built(folder, compiler, *options), given)
    assert np.array_equal(found, wanted.reshape(len(wanted), -1))


@needs_gcc
@pytest.mark.parametrize("name", chiefly(["concat"], NETWORKS))
def test_sanitized_c_gives_the_bits_of_the_engine(name, tmp_path):
    compare(micro(NETWORKS[name]()), tmp_path / "c", "gcc", *SANITIZED)


@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang")
@pytest.mark.parametrize("name", chiefly(["dscnn"], NETWORKS))
@pytest.mark.full
def test_clang_gives_the_same_bits(name, tmp_path):
    compare(micro(NETWORKS[name](), "whole" if name == "quick" else "auto"), tmp_path / "c", "clang", "-O2")


@needs_gcc
@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_networks_as_sanitized_c(seed, tmp_path):
    try:
        net = micro(random_network(seed))
    except ModelError as error:
        pytest.skip(str(error))
    compare(net, tmp_path / "c", "gcc", *SANITIZED)


@needs_gcc
def test_an_image_ends_with_its_last_row_even_if_the_output_was_there_before(tmp_path):
    net = Builder((2, 9, 9), 0)
    net.conv(0, 3, 2, 4, pad=(0, 0, 0, 0))  # which reads no row below the sixth
    compare(micro(net.store("p4", preprocess={"scale": 0.01})), tmp_path / "c", "gcc", "-O0")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_the_sources_are_c_plus_plus_too(tmp_path):
    write_project(tmp_path / "c", micro(NETWORKS["concat"]()))
    for source in ("net.c", "membound_micro.c", "membound_micro_conv.c"):
        command = ["g++", "-std=c++11", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, str(tmp_path / "c" / source)], check=True)


@pytest.mark.parametrize("prefix", ["net", "kws"])
def test_every_c_file_says_its_license_and_who_wrote_it(prefix):
    for name, text in project_files(micro(NETWORKS["lenet"]()).plan, prefix=prefix).items():
        if name.endswith((".c", ".h")):
            assert text.startswith("/* ")
            assert text.count("/* SPDX-License-Identifier: Apache-2.0 */\n") == 1, name
            assert f"/* Written by membound {mb.__version__}. */\n" in text, name


@needs_gcc
def test_the_c_says_when_outputs_are_there_and_its_readme_how_far_estimates_are_off(tmp_path):
    names = [f"digit */ {each}" for each in range(10)]
    write_project(tmp_path, micro(replace(NETWORKS["lenet"](), classes=names)))
    header, source = ((tmp_path / name).read_text() for name in ("net.h", "net.c"))
    assert "/* Classes: 0 digit __ 0, 1 digit __ 1, " in header
    assert "#define NET_CLASSES 10 /*" in header
    assert "you can reuse its buffer as soon as the call returns" in header
    assert max(map(len, header.splitlines())) <= 120
    built(tmp_path, "gcc", "-O1")
    assert "Valid only after net_feed_row has returned 1, and until the next" in header
    assert "the first of equal ones. Valid when net_output is." in header
    assert "return mb_output(&net_network, context->arena, index, 0, 0);" in source, "no dividing by 1"
    assert say_off(*LEVELS) in " ".join((tmp_path / "README.md").read_text().split())


def test_all_names_that_the_linker_sees_are_the_networks_or_the_runtimes(tmp_path):
    write_project(tmp_path, micro(NETWORKS["lenet"]()), "kws")
    sources = [path.name for path in tmp_path.glob("*.c") if path.name != "main.c"]
    subprocess.run(["gcc", "-std=c99", "-c", *sources], cwd=tmp_path, check=True)
    names = subprocess.check_output(["nm", "-g", "--defined-only", *tmp_path.glob("*.o")], text=True)
    found = re.findall(r"^\w+ \w (\w+)$", names, re.MULTILINE)
    assert found
    assert [name for name in found if not name.startswith("kws_")] == []


def test_the_project_is_the_same_every_time():
    first, second = (project_files(micro(NETWORKS["lenet"]()).plan) for _ in range(2))
    assert first == second
    assert "/" not in first["README.md"].split("build && ")[0].replace("cmake -S . -B build", "")


def test_no_part_of_the_runtime_allocates_or_shifts_negative_numbers_by_chance():
    text = project_files(micro(NETWORKS["lenet"]()).plan)
    code = text["membound_micro.c"] + text["membound_micro_conv.c"] + text["membound_micro_inside.h"]
    for word in ("malloc", "float ", "double", "alloca", "printf"):
        assert word not in code


@pytest.fixture
def calibrated(tmp_path):
    """A file of LeNet's shape with scales, and one without."""
    net = micro(NETWORKS["lenet"]())
    files = []
    for name, scales in (("with", net.plan), ("without", None)):
        activations = {} if scales is None else net._remake.keywords["activations"]
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(b"".join(with_activations(net.model, activations)))
        files.append(path)
    return net, *files


def test_a_file_keeps_how_its_values_are_rounded(calibrated):
    net, file, _ = calibrated
    images = some_images(net.model)
    loaded = mb.load(file, engine="micro")
    assert np.array_equal(loaded.integers(images), net.integers(images))
    assert loaded.memory() == net.memory()
    found = mb.load(file)(prepared(net.model, images))  # the other engine does not mind
    assert np.array_equal(found, mb.load(file)(prepared(net.model, images)))


def test_export_c_writes_a_folder(calibrated, tmp_path):
    net, file, plain = calibrated
    made = mb.export_c(file, tmp_path / "one")
    assert made.memory() == net.memory()
    assert (tmp_path / "one" / "net.c").read_text() == project_files(net.plan)["net.c"]
    mb.export_c(plain, tmp_path / "two", images=some_images(net.model, 24), maps="whole")
    assert "#define NET_ARENA_BYTES" in (tmp_path / "two" / "net.h").read_text()
    with pytest.raises(ModelError, match="no maps 'some'"):
        mb.export_c(file, tmp_path / "three", maps="some")
    for folder in (3, None, b"c", ["c"], "", "a\0b"):
        with pytest.raises(
            ModelError, match=r"^folder(=.*| is .*): a path is needed, as text or a pathlib.Path$"
        ):
            mb.export_c(file, folder)
    for name, call in {
        "net": lambda x: mb.export_c(x, tmp_path / "c"),
        "path": mb.load,
        "model": mb.inspect,
    }.items():
        with pytest.raises(ModelError, match=f"^{name}=7: a path is needed"):
            call(7)
    with pytest.raises(ModelError, match="does not say how its values are rounded to int8: give images="):
        mb.export_c(plain, tmp_path / "three")
    assert not (tmp_path / "three").exists()
    with pytest.raises(ModelError, match=r"not calibrated .* net = mb.export_c\(file, folder, images=x\)"):
        mb.load(plain, engine="micro")


def test_export_c_takes_a_loaded_network_of_either_engine(calibrated, tmp_path):
    net, file, plain = calibrated
    wanted = project_files(net.plan)
    for name, loaded in (("net", mb.load(file)), ("micro", mb.load(file, engine="micro")), ("made", net)):
        mb.export_c(loaded, tmp_path / name)
        assert (tmp_path / name / "net.c").read_text() == wanted["net.c"]
    with pytest.raises(
        ModelError, match=r"^this network does not say how its values are rounded to int8: give"
    ):
        mb.export_c(mb.load(plain), tmp_path / "plain")
    images = some_images(net.model, 24)
    one, two = (mb.export_c(each, tmp_path / "c", images=images) for each in (plain, mb.load(plain)))
    assert np.array_equal(one.integers(images), two.integers(images))


def test_an_exported_network_speaks_of_its_own_level(calibrated, tmp_path):
    _, file, _ = calibrated
    small, fast = (mb.export_c(file, tmp_path / "c", compiled=level) for level in ("Os", "O2"))
    assert small.memory("-O2") == fast.memory() != small.memory() == fast.memory("-Os")
    assert small.speed("-O2") == fast.speed() == pickle.loads(pickle.dumps(fast)).speed() != small.speed()
    assert f"{small.memory().flash:,} bytes of flash at -Os" in repr(small)
    assert f"{fast.memory().flash:,} bytes of flash at -O2" in repr(fast)


def test_an_export_replaces_an_earlier_one_and_nothing_else(calibrated, tmp_path):
    net, file, plain = calibrated
    folder = tmp_path / "c"
    mb.export_c(plain, folder, images=some_images(net.model, 24), maps="whole")
    (folder / "build").mkdir()
    (folder / "mine.c").write_text("int mine;\n")
    mb.export_c(file, folder)
    wanted = project_files(net.plan)
    assert {name: (folder / name).read_text() for name in wanted} == wanted
    assert {path.name for path in folder.iterdir()} == {*wanted, MANIFEST, "build", "mine.c"}
    assert not list(tmp_path.glob(".membound-*"))


def test_a_program_that_was_edited_stays(calibrated, tmp_path, capsys):
    net, file, _ = calibrated
    folder = tmp_path / "c"
    assert run("export", file, "--c", folder) == 0
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    capsys.readouterr()
    assert run("export", file, "--c", folder) == 0
    assert "kept      main.c: edited since the last export" in capsys.readouterr().out
    assert (folder / "main.c").read_text() == "int main(void) { return 0; }\n"
    assert (folder / "net.c").read_text() == project_files(net.plan)["net.c"]
    assert run("export", file, "--c", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["kept"] == ["main.c"]


def features() -> MicroNet:
    """A network of floats."""
    build = Builder((3, 4, 5), 0)
    build.conv(0, 2, kernel=1)
    return micro(build.store("p8", preprocess={"mean": [1.0] * 3, "std": [2.0] * 3, "takes": "float32"}))


@needs_gcc
@pytest.mark.parametrize("prefix", ["net", "kws"])
def test_a_program_that_stays_over_another_kind_of_input_is_told_and_does_not_compile(
    calibrated, tmp_path, capsys, prefix
):
    _, pixels, _ = calibrated
    floats = tmp_path / "floats.safetensors"
    made = features()
    floats.write_bytes(b"".join(with_activations(made.model, made._remake.keywords["activations"])))
    said = {
        pixels: f"feed them without {prefix}_input\n",
        floats: f"make bytes of them with {prefix}_input\n",
    }
    for first, second in ((pixels, floats), (floats, pixels)):
        folder = tmp_path / first.stem
        command = ["gcc", "-std=c99", "-fsyntax-only", f"-I{folder}", folder / "main.c"]
        assert run("export", first, "--c", folder, "--prefix", prefix) == 0
        (folder / "main.c").write_text((folder / "main.c").read_text() + "/* mine */\n")
        subprocess.run(command, check=True)
        capsys.readouterr()
        assert run("export", first, "--c", folder, "--prefix", prefix) == 0
        assert "it was written for" not in capsys.readouterr().out
        assert run("export", second, "--c", folder, "--prefix", prefix) == 0
        told = capsys.readouterr().out
        assert said[second] in told
        assert f"({prefix.upper()}_ID)" in told
        failed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert failed.returncode != 0
        assert "this main.c feeds" in failed.stderr


@pytest.mark.parametrize("name", ["notes.txt", "net.h"])
def test_a_folder_with_other_files_is_left_alone(calibrated, tmp_path, name, capsys):
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / name).write_text("mine\n")
    assert run("export", calibrated[1], "--c", folder) == 1
    said = capsys.readouterr().err
    assert f"{folder} has files in it, and no net.h that membound wrote: name a new folder" in said
    assert len(said.strip().splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "mine\n"
    assert run("export", calibrated[1], "--c", folder / name) == 1
    assert f"{name} is a file: give a folder" in capsys.readouterr().err


def test_a_failed_export_leaves_the_earlier_one_as_it_was(calibrated, tmp_path, monkeypatch):
    net, file, plain = calibrated
    folder = tmp_path / "c"
    mb.export_c(plain, folder, images=some_images(net.model, 24), maps="whole")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full_disk(path, parts, named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("membound.export.folder.write_whole", full_disk)
    with pytest.raises(ModelError, match="cannot be written: No space left on device"):
        mb.export_c(file, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list(tmp_path.glob(".membound-*"))


NUMBERS = np.linspace(0, 1, 6 * 28 * 28, dtype=np.float32).reshape(6, 1, 28, 28)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (
            NUMBERS[:, :, 1:],
            r"images= .* the shape \(6, 1, 27, 28\): this network takes \(batch, 1, 28, 28\)",
        ),
        (NUMBERS[:0], r"images= .* the shape \(0, 1, 28, 28\): .*, at least one"),
        (NUMBERS[0], r"images= .* the shape \(1, 28, 28\)"),
        (
            np.where(np.arange(6)[:, None, None, None] == 2, np.nan, NUMBERS),
            "images= .*: 1 of 6 .* not finite",
        ),
        (NUMBERS * np.float32(3e38), "images= .* make value . of the network infinite or NaN"),
        (NUMBERS.astype(np.int64), "images= holds int64: give training examples"),
        ("mnist", "images= holds <U5: give training examples"),
        ([[1.0], [1.0, 2.0]], "images= holds object: give training examples"),
        (
            np.zeros_like(NUMBERS),
            "images= to calibrate on are all the same example: give some hundred different ones",
        ),
        (NUMBERS[[0, 0, 0]], "images= to calibrate on are all the same"),
    ],
)
def test_images_to_calibrate_on_that_cannot_be_are_said_by_name(calibrated, tmp_path, images, said):
    _, _, plain = calibrated
    with pytest.raises(ModelError, match=said) as raised:
        mb.export_c(plain, tmp_path / "c", images=images)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "c").exists()


def test_few_images_to_calibrate_on_are_told_where_the_call_is(calibrated, tmp_path):
    _, _, plain = calibrated
    with pytest.warns(UserWarning, match="^calibrated on 6 examples: some hundred are better$") as told:
        mb.export_c(plain, tmp_path / "c", images=NUMBERS)
    assert [each.filename for each in told] == [__file__]


@needs_gcc
@pytest.mark.parametrize(("takes", "outputs"), [("uint8", 1), ("float32", 1), ("float32", 3)])
def test_outputs_that_are_no_scores_of_classes_are_printed_as_numbers(tmp_path, takes, outputs):
    build = Builder((2, 3, 1), 0)
    build.flat_linear(build.conv(0, 4, kernel=1), outputs)
    net = micro(build.store("p8", preprocess={"takes": takes}))
    write_project(tmp_path, net)
    assert "number[i] = NET_OUTPUT_SCALE * (float)(net_output(" in (tmp_path / "README.md").read_text()
    assert "net_best" not in (tmp_path / "README.md").read_text() + (tmp_path / "main.c").read_text()
    given = some_images(net.model, 5)
    data, wanted = fed(net, given)
    done = subprocess.run([str(built(tmp_path, "gcc"))], input=data, capture_output=True, check=True)
    rows = [line.split(" -> ") for line in done.stdout.decode().splitlines()]
    assert [int(each) for row, _ in rows for each in row.split()] == wanted.reshape(-1).tolist()
    numbers = net.scores(wanted).reshape(-1)
    assert np.allclose(
        [float(each) for _, row in rows for each in row.split()], numbers, rtol=1e-5, atol=1e-6
    )


def test_a_class_is_printed_only_where_the_file_has_classes():
    build = Builder((2, 3, 1), 0)
    build.flat_linear(build.conv(0, 4, kernel=1), 3)
    plan = micro(build.store("p8", preprocess={})).plan
    for classes in (None, ["a", "b", "c"]):
        files = project_files(plan, classes)
        for name in ("main.c", "README.md"):
            assert ("net_best(" in files[name]) == (classes is not None)


def test_a_full_disk_is_said_of_the_folder_that_was_named(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ModelError) as raised:
        write_project(tmp_path / "firmware", micro(NETWORKS["lenet"]()))
    assert str(raised.value) == f"{tmp_path}/firmware/net.c: cannot be written: No space left on device"
    assert not list(tmp_path.iterdir())


def test_float64_is_taken_as_float32_on_the_device(tmp_path):
    net = micro(NETWORKS["lenet"]())
    first = net.plan.net.quantizations[0]
    x = np.random.default_rng(0).uniform(first.low, first.high, (3, *net.input_shape))
    assert np.array_equal(net.integers(x), net.integers(x.astype(np.float32)))
    assert np.array_equal(run_integers(net, x)["integers"], net.integers(x))
    with pytest.raises(ModelError, match=r"save numbers of other types as x\.astype\('float32'\)"):
        net.integers(x.astype(np.float16))


def test_pixels_for_a_file_that_prepares_none_are_refused(tmp_path):
    file = tmp_path / "net.safetensors"
    model = NETWORKS["dscnn"]()
    file.write_bytes(b"".join(with_activations(model, {})))
    with pytest.raises(
        ModelError, match=r"images= are uint8 \(2, 1, 3, 4\): this file does not say how images"
    ):
        mb.export_c(file, tmp_path / "c", images=np.zeros((2, 1, 3, 4), np.uint8))


def test_data_of_another_size_is_said_before_anything_is_calibrated(calibrated, tmp_path, capsys):
    _, _, plain = calibrated
    small = np.zeros((4, 1, 20, 20), np.uint8)
    np.savez(tmp_path / "s.npz", x_train=small, y_train=np.arange(4), x_test=small, y_test=np.arange(4))
    assert run("export", plain, "--c", tmp_path / "c", "--data", tmp_path / "s.npz") == 1
    assert "[1, 20, 20] once prepared: this network takes [1, 28, 28]" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


def data_file(folder: Path, count: int) -> Path:
    draw = np.random.default_rng(0)
    arrays = {}
    for half in ("train", "test"):
        arrays[f"x_{half}"] = draw.integers(0, 256, (count, 1, 28, 28)).astype(np.uint8)
        arrays[f"y_{half}"] = np.arange(count) % 10
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def test_the_command_calibrates_measures_and_writes(calibrated, tmp_path, capsys):
    _, _, plain = calibrated
    data = str(data_file(tmp_path, 40))
    assert run("export", plain, "--c", tmp_path / "c", "--data", data, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["calibrated_on"] == 40
    assert facts["flash_bytes"] == facts["constant_bytes"] + facts["code_bytes"]
    assert facts["ram_bytes"] == facts["context_bytes"] + facts["stack_bytes"]
    flash, ram = f"{facts['flash_bytes']:,}", f"{facts['ram_bytes']:,}"
    assert f" bytes of flash and {ram} of RAM" in (tmp_path / "c" / "README.md").read_text()
    assert facts["context_bytes"] >= facts["arena_bytes_rows"] < facts["arena_bytes_whole"]
    out = tmp_path / "int8.safetensors"
    assert run("export", plain, "--int8", out, "--data", data) == 0
    said = capsys.readouterr().out
    assert f"flash     {flash} bytes: {facts['constant_bytes']:,} of constants" in said
    assert f"ram       {ram} bytes: {facts['context_bytes']:,} of context" in said
    assert run("evaluate", out, "--data", data, "--engine", "micro", "--json") == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["accuracy"] == facts["accuracy"]
    assert measured["images"] == 40


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--c", "{tmp}/c"], "does not say how its values are rounded to int8: name data"),
        (["--c", "{tmp}/no/c", "--data", "x.npz"], "there is no folder"),
        (["--int8", "{tmp}/x.safetensors"], "calibrated on data"),
        (["--int8", "{tmp}/x.bin", "--data", "x.npz"], "let its name end in .safetensors"),
        full(["--c", "{tmp}/c", "--sparse"], "--sparse goes with"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_line(calibrated, tmp_path, options, said, capsys):
    _, _, plain = calibrated
    given = [option.format(tmp=tmp_path) for option in options]
    assert run("export", plain, *given) == 1
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "c").exists()


@needs_gcc
def test_numbers_of_several_channels_become_bytes_as_they_were_prepared(tmp_path):
    build = Builder((3, 4, 5), 0)
    build.conv(0, 2)
    said = {"mean": [1.0, -2.0, 30.0], "std": [0.5, 4.0, 25.0], "takes": "float32"}
    net = micro(build.store("p8", preprocess=said))
    assert not net.plan.net.takes_pixels
    numbers = np.random.default_rng(0).normal([1, -2, 30], [0.5, 4, 25], (6, 4, 5, 3)).astype(np.float32)
    write_project(tmp_path / "c", net)
    found = printed(built(tmp_path / "c", "gcc", *SANITIZED), numbers.tobytes())
    x = np.asarray(net.preprocess(np.ascontiguousarray(numbers.transpose(0, 3, 1, 2))), np.float32)
    with pytest.warns(UserWarning, match="of the input is beyond"):  # it was calibrated on other numbers
        wanted = net.integers(x)
    assert np.array_equal(found, wanted.reshape(6, -1))
    with pytest.raises(ModelError, match="takes the bytes that the device is fed with"):
        net(np.zeros((1, 3, 4, 5), np.uint8))


def test_a_network_has_the_same_identity_in_c_and_in_its_file(calibrated, tmp_path, capsys):
    _, file, _ = calibrated
    known = mb.inspect(file)["micro"]["identity"]
    for level, prefix in (("Os", "net"), ("O2", "kws")):
        mb.export_c(file, tmp_path / prefix, compiled=level, prefix=prefix)
        said = (tmp_path / prefix / f"{prefix}.h").read_text()
        assert f"#define {prefix.upper()}_ID {known}u" in said
        assert (
            f"`{prefix.upper()}_ID` of this network is {known}."
            in (tmp_path / prefix / "README.md").read_text()
        )
    assert run("export", file, "--c", tmp_path / "c", "--json") == 0
    assert json.loads(capsys.readouterr().out)["identity"] == known
    assert run("inspect", file) == 0
    assert re.search(rf"^id +{known} \(NET_ID of its C\)$", capsys.readouterr().out, re.MULTILINE)
    other = mb.load(file, engine="micro").plan.net
    bias = other.ops[-1].bias
    assert identify(other) == known[2:]
    bias[0] += 1
    assert identify(other) != known[2:]


def test_a_file_for_a_device_is_inspected_as_such(calibrated, capsys):
    _, file, _ = calibrated
    net = mb.load(file, engine="micro")
    memory, about = net.memory(), mb.inspect(file)["micro"]
    assert memory.to_json().items() <= about.items()
    assert (about["cycles"], about["at_O2"]["cycles"]) == (net.speed().cycles, net.speed("-O2").cycles)
    assert run("inspect", file) == 0
    said = capsys.readouterr().out
    assert f"{memory.flash:,} bytes: {memory.constants:,} of constants" in said
    assert f"{memory.ram:,} bytes: {memory.context:,} of context" in said
    assert "ms on a Cortex-M4 at 80 MHz" in said


def test_keywords_take_the_same_ram_however_long_they_are():
    keywords = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "keywords.py"))
    contexts = []
    for frames in (49, 490):
        example = np.random.default_rng(0).normal(size=(8, keywords["BANDS"], frames)).astype(np.float32)
        model = capture(keywords["spotter"]().eval(), torch.from_numpy(example[:1]))
        stored = read_bytes(to_bytes(model, "p8"))
        net = MicroNet(stored, activations=calibrate_activations(stored, example))
        assert net.integers(net.plan.net.quantizations[0].round(example)).shape == (8, keywords["WORDS"])
        contexts.append(net.memory().context)
    assert contexts[0] == contexts[1]


def test_digits_run_in_2_kilobytes_of_ram():
    digits = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "digits.py"))["digits"]
    images = np.random.default_rng(0).normal(size=(8, 1, 28, 28)).astype(np.float32)
    sizes = []
    for width in (12, 20):
        model = capture(digits(width=width).eval(), torch.from_numpy(images[:1]))
        stored = read_bytes(to_bytes(model, "p8"))
        sizes.append(MicroNet(stored, activations=calibrate_activations(stored, images)).memory().ram)
    assert sizes[0] <= 2000 < sizes[1]


def test_clock_and_compiler_are_those_that_are_asked_for(calibrated, tmp_path, capsys):
    _, file, _ = calibrated
    net = mb.load(file, engine="micro")
    fast, small = net.memory("-O2"), net.memory()
    way = ("--clock", "64MHz", "--compiled", "O2")
    assert run("inspect", file, *way, "--json") == 0
    about = json.loads(capsys.readouterr().out)["micro"]
    assert (about["clock_hz"], about["compiled_with"]) == (64_000_000, "-O2")
    assert about["flash_bytes"] == about["at_O2"]["flash_bytes"] == fast.flash > small.flash
    assert about["at_Os"] == {
        "flash_bytes": small.flash, "code_bytes": small.code, **net.speed().to_json(64_000_000)
    }  # fmt: skip
    assert about["ms"] == pytest.approx(net.speed("-O2").ms("64 MHz"), rel=1e-3)
    assert run("export", file, "--c", str(tmp_path / "c"), *way) == 0
    said = capsys.readouterr().out
    assert f"{fast.flash:,} bytes: " in said
    assert f"; {small.flash:,} if exported for -Os" in said
    assert "on a Cortex-M4 at 64 MHz" in said
    readme = (tmp_path / "c" / "README.md").read_text()
    assert "| at 64 MHz |" in readme
    rows = re.findall(r"^\| (-O\w) \| ([\d,]+) \|", readme, re.MULTILINE)
    assert [level for level, _ in rows] == ["-O2", "-Os"]
    assert "compiled with\n  -O2 for a Cortex-M4" in readme
    assert "export again with `--compiled Os`" in readme, "weights lie in other forms there"
    assert "| exported for |" in readme
    assert "-mthumb -O2 -c net.c" in readme
    cmake = (tmp_path / "c" / "CMakeLists.txt").read_text()
    assert 'set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")' in cmake
    assert "-Os" not in cmake
    mb.export_c(file, tmp_path / "python", clock="64 MHz", compiled="O2")
    assert (tmp_path / "python" / "README.md").read_text() == readme
    assert run("export", file, "--c", str(tmp_path / "bad"), "--clock", "64") == 1
    assert "did you mean '64 MHz'" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_clock_and_compiler_are_refused_where_they_say_nothing(calibrated, tmp_path, capsys):
    _, _, plain = calibrated
    assert run("inspect", plain, "--clock", "64MHz") == 1
    assert "for files of a microcontroller" in capsys.readouterr().err
    assert run("export", plain, "--onnx", str(tmp_path / "n.onnx"), "--compiled", "O2") == 1
    assert "--compiled goes with --c, not with --onnx" in capsys.readouterr().err


def test_a_reserved_word_is_no_prefix(calibrated, tmp_path, capsys):
    _, file, _ = calibrated
    assert run("export", file, "--c", str(tmp_path / "c"), "--prefix", "int") == 1
    assert "--prefix int is a reserved word of C or C++" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_features_are_not_called_pixels_or_images(tmp_path):
    """In what is exported of a network that takes vectors of floats, and of one that takes sequences of bytes."""
    vectors = Builder((20, 1, 1), 0)
    vectors.conv(0, 4, kernel=1)
    sequences = Builder((10, 49, 1), 0)
    sequences.conv(0, 2, kernel=1)
    said = {"mean": [1.0] * 20, "std": [2.0] * 20, "takes": "float32"}
    made = (
        (vectors.store("p8", preprocess=said), "write x [N, 20] to a file"),
        (
            sequences.store("p8", preprocess={"scale": 0.01}),
            "write x [N, 10, 49] or [N, 10, 49, 1] to a file",
        ),
    )
    for number, (stored, told) in enumerate(made):
        files = project_files(micro(stored).plan)
        for name in ("main.c", "net.h", "README.md"):
            assert not re.search(
                "pixel(?!_step)|camera|image(?!.$)", files[name].replace("a new image", "")
            ), name
        assert told in " ".join(files["README.md"].split()), number
