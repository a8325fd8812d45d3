"""What benchmarks/coverage.py asks of public architectures, by its own judge, of small networks in their styles.

`make test-full` asks it of those whose libraries are installed, too.
"""

import csv
import importlib.util
import json
import os
import subprocess
import sys
import time
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


@pytest.mark.parametrize("name", chiefly(["swin", "bert", "pyramid"], STYLES))
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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_network_that_fails_or_takes_too_long_stops_no_other(script, monkeypatch):
    def judge(row):
        if row["name"] == "slow":
            time.sleep(60)
        if row["name"] == "broken":
            os._exit(3)
        return {"result": "right"}

    monkeypatch.setattr(script, "judge", judge)
    monkeypatch.setattr(script, "SECONDS", 2)
    rows = [{"name": name} for name in ("slow", "broken", "a", "b")]
    found = {row["name"]: judgment for row, judgment in script.judgments(rows, 2)}
    assert found["slow"] == {"result": "failed", "why": "over 2 seconds"}
    assert found["broken"] == {"result": "failed", "why": "the process ended with 3"}
    assert found["a"] == found["b"] == {"result": "right"}


def test_a_run_goes_on_where_it_was_stopped(script, monkeypatch, tmp_path):
    out, ran = tmp_path / "coverage.json", []

    def judgments(rows, processes):
        for row in rows:
            ran.append(row["name"])
            yield row, {"result": "right"}

    monkeypatch.setattr(script, "prepare", lambda: None)
    monkeypatch.setattr(script, "judgments", judgments)
    monkeypatch.setenv("COMMIT", "one")
    script.main(str(out), "own,lstm", 1)
    script.main(str(out), "own,", 1)
    own = [row["name"] for row in ROWS if row["library"] == "own"]
    assert ran[0] == "lstm"
    assert sorted(ran) == sorted(own)
    assert [each["name"] for each in json.loads(out.read_text())["networks"]] == own  # in the table's order
    monkeypatch.setenv("COMMIT", "two")
    script.main(str(out), "own,gru", 1)
    assert ran[-1] == "gru"
    assert len(ran) == len(own) + 1
