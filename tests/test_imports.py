"""Who may import whom: a fixed order of parts, no circles, no torch where a network is deployed, short modules."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import import_diagram
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, KERNELS = ROOT / "src" / "membound", ROOT / "src" / "kernels"

# The parts of the package from the bottom up, each with all that it may import of those before it.
LAYERS = {
    "errors": set(),
    "signatures": {"errors"},
    "units": {"errors"},
    "notebook": set(),
    "machine": set(),
    "modules": set(),
    "data": {"errors", "signatures"},
    "store": {"errors", "units"},
    "specs": {"errors"},
    "zoo": {"errors", "specs"},
    "train": {"errors", "signatures", "units", "notebook", "modules", "data", "store", "zoo", "_core"},
    "capture": {"errors", "signatures", "modules", "data", "store"},
    "micro": {"errors", "units", "store"},
    "run": {"errors", "signatures", "units", "notebook", "data", "store", "micro", "_core"},
    "report": {"errors", "units", "store"},
    "search": {
        "errors", "signatures", "units", "notebook", "machine", "modules", "data", "store", "zoo", "train",
        "capture", "micro", "run", "report",
    },
    "export": {"errors", "signatures", "units", "machine", "data", "store", "zoo", "train", "capture", "micro", "run"},
    "bench": {"errors", "machine", "store", "capture", "run", "export"},
    "paper": {"errors", "machine", "modules", "data", "store", "zoo", "train", "search", "bench", "report"},
}  # fmt: skip
LAYERS["cli"] = set(LAYERS)
NEVER_TORCH = {
    "errors",
    "signatures",
    "specs",
    "units",
    "notebook",
    "machine",
    "data",
    "store",
    "micro",
    "run",
    "report",
}
LATE_TORCH = {"modules", "export"}  # inside functions only: importing them does not import torch
HEAVY = {"torch", "safetensors", "triton"}

FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 450


def module_name(path: Path) -> str:
    """
    >>> module_name(PACKAGE / "data" / "npz.py"), module_name(PACKAGE / "data" / "__init__.py")
    ('membound.data.npz', 'membound.data')
    """
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def part_of(module: str) -> str:
    return [*module.split("."), ""][1]


@cache
def imported_modules(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever it does: at its top, in functions, for types alone."""
    found = set()
    for node in ast.walk(import_diagram.syntax(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & {*MODULES, "membound._core"} or {node.module}
    return {name for name in found if name.split(".")[0] == "membound"} - {module_name(path)}


def loaded_with(tree: ast.AST) -> set[str]:
    """What importing a module imports: no function is called, and what is for types alone is left out."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= loaded_with(node)
    return found


def check_order(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


# The order of parts


def test_no_part_may_import_what_is_above_it():
    below = {"_core"}
    for part, allowed in LAYERS.items():
        assert allowed <= below, part
        below.add(part)


def test_every_part_has_its_place():
    parts = {part_of(name) for name in MODULES} - {"", "__main__"}
    assert parts == set(LAYERS)
    assert set(import_diagram.packages()) <= set(LAYERS)


def test_imports_point_one_way():
    wrong = {}
    for name, path in MODULES.items():
        part = part_of(name)
        if part not in LAYERS:  # the package itself, which names what is public
            continue
        inside = {part_of(other) for other in imported_modules(path)} - {part}
        if part == "cli":
            inside -= {""}  # for its version
        if not inside <= LAYERS[part]:
            wrong[name] = f"imports {sorted(inside - LAYERS[part])}"
    assert wrong == {}


# No circles


def test_no_modules_import_each_other():
    check_order({name: imported_modules(path) for name, path in MODULES.items()})


def test_nothing_else_imports_from_the_tests():
    in_tests = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"tests"}
    for folder in ("src", "benchmarks", "tools", "fuzz", "examples"):
        beside: dict[Path, set[str]] = {}
        for path in (files := sorted((ROOT / folder).rglob("*.py"))):
            beside.setdefault(path.parent, set()).add(path.stem)
        assert files
        for path in files:
            used = {name.split(".")[0] for name in import_diagram.imported(path)}
            assert not used & in_tests - beside[path.parent], path


def test_no_sources_of_the_core_include_each_other():
    """A header and its source are one."""
    graph: dict[str, set[str]] = {}
    for path in KERNELS.glob("*.*"):
        included = {
            Path(name).stem for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
        }
        graph.setdefault(path.stem, set()).update(included - {path.stem})
    assert "network" in graph["bindings_network"]
    check_order(graph)


def test_a_circle_is_found():
    with pytest.raises(pytest.fail.Exception, match="a circle of imports: "):
        check_order({"a": {"b"}, "b": {"c"}, "c": {"a"}})


# No torch where networks are deployed


LIGHT = [name for name in MODULES if part_of(name) in NEVER_TORCH | LATE_TORCH]


def test_torch_is_not_imported():
    heavy, wrong = LAYERS.keys() - NEVER_TORCH - LATE_TORCH, {}
    assert len(LIGHT) > 100
    for module in LIGHT:
        path, late = MODULES[module], part_of(module) in LATE_TORCH
        names = loaded_with(import_diagram.syntax(path)) if late else import_diagram.imported(path)
        found = {name.split(".")[0] for name in names} & HEAVY
        found |= {part_of(name) for name in names if name.startswith("membound.")} & heavy
        if found:
            wrong[module] = f"imports {sorted(found)}"
    assert wrong == {}


def test_no_torch_is_loaded():
    """After each of these in turn, in one process: if an earlier one loaded torch, its own check has failed."""
    lines = [
        "import membound",
        "membound.data.load('mnist')",
        "membound.load",
        "import membound.bench.race",
        "from membound.cli import app, main",
        f"import {', '.join(LIGHT)}",
        "try: main(['--help'])\nexcept SystemExit: pass",
    ]
    check = "import sys; assert 'torch' not in sys.modules, 'torch was imported'"
    code = "\n".join(f"{line}\n{check}" for line in lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
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
    assert "pip install '.[train]'" in done.stderr.splitlines()[-1]


# Modules that can be read


def test_no_module_is_too_long():
    """If one is: say which two things it does, and make each a module."""
    sources = [
        path for folder in ("src", "benchmarks", "tools", "examples") for path in (ROOT / folder).rglob("*.*")
    ]
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in sources
        if path.suffix in (".py", ".cpp", ".h", ".inc", ".c")
    }
    assert not {name for name, count in lines.items() if count > LONGEST}


# What is special about a network or a data set is said in its record


def test_no_code_asks_for_a_network_or_a_data_set_by_its_name():
    """Give the record a field: zoo/networks.py, data/named.py, or NETS of paper/lab.py."""
    nets = "lenet|cifar10_quick|quick|alexnet|efficientnet_lite0|resnet8|mobilenet_v1|ds_cnn"
    names = rf"[\"']({nets}|mnist|cifar10|imagenet)[\"']"
    compared = re.compile(rf"[!=]= {names}|{names} [!=]=|\bin \({names}")
    assert {str(path.relative_to(PACKAGE)) for path in FILES if compared.search(path.read_text())} == set()


# The picture


def test_the_picture_of_the_imports_is_what_the_code_gives():
    """If not: python tools/import_diagram.py"""
    assert (ROOT / "docs" / "imports.svg").read_text() == import_diagram.draw()


def test_the_picture_draws_what_does_not_follow_from_the_rest():
    imports = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert import_diagram.reduced(imports) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert import_diagram.find_rows(imports) == {"a": 2, "b": 1, "c": 0}


def test_no_box_of_the_picture_hides_another():
    rows = import_diagram.find_rows(import_diagram.read_imports()[0])
    for row in rows.values():
        places = sorted(import_diagram.COLUMNS[part] for part in rows if rows[part] == row)
        apart = [right - left for left, right in pairwise(places)]
        assert all(import_diagram.ACROSS * gap > import_diagram.WIDTH for gap in apart)
