"""The C++ core's own test drivers, built without Python: under sanitizers, and for the other kind of CPU."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from profiles import full

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("kernels", "run", "capture")]
import replay  # noqa: E402

DRIVERS = {"test_project": 300, "test_network": 100}  # and how many random cases each is given
REPLAY = "test_replay"

# What `make test` runs of the fixed cases at every size around the tiles, which take minutes: one of so many. The calls
# of several threads at once are always there.
SLICE = ("--share", "97")
AT_ONCE = ("--only", "concurrent")
NATIVE = (
    "--emulated",
    "no",
)  # under an emulator: AVX-512 in plain C++ takes most of the time, and runs here already


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


def build(kind: str, *options: str, targets: tuple[str, ...] = (*DRIVERS, REPLAY)) -> Path:
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


def succeed(command) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(cases, *command):
    """Run a driver on so many random cases; what it says at the end."""
    outcome = listen(*command, "--cases", cases)
    assert outcome["cases"] == cases
    return outcome


def listen(*command):
    """Run a driver; what it says at the end."""
    outcome = json.loads(succeed(command).splitlines()[-1])
    assert outcome["mismatches"] == 0
    assert outcome["checks"] > 0
    return outcome


@pytest.fixture(scope="session", params=[3, full(1)], ids=["some", "all"])
def networks(request, tmp_path_factory):
    """Architectures of the tests, of all formats and both types of values, as test_replay reads them."""
    share = request.param
    path = tmp_path_factory.mktemp("replay") / "networks.bin"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about padding='same'
        return path, replay.dump(
            path, [*replay.architectures(share), *replay.mobile_blocks(), *replay.large_images()]
        )


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize(
    ("sanitizers", "only"),
    [
        pytest.param("address,undefined", SLICE, marks=pytest.mark.full),
        pytest.param("address,undefined", (), marks=pytest.mark.full),
        # A minute, where everything takes many.
        pytest.param("thread", AT_ONCE, marks=pytest.mark.full),
        pytest.param("thread", (), marks=pytest.mark.full),
    ],
    ids=["address and undefined", "address and undefined, everything", "thread", "thread, everything"],
)
def test_the_drivers_pass_under_sanitizers(sanitizers, only):
    folder = build(sanitizers, f"-DMEMBOUND_SANITIZE={sanitizers}")
    for driver, cases in DRIVERS.items():
        check(cases, folder / driver, *only)


@pytest.mark.full  # the core is compiled for it, which takes longer than all that it runs
@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
def test_networks_are_replayed_under_sanitizers(networks):
    sanitizers = "address,undefined"
    path, count = networks
    folder = build(sanitizers, f"-DMEMBOUND_SANITIZE={sanitizers}", targets=(REPLAY,))
    assert listen(folder / REPLAY, path)["cases"] == count > 10


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize("sanitizers", ["thread", full("address,undefined")])
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


emulated = pytest.mark.skipif(bool(ABSENT), reason=f"absent: {', '.join(ABSENT)}")


def build_for_the_other():
    return build(OTHER, f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/src/kernels/toolchains/{OTHER}-linux-gnu.cmake")


@emulated
@pytest.mark.parametrize("slice_", [full(SLICE, id="a slice"), full((), id="everything")])
def test_the_drivers_pass_on_the_other_kind_of_cpu(slice_):
    """Emulated; qemu has no AVX-512, whose kernels run on intrinsics in plain C++."""
    folder = build_for_the_other()
    for driver, options in (("test_project", slice_), ("test_network", (*NATIVE, *slice_))):
        assert check(20, *EMULATOR[OTHER], folder / driver, *options)["isas"] == EMULATED[OTHER]


@emulated
@pytest.mark.full
def test_networks_are_replayed_on_the_other_kind_of_cpu(networks):
    path, count = networks
    outcome = listen(*EMULATOR[OTHER], build_for_the_other() / REPLAY, path, *NATIVE)
    assert outcome["cases"] == count
    assert outcome["isas"] == EMULATED[OTHER]


@pytest.mark.skipif(
    tool("cmake") is None or shutil.which("qemu-aarch64") is None, reason="cmake or qemu is absent"
)
@pytest.mark.full
def test_networks_are_replayed_on_an_arm_without_dot_products_of_bytes(networks):
    path, count = networks
    folder = build_for_the_other() if OTHER == "aarch64" else build("plain", targets=(REPLAY,))
    assert listen("qemu-aarch64", "-cpu", "cortex-a72", folder / REPLAY, path, *NATIVE)["cases"] == count
