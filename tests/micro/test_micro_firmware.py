"""A network in firmware: examples/firmware runs on an emulated board, and the flags of the guide compile the export."""

import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from micro_networks import NETWORKS, Builder, micro

from membound.export.c_project import write_project
from membound.export.micro import Calibrated, lines_of
from membound.micro.code import ALL, LIBRARY_BYTES, NET_CODE_BYTES, recorded_bytes
from membound.run.calibration import calibrate_activations
from membound.run.micro_net import MicroNet
from membound.store.model import StoredModel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "firmware"
# The guide and its reference.
PAGE = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("MICRO", "MICRO_REFERENCE"))
SOURCES = ("net.c", "membound_micro.c", "membound_micro_conv.c")
FLAGS = dict(re.findall(r"^\| (Cortex-\S+|RISC-V)[^|]*\| `(.*?)` \|", PAGE, re.MULTILINE))
EMULATOR = "qemu-system-arm"


def command_of(program: str) -> list[str]:
    """The command of the page that runs a program, in one line."""
    found = re.search(rf"^ {{4}}({program} (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    assert found is not None
    return found[1].replace("\\\n", " ").split()


def of_digits() -> StoredModel:
    """A network with classes, which its C says to have."""
    return replace(NETWORKS["lenet"](), classes=[f"digit {number}" for number in range(10)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the page's commands find an export, and the example."""
    write_project(tmp_path / "firmware", micro(of_digits()))
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "firmware")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
def test_the_example_links_and_gives_the_engines_outputs(folder):
    subprocess.run(
        [*command_of("arm-none-eabi-gcc"), "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"],
        check=True,
    )
    if shutil.which(EMULATOR) is None:
        pytest.skip("it links; there is no emulator to run it")
    done = subprocess.run(command_of(EMULATOR), capture_output=True, text=True, check=True, timeout=60)
    wrong, *found, longest, whole, lost = done.stdout.splitlines()
    assert wrong == "self test: 0 outputs wrong"
    assert found == 2 * lines_of_the_bar()
    assert lost == "pictures lost: 0"
    estimated = micro(of_digits()).speed()
    for line, words, instructions in (
        (longest, "longest call", estimated.longest_instructions),
        (whole, "whole input", estimated.instructions),
    ):
        ticks = re.fullmatch(rf"{words}: (\d+) ticks of (40 ns)", line)
        assert ticks is not None
        assert 40 * int(ticks[1]) == pytest.approx(instructions, rel=0.15)
        assert f"A tick is {ticks[2]}" in PAGE


@pytest.mark.parametrize(
    ("compiler", "emulator", "tick"),
    [
        ("arm-none-eabi-gcc -mcpu=cortex-m33", "qemu-system-arm -M mps2-an505", 50),
        ("riscv64-unknown-elf-gcc", "qemu-system-riscv32", 1),
    ],
)
def test_the_example_runs_on_other_boards_as_the_page_says(compiler, emulator, tick, folder):
    if None in (shutil.which(compiler.split()[0]), shutil.which(emulator.split()[0])):
        pytest.skip("there is no compiler, or no emulator")
    subprocess.run(
        [*command_of(compiler), "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"], check=True
    )
    done = subprocess.run(command_of(emulator), capture_output=True, text=True, check=True, timeout=60)
    wrong, *found, _, whole, lost = done.stdout.splitlines()
    assert (wrong, lost) == ("self test: 0 outputs wrong", "pictures lost: 0")
    assert found == 2 * lines_of_the_bar()
    ticks = re.fullmatch(rf"whole input: (\d+) ticks of {tick} ns", whole)
    assert ticks is not None
    assert tick * int(ticks[1]) == pytest.approx(micro(of_digits()).speed().instructions, rel=0.3)


def lines_of_the_bar() -> list[str]:
    """What the example prints of each of its pictures, by the engine."""
    net, picture = micro(NETWORKS["lenet"]()), np.zeros((1, 1, 28, 28), np.uint8)
    picture[:, :, 4:24, 12:15] = 255
    outputs = net.integers(picture).reshape(-1).tolist()
    return [*(f"output {number}" for number in outputs), f"class {outputs.index(max(outputs))}"]


@pytest.mark.skipif(
    None in (shutil.which("arm-none-eabi-gcc"), shutil.which(EMULATOR)),
    reason="there is no compiler, or no emulator",
)
@pytest.mark.parametrize(
    ("options", "pictures", "lost"),
    [
        ((), {2}, 0),
        (("-DROWS=1", "-O2"), {2}, 0),
        (("-DBOARD_ROW_TICKS=250u",), {0}, 5),  # 10 us a row: the network takes longer
        (("-DBOARD_ROW_TICKS=250u", "-DROWS=28"), {1, 2}, None),  # others are dropped meanwhile
    ],
)
def test_pictures_that_come_too_fast_are_dropped_whole(options, pictures, lost, folder):
    """Every picture that gives outputs gives the right ones. With -icount, time is that of the emulated processor."""
    command = [*command_of("arm-none-eabi-gcc"), *options, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(command, check=True)
    done = subprocess.run(command_of(EMULATOR), capture_output=True, text=True, check=True, timeout=60)
    _, *found, _, _, last = done.stdout.splitlines()
    assert found in [count * lines_of_the_bar() for count in pictures]
    assert lost is None or last == f"pictures lost: {lost}"


@pytest.mark.parametrize("cpu", FLAGS)
def test_the_flags_of_the_page_compile_an_export(cpu, folder):
    compiler, *flags = FLAGS[cpu].split()
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    command = [
        compiler,
        *flags,
        "-Wall",
        "-Werror",
        "-c",
        *SOURCES,
        "net_test.c",
    ]  # with no flag that the page lacks
    subprocess.run(command, cwd=folder / "firmware", check=True)


def test_the_page_names_these_processors():
    assert list(FLAGS) == ["Cortex-M0+", "Cortex-M4", "Cortex-M4F", "Cortex-M7", "Cortex-M33", "RISC-V"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("build", ["ARDUINO", "PLATFORMIO"])
def test_a_folder_that_is_a_library_has_no_main(build, folder):
    command = ["gcc", "-std=c99", "-Wpedantic", "-Werror", f"-D{build}=1", "-c", "main.c"]
    subprocess.run(command, cwd=folder / "firmware", check=True)
    names = subprocess.run(["nm", folder / "firmware" / "main.o"], capture_output=True, text=True, check=True)
    assert "main" not in names.stdout.replace("main.c", "")


@pytest.mark.skipif(
    None in (shutil.which("arm-none-eabi-gcc"), shutil.which("cmake")),
    reason="there is no compiler, or no CMake",
)
def test_cmake_builds_the_library_alone_on_bare_metal(folder):
    (folder / "arm.cmake").write_text(
        "set(CMAKE_SYSTEM_NAME Generic)\nset(CMAKE_C_COMPILER arm-none-eabi-gcc)\n"
        'set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m4 -mthumb")\n'
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n"
    )
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={folder / 'arm.cmake'}"
    for command in (["-S", "firmware", "-B", "bare", toolchain], ["--build", "bare"]):
        subprocess.run(["cmake", *command], cwd=folder, check=True, capture_output=True)
    assert {path.stem for path in (folder / "bare").iterdir()} & {"libnet", "main"} == {"libnet"}


def of_floats() -> MicroNet:
    """A network that takes features of 20 channels, which net_input makes bytes of."""
    build = Builder((20, 4, 1), 0)
    build.conv(0, 2, kernel=1)
    said = {"mean": [*map(float, range(20))], "std": [2.0 + c for c in range(20)], "takes": "float32"}
    return micro(build.store("p8", preprocess=said))


@pytest.mark.skipif(
    None in (shutil.which("arm-none-eabi-gcc"), shutil.which(EMULATOR)),
    reason="there is no compiler, or no emulator",
)
@pytest.mark.parametrize("cpu", ["Cortex-M4", "Cortex-M4F"])
def test_floats_run_on_the_example_board_with_and_without_an_fpu(cpu, folder):
    net = of_floats()
    shutil.rmtree(folder / "firmware")
    write_project(folder / "firmware", net)
    numbers = np.random.default_rng(0).normal(10, 9, (1, 4, 1, 20)).astype(np.float32)
    (folder / "examples" / "firmware" / "main.c").write_text(
        '#include "board.h"\n#include "net.h"\n'
        f"static const volatile float numbers[] = {{{', '.join(map(str, numbers.reshape(-1).tolist()))}}};\n"
        "static net_context context;\nvoid board_interrupt(void) {}\nint main(void) {\n  uint8_t row[NET_CHANNELS];\n"
        "  board_start();\n  net_start(&context);\n  for (uint32_t y = 0; y < NET_HEIGHT; y++) {\n"
        "    for (uint32_t c = 0; c < NET_CHANNELS; c++) row[c] = net_input(numbers[y * NET_CHANNELS + c], c);\n"
        "    net_feed_row(&context, row, 1, NET_CHANNELS);\n  }\n"
        '  for (uint32_t i = 0; i < NET_OUTPUTS; i++) board_print("", net_output(&context, i), "");\n'
        "  board_stop();\n}\n"
    )
    _, *rest = command_of("arm-none-eabi-gcc")
    subprocess.run([*FLAGS[cpu].split(), *rest[rest.index("-Os") :]], check=True)
    done = subprocess.run(command_of(EMULATOR), capture_output=True, text=True, check=True, timeout=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was calibrated on other numbers
        wanted = net.integers(
            np.asarray(net.preprocess(np.ascontiguousarray(numbers.transpose(0, 3, 1, 2))), np.float32)
        )
    assert [*map(int, done.stdout.split())] == wanted.reshape(-1).tolist()


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
def test_memcpy_and_memset_add_no_more_than_is_said(folder):
    """Libraries of compilers differ: those of some are smaller."""
    subprocess.run(command_of("arm-none-eabi-gcc"), check=True)
    listed = subprocess.check_output(["arm-none-eabi-nm", "-S", "firmware.elf"], text=True)
    sizes = [int(size, 16) for size in re.findall(r"^\w+ (\w+) \w (?:memcpy|memset)$", listed, re.MULTILINE)]
    assert len(sizes) == 2
    assert sum(sizes) <= 1.05 * LIBRARY_BYTES
    told = [
        PAGE,
        (folder / "firmware" / "README.md").read_text(),
        *lines_of(Calibrated(micro(NETWORKS["lenet"]()))),
    ]
    assert sum(f"about {LIBRARY_BYTES} bytes" in each for each in told) == 3


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
@pytest.mark.parametrize(("cpu", "told"), [("Cortex-M0+", 3.2), ("Cortex-M4", 1.8), ("Cortex-M4F", 0.3)])
def test_net_input_adds_what_the_page_says(cpu, told, tmp_path):
    """Linked with and without it; the libraries of compilers differ a little."""
    assert f"{told} KB" in PAGE
    write_project(tmp_path, of_floats())
    (tmp_path / "both.c").write_text(
        '#include "net.h"\nvolatile float number;\nvolatile uint8_t byte;\n'
        "void _start(void) {\n  for (uint32_t i = 0; i < NET_CHANNELS; i++) byte = INPUT;\n}\n"
    )
    sizes = []
    for value in ("(uint8_t)i", "net_input(number, i)"):
        link = [*FLAGS[cpu].split(), f"-DINPUT={value}", "-nostartfiles", "both.c", "-o", "both"]
        subprocess.run(link, cwd=tmp_path, check=True)
        listed = subprocess.check_output(["arm-none-eabi-size", tmp_path / "both"], text=True)
        text, data = map(int, listed.splitlines()[1].split()[:2])
        sizes.append(text + data)
    assert sizes[1] - sizes[0] == pytest.approx(1000 * told, rel=0.2)


def test_where_flash_is_told_net_input_is_named_if_a_network_takes_floats(tmp_path):
    for net, name in ((of_floats(), "kws_input"), (micro(NETWORKS["lenet"]()), None)):
        folder = tmp_path / str(name)
        write_project(folder, net, "kws")
        assert ("kws_input" in (folder / "README.md").read_text()) is (name is not None)
        told = net.memory().to_json().get("flash_not_included", "")
        assert ("1.8 KB" in told) is (name is not None)
        assert told in "\n".join(lines_of(Calibrated(net)))
        if name is not None:
            assert "kws_input" in "\n".join(lines_of(Calibrated(net), prefix="kws"))


def test_the_page_says_what_o2_adds_to_the_code():
    """Over all that a network may use of the runtime."""
    parts = [tuple(name for i, name in enumerate(ALL) if number >> i & 1) for number in range(1 << len(ALL))]
    used = [each for each in parts if {"DENSE", "SPARSE"} & set(each)]
    own = NET_CODE_BYTES["-O2"] - NET_CODE_BYTES["-Os"]
    added = [own + recorded_bytes(each, "-O2") - recorded_bytes(each) for each in used]
    assert f"`-O2` takes {min(added) / 1e3:.1f} to {max(added) / 1e3:.1f} KB more" in PAGE


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_page_rejects_what_a_network_is_not_sure_of(tmp_path):
    """The recipe, in the loop of main.c, against softmax in floating point."""
    recipe = next(
        block
        for block in re.findall(r"^```c\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        if "margin" in block
    )
    net = micro(NETWORKS["lenet"]())
    images = np.random.default_rng(0).integers(0, 256, (60, 1, 28, 28)).astype(np.uint8)
    images[::2] //= 16
    outputs = net(images).astype(np.float64).reshape(60, -1)
    second, best = np.sort(outputs, 1)[:, -2:].T
    least = float(np.median(best - second))  # random weights are never as sure as 2.2
    assert recipe.count("2.2f /") == 1
    write_project(tmp_path, net)
    program = (tmp_path / "main.c").read_text()
    shown = program.index("    for (uint32_t i = 0; i < NET_OUTPUTS")
    until = program.index("    net_start(&context);\n    came = 0;")
    body = recipe.replace("2.2f /", f"{least}f /") + 'printf("%d\\n", (int)found);\n'
    (tmp_path / "main.c").write_text(program[:shown] + body + program[until:])
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1"]
    subprocess.run(["gcc", *flags, "main.c", *SOURCES, "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], input=images.tobytes(), capture_output=True, check=True)
    found = np.array(done.stdout.split(), int)
    scale = net.plan.net.quantizations[net.plan.net.output].scale
    clear = abs(best - second - least) > scale  # the threshold is the next whole step
    assert np.array_equal(found[clear], np.where(best - second > least, outputs.argmax(1), -1)[clear])
    assert min((found[clear] < 0).sum(), (found[clear] >= 0).sum()) > 10


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_pages_threshold_is_that_of_python_on_both_sides_of_0(tmp_path):
    (recipe,) = (
        block for block in re.findall(r"^```c\n(.*?)^```$", PAGE, re.M | re.S) if "THRESHOLD" in block
    )
    shown = re.search(r"#define THRESHOLD (\S+)", recipe)[1]
    cases = [(0.0123, zero, t) for zero in (-128, -7, 127) for t in (-3.2, -0.5, -0.01, 0, 0.01, 0.5, 1.7)]
    cases += [
        (0.25, 3, t) for t in (-0.75, -0.25, 0.0, 0.25, 8.0)
    ]  # what an output stands for is not above itself
    tests = ""
    for scale, zero, threshold in cases:
        code = recipe.replace(f"THRESHOLD {shown}", f"THRESHOLD {threshold:.3f}f")
        tests += (
            f"{{\n#define NET_OUTPUT_SCALE {scale}f\n#define NET_OUTPUT_ZERO ({zero})\n"
            "for (q = -128; q < 128; q++) {\n"
            + code.replace('printf("above the threshold\\n")', "count++")
            + '}\nprintf("%d\\n", count);\ncount = 0;\n}\n'
            "#undef NET_OUTPUT_SCALE\n#undef NET_OUTPUT_ZERO\n#undef THRESHOLD\n"
        )
    (tmp_path / "main.c").write_text(
        "#include <stdint.h>\n#include <stdio.h>\nstatic int8_t net_output(const int *q, int i) "
        "{ return (int8_t)q[i]; }\n#define context q\n"
        f"int main(void) {{\n  int q, count = 0;\n{tests}  return 0;\n}}\n"
    )
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["gcc", *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    counts = subprocess.check_output(tmp_path / "main", text=True).split()
    q = np.arange(-128, 128)
    assert [*map(int, counts)] == [int((scale * (q - zero) > t).sum()) for scale, zero, t in cases]


HOST = """#include <stdio.h>
#include "board.h"
void board_start(void) {}
void board_hold(void) {}
void board_release(void) {}
void board_sleep(void) { board_interrupt(); }
void board_barrier(void) {}
uint32_t board_ticks(void) { return 0; }
void board_print(const char *before, int32_t number, const char *after) { printf("%s%d%s\\n", before, number, after); }
void board_stop(void) {}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize(("outputs", "unit"), [(1, None), (2, 0.01)])
def test_the_example_feeds_numbers_and_prints_what_outputs_stand_for(outputs, unit, folder):
    """On a host, where rows come as they are waited for; in integers where the export names their unit."""
    build = Builder((3, 8, 9), 0)
    build.flat_linear(build.conv(0, 2), outputs)
    said = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.4, 0.3], "takes": "float32"}
    stored = build.store("p8", preprocess=said)
    drawn = np.random.default_rng(0).normal(0, 2, (20, 3, 8, 9)).astype(np.float32)
    net = MicroNet(stored, activations=calibrate_activations(stored, drawn))
    shutil.rmtree("firmware")
    write_project("firmware", net, units=None if unit is None else [unit])
    assert "#define NET_CLASSES 0 " in Path("firmware/net.h").read_text()
    assert ("#define NET_INPUT_UNIT 0.01f " in Path("firmware/net.h").read_text()) is (unit is not None)
    Path("board.c").write_text(HOST)
    sources = ["examples/firmware/main.c", "board.c", "firmware/net_test.c"]
    sources += [f"firmware/{name}" for name in SOURCES]
    folders = ["-Ifirmware", "-Iexamples/firmware"]
    strict = ["gcc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *folders]
    subprocess.run([*strict, *sources, "-o", "run"], check=True)
    for height in (8, 1):  # sides of 1, as sequences and features have
        narrow = Builder((3, height, 1), 0)
        narrow.flat_linear(narrow.conv(0, 2, 1), 2)
        shutil.rmtree("firmware")
        write_project("firmware", micro(narrow.store("p8", preprocess={"std": [64.0] * 3})))
        subprocess.run([*strict, "-fsyntax-only", "examples/firmware/main.c"], check=True)
    wrong, *found, _, _, _ = subprocess.check_output("./run", text=True).splitlines()
    numbers = np.zeros((1, 3, 8, 9), np.float32)
    numbers[:, :, 1:6, 4] = 1
    found_by_python = net(np.asarray(net.preprocess(numbers), np.float32)).reshape(-1)
    assert wrong == "self test: 0 outputs wrong"
    printed = [re.fullmatch(r"number: (-?\d+) thousandths", line) for line in found]
    assert [int(each[1]) for each in printed] == pytest.approx(
        2 * [1000 * number for number in found_by_python], abs=1.1
    )


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_page_feeds_windows_that_overlap(tmp_path):
    """The ring: each window gives what the engine gives for its rows alone."""
    blocks = re.findall(r"^```c\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (recipe,) = (block for block in blocks if "HOP" in block)
    build = Builder((3, 8, 1), 0)
    build.flat_linear(build.conv(0, 4), 5)
    net = micro(build.store("p8", preprocess={"mean": [128.0] * 3, "std": [64.0] * 3}))
    write_project(tmp_path, net)
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include <stdlib.h>\n#include "net.h"\nstatic net_context context;\n'
        "static const uint8_t *next_row(void) {\n  static uint8_t row[NET_WIDTH * NET_CHANNELS];\n"
        "  if (fread(row, sizeof row, 1, stdin) != 1) exit(0);\n  return row;\n}\n"
        + "".join(re.findall("^#include .*\n", recipe, re.MULTILINE))
        + f"int main(void) {{\n{re.sub('^#include .*', '', recipe, flags=re.MULTILINE)}}}\n"
    )
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Werror", "main.c", *SOURCES, "-o", "main"], cwd=tmp_path, check=True
    )
    stream = np.random.default_rng(0).integers(0, 256, (30, 3)).astype(np.uint8)
    done = subprocess.run(
        [tmp_path / "main"], input=stream.tobytes(), capture_output=True, check=True, text=False
    )
    windows = np.stack([stream[first : first + 8].T[..., None] for first in range(0, 30 - 8 + 1, 5)])
    wanted = net.integers(windows).reshape(len(windows), -1).argmax(1)
    assert done.stdout.decode().split() == [word for each in wanted for word in ("class", str(each))]
    assert len(set(wanted.tolist())) > 1
