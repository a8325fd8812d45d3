"""What is needed to repeat a measurement: the command, the hardware, the versions, the date."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ARM_CORES = {
    "0xd03": "Cortex-A53",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd44": "Cortex-X1",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}
COMMIT = "membound_commit"  # its name among the versions


def own_version() -> str:
    """Membound's."""
    return str(sys.modules["membound"].__version__)


def describe(packages: Sequence[str]) -> dict[str, Any]:
    """Where, when, by which command and with which versions of these packages this process runs."""
    return {
        "command": command_line(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": versions(packages),
    }


def command_line() -> str:
    """The command as anyone would type it: no path of this machine."""
    return shlex.join(["membound", *(_short(argument) for argument in sys.argv[1:])])


def _short(argument: str) -> str:
    """An absolute path by its last part, also behind a name.

    >>> _short("/home/me/net.safetensors"), _short("deepsparse=/home/me/old/bin/python"), _short("runs/a.npz")
    ('net.safetensors', 'deepsparse=python', 'runs/a.npz')
    """
    name, equals, value = argument.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else argument


def hardware() -> dict[str, Any]:
    """The CPU and how many of its cores this process may use."""
    return {"cpu": _cpu_model(), "cores": available_cores(), "machine": platform.machine()}


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name_arm(machine: str, implementer: str, part: str) -> str:
    """What Linux says of an ARM core in numbers, as a name where it is a usual one.

    >>> name_arm("aarch64", "0x41", "0xd0c"), name_arm("aarch64", "0x61", "0x022")
    ('Arm Neoverse-N1', 'aarch64 implementer 0x61 part 0x022')
    """
    if implementer == "0x41" and part in ARM_CORES:
        return f"Arm {ARM_CORES[part]}"
    return f"{machine} implementer {implementer} part {part}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" in found:
        return found["model name"]
    if "CPU implementer" in found and "CPU part" in found:  # ARM: numbers instead of a name
        return name_arm(platform.machine(), found["CPU implementer"], found["CPU part"])
    return platform.processor() or platform.machine()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of those packages that are installed; of membound the commit, too, if it is known."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            # membound's own also where it runs from a checkout and is not installed
            own = package == "membound"
            installed = importlib.metadata.version
            found[package] = own_version() if own else installed(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if own and (commit := own_commit(Path(__file__).resolve().parent)) is not None:
            found[COMMIT] = commit
    return found


def own_commit(package: Path) -> str | None:
    """Of the checkout that membound runs from, or of the one that it was built from and installed."""
    root = package.parents[1]
    if package == root / "src" / "membound" and (commit := checkout_commit(root)) is not None:
        return commit
    with contextlib.suppress(OSError):
        return (package / "commit.txt").read_text(encoding="utf-8").strip() or None
    return None


@cache
def checkout_commit(root: Path) -> str | None:
    """The commit of membound's checkout at `root`, with '+dirty' where tracked files differ; None if it is none.

    An installed package may lie in the checkout of another project, whose commit says nothing.
    """
    if not (root / ".git").exists() or not (root / "src" / "membound").is_dir():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def resident_bytes(key: str = "VmRSS") -> int | None:
    """Memory of this process now, or with VmHWM its highest; None where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> None:
    """Let the highest memory be counted from now on, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
