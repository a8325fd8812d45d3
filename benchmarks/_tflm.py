"""TensorFlow Lite Micro with CMSIS-NN for a Cortex-M4 with its FPU: built from source, linked to one .tflite, emulated.

The library is built as its own Makefile builds a release: no error strings, the operators of the file alone, unused
sections dropped. The program that runs it is the one that runs ours.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _record import ROOT
from numpy.typing import NDArray

sys.path.insert(0, str(ROOT / "tools"))
from emulated_boards import BOARDS, HERE, write_images

CPU = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-DHAS_TIMER")
COMMON = (
    "-DTF_LITE_STATIC_MEMORY", "-DNDEBUG", "-DTF_LITE_STRIP_ERROR_STRINGS", "-DCMSIS_NN", "-w",
    "-DFLATBUFFERS_LOCALE_INDEPENDENT=0", "-ffunction-sections", "-fdata-sections", "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer",
)  # fmt: skip
CPP = ("-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-use-cxa-atexit")
FOLDERS = (
    "lite/core/api", "lite/core/c", "lite/kernels", "lite/kernels/internal", "lite/kernels/internal/reference",
    "compiler/mlir/lite/core/api", "compiler/mlir/lite/schema", "lite/micro", "lite/micro/arena_allocator",
    "lite/micro/memory_planner", "lite/micro/tflite_bridge",
)  # fmt: skip
LEFT_OUT = ("test", "fake_", "mock_", "hexdump", "recording_", "debug_log")
KERNELS = (
    "add",
    "conv",
    "depthwise_conv",
    "fully_connected",
    "pooling",
    "reduce",
    "reshape",
    "softmax",
    "kernel_util",
)
OPERATORS = {
    "ADD": "AddAdd()", "CONV_2D": "AddConv2D(tflite::Register_CONV_2D_INT8())",
    "DEPTHWISE_CONV_2D": "AddDepthwiseConv2D(tflite::Register_DEPTHWISE_CONV_2D_INT8())",
    "FULLY_CONNECTED": "AddFullyConnected(tflite::Register_FULLY_CONNECTED_INT8())",
    "MAX_POOL_2D": "AddMaxPool2D(tflite::Register_MAX_POOL_2D_INT8())",
    "AVERAGE_POOL_2D": "AddAveragePool2D(tflite::Register_AVERAGE_POOL_2D_INT8())", "MEAN": "AddMean()",
    "RESHAPE": "AddReshape()", "SOFTMAX": "AddSoftmax(tflite::Register_SOFTMAX_INT8())",
}  # fmt: skip
HEADER = """#include <stdint.h>
#define NET_CHANNELS {channels}
#define NET_HEIGHT {height}
#define NET_WIDTH {width}
#define NET_OUTPUTS {outputs}
typedef struct {{ uint32_t rows; }} net_context;
#ifdef __cplusplus
extern "C" {{
#endif
void net_start(net_context *context);
int net_feed_row(net_context *context, const uint8_t *row, uint32_t channel_step, uint32_t pixel_step);
int8_t net_output(const net_context *context, uint32_t index);
#ifdef __cplusplus
}}
#endif
"""
STUB = """#include "net.h"
void net_start(net_context *context) { context->rows = 0; }
int net_feed_row(net_context *context, const uint8_t *row, uint32_t a, uint32_t b) { return row[0] == a + b; }
int8_t net_output(const net_context *context, uint32_t index) { return (int8_t)(context->rows + index); }
"""
NET = """#include <new>
#include "net.h"
#include "model.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
alignas(16) static uint8_t arena[{arena}];
static tflite::MicroInterpreter *interpreter;
static uint32_t arena_used; /* printed as three more outputs of 7 bits */
void net_start(net_context *context) {{
  context->rows = 0;
  if (interpreter != nullptr) return;
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
  __asm__ volatile("dsb\\nisb");
  alignas(8) static uint8_t place[sizeof(tflite::MicroMutableOpResolver<{count}>)];
  alignas(8) static uint8_t other[sizeof(tflite::MicroInterpreter)];
  auto *operators = new (place) tflite::MicroMutableOpResolver<{count}>();
{operators}
  interpreter = new (other) tflite::MicroInterpreter(tflite::GetModel(model), *operators, arena, sizeof arena);
  if (interpreter->AllocateTensors() != kTfLiteOk) for (;;) {{}}
  arena_used = interpreter->arena_used_bytes();
}}
int net_feed_row(net_context *context, const uint8_t *row, uint32_t, uint32_t) {{
  int8_t *to = interpreter->input(0)->data.int8 + context->rows * NET_WIDTH * NET_CHANNELS;
  for (int i = 0; i < NET_WIDTH * NET_CHANNELS; i++) to[i] = (int8_t)(row[i] - 128);
  if (++context->rows < NET_HEIGHT) return 0;
  return interpreter->Invoke() == kTfLiteOk;
}}
int8_t net_output(const net_context *, uint32_t index) {{
  const uint32_t extra = NET_OUTPUTS - 3;
  if (index < extra) return interpreter->output(0)->data.int8[index];
  return (int8_t)(arena_used >> 7 * (index - extra) & 127);
}}
extern "C" void DebugLog(const char *, va_list) {{}}
extern "C" int DebugVsnprintf(char *, size_t, const char *, va_list) {{ return 0; }}
extern "C" void abort() {{ for (;;) {{}} }}
"""


@dataclass(frozen=True)
class Sources:
    """Checkouts of what the library is made of."""

    tflm: Path
    cmsis: Path
    flatbuffers: Path
    gemmlowp: Path
    ruy: Path

    def includes(self) -> list[str]:
        flat, nn = self.flatbuffers / "include", self.cmsis / "Include"
        return [
            f"-I{each}"
            for each in (self.tflm, flat, self.gemmlowp, self.ruy, nn, self.cmsis, self.cmsis.parent)
        ]

    def files(self) -> list[Path]:
        """The core, the kernels that are used (CMSIS-NN's where it has them), and CMSIS-NN."""
        found = [path for part in FOLDERS for path in sorted((self.tflm / "tensorflow" / part).glob("*.cc"))]
        kernels = self.tflm / "tensorflow/lite/micro/kernels"
        for name in KERNELS:
            own = kernels / "cmsis_nn" / f"{name}.cc"
            found += [own if own.exists() else kernels / f"{name}.cc", kernels / f"{name}_common.cc"]
        found += [
            path for path in sorted((self.cmsis / "Source").glob("*/*.c"))
            if not path.stem.endswith(("f16", "f32", "flt"))
        ]  # fmt: skip
        return [path for path in found if path.exists() and not any(word in path.name for word in LEFT_OUT)]


def build_library(sources: Sources, folder: Path, level: str) -> Path:
    """All of it compiled at `level`, once."""
    library = folder / f"libtflm{level}.a"
    if library.exists():
        return library
    objects = folder / f"objects{level}"
    objects.mkdir(parents=True, exist_ok=True)
    made = []
    for number, path in enumerate(sources.files()):
        target = objects / f"{number}.o"
        made.append(target)
        if not target.exists():
            command = (
                ["arm-none-eabi-g++", *CPP] if path.suffix == ".cc" else ["arm-none-eabi-gcc", "-std=gnu11"]
            )
            flags = [*CPU, *COMMON, level, *sources.includes()]
            subprocess.run([*command, *flags, "-c", str(path), "-o", str(target)], check=True)
    subprocess.run(["arm-none-eabi-ar", "rcs", str(library), *map(str, made)], check=True)
    return library


@dataclass(frozen=True)
class Measured:
    """Bytes that a linked program has more than one without a network; what it said."""

    code_bytes: int
    model_bytes: int
    arena_bytes: int
    static_bytes: int
    stack_bytes: int
    instructions: int
    outputs: NDArray[np.int8]


def measure(
    file: bytes,
    operators: list[str],
    shape: tuple[int, int, int],
    images: NDArray[np.uint8],
    sources: Sources,
    library: Path,
    folder: Path,
    outputs: int = 10,
) -> Measured:
    """Link the library with one .tflite, run it on images [n, C, H, W], and weigh it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    channels, height, width = shape
    header = HEADER.format(channels=channels, height=height, width=width, outputs=outputs + 3)
    (folder / "net.h").write_text(header)
    write_images(images, folder)
    numbers = ",".join(map(str, file))
    (folder / "model.h").write_text(f"alignas(16) static const unsigned char model[] = {{{numbers}}};\n")
    added = "\n".join(f"  operators->{OPERATORS[name]};" for name in sorted(set(operators)))
    room = 1 << 17
    text = NET.format(arena=room, count=len(set(operators)), operators=added)
    (folder / "net.cc").write_text("#include <stdarg.h>\n#include <stddef.h>\n" + text)
    (folder / "stub.c").write_text(STUB)
    level = library.stem.removeprefix("libtflm")
    base = _link(folder, "stub", [folder / "stub.c"], sources, level, None)
    program = _link(folder, "net", [folder / "net.cc"], sources, level, library)
    flash, ram = (a - b for a, b in zip(_sizes(program), _sizes(base), strict=True))
    stack, rows, instructions = _run(program, len(images))
    arena = int(rows[0, -3:] @ (1, 1 << 7, 1 << 14))
    return Measured(
        flash - len(file), len(file), arena, ram - room, stack, instructions, rows[:, :-3].astype(np.int8)
    )


def _link(
    folder: Path, name: str, own: list[Path], sources: Sources, level: str, library: Path | None
) -> Path:
    """The board's program with one network."""
    program, parts = folder / f"{name}.elf", []
    for path in (HERE / "board.c", *own):
        target = folder / f"{path.stem}.o"
        command = ["arm-none-eabi-g++", *CPP] if path.suffix == ".cc" else ["arm-none-eabi-gcc", "-std=gnu99"]
        extra = ["-DHAS_LIBC", "-DPAINTED=2048", f"-I{folder}", "-O2" if path.name == "board.c" else level]
        subprocess.run(
            [*command, *CPU, *COMMON, *extra, *sources.includes(), "-c", str(path), "-o", str(target)],
            check=True,
        )
        parts.append(target)
    link = [
        "arm-none-eabi-g++", *CPU, "-nostartfiles", "-static", "--specs=nano.specs", "-Wl,--gc-sections",
        "-Wl,--build-id=none,--no-warn-rwx-segments", f"-Wl,-T{HERE / 'arm.ld'}", "-o", str(program),
    ]  # fmt: skip
    libraries = [] if library is None else [str(library)]
    subprocess.run([*link, *map(str, parts), *libraries, "-lm", "-lc", "-lgcc"], check=True)
    return program


def _sizes(program: Path) -> tuple[int, int]:
    """Bytes of flash (code, constants, what variables start with) and of RAM."""
    printed = subprocess.run(["arm-none-eabi-size", str(program)], capture_output=True, check=True, text=True)
    text, data, bss = map(int, printed.stdout.splitlines()[1].split()[:3])
    return text + data, data + bss


def _run(program: Path, images: int) -> tuple[int, NDArray[np.int64], int]:
    """Stack, what was printed of each image, instructions."""
    emulator = [*BOARDS["cortex-m4"].emulator, "-nographic", "-icount", "shift=0"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    done = subprocess.run(
        [*emulator, *semihosting, "-kernel", str(program)], capture_output=True, timeout=600
    )
    stack, *lines, count = (done.stdout + done.stderr).decode().split("\n")[: images + 2]
    return int(stack), np.array([line.split() for line in lines], np.int64), int(count)
