"""What is installed: every module and the compiled core, and nothing of the embedded data."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_whole_package_and_no_data(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "membound").rglob("*.py")
    }
    assert sources <= names
    assert {"membound/py.typed", "membound/_core.pyi"} <= names
    assert any(name.startswith("membound/_core.") and name.endswith((".so", ".pyd")) for name in names)
    assert not [name for name in names if "mnist/" in name or name.endswith(".gz")]
    assert wheel.stat().st_size < 2**20
