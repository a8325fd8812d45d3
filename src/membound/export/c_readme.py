"""The README.md beside a network's C: how to try, build, check and call it, and what it takes."""

import math
import re
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from membound.machine import own_version
from membound.micro.code import (
    LIBRARY_BYTES,
    NET_CODE_BYTES,
    SMALL,
    STACK_BYTES,
    STACK_UNOPTIMIZED,
    recorded_bytes,
)
from membound.micro.cost import speed_of
from membound.micro.identity import identify
from membound.micro.layer_table import list_beside, list_layers
from membound.micro.numbers import FixedInput, say_not_included
from membound.micro.plan import MicroPlan
from membound.micro.used import constants_of, features
from membound.units import CLOCK, LEVELS, name_examples, say_off, show_clock, show_ms

WIDE = 118  # columns
PICTURES = """
Feed pixels as the training data had them. Bytes of an array (.npz) are fed as they are. Picture files (a folder of
them, or a data set of membound) were prepared first: RGB (or gray, 0.299 R + 0.587 G + 0.114 B), resized with
an antialiased bilinear filter to just cover the network's size, then its center. In Python,
`net.read("cat.jpg")` does the same, to compare with.
"""

UNTESTED = """
The self test feeds bytes, so it does not check how your code makes bytes of readings: a wrong unit or order of channels
passes. To check that, feed a recorded window through your own code, and compare `{prefix}_output` with
`net.integers(net.preprocess(window))` in Python, where `net = membound.load(FILE, engine="micro")`.
"""


def example_of(plan: MicroPlan) -> str:
    """What one input is called: an image only where it is one."""
    pictures = plan.net.takes_pixels and name_examples(plan.net.images[0]) == "images"
    return "image" if pictures else "example"


def says_class(plan: MicroPlan, classes: list[str] | None) -> bool:
    """Whether the largest of the outputs is a class: they are a vector of scores, which regression does not give."""
    outputs, *places = plan.net.images[plan.net.output]
    return outputs > 1 and places == [1, 1] and (classes is not None or bool(plan.net.dropped))


def _say_input(plan: MicroPlan, prefix: str, fixed: FixedInput | None) -> str:
    """What one example is, byte by byte, and how numpy writes a file of several."""
    channels, height, width = plan.net.images[0]
    one, big = example_of(plan), prefix.upper()
    is_vector = height == width == 1
    what = "bytes (uint8), as the training data has them" if plan.net.takes_pixels else "numbers"
    sizes = f"`{big}_HEIGHT` = {height} rows of `{big}_WIDTH` = {width} places with "
    said = f"One {one} is {'one row of ' if is_vector else sizes}`{big}_CHANNELS` = {channels} {what}."
    kind = ""
    if not plan.net.takes_pixels:
        said += (
            f" `{prefix}_input(number, channel)` converts a number to the byte to feed; the number is as in the "
            "training data, before any preparation. `main.c` reads such numbers, as float32, and converts them."
        )
        if fixed is not None:
            counted = ", ".join(f"{unit:g}" for unit in fixed.units)
            said += (
                f" `{prefix}_input_fixed(number, channel)` converts an integer, and computes in integers: a count of "
                f"1 stands for {counted}{'' if len(fixed.units) == 1 else ' (one for each channel)'}. "
                "`./build/main --counts` reads such integers, as int32."
            )
        kind = '.astype("float32")'
    along = f", {height}] or [N, {channels}, {height}, 1"
    axes = "" if is_vector else along if width == 1 else f", {height}, {width}"
    said += f" With numpy, write x [N, {channels}{axes}] to a file for `main`"
    text = fill(f"{said}:", WIDE, break_long_words=False, break_on_hyphens=False)
    order = "" if is_vector else ".swapaxes(1, 2)" if width == 1 else ".transpose(0, 2, 3, 1)"
    return f'{text}\n\n    x{kind}{order}.tofile("{one}s.bin")'


