"""Who may import whom, and that a deployed process never loads torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "membound"

# What each part may import from the rest of the package, and whether it may import torch.
ALLOWED = {
    "data": ({"errors"}, False),
    "store": ({"errors", "units"}, False),
    "run": ({"errors", "units", "store", "data", "_core"}, False),
    "zoo": ({"errors"}, True),
    "capture": ({"errors", "store", "data", "train"}, True),
    "train": ({"errors", "units", "data", "zoo", "store", "_core"}, True),
    "bench": ({"errors", "store", "run"}, True),
    "search": ({"errors", "units", "data", "zoo", "train", "capture", "store", "run", "bench"}, True),
    "report": ({"errors", "units", "store"}, False),
    "paper": (
        {"errors", "data", "zoo", "train", "search", "store", "bench", "report"},
        True,
    ),
}
FILES = [path for part in ALLOWED for path in sorted((PACKAGE / part).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = path.relative_to(PACKAGE).parts[0]
    allowed, torch = ALLOWED[part]
    names = imported(path)
    if not torch:
        assert not {name for name in names if name.split(".")[0] in ("torch", "safetensors", "triton")}
    inside = {name.split(".")[1] for name in names if name.startswith("membound.")}
    assert inside <= allowed | {part}


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
