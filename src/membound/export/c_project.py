"""A folder with a network as plain C: its constants, the runtime, a short program, how to build it, what it takes."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from membound.errors import ModelError
from membound.export import folder as folders
from membound.export.c_main import MAIN_OF_BYTES, MAIN_OF_COUNTS, main_text
from membound.export.c_readme import readme_text
from membound.export.c_selftest import TEST_FUNCTIONS, selftest_files
from membound.export.c_source import FIRST_LINE, FUNCTIONS, header_text, source_text
from membound.export.cpp_source import check_prefix, renamed
from membound.machine import own_version
from membound.micro.code import (
    CONFIG,
    HEADERS,
    SMALL,
    SOURCES,
    config_text,
    runtime_folder,
)
from membound.micro.numbers import fix_input
from membound.micro.plan import MicroPlan
from membound.micro.used import features
from membound.run.micro_net import MicroNet
from membound.units import show_clock

RUNTIME = (*HEADERS, *SOURCES)
LICENSE = "SPDX-License-Identifier: Apache-2.0"

CMAKE = """cmake_minimum_required(VERSION 3.13)
project(net C)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
  if(CMAKE_SYSTEM_NAME STREQUAL "Generic")
    set(CMAKE_C_FLAGS_RELEASE "LEVEL -DNDEBUG")  # bare metal: what flash and time were estimated for
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
    units: Sequence[float] | None = None,
) -> dict[str, str]:
    """All files of the folder, by name, which `prefix` begins: the same for the same plan.

    The README.md says what an example takes at a `clock`, compiled at this `level` first. With `units`, the header
    has net_input_fixed for integers that count them.
    """
    folder = runtime_folder()
    fixed = None if units is None else fix_input(plan, preprocess, units)
    files = {
        f"{prefix}.c": renamed(source_text(plan), prefix),
        f"{prefix}.h": renamed(header_text(plan, preprocess, fixed, classes), prefix),
        **{renamed(name, prefix): renamed(text, prefix) for name, text in selftest_files(plan).items()},
        CONFIG: config_text(features(plan), prefix),
        **{name: (folder / name).read_text() for name in RUNTIME},
        "main.c": renamed(main_text(plan, classes, fixed is not None), prefix),
        "CMakeLists.txt": renamed(CMAKE, prefix).replace("LEVEL", level),
        "README.md": readme_text(plan, classes, clock, level, prefix, fixed),
    }
    return {
        _of_runtime(name, prefix): _of_runtime(
            _labelled(text) if name.endswith((".c", ".h")) else text, prefix
        )
        for name, text in files.items()
    }


def _labelled(text: str) -> str:
    """Who wrote a file, and its license, behind the comment that it opens with.

    >>> _labelled("/* What it is. */ int x;").splitlines()[1]
    '/* SPDX-License-Identifier: Apache-2.0 */'
    """
    about, end, code = text.partition("*/")
    return f"{about}{end}\n/* {LICENSE} */\n/* Written by membound {own_version()}. */{code}"


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


def check_micro_prefix(prefix: str) -> None:
    """It begins the names of all that the C has, and must be none of them.

    >>> check_micro_prefix("context")
    Traceback (most recent call last):
    membound.errors.ModelError: prefix='context': the exported C uses that name itself: choose another, such as kws
    """
    check_prefix(prefix)
    code = re.sub(
        r'/\*.*?\*/|"[^"]*"',
        "",
        MAIN_OF_BYTES + MAIN_OF_COUNTS + FUNCTIONS + TEST_FUNCTIONS,
        flags=re.DOTALL,
    )
    own = set(re.findall(r"\w+", code)) - {"net"}
    if prefix in own | {"input", "ops", "values", "memcpy", "memset"} or re.match(
        "mb(_|$)|(weight|scale|sum|pool)_[0-9]", prefix
    ):
        raise ModelError(
            f"prefix={prefix!r}: the exported C uses that name itself: choose another, such as kws",
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
    units: Sequence[float] | None = None,
) -> list[str]:
    """The folder; over an earlier export its own files alone. Gives the names of those that were edited, and stay."""
    files = project_files(net.plan, net.classes, net.model.preprocess, prefix, clock, level, units)
    may_be_edited = ("main.c", "CMakeLists.txt", f"{prefix}_test.c", f"{prefix}_test.h")
    return folders.write_files(
        Path(folder),
        {name: [text.encode()] for name, text in files.items()},
        f"{prefix}.h",
        renamed(FIRST_LINE, prefix),
        may_be_edited,
        _options_of(level, units, clock),
    )


def _options_of(level: str, units: Sequence[float] | None, clock: float | None) -> dict[str, str]:
    """What decides which functions, code and times there are: a later export that does not say has the same."""
    found = {"compiled": level[1:]}
    if clock is not None:
        found["clock"] = show_clock(clock)
    return found if units is None else found | {"input_unit": ",".join(f"{unit:.9g}" for unit in units)}


def header_of(folder: Path, prefix: str = "net") -> str:
    """The header of an earlier export; empty where there is none."""
    try:
        return (folder / f"{prefix}.h").read_text(errors="replace")
    except OSError:
        return ""


def say_other_input(header: str, plan: MicroPlan, prefix: str = "net", has_units: bool = False) -> str | None:
    """What to do about a program that was written for an earlier `header`, where that took another kind of input."""
    took_floats = f"#define {prefix.upper()}_INPUT_SCALE " in header
    if not header or took_floats is not plan.net.takes_pixels:
        return None
    if took_floats:
        return f"it was written for floats, and this network takes bytes: feed them without {prefix}_input"
    made_by = f"{prefix}_input_fixed" if has_units else f"{prefix}_input"
    return f"it was written for bytes, and this network takes floats: make bytes of them with {made_by}"