def readme_text(
    plan: MicroPlan,
    classes: list[str] | None,
    clock: float | None = None,
    level: str = SMALL,
    prefix: str = "net",
    fixed: FixedInput | None = None,
) -> str:
    net, layout, hz = plan.net, plan.layout, CLOCK if clock is None else clock
    one, big = example_of(plan), prefix.upper()
    # Not compiled: a folder is the same everywhere.
    codes = {each: NET_CODE_BYTES[each] + recorded_bytes(features(plan), each) for each in LEVELS}
    flashes = {each: constants_of(plan, each) + codes[each] for each in LEVELS}
    constants, code, flash = constants_of(plan, level), codes[level], flashes[level]
    ram = plan.context_bytes + STACK_BYTES
    tested = sum(math.prod(net.images[value]) for value in (0, net.output))
    other = next(each for each in LEVELS if each != level)
    more = "is faster, but takes more flash" if level == SMALL else "takes less flash, but is slower"
    how = "line buffers" if not layout.whole else "whole maps"
    floats, arithmetic, prepare = "", "integer-only", ""
    shows_class = says_class(plan, classes)
    if (said := say_not_included(plan, fixed is not None)) is not None:
        said = re.sub(r"\bnet(_input\w*)", rf"`{prefix}\1`", said)
        said = f"{said[0].upper()}{said[1:]}."
        floats = "\n" + fill(said, WIDE, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        arithmetic = f"integer-only except for `{prefix}_input`"
        made = f"{prefix}_input(numbers[i]" if fixed is None else f"{prefix}_input_fixed(counts[i]"
        prepare = (
            f"      for (uint32_t i = 0; i < {big}_WIDTH * {big}_CHANNELS; i++)\n"
            f"        row[i] = {made}, i % {big}_CHANNELS);\n"
        )
    loop = (
        f"    {prefix}_start(&context);  /* before every {one} */\n"
        f"    do {{\n      ...  /* get the next row */\n{prepare}"
        f"    }} while (!{prefix}_feed_row(&context, row, 1, {big}_CHANNELS));\n"
        + (
            f"    best = {prefix}_best(&context);  /* or {prefix}_output(&context, index) */"
            if shows_class
            else f"    for (uint32_t i = 0; i < {big}_OUTPUTS; i++)  /* in the unit of the training data */\n"
            f"      number[i] = {big}_OUTPUT_SCALE * (float)({prefix}_output(&context, i) - {big}_OUTPUT_ZERO);"
        )
    )
    compares = f" `{prefix}_best` compares outputs, and may differ by a few." if shows_class else ""
    time_said = fill(
        "Time does not depend on the data: compiled by gcc for a Cortex-M4 at -Os or -O2, every input takes as many "
        f"instructions as any other.{compares} Other compilers and processors may jump where values are limited or "
        "compared.",
        WIDE,
        break_on_hyphens=False,
    )
    untested = "" if net.takes_pixels else UNTESTED.format(prefix=prefix)
    names = (
        "" if classes is None else f"\nClasses, in the order of the outputs: {', '.join(classes)[:2000]}.\n"
    )
    left = f"\nThe {net.dropped} at the end is left to the caller.\n" if net.dropped else ""
    pictures = PICTURES if one == "image" else ""
    times = "\n".join(
        f"| {each} | {flashes[each]:,} | {found.instructions:,} | {found.cycles:,} | {show_ms(found.ms(hz))} | "
        f"{show_ms(found.longest_ms(hz))} | {found.longest_instructions:,} |"
        for each, found in (
            (each, speed_of(plan, each)) for each in sorted(LEVELS, key=lambda each: each != level)
        )
    )
    arena_said = fill(
        "In the arena, a layer takes the rows of its output that are kept, padding between channels included; a mean "
        f"also takes its 32-bit sums. {_say_sharing(plan)} The instructions are estimates for a Cortex-M4 at {level}.",
        WIDE,
        break_on_hyphens=False,
    )
    return f"""# A network in about {flash:,} bytes of flash and {ram:,} of RAM

Plain C99, {arithmetic}, written by membound {own_version()}. It allocates no memory and calls only
`memcpy` and `memset`. The license of the C is Apache-2.0; the network's numbers are yours.

| file | what it is |
|---|---|
| `{prefix}.c`, `{prefix}.h` | the network, and the functions that you call |
| `membound_micro*.c`, `membound_micro*.h` | the runtime, with the parts that this network uses |
| `{prefix}_test.c`, `{prefix}_test.h` | the self test: one input, and the outputs that it must give |
| `main.c` | a program for a host; not for firmware |
| `CMakeLists.txt` | the library `{prefix}`; on a host, `main` and the self test, too |

## 1. Try it on a host

    cmake -S . -B build && make -C build && make -C build test
    ./build/main < {one}s.bin

{_say_input(plan, prefix, fixed)}
{pictures}
## 2. Build it for the device

Compile these three files, and put this folder on the include path. Leave `main.c` out.

    arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb {level} -c {prefix}.c membound_micro.c membound_micro_conv.c

In CMake, add this folder with `add_subdirectory` and link `{prefix}`. For bare metal (CMAKE_SYSTEM_NAME is Generic),
that compiles with {level}, too, unless CMAKE_BUILD_TYPE is set. {other} {more}: to
compile with it, export again with `--compiled {other[1:]}`. Without a C library, compile with -ffreestanding and bring
your own `memcpy` and `memset`.

## 3. Check it on the device

Compile `{prefix}_test.c`, too. Run the test on every new board, and whenever the compiler or its flags change.

    #include "{prefix}_test.h"

    static {prefix}_context context;
    int wrong = {prefix}_selftest(&context);  /* how many outputs are wrong: 0 if all are right, bit for bit */
{untested}
## 4. Run it

    static {prefix}_context context;  /* all RAM but the stack */
    static uint8_t row[{big}_WIDTH * {big}_CHANNELS];

{loop}
{names}{left}
## Flash and RAM

- Flash: {constants:,} bytes of constants (with 4-byte pointers), and about {code:,} bytes of code, compiled with
  {level} for a Cortex-M4. `memcpy` and `memset` are not included: about {LIBRARY_BYTES} bytes of newlib-nano, unless
  your firmware has them already.{floats}
- RAM: {plan.context_bytes:,} bytes, `sizeof({prefix}_context)`: an arena of {layout.nbytes:,}, and row counters. In
  addition, a call takes at most {STACK_BYTES} bytes of stack at -Og, -Os and -O2, and {STACK_UNOPTIMIZED} at -O0. You
  feed the input row by row, so it need not be in RAM as a whole.
- If your program calls the self test, its input and outputs take {tested:,} bytes of flash. It takes no RAM of its own.
- The arena holds {how}: with line buffers it takes {plan.rows_bytes:,} bytes, with whole maps {plan.whole_bytes:,}.

## Time

This is how long one {one} takes on a Cortex-M4 if flash has no wait states. Each row is for an export at that level;
flash is constants and code. Times are estimates: {say_off(*LEVELS)}.

| exported for | bytes of flash | instructions | cycles | at {show_clock(hz)} | longest call | its instructions |
|---|---|---|---|---|---|---|
{times}

The longest call of `{prefix}_feed_row` is often the last one of an {one}, which computes all that is left; others are
much shorter. Tasks of a lower or the same priority may wait for that long.

{time_said}

## Layers

| layer | operation | bytes of flash | bytes of the arena | rows kept | multiplications | instructions |
|---|---|---|---|---|---|---|
{_rows(plan, level)}

{arena_said}

## Updates

The network is C, so a new network is new firmware: export it, compile it, and send the device a new image. The
`{big}_ID` of this network is 0x{identify(net)}. `membound inspect FILE` prints it, too. If the device reports its
`{big}_ID`, you know which model file it runs. The number is the same at -Os and -O2, and under any prefix.

If your application uses the macros of `{prefix}.h`, not their values, a network of other sizes needs no other change:
`{big}_CHANNELS`, `{big}_HEIGHT` and `{big}_WIDTH` are the sizes of the input, `{big}_OUTPUTS` is the number of outputs,
`{big}_OUTPUT_SCALE` and `{big}_OUTPUT_ZERO` say what an output stands for, and `sizeof({prefix}_context)` is the RAM.
The C has the names and the order of the classes only in a comment: if these change, your application has to.
"""


def _rows(plan: MicroPlan, level: str) -> str:
    """The table of layers, and of what else is in the arena."""
    beside = [
        f"| {each['name']} | {each['operation']} | | {each['row_bytes']:,} | "
        f"{'' if each['rows'] is None else '{rows} of {height}'.format(**each)} | | |"
        for each in list_beside(plan)
    ]
    return "\n".join([*map(_row, list_layers(plan, level)), *beside])


def _row(each: Mapping[str, Any]) -> str:
    return (
        f"| {each['name']} | {each['operation']} | {each['flash_bytes']:,} | {each['row_bytes']:,} | {each['rows']} of "
        f"{each['height']} | {each['multiplications']:,} | {each['instructions']:,} |"
    )


def _say_sharing(plan: MicroPlan) -> str:
    """How the arena relates to the sum of what is in it."""
    parts = [*list_layers(plan, plan.level), *list_beside(plan)]
    total, arena = sum(each["row_bytes"] for each in parts), plan.layout.nbytes
    if arena < total:
        return (
            f"That is {total:,} bytes in all. Values that are not needed at the same time share bytes, so the arena "
            f"has {arena:,}."
        )
    return f"That is {total:,} bytes in all; with alignment, the arena has {arena:,}."
