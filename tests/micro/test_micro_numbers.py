"""Integers that count units as the bytes that a network is fed: in C, against whole numbers of Python."""

import json
import shutil
import subprocess
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
from micro_networks import NETWORKS, Builder, micro
from test_micro_firmware import FLAGS, PAGE, of_floats
from test_micro_project import STRICT, needs_gcc

import membound as mb
from membound.cli import main
from membound.errors import DataError, ModelError
from membound.export.c_project import write_project
from membound.micro.numbers import FIXED_CHANNEL_BYTES, FIXED_CODE_BYTES, fix_input, read_units, steps_of
from membound.run.calibration import with_activations
from membound.run.micro_net import MicroNet

PROGRAM = """#include <stdio.h>
#include "net.h"
int main(void) {
  int32_t number;
  for (uint32_t i = 0; fread(&number, sizeof number, 1, stdin) == 1; i++)
    putchar(net_input_fixed(number, i % NET_CHANNELS));
  return 0;
}
"""


def network(**preprocess) -> MicroNet:
    build = Builder((3, 4, 1), 0)
    build.conv(0, 2, kernel=1)
    return micro(build.store("p8", preprocess={"takes": "float32", **preprocess}))


def bytes_in_c(net: MicroNet, units: tuple[float, ...], numbers: np.ndarray, folder: Path) -> np.ndarray:
    """Of numbers [n, channels]."""
    write_project(folder, net, units=units)
    (folder / "numbers.c").write_text(PROGRAM)
    for flags in (["-O2"], ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]):
        program = folder / "numbers"
        command = ["gcc", *STRICT, *flags, str(folder / "numbers.c"), "-o", str(program)]
        subprocess.run(command, check=True)
        given = numbers.astype("<i4").tobytes()
        found = subprocess.run([str(program)], input=given, capture_output=True, check=True).stdout
    return np.frombuffer(found, np.uint8).reshape(numbers.shape)


@needs_gcc
@pytest.mark.parametrize(
    ("preprocess", "units"),
    [
        ({"mean": [1.0, -20.0, 3e4], "std": [0.5, 400.0, 25.0]}, (0.001, 1.0, 0.5)),
        ({"mean": [-3.0] * 3, "std": [2.0] * 3, "scale": -0.5}, (1e-7,)),
        ({}, (0.37,)),
    ],
)
def test_integers_become_the_bytes_of_the_equation(preprocess, units, tmp_path):
    """Exactly those of whole numbers, and those of fractions but where these lie within a hair of a half."""
    net = network(**preprocess)
    known, fixed = steps_of(net.plan, preprocess), fix_input(net.plan, preprocess, units)
    random, ends = np.random.default_rng(0), np.array([-(2**31), -1, 0, 1, 2**31 - 1])
    columns = []
    for channel in range(3):
        step, offset, unit = known.steps[channel], known.offsets[channel], units[channel % len(units)]
        within = (random.uniform(-20, 275, 1500) - offset) * step / unit
        columns.append(np.concatenate([np.clip(within, -(2**31), 2**31 - 1).astype(np.int64), ends]))
    numbers = np.stack(columns, 1)
    found = bytes_in_c(net, units, numbers, tmp_path / "c")
    for channel in range(3):
        place = channel % len(fixed.factors)
        factor, constant = fixed.factors[place], fixed.offsets[place]
        wanted = [
            min(max((n * factor + constant) >> fixed.shift, 0), 255) for n in numbers[:, channel].tolist()
        ]
        assert found[:, channel].tolist() == wanted
        step, offset, unit = (
            Fraction(each)
            for each in (known.steps[channel], known.offsets[channel], units[channel % len(units)])
        )
        exact = [n * unit / step + offset + Fraction(1, 2) for n in numbers[:, channel].tolist()]
        clear = [abs(number - round(number)) > 1e-5 for number in exact]
        assert np.mean(clear) > 0.99
        rounded = [min(max(floor(number), 0), 255) for number in exact]
        assert [b for b, ok in zip(wanted, clear, strict=True) if ok] == [
            b for b, ok in zip(rounded, clear, strict=True) if ok
        ]
    assert len(np.unique(found)) > 250


