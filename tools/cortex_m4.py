"""Cycles that a program takes on a Cortex-M4, by Arm's table of instructions, for blocks that an emulator ran.

The table (Cortex-M4 Technical Reference Manual, 3.3.1) is for memory without wait states: most instructions take a
cycle, a load 2, or 1 right behind another load or store whose result it does not need, a branch that is taken 1 and the
refill of the pipeline, which takes 1 to 3: 2 here. A division takes 2 to 12: 7 here.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

REFILL, DIVISION = 2, 7
# Functions of board.c that are not the network's.
BESIDE = {
    "reset",
    "main",
    "run_image",
    "print_number",
    "paint",
    "measure",
    "depth",
    "host",
    "start_count",
    "count",
}
LINE = re.compile(r"0x([0-9a-f]{8}):\s+((?:[0-9a-f]{4} ?)+)\s+(\S+)\s*(.*)")
RAN = re.compile(r"Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/[^\]]*\] ?(\S*)")

Instruction = tuple[str, str]  # the name and what it is given


class _Block:
    """Instructions up to a branch: what they take, where they go on, and whether the last one may jump."""

    def __init__(self, begin: int) -> None:
        self.begin, self.end, self.instructions = begin, begin, list[Instruction]()

    def add(self, at: int, code: str, name: str, given: str) -> None:
        self.instructions.append((name, given))
        self.end = at + 2 * len(code.split())

    @property
    def cycles(self) -> int:
        before: list[Instruction | None] = [None, *self.instructions]
        return sum(cycles_of(each, last) for each, last in zip(self.instructions, before, strict=False))


def cycles_of(this: Instruction, before: Instruction | None = None) -> int:
    """Of one instruction behind another, without a refill of the pipeline.

    >>> cycles_of(("ldr", "r1, [r2]")), cycles_of(("ldr", "r1, [r2]"), ("ldrb", "r3, [r4]"))
    (2, 1)
    >>> cycles_of(("ldr", "r1, [r3]"), ("ldr", "r3, [r4]")), cycles_of(("pop", "{r4, r5, pc}"))
    (2, 4)
    """
    name, given = this
    if name.startswith(("push", "pop", "ldm", "stm")):
        return 1 + len(given[given.index("{") :].split(","))
    if name.startswith(("ldrd", "strd")):
        return 3
    if name.startswith(("sdiv", "udiv")):
        return DIVISION
    if not name.startswith("ldr"):
        return 2 if name.startswith("tb") else 1
    if before is None or not before[0].startswith(("ldr", "str")):
        return 2
    waits = before[0].startswith("ldr") and before[1].split(",")[0] in given[given.index("[") :]
    return 2 if waits else 1


def read_trace(lines: Iterable[str]) -> tuple[int, int]:
    """Instructions and cycles of a network, from a log of qemu with -d exec,nochain,in_asm."""
    blocks: dict[int, _Block] = {}
    steps: Counter[tuple[int, int]] = Counter()
    fresh: _Block | None = None
    last: int | None = None
    for line in lines:
        if ran := RAN.match(line):
            now = int(ran[1], 16)
            if last is not None:
                steps[last, now] += 1
            last, fresh = (None if ran[2] in BESIDE else now), None
        elif found := LINE.match(line):
            at = int(found[1], 16)
            if fresh is None:
                fresh = blocks[at] = _Block(at)
            fresh.add(at, found[2], found[3], found[4])
    instructions = cycles = 0
    for (block, then), times in steps.items():
        ran_block = blocks[block]
        instructions += times * len(ran_block.instructions)
        cycles += times * (ran_block.cycles + REFILL * (then != ran_block.end))
    return instructions, cycles


def count_cycles(emulator: Iterable[str], program: Path) -> tuple[int, int]:
    """Run a program of tools/boards and give the instructions and cycles of its network, all images together."""
    log = program.with_suffix(".log")
    asked = [
        "-nographic",
        "-semihosting-config",
        "enable=on,target=native",
        "-d",
        "exec,nochain,in_asm",
        "-D",
    ]
    subprocess.run(
        [*emulator, *asked, str(log), "-kernel", str(program)], capture_output=True, check=False, timeout=600
    )
    with log.open() as lines:
        found = read_trace(lines)
    log.unlink()
    return found
