"""What benchmarks/coverage.py asks of public architectures, by its own judge, of small networks in their styles.

`make test-full` asks it of those whose libraries are installed, too.
"""

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from profiles import chiefly
from styles import STYLES

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "coverage.py"
LIBRARIES = {"smp": "segmentation_models_pytorch"}
ROWS = list(csv.DictReader((ROOT / "benchmarks" / "architectures.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("coverage_of_architectures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", chiefly(["swin", "bert", "gru", "pyramid"], STYLES))
def test_networks_in_public_styles_are_right(name, script):
    make, shape, thin = STYLES[name]
    torch.manual_seed(0)
    net = make().eval()
    if thin:
        script._thin_out(net)
    found = script._compare(net, shape, words=30 if name == "bert" else 0)
    assert found["result"] == "right", found


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=[f"{row['library']}-{row['name']}" for row in ROWS])
def test_public_architectures_are_right(row):
    library = LIBRARIES.get(row["library"], row["library"])
    if library != "own" and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    known = json.loads((ROOT / "results" / "coverage.json").read_text())["networks"]
    before = next(
        each["result"] for each in known if (each["library"], each["name"]) == (row["library"], row["name"])
    )
    done = subprocess.run(
        [sys.executable, SCRIPT, "--one", json.dumps(row)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    if found["result"] == "absent":
        pytest.skip(found["why"])
    assert found["result"] in ("right", before), found
