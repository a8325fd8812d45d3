"""The C++ core's own test drivers, built without Python: under sanitizers, and for the other kind of CPU."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DRIVERS = {"test_project": 300, "test_network": 100}  # and how many random cases each is given

# What `make test` runs of each driver, by several threads at once: a network of convolutions, linear layers and an
# addition, in every storage format and on every instruction set, and one large projection. Pools, norms, moves, every
# size around the tiles and the random cases take minutes: they are left to `make test-full` and `make sanitize`.
SLICE = ("--only", "concurrent")


def tool(name: str) -> str | None:
    return shutil.which(
        name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock of a process that is gone is gone, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(kind: str, *options: str, targets: tuple[str, ...] = tuple(DRIVERS)) -> Path:
    """Build drivers, warnings being errors, in a folder that stays: the next time only what changed is compiled."""
    folder = ROOT / "build" / f"drivers-{kind}"
    always = ["-DMEMBOUND_BUILD_TESTS=ON", "-DMEMBOUND_BUILD_PYTHON=OFF", "-DMEMBOUND_WERROR=ON"]
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(folder), *always, *options]
    compile_ = [tool("cmake"), "--build", str(folder), "--parallel", "2", "--target", *targets]
    with locked(folder.with_name(f"{folder.name}.lock")):
        if subprocess.run(configure, capture_output=True).returncode != 0:
            shutil.rmtree(
                folder, ignore_errors=True
            )  # left by another compiler, or in a folder of another name
            succeed(configure)
        succeed(compile_)
    return folder


def succeed(command, **environment) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(cases, *command, **environment):
    """Run a driver; what it says at the end."""
    outcome = json.loads(succeed([*command, "--cases", cases], **environment).splitlines()[-1])
    assert outcome["mismatches"] == 0
    assert outcome["cases"] == cases
    assert outcome["checks"] > 0
    return outcome


def check_all(cases, only, *command):
    """Everything, or a slice on each instruction set that there is; their names."""
    if not only:
        return check(cases, *command)["isas"]
    isas = check(0, *command, *only)["isas"]
    if command[-1].name == "test_project":  # several callers take the one that is chosen
        for isa in isas:
            check(0, *command, *only, MEMBOUND_ISA=isa)
    return isas


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize(
    ("sanitizers", "only"),
    [
        ("address,undefined", SLICE),
        pytest.param("address,undefined", (), marks=pytest.mark.full),
        # Several threads call one network, and one pool, at once: a minute, where everything takes many.
        pytest.param("thread", SLICE, marks=pytest.mark.full),
        pytest.param("thread", (), marks=pytest.mark.full),
    ],
    ids=["address and undefined", "address and undefined, everything", "thread", "thread, everything"],
)
def test_the_drivers_pass_under_sanitizers(sanitizers, only):
    folder = build(sanitizers, f"-DMEMBOUND_SANITIZE={sanitizers}")
    for driver, cases in DRIVERS.items():
        check_all(cases, only, folder / driver)


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_the_pool_passes_under_sanitizers(sanitizers):
    folder = build(sanitizers, f"-DMEMBOUND_SANITIZE={sanitizers}", targets=("test_threads",))
    assert check(1000, folder / "test_threads")["checks"] > 4000


OTHER = "aarch64" if platform.machine().lower() in ("x86_64", "amd64") else "x86_64"
EMULATOR = {
    "aarch64": ["qemu-aarch64"],
    "x86_64": ["qemu-x86_64", "-cpu", "max", "-L", "/usr/x86_64-linux-gnu"],
}
EMULATED = {"aarch64": ["scalar", "neon"], "x86_64": ["scalar", "avx2"]}
ABSENT = [name for name in ("cmake", f"{OTHER}-linux-gnu-g++", EMULATOR[OTHER][0]) if tool(name) is None]


@pytest.mark.skipif(bool(ABSENT), reason=f"absent: {', '.join(ABSENT)}")
@pytest.mark.parametrize(
    "only", [SLICE, pytest.param((), marks=pytest.mark.full)], ids=["at once", "everything"]
)
def test_the_drivers_pass_on_the_other_kind_of_cpu(only):
    """Emulated; qemu has no AVX-512, whose kernels run on intrinsics in plain C++ everywhere."""
    folder = build(OTHER, f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/src/kernels/toolchains/{OTHER}-linux-gnu.cmake")
    for driver in DRIVERS:
        isas = check_all(20, only, *EMULATOR[OTHER], folder / driver)
        assert [isa for isa in isas if isa != "emulated avx512"] == EMULATED[OTHER]