def test_floats_and_integers_have_the_same_scores(tmp_path):
    """net.preprocess, as Python calls it, and net_input_fixed agree."""
    said = {"mean": [1.0, -2.0, 30.0], "std": [0.5, 4.0, 25.0]}
    net = network(**said)
    numbers = np.random.default_rng(0).integers(-300, 300, (5, 3, 4, 1))
    fixed = fix_input(net.plan, said, (0.1,))
    places = np.arange(3)[:, None, None]
    factor, offset = (np.array(each, np.int64)[places] for each in (fixed.factors, fixed.offsets))
    fed = np.clip((numbers * factor + offset) >> fixed.shift, 0, 255).astype(np.uint8)
    prepared = np.asarray(net.preprocess((numbers * 0.1).astype(np.float32)), np.float32)
    first = net.plan.net.quantizations[0]
    assert np.abs(first.round(prepared).astype(int) + 128 - fed).max() <= 1
    assert (first.round(prepared).astype(int) + 128 == fed).mean() > 0.9


def test_messages_of_a_network_of_numbers_speak_of_no_pixels():
    net = network(mean=[0.0] * 3, std=[1.0] * 3)
    with pytest.raises(ModelError, match="does not say what bytes stand for: give float32") as raised:
        net(np.zeros((1, 3, 4, 1), np.uint8))
    assert "which net_input makes of numbers" in str(raised.value)
    with pytest.raises(DataError, match=r"takes \[3, 4, 1\], not pictures: give it an array"):
        net.read("cat.jpg")
    with pytest.warns(UserWarning, match="are in another unit, or were divided") as told:
        net.integers(np.full((1, 3, 4, 1), 1e-4, np.float32))
    assert "pixel" not in str(told[0].message)


def test_units_that_no_input_has_are_refused(tmp_path):
    net = network(mean=[0.0] * 3, std=[1.0] * 3)
    covers = 256 * net.plan.net.quantizations[0].scale
    for unit, words in {
        (1.1 * covers,): f"channel 0, where a byte covers a range of {covers:.3g}: a unit from ",
        (covers * 2.0**-32,): "does not suit channel 0",
        (
            0.1,
            0.1,
        ): "input_unit has 2 numbers, but the input has 3 channels: give one, or one for each channel",
    }.items():
        with pytest.raises(ModelError, match=words):
            write_project(tmp_path / "c", net, units=unit)
    for wrong in (0, -1, "x", "", [], [0.1, None], float("inf")):
        with pytest.raises(ModelError, match="what an integer counts is needed, such as"):
            read_units(wrong)
    with pytest.raises(ModelError, match="takes bytes as they are, and no numbers to make bytes of"):
        write_project(tmp_path / "c", micro(NETWORKS["lenet"]()), units=(0.1,))
    assert not (tmp_path / "c").exists()


def test_the_command_and_python_write_the_same_header(tmp_path, capsys):
    net = network(mean=[0.0, 1.0, 2.0], std=[1.0] * 3)
    file = tmp_path / "net.safetensors"
    file.write_bytes(b"".join(with_activations(net.model, dict(net.activations))))
    folders = {name: str(tmp_path / name) for name in ("python", "command")}
    mb.export_c(file, folders["python"], input_unit=[0.01, 0.02, 0.03])
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(file), "--c", folders["command"], "--input-unit", "0.01,0.02,0.03"])
    assert stopped.value.code == 0
    most = FIXED_CODE_BYTES + 3 * FIXED_CHANNEL_BYTES
    assert f"net_input_fixed, which converts integers to bytes, is not included: at most {most} bytes" in (
        capsys.readouterr().out
    )
    one, two = ((tmp_path / name / "net.h").read_text() for name in folders)
    assert one == two
    assert "A count of 1 stands for 0.01, 0.02, 0.03 (one for each channel)\n" in one
    readme = (tmp_path / "python" / "README.md").read_text()
    assert "`net_input_fixed(number, channel)`" in readme
    assert "  `net_input_fixed`, which converts integers to bytes, is not included" in readme
    assert "row[i] = net_input_fixed(counts[i], i % NET_CHANNELS);" in readme
    assert "made by net_input_fixed" in one
    for words, said in {
        (
            "--c",
            "other",
            "--input-unit",
            "0.1,0.2",
        ): "--input-unit has 2 numbers, but the input has 3 channels",
        (
            "--onnx",
            "net.onnx",
            "--input-unit",
            "0.1",
        ): "--input-unit goes with --c, not with --onnx: leave it",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            main(["export", str(file), words[0], str(tmp_path / words[1]), *words[2:]])
        assert stopped.value.code == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_hosts_program_reads_integers_where_there_is_a_unit(tmp_path):
    """The counts of a driver, and the same numbers as floats, give the same outputs, but for bytes on an edge."""
    said = {"mean": [1.0, -2.0, 30.0], "std": [0.5, 4.0, 25.0]}
    net = network(**said)
    write_project(tmp_path, net, units=(0.25,))  # which floats hold exactly
    strict = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]
    sources = sorted(path.name for path in tmp_path.glob("*.c") if path.name != "net_test.c")
    subprocess.run([*strict, *sources, "-o", "main"], cwd=tmp_path, check=True)
    counts = np.random.default_rng(0).integers(-300, 300, (5, 4, 1, 3)).astype(np.int32)
    ran = [
        subprocess.run([tmp_path / "main", *more], input=given.tobytes(), capture_output=True, check=True)
        for more, given in ((["--counts"], counts), ([], (0.25 * counts).astype(np.float32)))
    ]
    assert ran[0].stdout == ran[1].stdout
    assert len(ran[0].stdout.splitlines()) == 5
    wrong = subprocess.run([tmp_path / "main", "--count"], input=b"", capture_output=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, b"")
    assert b"[--counts] < FILE" in wrong.stderr


