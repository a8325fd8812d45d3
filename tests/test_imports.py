"""Who may import whom, that a deployed process never loads torch, and that the picture of it is the code's."""

import subprocess
import sys
from pathlib import Path

import import_diagram
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "membound"

# What each part may import from the rest of the package, and whether it may import torch.
ALLOWED = {
    "data": ({"errors"}, False),
    "store": ({"errors", "units"}, False),
    "run": ({"errors", "units", "notebook", "store", "data", "_core"}, False),
    "zoo": ({"errors"}, True),
    "capture": ({"errors", "store", "data", "train"}, True),
    "train": ({"errors", "units", "notebook", "data", "zoo", "store", "_core"}, True),
    "bench": ({"errors", "store", "run"}, True),
    "search": (
        {"errors", "units", "notebook", "data", "zoo", "train", "capture", "store", "run", "bench"},
        True,
    ),
    "report": ({"errors", "units", "store"}, False),
    "paper": (
        {"errors", "data", "zoo", "train", "search", "store", "bench", "report"},
        True,
    ),
}
ALLOWED["cli"] = ({"errors", *ALLOWED}, True)
FILES = [path for part in ALLOWED for path in sorted((PACKAGE / part).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = path.relative_to(PACKAGE).parts[0]
    allowed, torch = ALLOWED[part]
    names = import_diagram.imported(path)
    if not torch:
        assert not {name for name in names if name.split(".")[0] in ("torch", "safetensors", "triton")}
    inside = {name.split(".")[1] for name in names if name.startswith("membound.")}
    assert inside <= allowed | {part}


def test_every_package_has_a_rule():
    assert set(import_diagram.packages()) == set(ALLOWED)


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tools", "fuzz", "examples"])
def test_nothing_else_imports_from_the_tests(folder):
    in_tests = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"tests"}
    for path in sorted((ROOT / folder).rglob("*.py")):
        siblings = {beside.stem for beside in path.parent.glob("*.py")}
        assert not {name.split(".")[0] for name in import_diagram.imported(path)} & in_tests - siblings, path


def test_the_picture_of_the_imports_is_what_the_code_gives():
    """If not: python tools/import_diagram.py"""
    assert (ROOT / "docs" / "imports.svg").read_text() == import_diagram.draw()


def test_the_picture_draws_what_does_not_follow_from_the_rest():
    imports = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert import_diagram.reduced(imports) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert import_diagram.find_rows(imports) == {"a": 2, "b": 1, "c": 0}


@pytest.mark.parametrize(
    "code",
    [
        "import membound",
        "import membound.data, membound.store.sizes",
        "import membound; membound.data.load('mnist')",
        "import membound; membound.load",
        "import membound.bench.race, membound.run.evaluation",
        "from membound.cli import app",
        "from membound.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_no_torch_is_loaded(code):
    check = "\nimport sys; assert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_loads():
    import membound

    for name in membound.__all__:
        assert getattr(membound, name) is not None
    assert dir(membound) == sorted(membound.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = membound.nothing


def test_training_works_without_the_compiled_extension():
    code = (
        "import sys; sys.modules['membound._core'] = None\n"
        "import torch; from membound.train.projection import project_, _core\n"
        "assert _core() is None; w = torch.tensor([1., -3., 2.]); project_(w, 1); assert w.tolist() == [0., -3., 0.]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["attach", "save"])
def test_names_that_need_torch_say_what_to_install_without_it(name):
    code = f"import sys; sys.modules['torch'] = None\nimport membound\nmembound.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'membound[train]'" in done.stderr.splitlines()[-1]
