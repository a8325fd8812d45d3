"""The sizes of the runtime's code, for machines without a cross compiler: python tools/micro_code.py

Compiles each source with every set of its parts, at -Os and -O2 for a Cortex-M4, and writes
src/membound/micro/code_sizes.py.
"""

import subprocess
import textwrap
from pathlib import Path

from membound.micro.code import ALL, COMPILER, PARTS, SOURCES, compiled_bytes
from membound.units import LEVELS

TARGET = Path(__file__).parents[1] / "src" / "membound" / "micro" / "code_sizes.py"


def sizes_of(source: str, level: str) -> list[int]:
    parts = PARTS[source]
    found = []
    for number in range(1 << len(parts)):
        used = {part for i, part in enumerate(parts) if number >> i & 1}
        if "SPARSE" in parts and not used & {"DENSE", "SPARSE"}:
            found.append(0)  # a network without weights has no convolutions, and no use for this source
        else:
            found.append(compiled_bytes(source, tuple(name for name in ALL if name in used), level))
    return found


def main() -> None:
    version = subprocess.run([COMPILER[0], "--version"], check=True, capture_output=True, text=True)
    lines = []
    for level in LEVELS:
        lines.append(f'    "{level}": {{')
        for source in SOURCES:
            numbers = ", ".join(map(str, sizes_of(source, level)))
            text = textwrap.fill(numbers, 100, initial_indent=" " * 12, subsequent_indent=" " * 12)
            lines.append(f'        "{source}": (\n{text},\n        ),')
        lines.append("    },")
    TARGET.write_text(
        '"""Bytes of the runtime\'s code on a Cortex-M4, by how it is compiled and what it has: made by '
        "tools/micro_code.py.\n\n"
        f'Compiler: {version.stdout.splitlines()[0]}.\n"""\n\n# fmt: off\nSIZES = {{\n'
        + "\n".join(lines)
        + "\n}\n"
    )


if __name__ == "__main__":
    main()