def test_an_export_over_another_says_what_it_leaves_out(tmp_path, capsys):
    net = network(mean=[0.0, 1.0, 2.0], std=[1.0] * 3)
    file, folder = tmp_path / "net.safetensors", tmp_path / "c"
    file.write_bytes(b"".join(with_activations(net.model, dict(net.activations))))
    first = [
        "export",
        str(file),
        "--c",
        str(folder),
        "--input-unit",
        "0.01",
        "--compiled",
        "O2",
        "--clock",
        "64MHz",
    ]
    told, wrote, printed = {}, {}, ""
    for more in (first, first, first[:4]):
        with pytest.raises(SystemExit) as stopped:
            main(more)
        assert stopped.value.code == 0
        printed, told[len(more)] = capsys.readouterr()
        wrote[len(more)] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert told[len(first)] == ""
    assert told[4].splitlines() == [
        "note: the export before had --compiled O2, and so has this one; for -Os give --compiled Os",
        "note: the export before had --clock 64MHz, and so has this one; give another to change it",
        "note: the export before had --input-unit 0.01, and so has this one; give another to change it",
    ]
    assert all(wrote[len(first)] == files for files in wrote.values()), "nothing is dropped"
    assert "at 64 MHz" in printed
    assert "of code at -O2" in printed
    with pytest.warns(UserWarning, match="had clock=64MHz, and so has this one"):
        small = mb.export_c(file, folder, compiled="Os", input_unit=0.02)
    assert small.plan.level == "-Os"
    with pytest.warns(UserWarning, match=r"had input_unit=0.02, and so has this one; give another"):
        mb.export_c(file, folder, clock="80MHz")
    assert "#define NET_INPUT_UNIT 0.02f " in (folder / "net.h").read_text()
    noted = json.loads((folder / ".membound.json").read_text())
    noted["options"]["input_unit"] = "1,2"  # as of a network of other channels
    (folder / ".membound.json").write_text(json.dumps(noted))
    with pytest.warns(UserWarning, match=r"input_unit=1,2, which does not suit .*: net_input_fixed is gone"):
        mb.export_c(file, folder)
    assert "net_input_fixed" not in (folder / "net.h").read_text()
    (tmp_path / "net.h").write_text("")
    with pytest.raises(ModelError, match=r"net\.h is a file: give a folder"):
        mb.export_c(file, tmp_path / "net.h")


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
@pytest.mark.parametrize(("cpu", "most"), [("Cortex-M0+", 160), ("Cortex-M4", FIXED_CODE_BYTES)])
def test_integers_add_no_more_flash_than_is_said(cpu, most, tmp_path):
    net = of_floats()
    assert f"{most} bytes of code" in PAGE
    write_project(tmp_path, net, units=(0.01,))
    (tmp_path / "both.c").write_text(
        '#include "net.h"\nvolatile int32_t number;\nvolatile uint8_t byte;\n'
        "void _start(void) {\n  for (uint32_t i = 0; i < NET_CHANNELS; i++) byte = INPUT;\n}\n"
    )
    sizes = []
    for value in ("(uint8_t)i", "net_input_fixed(number, i)"):
        link = [*FLAGS[cpu].split(), f"-DINPUT={value}", "-nostartfiles", "both.c", "-o", "both"]
        subprocess.run(link, cwd=tmp_path, check=True)
        listed = subprocess.check_output(["arm-none-eabi-size", tmp_path / "both"], text=True)
        sizes.append(sum(map(int, listed.splitlines()[1].split()[:2])))
    added = sizes[1] - sizes[0] - 20 * FIXED_CHANNEL_BYTES
    assert 0.6 * most < added <= most
