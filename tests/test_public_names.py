"""What `import membound` gives: names that load when they are used, with types that checkers see."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from profiles import at_once

import membound

SOURCE = Path(membound.__file__).read_text()


def test_importing_membound_loads_no_library_that_it_may_not_need():
    check = (
        "import sys, membound; assert not {'torch', 'numpy', 'typer', 'membound._core'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_star_import_gives_the_public_names_and_no_others():
    found: dict[str, object] = {}
    exec("from membound import *", found)
    assert found.keys() - {"__builtins__"} == set(membound.__all__)
    for name, home in membound._HOME.items():
        assert getattr(sys.modules[home], name) is found[name]


@at_once("name", membound._HOME)
def test_a_type_checker_sees_what_is_loaded(name):
    seen = SOURCE[SOURCE.index("if TYPE_CHECKING") : SOURCE.index("__version__")]
    assert name in membound.__all__
    assert re.search(rf"from {membound._HOME[name]} import (?:\([^)]*|.*)\b{name}\b", seen)


@pytest.mark.parametrize(
    "name", ["Fitted", "Net", "Regularizer", "Stages", "Update", "inspect", "ray_cluster"]
)
def test_what_users_annotate_with_is_public(name):
    assert callable(getattr(membound, name))


def test_a_file_is_inspected_by_its_path(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.safetensors"
    stored = membound.save(torch.nn.Linear(4, 2), path, torch.zeros(1, 4))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert membound.inspect(stored)["sha256"] is None  # only a file has one
    assert membound.inspect(str(path)) == membound.inspect(stored) | {"sha256": digest}
