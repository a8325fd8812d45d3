"""Emulated boards: a network is compiled for one, runs on it, and what it prints comes back."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from membound.export.c_project import write_project
from membound.run.micro_net import MicroNet

HERE = Path(__file__).parent / "boards"
ARM = ("arm-none-eabi-gcc", "-mthumb", "-mfloat-abi=soft")
TIMED = ("-DHAS_TIMER",)


@dataclass(frozen=True)
class Board:
    compiler: tuple[str, ...]
    emulator: tuple[str, ...]
    script: str = "arm.ld"

    @property
    def is_here(self) -> bool:
        return all(shutil.which(program) for program in (self.compiler[0], self.emulator[0]))


def _arm(cpu: str, machine: str, *options: str) -> Board:
    return Board((*ARM, f"-mcpu={cpu}", *options), ("qemu-system-arm", "-M", machine))


BOARDS = {
    "cortex-m3": _arm("cortex-m3", "mps2-an385", *TIMED),
    "cortex-m4": _arm("cortex-m4", "mps2-an386", *TIMED),
    "cortex-m7": _arm("cortex-m7", "mps2-an500", *TIMED),
    "cortex-m33": Board(
        (*ARM, "-mcpu=cortex-m33", "-DTICK_QUARTERS=200u"),  # 20 MHz
        ("qemu-system-arm", "-M", "mps2-an505"),
        "arm_m33.ld",
    ),
    "cortex-m55": _arm("cortex-m55+nomve", "mps3-an547"),
    "cortex-m55-mve": Board(
        ("arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m55", "-mfloat-abi=hard"),
        ("qemu-system-arm", "-M", "mps3-an547"),
    ),
    "rv32": Board(
        (
            "riscv64-unknown-elf-gcc",
            "-march=rv32im_zicsr",
            "-mabi=ilp32",
            "-mcmodel=medany",
            f"-I{HERE / 'include'}",
        ),
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        "riscv.ld",
    ),
}


@dataclass(frozen=True)
class Ran:
    """What came out, what instructions the last image took (0: not counted), bytes of stack below main, of code."""

    outputs: np.ndarray
    instructions: int
    stack: int
    code: int


def run_on(
    board: Board, net: MicroNet, images: np.ndarray, folder: Path, optimize: str = "-O2", *options: str
) -> Ran:
    """`images` are bytes as the network is fed with them, [n, C, H, W].

    With -DLONGEST_ROW, the instructions are those of the longest call of net_feed_row, not of an image.
    """
    write_project(folder, net)
    write_images(images, folder)
    runtime = [folder / "membound_micro.c", folder / "membound_micro_conv.c"]
    flags = [optimize, "-ffreestanding", "-fno-tree-loop-distribute-patterns", *options]
    stack, outputs, instructions = run_program(
        board, folder, [folder / "net.c", *runtime], flags, len(images)
    )
    return Ran(outputs, instructions, stack, code_bytes(board, runtime, folder))


def write_images(images: np.ndarray, folder: Path) -> None:
    """images.h, [n, C, H, W] as bytes that a camera gives."""
    numbers = ", ".join(map(str, images.transpose(0, 2, 3, 1).reshape(-1).tolist()))
    text = f"#define IMAGES {len(images)}u\nstatic const uint8_t images[] = {{{numbers}}};\n"
    (folder / "images.h").write_text("#include <stdint.h>\n" + text)


def run_program(
    board: Board,
    folder: Path,
    sources: list[Path],
    flags: list[str],
    images: int,
    libraries: tuple[str, ...] = (),
) -> tuple[int, np.ndarray, int]:
    """Compile net.h and images.h of a folder with these sources, run that, and give stack, outputs and instructions."""
    program = folder / "board.elf"
    link = [
        "-nostdlib",
        "-static",
        "-Wl,--build-id=none,--no-warn-rwx-segments",
        f"-Wl,-T{HERE / board.script}",
        "-o",
        str(program),
    ]
    compile_ = [
        *board.compiler,
        "-std=gnu99",
        *flags,
        f"-I{folder}",
        str(HERE / "board.c"),
        *map(str, sources),
    ]
    subprocess.run([*compile_, *link, *libraries, "-lgcc"], check=True)
    command = [
        *board.emulator,
        "-nographic",
        "-icount",
        "shift=0",
        "-semihosting-config",
        "enable=on,target=native",
    ]
    done = subprocess.run([*command, "-kernel", str(program)], capture_output=True, timeout=300)
    stack, *lines, count = (done.stdout + done.stderr).decode().split("\n")[: images + 2]
    return int(stack), np.array([line.split() for line in lines], int), int(count)


def code_bytes(board: Board, runtime: list[Path], folder: Path, optimize: str = "-Os") -> int:
    """The runtime alone, compiled for size, or as `optimize` says."""
    total = 0
    for source in runtime:
        target = folder / f"{source.stem}.o"
        subprocess.run(
            [*board.compiler, optimize, "-ffreestanding", "-c", str(source), "-o", str(target)], check=True
        )
        sizes = board.compiler[0].replace("-gcc", "-size")
        printed = subprocess.run([sizes, str(target)], capture_output=True, check=True, text=True)
        total += int(printed.stdout.splitlines()[1].split()[0])
    return total
