"""What a type checker says of a user's own code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import numpy as np
import numpy.typing as npt

import membound as mb

net = mb.load("net.safetensors")
y: npt.NDArray[np.float32] = net(np.zeros((1, 3)))
images = mb.data.load("mnist").train.read([1, 2])
mb.atach
"""


@pytest.mark.full
def test_a_misspelled_name_is_seen_and_arrays_are_arrays(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "user.py"]
    environment = {"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    errors = [line for line in found.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1, found.stdout + found.stderr
    assert 'user.py:10: error: Module has no attribute "atach"' in errors[0]
