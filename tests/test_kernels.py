"""The C++ core's own test drivers, built without Python: under sanitizers, and for the other kind of CPU."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DRIVERS = {"test_project": 300, "test_network": 100}  # and how many random cases each is given


def tool(name: str) -> str | None:
    return shutil.which(
        name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


def build(folder, *options, target="all"):
    """Build the drivers, warnings being errors."""
    always = ["-DMEMBOUND_BUILD_TESTS=ON", "-DMEMBOUND_BUILD_PYTHON=OFF", "-DMEMBOUND_WERROR=ON"]
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(folder), *always, *options]
    for command in (
        configure,
        [tool("cmake"), "--build", str(folder), "--parallel", "2", "--target", target],
    ):
        built = subprocess.run(command, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr


def check(cases, *command):
    """Run a driver; what it says at the end."""
    done = subprocess.run([*map(str, command), "--cases", str(cases)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["mismatches"] == 0
    assert outcome["cases"] == cases
    return outcome


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize(
    ("sanitizers", "only"),
    [
        ("address,undefined", ()),
        # Several threads call one network, and one pool, at once: a minute, where everything takes many.
        pytest.param("thread", ("--only", "concurrent"), marks=pytest.mark.full),
        pytest.param("thread", (), marks=pytest.mark.full),
    ],
    ids=["address and undefined", "thread", "thread, everything"],
)
def test_the_drivers_pass_under_sanitizers(tmp_path, sanitizers, only):
    build(tmp_path, f"-DMEMBOUND_SANITIZE={sanitizers}")
    for driver, cases in DRIVERS.items():
        assert check(cases, tmp_path / driver, *only)["checks"] > 0


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_the_pool_passes_under_sanitizers(tmp_path, sanitizers):
    build(tmp_path, f"-DMEMBOUND_SANITIZE={sanitizers}", target="test_threads")
    assert check(1000, tmp_path / "test_threads")["checks"] > 4000


OTHER = "aarch64" if platform.machine().lower() in ("x86_64", "amd64") else "x86_64"
EMULATOR = {
    "aarch64": ["qemu-aarch64"],
    "x86_64": ["qemu-x86_64", "-cpu", "max", "-L", "/usr/x86_64-linux-gnu"],
}
EMULATED = {"aarch64": ["scalar", "neon"], "x86_64": ["scalar", "avx2"]}
ABSENT = [name for name in ("cmake", f"{OTHER}-linux-gnu-g++", EMULATOR[OTHER][0]) if tool(name) is None]


@pytest.mark.full
@pytest.mark.skipif(bool(ABSENT), reason=f"absent: {', '.join(ABSENT)}")
def test_the_drivers_pass_on_the_other_kind_of_cpu(tmp_path):
    """Emulated; qemu has no AVX-512, whose kernels run on intrinsics in plain C++ everywhere."""
    build(tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/src/kernels/toolchains/{OTHER}-linux-gnu.cmake")
    for driver in DRIVERS:
        isas = check(20, *EMULATOR[OTHER], tmp_path / driver)["isas"]
        assert [isa for isa in isas if isa != "emulated avx512"] == EMULATED[OTHER]
