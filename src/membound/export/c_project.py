"""A folder with a network as plain C: its constants, the runtime, a short program, how to build it, what it takes."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from membound.errors import ModelError
from membound.export import folder as folders
from membound.export.c_selftest import TEST_FUNCTIONS, selftest_files
from membound.export.c_source import FIRST_LINE, FUNCTIONS, header_text, source_text
from membound.export.cpp_source import check_prefix, renamed
from membound.micro.code import (
    CONFIG,
    HEADERS,
    INPUT_CODE,
    LIBRARY_BYTES,
    NET_CODE_BYTES,
    SMALL,
    SOURCES,
    STACK_BYTES,
    STACK_UNOPTIMIZED,
    config_text,
    recorded_bytes,
    runtime_folder,
)
from membound.micro.cost import estimate, speed_of
from membound.micro.identity import identify
from membound.micro.plan import MicroPlan
from membound.micro.used import constants_of, features
from membound.run.micro_net import MicroNet
from membound.units import CLOCK, LEVELS, show_clock, show_ms

RUNTIME = (*HEADERS, *SOURCES)

MAIN = r"""/* Reads images from the standard input, row by row, and prints the outputs of each.
 * A row is NET_WIDTH pixels, each of NET_CHANNELS bytes, as a camera gives them; net.h says what bytes they are. */
#include <stdio.h>

#include "net.h"

#ifdef NET_INPUT_SCALE
#error "this main.c feeds pixels, and this network takes floats: make bytes of them with net_input of net.h"
#endif
#if !defined(ARDUINO) && !defined(PLATFORMIO) /* there this folder is a library, and the program is yours */
int main(void) {
  static net_context context;
  static uint8_t row[NET_WIDTH * NET_CHANNELS];
  unsigned long came = 0, images = 0, read; /* bytes of an image, whole images, bytes of a row */
  net_start(&context);
  while ((read = (unsigned long)fread(row, 1, sizeof row, stdin)) == sizeof row) {
    came += read;
    if (!net_feed_row(&context, row, 1, NET_CHANNELS)) continue;
    for (uint32_t i = 0; i < NET_OUTPUTS; i++) printf("%d ", net_output(&context, i));
    printf("-> %u\n", (unsigned)net_best(&context));
    net_start(&context);
    came = 0;
    images++;
  }
  came += read;
  if (came == 0 && images > 0) return 0;
  if (came == 0) fprintf(stderr, "usage: main < images, each of %lu bytes\n", sizeof row * 1ul * NET_HEIGHT);
  if (came > 0)
    fprintf(stderr, "short input: an image has %lu bytes, %lu came\n", sizeof row * 1ul * NET_HEIGHT, came);
  return 1;
}
#endif
"""
MAIN_OF_NUMBERS = r"""/* Reads examples of floats from the standard input, row by row, and prints the outputs of each.
 * A row is NET_WIDTH places, each of NET_CHANNELS numbers, as they were in training, before any preparation. */
#include <stdio.h>

#include "net.h"

