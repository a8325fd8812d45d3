"""The code of the runtime: what a network uses of it, and what that takes of flash beside the constants."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from membound.errors import ModelError
from membound.micro.code_sizes import SIZES
from membound.micro.integers import Op
from membound.units import LEVELS

SOURCES = ("membound_micro.c", "membound_micro_conv.c")
HEADERS = (
    "membound_micro.h",
    "membound_micro_inside.h",
    "membound_micro_codes.h",
    "membound_micro_mve.h",
    "membound_micro_thumb.h",
)
CONFIG = "membound_micro_config.h"
COMPILER = ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-ffreestanding", "-std=c99")
SMALL = LEVELS[0]
NET_CODE_BYTES = {"-Os": 160, "-O2": 200}  # of the functions in net.c, at most
STACK_BYTES = 500  # that a call takes, at most: a Cortex-M55 with vectors was measured at 500
STACK_UNOPTIMIZED = 850  # the same at -O0: 808 were measured on a Cortex-M4
LIBRARY_BYTES = 470  # of memcpy and memset, in newlib-nano of Debian: 308 and 162

Features = tuple[str, ...]
# What each source depends on: code_sizes.py has a number for each of these together.
PARTS = {
    "membound_micro.c": ("TABLE", "SUM", "THEN_POOL", "POOL", "MEAN"),
    "membound_micro_conv.c": ("DENSE", "SPARSE", "STRIDE", "TABLE", "THEN_SUM", "THEN_POOL"),
}
FUNCTIONS = ("mb_start", "mb_feed_row", "mb_output", "mb_run_conv")  # all that the runtime's sources export
ALL = ("DENSE", "SPARSE", "STRIDE", "TABLE", "SUM", "THEN_SUM", "THEN_POOL", "POOL", "MEAN")


@dataclass(frozen=True)
class Code:
    """Bytes of code on a Cortex-M4: `compiled` here, or as they were recorded."""

    nbytes: int
    compiled: bool


def parts_of(ops: Sequence[Op], sparse: Sequence[bool]) -> Features:
    """The same of its operations, and of whether each weight is `sparse`."""
    kinds, thens = {op.kind for op in ops}, {op.then for op in ops}
    has = {
        "DENSE": not all(sparse),
        "SPARSE": any(sparse),
        "STRIDE": any(op.kind == "conv" and op.window.stride[1] != 1 and op.size[1] > 1 for op in ops),
        "TABLE": any(op.rescale is not None and op.rescale.table is not None for op in ops),
        "SUM": "sum" in kinds,
        "THEN_SUM": "sum" in thens,
        "THEN_POOL": "pool" in thens,
        "POOL": "pool" in kinds,
        "MEAN": "mean" in kinds,
    }
    return tuple(name for name in ALL if has[name])


def config_text(used: Features, prefix: str = "net") -> str:
    """membound_micro_config.h: no code but what the network uses, under names that say what that is.

    >>> print(config_text(("SPARSE", "MEAN"), "kws").splitlines()[-3])
    #define mb_run_conv kws_mb_run_conv_for_sparse_mean
    """
    lines = "".join(f"#define MB_HAS_{name} {int(name in used)}\n" for name in ALL)
    begin, end = "" if prefix == "net" else f"{prefix}_", "_".join(("_for", *used)).lower()
    names = "".join(f"#define {name} {begin}{name}{end}\n" for name in FUNCTIONS)
    return (
        "/* What the runtime has for this network. */\n#ifndef MEMBOUND_MICRO_CONFIG_H\n"
        f"#define MEMBOUND_MICRO_CONFIG_H\n\n{lines}\n"
        "/* A network does not link with a runtime that has other parts. */\n"
        f"{names}\n#endif\n"
    )


def runtime_folder() -> Path:
    """Where the sources of the runtime are: in an installed package, or in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "micro" / "c", package.parent / "micro"):
        if (folder / SOURCES[0]).is_file():
            return folder
    raise ModelError("the sources of the microcontroller's runtime are not installed: reinstall membound")


def code_for(used: Features, level: str = SMALL) -> Code:
    """The same for these parts of the runtime, in any order."""
    return _code(tuple(name for name in ALL if name in used), level)


@lru_cache
def _code(used: Features, level: str) -> Code:
    if shutil.which(COMPILER[0]) is None:
        return Code(NET_CODE_BYTES[level] + recorded_bytes(used, level), False)
    compiled = sum(compiled_bytes(source, used, level) for source in SOURCES)
    return Code(NET_CODE_BYTES[level] + compiled, True)


def recorded_bytes(used: Features, level: str = SMALL) -> int:
    """As tools/micro_code.py found it."""
    return sum(SIZES[level][source][place_of(source, used)] for source in SOURCES)


def place_of(source: str, used: Features) -> int:
    """The number of what a source has: bit i is its i-th part."""
    return sum(1 << i for i, part in enumerate(PARTS[source]) if part in used)


def compiled_bytes(source: str, used: Features, level: str = SMALL) -> int:
    """Instructions and constants of a source, by the compiler that is here."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / CONFIG).write_text(config_text(used))
        for name in (source, *HEADERS):
            shutil.copy(runtime_folder() / name, folder)
        target = f"{folder}/object.o"
        try:
            command = [*COMPILER, level, "-c", f"{folder}/{source}", "-o", target]
            subprocess.run(command, check=True, capture_output=True)
            size = COMPILER[0].replace("-gcc", "-size")
            printed = subprocess.run([size, target], check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise ModelError(
                f"{COMPILER[0]} cannot compile the runtime ({error}): repair it, or take it off the PATH"
            ) from None
    return int(printed.splitlines()[1].split()[0])
