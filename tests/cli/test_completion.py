"""Completion in bash: the script that the command prints, and what it offers."""

import os
import shutil
import subprocess
import sys

import pytest
from profiles import full

from membound import zoo
from membound.cli import options
from membound.data import named
from membound.store.values import VALUE_TYPES

COMPLETE = """
eval "$(membound --show-completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_membound_completion membound
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(folder, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    command = folder / "membound"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m membound "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *words],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        full(["membound", "ex"], ["export"]),
        full(["membound", "fit", "le"], ["lenet"]),
        full(["membound", "train", "lenet", "--data", ""], ["mnist", "cifar10"]),
        (["membound", "fit", "lenet", "--strategy", "g"], ["global", "greedy"]),
        full(["membound", "reproduce", "th"], ["thresholding"]),
        full(["membound", "export", "lenet", "--values", "p"], list(options.FEW_BITS)),
        full(["membound", "inspect", "--j"], ["--json"]),
        full(["membound", "fit", "lenet", "--data", "photos"], []),  # bash goes on to names of files
    ],
    ids=lambda value: value[-1] if value else "none",
)
def test_bash_completes(words, offered, tmp_path):
    assert complete(tmp_path, *words) == offered


def test_the_names_that_are_completed_are_those_that_there_are():
    assert list(options.NETS) == zoo.names()
    assert tuple(named.NAMED) == options.DATA
    assert set(options.VALUES) == set(VALUE_TYPES)
    assert set(options.FEW_BITS) == {each.name for each in VALUE_TYPES.values() if each.coded}


def test_completing_does_not_import_torch():
    code = (
        "import sys; from membound.cli import main\n"
        "try: main([])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    words = {
        "_MEMBOUND_COMPLETE": "complete_bash",
        "COMP_WORDS": "membound reproduce ens",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | words, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()) == (0, ["ensembles"]), done.stderr
