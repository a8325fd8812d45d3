"""The C++ core's own test driver, built without Python, under the address and undefined-behaviour sanitizers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tool(name: str) -> str | None:
    return shutil.which(
        name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


@pytest.mark.skipif(tool("cmake") is None, reason="cmake is absent")
@pytest.mark.parametrize("sanitizers", ["address,undefined", pytest.param("thread", marks=pytest.mark.full)])
def test_the_driver_passes_under_sanitizers(tmp_path, sanitizers):
    options = ["-DMEMBOUND_BUILD_TESTS=ON", "-DMEMBOUND_BUILD_PYTHON=OFF", "-DMEMBOUND_WERROR=ON"]
    configure = [
        tool("cmake"),
        "-S",
        str(ROOT),
        "-B",
        str(tmp_path),
        *options,
        f"-DMEMBOUND_SANITIZE={sanitizers}",
    ]
    for command in (configure, [tool("cmake"), "--build", str(tmp_path), "--parallel", "2"]):
        built = subprocess.run(command, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
    done = subprocess.run([tmp_path / "test_project", "--cases", "300"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["mismatches"] == 0
    assert outcome["cases"] >= 300
