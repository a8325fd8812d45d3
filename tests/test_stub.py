"""_core.pyi says what the compiled core has: everything that nanobind's stub generator finds, and nothing else."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parents[1] / "src" / "membound" / "_core.pyi"
VAGUE = {"object", "list", "tuple", "dict"}  # what the generator says where it knows no better


def described(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AnnAssign]:
    """Functions, methods and attributes by their full names."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}": item for name, item in described(node).items()}
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = node
    return found


def agrees(written: ast.expr | None, generated: ast.expr | None) -> bool:
    """Whether the annotations are the same, or the one in the stub is the more exact one."""
    if isinstance(generated, ast.Name) and generated.id in VAGUE:
        return written is not None
    return written is generated is None or ast.unparse(written) == ast.unparse(generated)


def test_the_stub_says_what_the_core_has(tmp_path):
    pytest.importorskip("nanobind")
    command = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-q",
        "-m",
        "membound._core",
        "-o",
        str(tmp_path / "stub.pyi"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here, there = (described(ast.parse(path.read_text())) for path in (STUB, tmp_path / "stub.pyi"))
    assert here.keys() == there.keys()
    for name, generated in there.items():
        written = here[name]
        if isinstance(generated, ast.AnnAssign):
            assert agrees(written.annotation, generated.annotation), name
            continue
        assert [arg.arg for arg in written.args.args] == [arg.arg for arg in generated.args.args], name
        assert list(map(ast.unparse, written.args.defaults)) == list(
            map(ast.unparse, generated.args.defaults)
        ), name
        pairs = zip(written.args.args, generated.args.args, strict=True)
        assert all(agrees(mine.annotation, its.annotation) for mine, its in pairs), name
        assert agrees(written.returns, generated.returns), name
        docs = [inspect.cleandoc(ast.get_docstring(node) or "") for node in (written, generated)]
        assert docs[0] == docs[1], name
