"""Pages that run as they stand: every command and every block of code, in their order.

A block whose first line is a comment with a file's name is that file; other blocks of Python run one after the other,
as in a notebook. Commands of ours run in this process, others (`python FILE`, `cmake`) in their own.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from membound.cli import main
from membound.data.named import NAMED

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("TUTORIAL", "YOUR_OWN_MODEL", "HOWTO", "APP")
FEWER = re.compile(r"<!-- The tests run this page with (\d+) steps instead of (\d+)\. -->")
FILE = re.compile(r"(?:#|//) (\w+\.\w+)\n")
OTHERS = (
    "python",
    "cmake",
    "build/recognize",
    "build/classify",
    "arm-none-eabi-gcc",
)  # programs that pages call beside ours
MAY_BE_MISSING = ("arm-none-eabi-gcc",)


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of the page's blocks, with the steps that the page names for tests."""
    page = (DOCS / f"{name}.md").read_text()
    found = FEWER.search(page)
    assert found is not None
    few, many = found.groups()
    code = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert any(re.search(rf"\b{many}\b", text) for _, text in code)
    checkout = str(DOCS.parent)
    return [
        (language, re.sub(rf"\b{many}\b", few, text).replace("CHECKOUT", checkout)) for language, text in code
    ]


def run_commands(text: str) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] in OTHERS:
            program = sys.executable if words[0] == "python" else shutil.which(words[0])
            if program is None and words[0] in MAY_BE_MISSING:
                continue
            assert program is not None, words[0]
            done = subprocess.run([program, *words[1:]], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            print(done.stdout)
        else:
            assert words[0] == "membound"
            with pytest.raises(SystemExit) as stopped:
                main(words[1:])
            assert stopped.value.code == 0, line


def use_few_digits(monkeypatch) -> None:
    """Some hundred digits are MNIST in this process: what takes long in a page is to evaluate on ten thousand."""
    whole = NAMED["mnist"]
    images = whole.load()
    few = replace(images, train=images.train.take(np.arange(600)), test=images.test.take(np.arange(100)))
    monkeypatch.setitem(NAMED, "mnist", replace(whole, load=lambda: few))


@pytest.mark.full
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name == "HOWTO":
        pytest.importorskip("ziglang")
    if name in ("HOWTO", "APP"):
        use_few_digits(monkeypatch)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {"__name__": "page"}
    for number, (language, text) in enumerate(blocks(name)):
        file = FILE.match(text)
        if file is not None:
            Path(file[1]).write_text(text)
        elif language == "python":
            Path(f"block{number}.py").write_text(text)
            names.update(runpy.run_path(f"block{number}.py", init_globals=names, run_name="page"))
        elif language == "":
            run_commands(text)
    said = capsys.readouterr().out
    for words in SAID[name]:
        assert words in said
    for file, most in FILES[name].items():
        assert 0 < Path(file).stat().st_size <= most


SAID = {
    "TUTORIAL": ("true: ['7', '2', '1', '0']", "Net(", "file      lenet.safetensors", "Fitted("),
    "YOUR_OWN_MODEL": (
        "800 training and 200 test images",
        "fc1",
        "digit-",
        "bytes in all",
        "errors in 200 images",
    ),
    "APP": ("Built target classify", "class ", "prepare ", "photo.png"),
    "HOWTO": ("2.png", "flash", "Built target recognize", "with whole maps"),
}
FILES = {
    "TUTORIAL": {"lenet.safetensors": 20480, "again.safetensors": 20480, "lenet.report.html": 10**6},
    "YOUR_OWN_MODEL": {
        "small.safetensors": 50_000,
        "fitted.safetensors": 12 * 1024,
        "own.safetensors": 10**6,
    },
    "APP": {"lenet.safetensors": 20480, "digits/weights.cpp": 10**5, "newer.net": 30_000},
    "HOWTO": {
        "lenet.safetensors": 20480,
        "pi.safetensors": 20480,
        "varied.safetensors": 20480,
        "average.safetensors": 10**6,
        "page/index.html": 10**6,
        "page/net.wasm": 10**5,
    },
}
