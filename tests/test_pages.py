"""The pages for newcomers, run as they stand: every command and every block of code, in their order.

A block of Python whose first line is a comment with a file's name is that file; others run one after the other, as in
a notebook. Commands run in this process, `python FILE` in a fresh one, where the file itself looks for torch.
"""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from profiles import chiefly

from membound.cli import main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("TUTORIAL", "YOUR_OWN_MODEL")
FEWER = re.compile(r"<!-- The tests run this page with (\d+) steps instead of (\d+)\. -->")
NO_TORCH = 'assert "torch" not in sys.modules'


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of the page's blocks, with the steps that the page names for tests."""
    page = (DOCS / f"{name}.md").read_text()
    found = FEWER.search(page)
    assert found is not None
    few, many = found.groups()
    code = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert any(re.search(rf"\b{many}\b", text) for _, text in code)
    return [(language, re.sub(rf"\b{many}\b", few, text)) for language, text in code]


def run_commands(text: str) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "python":
            assert Path(words[1]).read_text().rstrip().endswith(NO_TORCH)
            done = subprocess.run([sys.executable, words[1]], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            print(done.stdout)
        else:
            assert words[0] == "membound"
            with pytest.raises(SystemExit) as stopped:
                main(words[1:])
            assert stopped.value.code == 0, line


@pytest.mark.parametrize("name", chiefly(["YOUR_OWN_MODEL"], PAGES))
def test_a_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {"__name__": "page"}
    for number, (language, text) in enumerate(blocks(name)):
        file = re.match(r"# (\w+\.py)\n", text)
        if language == "python" and file is not None:
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
}
FILES = {
    "TUTORIAL": {"lenet.safetensors": 20480, "again.safetensors": 20480, "lenet.report.html": 10**6},
    "YOUR_OWN_MODEL": {
        "small.safetensors": 50_000,
        "fitted.safetensors": 12 * 1024,
        "own.safetensors": 10**6,
    },
}
