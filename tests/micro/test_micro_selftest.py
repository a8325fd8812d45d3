"""The self test beside exported C: it passes where all is well, and fails where a constant is not what it was."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulated_boards import BOARDS
from micro_networks import NETWORKS, Builder, micro
from profiles import chiefly

from membound.export.c_project import write_project
from membound.export.c_selftest import golden

ROOT = Path(__file__).parents[2]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
STRICT = ["gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def selftest(folder: Path, prefix: str = "net") -> tuple[int, str]:
    """The program that net_test.c is by itself: its exit code, and what it prints."""
    sources = sorted(str(path) for path in folder.glob("*.c") if path.name != "main.c")
    program = folder / "selftest"
    subprocess.run([*STRICT, f"-D{prefix.upper()}_TEST_MAIN", *sources, "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


@needs_gcc
@pytest.mark.parametrize("name", chiefly(["dscnn"], NETWORKS))
def test_an_export_passes_its_self_test(name, tmp_path):
    net = micro(NETWORKS[name]())
    write_project(tmp_path / "c", net)
    assert selftest(tmp_path / "c") == (
        0,
        f"self test: 0 of {int(np.prod(net.output_shape))} outputs are wrong",
    )


def test_the_outputs_are_those_of_the_engine_and_differ():
    net = micro(NETWORKS["lenet"]())
    given, outputs = golden(net.plan)
    channels, height, width = net.plan.net.images[0]
    image = given.reshape(1, height, width, channels).transpose(0, 3, 1, 2)
    assert np.array_equal(net.integers(image).reshape(-1), outputs)
    assert len(np.unique(outputs)) > 3


@needs_gcc
def test_a_flaw_in_a_layer_is_found(tmp_path):
    write_project(tmp_path / "c", micro(NETWORKS["lenet"]()))
    source = tmp_path / "c" / "net.c"
    text = source.read_text()
    for name in ("weight_0_stream", "scale_0_multiplier", "scale_0_bias"):
        begun = re.search(rf" {name}\[\d+\] = {{\s*", text)
        assert begun is not None, name
        first, rest = text[begun.end() :].split(",", 1)
        source.write_text(f"{text[: begun.end()]}{int(first) ^ 96},{rest}")
        code, said = selftest(tmp_path / "c")
        assert (code, said.startswith("self test: 0 ")) == (1, False), name


@needs_gcc
def test_floats_and_a_prefix_have_a_self_test_too(tmp_path):
    build = Builder((20, 4, 1), 0)
    build.conv(0, 2, kernel=1)
    net = micro(build.store("p8", preprocess={"mean": [0.5] * 20, "std": [2.0] * 20, "takes": "float32"}))
    write_project(tmp_path / "c", net, "kws")
    assert {path.name for path in (tmp_path / "c").glob("*_test.*")} == {"kws_test.c", "kws_test.h"}
    assert selftest(tmp_path / "c", "kws")[0] == 0
    readme = (tmp_path / "c" / "README.md").read_text()
    assert "kws_selftest(&context)" in readme
    for text in (readme, (tmp_path / "c" / "kws_test.c").read_text()):
        assert "a wrong unit or order of channels passes" in " ".join(text.split())
    assert "net_" not in readme


def test_a_file_of_that_name_that_is_not_ours_stays(tmp_path):
    net = micro(NETWORKS["lenet"]())
    write_project(tmp_path / "c", net)
    (tmp_path / "c" / "net_test.c").write_text("int mine;\n")
    assert write_project(tmp_path / "c", net) == ["net_test.c"]
    assert (tmp_path / "c" / "net_test.c").read_text() == "int mine;\n"


@pytest.mark.skipif(
    None in (shutil.which("cmake"), shutil.which("gcc")), reason="there is no CMake, or no compiler"
)
def test_ctest_runs_it_and_a_program_without_it_does_not_have_it(tmp_path):
    write_project(tmp_path / "c", micro(NETWORKS["lenet"]()))
    build = tmp_path / "build"
    for command in (["cmake", "-S", tmp_path / "c", "-B", build], ["cmake", "--build", build]):
        subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run(["ctest", "--test-dir", build], check=True, capture_output=True, text=True)
    assert "100% tests passed" in done.stdout
    names = {
        program: subprocess.run(["nm", build / program], check=True, capture_output=True, text=True).stdout
        for program in ("main", "net_selftest")
    }
    assert "net_test_input" not in names["main"]
    assert "net_test_input" in names["net_selftest"]


@pytest.mark.skipif(not BOARDS["cortex-m4"].is_here, reason="there is no compiler, or no emulator")
def test_the_self_test_passes_on_the_example_board(tmp_path):
    write_project(tmp_path / "c", micro(NETWORKS["lenet"]()))
    (tmp_path / "main.c").write_text(
        '#include "board.h"\n#include "net_test.h"\nstatic net_context context;\nvoid board_interrupt(void) {}\n'
        'int main(void) {\n  board_start();\n  board_print("", net_selftest(&context), "");\n  board_stop();\n}\n'
    )
    example, c = ROOT / "examples" / "firmware", tmp_path / "c"
    sources = [
        tmp_path / "main.c",
        example / "board.c",
        *sorted(c.glob("net*.c")),
        *sorted(c.glob("membound*.c")),
    ]
    subprocess.run(
        ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Os", "-ffunction-sections", "-fdata-sections",
         f"-I{c}", f"-I{example}", *sources, "-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections",
         f"-T{example / 'board.ld'}", f"-o{tmp_path / 'firmware.elf'}"], check=True,
    )  # fmt: skip
    done = subprocess.run(
        ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "stdio",
         "-semihosting-config", "enable=on,target=native", "-kernel", tmp_path / "firmware.elf"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["0"]
