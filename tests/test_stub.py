"""_core.pyi is what nanobind's stub generator says of the compiled core; an in-place build writes it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parents[1] / "src" / "membound" / "_core.pyi"


def test_the_stub_is_the_generated_one(tmp_path):
    pytest.importorskip("nanobind")
    made = tmp_path / "stub.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "membound._core", "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here, there = (ast.unparse(ast.parse(path.read_text())) for path in (STUB, made))
    assert here == there, "build in place (CMakeLists.txt says how), and commit src/membound/_core.pyi"
