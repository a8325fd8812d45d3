"""How the Makefile installs packages: uv is told what pip is set to, and pip does what uv cannot."""

import subprocess
from types import SimpleNamespace

import install_packages
import pytest

SETTINGS = """\
global.cert='/etc/ssl/ca.crt'
global.extra-index-url='file:///a/simple https://b.example/simple'
global.find-links='/wheels'
:env:.index-url='https://c.example/simple'
:env:.default-timeout='180'
"""


def test_uv_looks_where_pip_looks():
    assert install_packages.uv_options(SETTINGS) == [
        "--index-strategy", "unsafe-best-match",
        "--index", "file:///a/simple", "--index", "https://b.example/simple",
        "--find-links", "/wheels", "--default-index", "https://c.example/simple",
    ]  # fmt: skip
    assert install_packages.uv_options("") == ["--index-strategy", "unsafe-best-match"]


@pytest.mark.parametrize(
    ("code", "programs"), [(0, ["pip", "uv"]), (2, ["pip", "uv", "pip"]), (None, ["pip"])]
)
def test_pip_installs_what_uv_cannot(code, programs, tmp_path, monkeypatch, capsys):
    """Without uv, pip alone; pip also says what it is set to."""
    ran = []

    def run(command, **_):
        ran.append("uv" if command[0].endswith("uv") else "pip")
        assert ("packages.txt" in command) == (command[1:4] != ["-m", "pip", "config"])
        return SimpleNamespace(returncode=code if ran[-1] == "uv" else 0, stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    if code is not None:
        (tmp_path / "uv").touch()
    assert install_packages.main("packages.txt", "onnx") == 0
    assert ran == programs
    assert ("pip tries" in capsys.readouterr().err) == (code == 2)
