"""What is installed: every module but the paper's, the compiled core, no data; and that it runs by itself."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = """
import json, sys
from scikit_build_core import build
print(getattr(build, sys.argv[1])(*json.loads(sys.argv[2])))
"""
WITHOUT_CORE = {"wheel.cmake": "false"}  # which files there are, in a second


def succeed(*command: object, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(what: str, folder: Path, *options: object) -> Path:
    arguments = json.dumps([str(folder), *options])
    return folder / succeed(sys.executable, "-c", BUILD, what, arguments, cwd=ROOT).split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("sdist")
    return build("build_sdist", folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, sdist):
    """Built from the source distribution, so that it has all that a build needs."""
    folder = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sdist)
    (found,) = folder.glob("*.whl")
    return found


def sources() -> set[str]:
    return {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "membound").rglob("*.py")}


def check_contents(wheel: Path) -> set[str]:
    """Every module but those of the paper, and nothing else but what a wheel says of itself."""
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {name for name in sources() if not name.startswith("membound/paper/")}
    assert {"membound/py.typed", "membound/_core.pyi"} <= names
    assert not [name for name in names if not name.startswith(("membound/", "membound-"))]
    return names


@pytest.mark.full
def test_the_sdist_holds_the_sources_and_no_data(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    assert {"pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "src/kernels/network.cpp"} <= names
    assert not [name for name in names if name.startswith(("data/", "results/", "build/", ".venv/", ".ci/"))]
    assert sdist.stat().st_size < 5 * 2**18


def test_a_wheel_leaves_the_paper_out(tmp_path):
    pytest.importorskip("scikit_build_core")
    check_contents(build("build_wheel", tmp_path, WITHOUT_CORE))


def test_an_editable_install_has_the_paper(tmp_path):
    pytest.importorskip("scikit_build_core")
    zipfile.ZipFile(build("build_editable", tmp_path, WITHOUT_CORE)).extractall(tmp_path / "site")
    code = "import site, sys; site.addsitedir(sys.argv[1]); import membound.paper as it; print(it.__file__)"
    said = succeed(sys.executable, "-I", "-S", "-c", code, tmp_path / "site", cwd=tmp_path)
    assert Path(said.strip()) == ROOT / "src" / "membound" / "paper" / "__init__.py"


@pytest.mark.full
def test_the_wheel_holds_the_core_and_no_data(wheel):
    names = check_contents(wheel)
    assert any(name.startswith("membound/_core.") and name.endswith((".so", ".pyd")) for name in names)
    assert not [name for name in names if "mnist/" in name or name.endswith(".gz")]
    assert wheel.stat().st_size < 2**20


def test_little_is_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(each.split(">")[0] for each in project["dependencies"]) == ["numpy", "rich", "typer"]


@pytest.mark.full
def test_the_wheel_needs_little_and_runs_without_torch(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    succeed(python, "-m", "pip", "install", "--quiet", wheel)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    said = succeed(python, ROOT / "tests" / "wheel_check.py", cwd=tmp_path, env=environment)
    assert str(tmp_path) in said
    needed = zipfile.ZipFile(wheel).read(
        next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA"))
    )
    always = [
        line
        for line in needed.decode().splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert sorted(line.split()[1].split(">")[0] for line in always) == ["numpy", "rich", "typer"]
    installed = succeed(python, "-m", "pip", "list", "--format", "freeze")
    assert "torch" not in installed