#ifndef NET_INPUT_SCALE
#error "this main.c feeds floats, and this network takes pixels: feed their bytes as they are"
#endif
#if !defined(ARDUINO) && !defined(PLATFORMIO) /* there this folder is a library, and the program is yours */
int main(void) {
  static net_context context;
  static float numbers[NET_WIDTH * NET_CHANNELS];
  static uint8_t row[NET_WIDTH * NET_CHANNELS];
  unsigned long came = 0, examples = 0, read; /* bytes of an example, whole examples, bytes of a row */
  net_start(&context);
  while ((read = (unsigned long)fread(numbers, 1, sizeof numbers, stdin)) == sizeof numbers) {
    came += read;
    for (uint32_t i = 0; i < NET_WIDTH * NET_CHANNELS; i++) row[i] = net_input(numbers[i], i % NET_CHANNELS);
    if (!net_feed_row(&context, row, 1, NET_CHANNELS)) continue;
    for (uint32_t i = 0; i < NET_OUTPUTS; i++) printf("%d ", net_output(&context, i));
    printf("-> %u\n", (unsigned)net_best(&context));
    net_start(&context);
    came = 0;
    examples++;
  }
  came += read;
  if (came == 0 && examples > 0) return 0;
  if (came == 0) fprintf(stderr, "usage: main < examples, each of %lu bytes\n", sizeof numbers * 1ul * NET_HEIGHT);
  if (came > 0)
    fprintf(stderr, "short input: an example has %lu bytes, %lu came\n", sizeof numbers * 1ul * NET_HEIGHT, came);
  return 1;
}
#endif
"""
MACROS = (
    "NET_TEST",
    "NET_ID",
    "NET_CHANNELS",
    "NET_HEIGHT",
    "NET_WIDTH",
    "NET_OUTPUT",
)  # that a README.md names
CMAKE = """cmake_minimum_required(VERSION 3.13)
project(net C)
if(NOT CMAKE_BUILD_TYPE)
  if(CMAKE_SYSTEM_NAME STREQUAL "Generic")
    set(CMAKE_BUILD_TYPE MinSizeRel)  # bare metal: flash is what is short
  else()
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()
set(CMAKE_C_STANDARD 99)
# what calls no net_selftest gets nothing of net_test.c from a library
add_library(net STATIC net.c net_test.c membound_micro.c membound_micro_conv.c)
target_include_directories(net PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR AND NOT CMAKE_SYSTEM_NAME STREQUAL "Generic")
  # not where this is part of a larger program, nor on bare metal, which has no standard input
  add_executable(main main.c)
  target_link_libraries(main PRIVATE net)
  add_executable(net_selftest net_test.c)
  target_compile_definitions(net_selftest PRIVATE NET_TEST_MAIN)
  target_link_libraries(net_selftest PRIVATE net)
  enable_testing()
  add_test(NAME net_selftest COMMAND net_selftest)
