"""The sizes of the runtime's code, for machines without a cross compiler: python tools/micro_code.py

Compiles each source with every set of its parts, at -Os for a Cortex-M4, and writes src/membound/micro/code_sizes.py.
"""

import subprocess
import textwrap
from pathlib import Path

from membound.micro.code import ALL, COMPILER, PARTS, SOURCES, compiled_bytes

TARGET = Path(__file__).parents[1] / "src" / "membound" / "micro" / "code_sizes.py"


def sizes_of(source: str) -> list[int]:
    parts = PARTS[source]
    found = []
    for number in range(1 << len(parts)):
        used = {part for i, part in enumerate(parts) if number >> i & 1}
        if "SPARSE" in parts and not used & {"DENSE", "SPARSE"}:
            found.append(0)  # a network without weights has no convolutions, and no use for this source
        else:
            found.append(compiled_bytes(source, tuple(name for name in ALL if name in used)))
    return found


def main() -> None:
    version = subprocess.run([COMPILER[0], "--version"], check=True, capture_output=True, text=True)
    numbers = {}
    for source in SOURCES:
        text = textwrap.fill(", ".join(map(str, sizes_of(source))), 100, subsequent_indent=" " * 4)
        numbers[source] = f"(\n    {text},\n)"
    TARGET.write_text(
        '"""Bytes of the runtime\'s code at -Os on a Cortex-M4, by what it has: made by tools/micro_code.py.\n\n'
        f'Compiler: {version.stdout.splitlines()[0]}.\n"""\n\n# fmt: off\n'
        f"REST = {numbers[SOURCES[0]]}\nCONVOLUTIONS = {numbers[SOURCES[1]]}\n"
    )


if __name__ == "__main__":
    main()
