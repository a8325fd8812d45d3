"""A network in firmware: examples/firmware runs on an emulated board, and docs/MICRO.md's flags compile the export."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from micro_networks import NETWORKS, micro

from membound.export.c_project import write_project

ROOT = Path(__file__).parents[2]
EXAMPLE, PAGE = ROOT / "examples" / "firmware", (ROOT / "docs" / "MICRO.md").read_text()
SOURCES = ("net.c", "membound_micro.c", "membound_micro_conv.c")
FLAGS = dict(re.findall(r"^\| (Cortex-\S+|RISC-V)[^|]*\| `(.*?)` \|", PAGE, re.MULTILINE))
EMULATOR = "qemu-system-arm"


def command_of(program: str) -> list[str]:
    """The command of the page that runs a program, in one line."""
    found = re.search(rf"^ {{4}}({program} (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    assert found is not None
    return found[1].replace("\\\n", " ").split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the page's commands find an export, and the example."""
    write_project(tmp_path / "firmware", micro(NETWORKS["lenet"]()))
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "firmware")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
def test_the_example_links_and_gives_the_engines_outputs(folder):
    subprocess.run(
        [*command_of("arm-none-eabi-gcc"), "-Wall", "-Wextra", "-Wconversion", "-Werror"], check=True
    )
    if shutil.which(EMULATOR) is None:
        pytest.skip("it links; there is no emulator to run it")
    done = subprocess.run(command_of(EMULATOR), capture_output=True, text=True, check=True, timeout=60)
    net, picture = micro(NETWORKS["lenet"]()), np.zeros((1, 1, 28, 28), np.uint8)
    picture[:, :, 4:24, 12:15] = 255
    outputs = net.integers(picture).reshape(-1).tolist()
    *found, best = map(int, done.stdout.split())
    assert found == outputs
    assert outputs[best] == max(outputs)


@pytest.mark.parametrize("cpu", FLAGS)
def test_the_flags_of_the_page_compile_an_export(cpu, folder):
    compiler, *flags = FLAGS[cpu].split()
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    subprocess.run([compiler, *flags, "-Wall", "-Werror", "-ffreestanding", "-c", *SOURCES], cwd=folder / "firmware",
                   check=True)  # fmt: skip


def test_the_page_names_these_processors():
    assert list(FLAGS) == ["Cortex-M0+", "Cortex-M4", "Cortex-M7", "Cortex-M33", "RISC-V"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("build", ["ARDUINO", "PLATFORMIO"])
def test_a_folder_that_is_a_library_has_no_main(build, folder):
    command = ["gcc", "-std=c99", "-Wpedantic", "-Werror", f"-D{build}=1", "-c", "main.c"]
    subprocess.run(command, cwd=folder / "firmware", check=True)
    names = subprocess.run(["nm", folder / "firmware" / "main.o"], capture_output=True, text=True, check=True)
    assert "main" not in names.stdout.replace("main.c", "")