endif()
"""


def project_files(
    plan: MicroPlan,
    classes: list[str] | None = None,
    preprocess: Mapping[str, Any] | None = None,
    prefix: str = "net",
    clock: float | None = None,
    level: str = SMALL,
) -> dict[str, str]:
    """All files of the folder, by name, which `prefix` begins: the same for the same plan.

    The README.md says what an example takes at a `clock`, compiled at this `level` first.
    """
    folder = runtime_folder()
    files = {
        f"{prefix}.c": renamed(source_text(plan), prefix),
        f"{prefix}.h": renamed(header_text(plan, preprocess), prefix),
        **{renamed(name, prefix): renamed(text, prefix) for name, text in selftest_files(plan).items()},
        CONFIG: config_text(features(plan), prefix),
        **{name: (folder / name).read_text() for name in RUNTIME},
        "main.c": renamed(MAIN if plan.net.takes_pixels else MAIN_OF_NUMBERS, prefix),
        "CMakeLists.txt": renamed(CMAKE, prefix),
        "README.md": _in_readme(readme_text(plan, classes, clock, level), prefix),
    }
    return {_of_runtime(name, prefix): _of_runtime(text, prefix) for name, text in files.items()}


def _of_runtime(text: str, prefix: str) -> str:
    """The files of the runtime under a network's own names, so that those of two networks can lie side by side.

    >>> _of_runtime('#include "membound_micro_config.h"', "kws")
    '#include "kws_membound_micro_config.h"'
    """
    return (
        text
        if prefix == "net"
        else re.sub(r"\bmembound_micro(?=\w*\.[ch]\b)", f"{prefix}_membound_micro", text)
    )


def _in_readme(text: str, prefix: str) -> str:
    """Names of files and types alone: layers have names of their own."""
    names = {
        "net_feed_row": f"{prefix}_feed_row",
        "net_input": f"{prefix}_input",
        "net_best": f"{prefix}_best",
        "libnet.a": f"lib{prefix}.a",
        "`net.h`": f"`{prefix}.h`",
        "`net.c`": f"`{prefix}.c`",
        "net_context": f"{prefix}_context",
        "net_test": f"{prefix}_test",
        "net_selftest": f"{prefix}_selftest",
        **{name: name.replace("NET", prefix.upper()) for name in MACROS},
    }
    for name, own in names.items():
        text = text.replace(name, own)
    return text


def check_micro_prefix(prefix: str) -> None:
    """It begins the names of all that the C has, and must be none of them.

    >>> check_micro_prefix("context")
    Traceback (most recent call last):
    membound.errors.ModelError: prefix='context': the C has a use for that name itself: choose another, such as kws
    """
    check_prefix(prefix)
    code = re.sub(
        r'/\*.*?\*/|"[^"]*"', "", MAIN + MAIN_OF_NUMBERS + FUNCTIONS + TEST_FUNCTIONS, flags=re.DOTALL
    )
    own = set(re.findall(r"\w+", code)) - {"net"}
    if prefix in own | {"input", "ops", "values", "memcpy", "memset"} or re.match(
        "mb(_|$)|(weight|scale|sum|pool)_[0-9]", prefix
    ):
        raise ModelError(
            f"prefix={prefix!r}: the C has a use for that name itself: choose another, such as kws",
            about="prefix",
        )


def check_target(folder: Path, prefix: str = "net") -> None:
    """Refuse to write over anything but an earlier export, before there is anything to write."""
    folders.check_target(folder, f"{prefix}.h", renamed(FIRST_LINE, prefix))


def write_project(
    folder: str | os.PathLike[str],
    net: MicroNet,
    prefix: str = "net",
    clock: float | None = None,
    level: str = SMALL,
) -> list[str]:
    """The folder; over an earlier export its own files alone. Gives the names of those that were edited, and stay."""
    files = project_files(net.plan, net.classes, net.model.preprocess, prefix, clock, level)
    may_be_edited = ("main.c", "CMakeLists.txt", f"{prefix}_test.c", f"{prefix}_test.h")
    return folders.write_files(
        Path(folder),
        {name: [text.encode()] for name, text in files.items()},
        f"{prefix}.h",
        renamed(FIRST_LINE, prefix),
        may_be_edited,
    )


def header_of(folder: Path, prefix: str = "net") -> str:
    """The header of an earlier export; empty where there is none."""
    try:
        return (folder / f"{prefix}.h").read_text(errors="replace")
    except OSError:
        return ""


def say_other_input(header: str, plan: MicroPlan, prefix: str = "net") -> str | None:
    """What to do about a program that was written for an earlier `header`, where that took another kind of input."""
    took_floats = f"#define {prefix.upper()}_INPUT_SCALE " in header
    if not header or took_floats is not plan.net.takes_pixels:
        return None
    if took_floats:
        return f"it was written for floats, and this network takes pixels: feed bytes without {prefix}_input"
    return f"it was written for pixels, and this network takes floats: make bytes of them with {prefix}_input"


def readme_text(
    plan: MicroPlan, classes: list[str] | None, clock: float | None = None, level: str = SMALL
) -> str:
    net, layout, hz = plan.net, plan.layout, CLOCK if clock is None else clock
    rows = [
        f"| {op.name} | {op.kind}{'' if op.then == 'store' else ' + ' + op.then} | {plan.flash_of(number):,} | "
        f"{layout.buffers[op.output].nbytes:,} | {layout.buffers[op.output].rows} of "
        f"{net.images[op.output][1]} | {plan.multiplications(number):,} | "
        f"{estimate(plan, level, number).instructions:,} |"
        for number, op in enumerate(net.ops)
    ]
    how = "whole maps" if layout.whole else "line buffers"
    left = f"\nThe {net.dropped} at the end is left to the caller.\n" if net.dropped else ""
    names = (
        "" if classes is None else f"\nClasses, in the order of the outputs: {', '.join(classes)[:2000]}.\n"
    )
    pictures = ""
    if net.takes_pixels:
        pictures = """
Feed pixels as the training data had them. Bytes of an array (.npz) are fed as they are. Picture files (a folder of
them, or a data set of membound) were prepared first: RGB (or gray, 0.299 R + 0.587 G + 0.114 B), the shorter side
resized to the network's size with an antialiased bilinear filter, then the center square; `net.read("cat.jpg")` does
this in Python, to compare with.
"""
    given = "images" if net.takes_pixels else "examples"
    floats, arithmetic = "", "Plain C99 in integers"
    if not net.takes_pixels:
        floats = "\n" + fill(f"{INPUT_CODE}.", 118, initial_indent="  ", subsequent_indent="  ")
        arithmetic += ", but for `net_input`"
    table = "\n".join(rows)
    # Not compiled: a folder is the same everywhere.
    codes = {each: NET_CODE_BYTES[each] + recorded_bytes(features(plan), each) for each in LEVELS}
    flashes = {each: constants_of(plan, each) + codes[each] for each in LEVELS}
    constants, code, flash = constants_of(plan, level), codes[level], flashes[level]
    ram = plan.context_bytes + STACK_BYTES
    tested = sum(math.prod(net.images[value]) for value in (0, net.output))
    more = "-O2 is faster and takes more" if level == SMALL else "-Os takes less, and is slower"
    speeds = [(each, speed_of(plan, each)) for each in sorted(LEVELS, key=lambda each: each != level)]
    times = "\n".join(
        f"| {each} | {flashes[each]:,} | {found.instructions:,} | {found.cycles:,} | {show_ms(found.ms(hz))} | "
        f"{show_ms(found.longest_ms(hz))} |"
        for each, found in speeds
    )
    return f"""# A network in about {flash:,} bytes of flash and {ram:,} of RAM

