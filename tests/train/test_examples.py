"""The examples run, write nothing, agree with each other, and without their two marked lines are dense scripts."""

import importlib.util
import re
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from profiles import full

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"plain_loop": "torch", "lightning_module": "lightning", "accelerate_loop": "accelerate"}
MARK = "# membound"
BIASES = 300 + 10
KEPT = round(0.05 * 784 * 300) + round(0.05 * 300 * 10)


def run_with_and_without_the_marked_lines(name: str, folder: Path) -> list[tuple[float, int]]:
    """Accuracy in percent and nonzeros of the example, and of what is left without its marked lines."""
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines(keepends=True)
    dense = folder / "dense.py"
    dense.write_text("".join(line for line in lines if not line.rstrip().endswith(MARK)))
    work = folder / "work"
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.chdir(work)
        patch.setattr(sys, "argv", ["example", "--steps", "60"])
        for path in (EXAMPLES / f"{name}.py", dense):
            runpy.run_path(str(path), run_name="__main__")
    assert list(work.iterdir()) == []
    found = [
        re.fullmatch(r"accuracy ([\d.]+)%, nonzeros (\d+)", line) for line in said.getvalue().splitlines()
    ]
    assert all(found), said.getvalue()
    return [(float(match[1]), int(match[2])) for match in found if match]


@pytest.mark.parametrize("name", NEEDS)
def test_the_difference_to_a_dense_script_is_two_lines(name: str) -> None:
    marked = [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines() if line.endswith(MARK)]
    lightning = name == "lightning_module"
    first, second = ("import MemoryBound", "MemoryBound({") if lightning else ("mb.attach(", "reg.finish()")
    assert len(marked) == 2
    assert first in marked[0]
    assert second in marked[1]


@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec:FutureWarning")  # Lightning's own
@pytest.mark.parametrize("names", [("plain_loop",), full(tuple(NEEDS))], ids=["plain", "all"])
def test_every_example_trains_the_same_network_under_its_bound(tmp_path: Path, names) -> None:
    results = {}
    for name in names:
        package = NEEDS[name]
        if importlib.util.find_spec(package) is not None:
            (tmp_path / name).mkdir()
            results[name] = run_with_and_without_the_marked_lines(name, tmp_path / name)
    plain = results["plain_loop"][0][0]
    for (accuracy, nonzeros), (dense_accuracy, dense_nonzeros) in results.values():
        assert nonzeros == KEPT + BIASES
        assert dense_nonzeros > 230_000
        assert dense_accuracy > 90
        assert accuracy == pytest.approx(plain, abs=1.0)
        assert accuracy > 60