{arithmetic}, without malloc. It needs no C library but `memcpy` and `memset`.

In your firmware, compile `net.c`, `membound_micro.c` and `membound_micro_conv.c`, and put this folder on the include
path. `net.h` has the functions to call. Leave `main.c` out: it reads {given} from standard input, to try the network on
a host:

    cmake -S . -B build && make -C build && ./build/main < {given}

Check a new board, compiler or set of flags with the self test. `net_test.c` has an input and the outputs that this
network must give for it. Compile it, too, and call it once:

    #include "net_test.h"

    static net_context context;
    if (net_selftest(&context) != 0) ...  /* how many outputs are wrong: 0 if all are right, bit for bit */

On a host, `make -C build test` runs it, and so does `cc -DNET_TEST_MAIN net_test.c` with the three files above.

CMake builds for speed on a host, and for size (-Os) on bare metal (where CMAKE_SYSTEM_NAME is Generic), unless you set
CMAKE_BUILD_TYPE. On bare metal it builds the library `libnet.a` alone, without `main.c`; for -O2 there, set
`-DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O2`. Without a C library, compile with -ffreestanding and bring
your own `memcpy` and `memset`.

- Flash: {constants:,} bytes of constants (with pointers of 4 bytes), and about {code:,} bytes of code, compiled
  with {level} for a Cortex-M4; {more} ([below](#time)). `membound_micro_config.h` leaves out
  what this network does not use. `memcpy` and `memset` are not included: about {LIBRARY_BYTES} bytes of newlib-nano,
  unless your firmware has them.{floats}
- RAM: {plan.context_bytes:,} bytes, `sizeof(net_context)`: an arena of {layout.nbytes:,} and counters of rows. A
  call takes at most {STACK_BYTES} bytes of stack at -Og, -Os and -O2, and {STACK_UNOPTIMIZED} at -O0. The input is
  fed row by row; not all of it is in RAM.
- The self test takes {tested:,} bytes of flash for its input and outputs where your program calls it, and no RAM of its
  own.
- It runs with {how}: line buffers take an arena of {plan.rows_bytes:,} bytes, whole maps {plan.whole_bytes:,}.
{pictures}{left}{names}
| layer | operation | bytes of flash | bytes of its rows in RAM | rows that are kept | multiplications | instructions |
|---|---|---|---|---|---|---|
{table}

Values that are not needed at the same time share their bytes, so the arena is smaller than the sum. The instructions
are estimates for a Cortex-M4 at {level}.

## Time

One input takes about this long on a Cortex-M4, if flash has no wait states; flash is constants and code:

| compiled with | bytes of flash | instructions | cycles | at {show_clock(hz)} | longest call, about |
|---|---|---|---|---|---|
{times}

The longest call of `net_feed_row` is often the last one of an input, which computes all that is left; others are much
shorter. Tasks of the same priority wait as long.

Time does not depend on the data: compiled by gcc for a Cortex-M4 at -Os or -O2, every input takes as many instructions
as any other. `net_best` compares outputs, and may differ by a few. Other compilers and processors may jump where values
are limited or compared.

## Updates

The `NET_ID` of this network is 0x{identify(net)}. It is C, so a new network is new firmware: export it, compile it,
and send the device a new image. `membound.inspect(FILE)` gives the same number as `identity`, so a device that
reports its `NET_ID` says which model file it runs. The number is the same at -Os and -O2, and under any prefix.

Write your application against the functions and macros of `net.h`, not their values, and a network of other sizes needs
no other change: `NET_CHANNELS`, `NET_HEIGHT` and `NET_WIDTH` are what it is fed with, `NET_OUTPUTS` is how many outputs
there are, `NET_OUTPUT_SCALE` and `NET_OUTPUT_ZERO` say what they mean, and `sizeof(net_context)` is its RAM. Names and
order of classes are not in the C: if they change, your program has to.
"""
