"""bench: every contender answers alike, and one that fails or is missing is said. No test looks at a time."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deployed import refused, run, write_network

import membound as mb
from membound.bench import contenders, int8, race
from membound.cli.fit_tables import say_runtimes
from membound.errors import MemboundError, ModelError
from membound.machine import COMMIT, checkout_commit, describe, own_commit, resident_bytes, versions


@pytest.fixture
def file(tmp_path):
    return write_network(tmp_path / "net.safetensors")


def loads(text):
    return json.loads(text, parse_constant=pytest.fail)


def test_all_that_are_installed_agree(file, capsys):
    assert run("bench", file, "--runs", "3", "--rounds", "2", "--batch", "2", "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert {"command", "date", "hardware", "versions"} <= facts.keys()
    here = [name for name in contenders.PEERS if importlib.util.find_spec(name) is not None]
    assert set(facts["missing"]) == set(contenders.PEERS) - set(here)
    rows = {row["name"]: row for row in facts["results"]}
    assert ["membound", *here] == [name for name in rows if name != contenders.OPENVINO_DEFAULT]
    for row in rows.values():
        assert row["error"] is None
        assert 0 < row["min_ms"] <= row["median_ms"]
        assert row["file_bytes"] > 0
        if row["process_bytes"] is not None:  # where the system says it
            assert row["imported_bytes"] > 5_000_000  # Python and numpy alone
            assert row["resident_bytes"] == max(row["process_bytes"] - row["imported_bytes"], 0)
        assert row["precision"] == "f32" or row["name"] == contenders.OPENVINO_DEFAULT
        assert row["max_relative_difference"] < (1e-5 if row["precision"] == "f32" else 1e-1)
    assert rows["membound"]["file_bytes"] == file.stat().st_size


def test_int8_where_its_packages_are_installed(file, capsys):
    assert run("bench", file, "--runs", "2", "--int8", "--peers", "onnxruntime,openvino", "--json") == 0
    facts = loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in facts["results"]}
    raced = [name for name in int8.MAKERS if name in rows]
    for name, maker in int8.MAKERS.items():
        runtime, other = maker.packages
        lacks = importlib.util.find_spec(runtime) is not None and importlib.util.find_spec(other) is None
        assert (f"{name} ({other})" in facts["missing"]) == lacks
        assert (name in rows) == (runtime not in facts["missing"] and not lacks)
    for name in raced:
        assert rows[name]["error"] is None
        assert rows[name]["precision"] == "int8"
        assert 1e-5 < rows[name]["max_relative_difference"] < 0.2  # 8 bits, and the same network


def test_the_bytes_of_a_model_in_8_bits_are_of_its_own_files(tmp_path):
    for name, size in (("int8.onnx", 3), ("int8.xml", 5), ("int8.bin", 70)):
        (tmp_path / name).write_bytes(bytes(size))
    assert int8.bytes_of(tmp_path / "int8.onnx") == 3
    assert int8.bytes_of(tmp_path / "int8.xml") == 75


def test_a_runtime_that_cannot_quantize_is_said(file, capsys, monkeypatch):
    pytest.importorskip("onnxruntime")

    def fail(*given):
        raise RuntimeError("no\nsuch operator")

    monkeypatch.setitem(
        int8.MAKERS, "onnxruntime int8", int8.Maker(("onnxruntime", "onnxruntime"), "int8.onnx", fail)
    )
    assert run("bench", file, "--runs", "1", "--int8", "--peers", "onnxruntime") == 0
    assert "onnxruntime int8 failed: RuntimeError: no such operator" in capsys.readouterr().out


def test_files_race_each_other(file, tmp_path, capsys):
    other = write_network(tmp_path / "other.p4.safetensors")
    facts = race.race(file, peers=(), runs=2, beside=[other])
    rows = {row["name"]: row for row in facts["results"]}
    assert list(rows) == ["membound", "membound other.p4"]
    assert rows["membound other.p4"]["file_bytes"] == other.stat().st_size
    assert rows["membound other.p4"]["max_relative_difference"] == 0  # the same weights
    colored = write_network(tmp_path / "colored.safetensors", channels=3)
    with pytest.raises(ModelError, match="files that race each other take the same"):
        race.race(file, peers=(), runs=1, beside=[colored])


def test_a_busy_machine_is_timed_by_the_processor(file):
    facts = race.race(file, peers=(), runs=2, clock="processor")
    assert facts["clock"] == "processor"
    assert facts["results"][0]["min_ms"] > 0
    for clock, threads in (("processor", (1, 2)), ("sun", (1,))):
        with pytest.raises(MemboundError, match="give wall, or processor for one thread"):
            race.race(file, peers=(), runs=1, clock=clock, threads=threads)


def test_a_table_for_each_count_of_threads(file, capsys):
    assert run("bench", file, "--runs", "2", "--threads", "1,2", "--peers", "none") == 0
    said = capsys.readouterr().out
    assert len([line for line in said.splitlines() if line.strip().startswith("membound ")]) == 2
    assert "batch 1, 2 runs in 2 rounds" in said
    assert "imports" in said
    assert "growth" in said
    assert "not installed" not in said


def test_missing_peers_are_listed(file, capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in contenders.PEERS else real(name)
    )
    monkeypatch.setattr("membound.bench.litert.installed", lambda: None)
    assert run("bench", file, "--runs", "1") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not installed: torch, onnxruntime, openvino, deepsparse; to add them: pip install torch" in said
    assert "pip install torch onnxruntime openvino; deepsparse in an environment of its own" in said
    assert "for --tflite FILE: pip install ai-edge-litert" in said


def test_a_fit_says_what_times_the_dense_network_in_8_bits(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx" else real(name))
    summary = {"finals": [{}], "dense": {"int8": {"accuracy": 90.0}}}
    assert "(to time int8 in ONNX Runtime: pip install " in say_runtimes(summary)
    assert "onnx)" in say_runtimes(summary)


def test_a_peer_that_fails_is_said_and_the_others_go_on(file, capsys, monkeypatch):
    """A package of that name that cannot be what it should be."""
    package = file.parent / "deepsparse"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('out of cheese')\n")
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.setenv("PYTHONPATH", str(file.parent), prepend=os.pathsep)
    assert run("bench", file, "--runs", "2", "--peers", "deepsparse") == 0
    said = capsys.readouterr().out
    assert "deepsparse failed: RuntimeError: out of cheese" in said
    assert "membound" in said


LITERT = """
import numpy as np
class Interpreter:
    def __init__(self, model_path, num_threads): self.shape = [1, 6, 6, 1]
    def get_input_details(self):
        return [{"index": 0, "shape": np.array(self.shape), "dtype": np.int8, "quantization": (0.5, 3)}]
    def get_output_details(self): return [{"index": 1, "dtype": np.int8, "quantization": (0.25, -1)}]
    def get_tensor_details(self): return [{"dtype": np.int8}, {"dtype": np.int32}]
    def resize_tensor_input(self, index, shape): self.shape = shape
    def allocate_tensors(self): pass
    def set_tensor(self, index, array):
        assert array.dtype == np.int8 and array.shape == tuple(self.shape), (array.dtype, array.shape)
    def invoke(self): pass
    def get_tensor(self, index): return np.zeros((self.shape[0], 7), np.int8)
"""


def test_a_tflite_file_of_the_user(file, capsys, monkeypatch):
    """In a stand-in for LiteRT, which checks that it is given 8 bits, and gives other classes than ours."""
    mine = file.parent / "mine.tflite"
    mine.write_bytes(b"\x1c\0\0\0TFL3" + bytes(100))
    monkeypatch.setattr("membound.bench.litert.PACKAGES", ("no_such_package",))
    said = refused(capsys, "bench", file, "--runs", "2", "--peers", "none", "--tflite", mine)
    assert "--tflite needs LiteRT: pip install ai-edge-litert" in said
    monkeypatch.undo()
    package = file.parent / "ai_edge_litert"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "interpreter.py").write_text(LITERT)
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.setenv("PYTHONPATH", str(file.parent), prepend=os.pathsep)
    assert (
        run("bench", file, "--runs", "2", "--batch", "3", "--peers", "none", "--tflite", mine, "--json") == 0
    )
    (_, row) = loads(capsys.readouterr().out)["results"]
    assert row["error"] is None
    assert (row["name"], row["precision"], row["file_bytes"]) == ("litert", "int8", 108)
    assert row["max_relative_difference"] is None
    assert run("bench", file, "--runs", "2", "--peers", "none", "--tflite", mine) == 0
    assert "litert int8" in capsys.readouterr().out


@pytest.mark.full
def test_a_peer_in_an_environment_of_its_own(file, capsys, monkeypatch):
    """A program that says who called it, and a runtime that only its environment has."""
    folder = file.parent / "old"
    metadata = folder / "deepsparse-1.8.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: deepsparse\nVersion: 1.8.0\n")
    (folder / "deepsparse.py").write_text(
        "class Engine:\n"
        "    def run(self, given): return [given[0].reshape(len(given[0]), -1)[:, :2] * 0]\n"
        "def compile_model(*_, **__): return Engine()\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    wanted = ("bench", file, "--runs", "2", "--peers", "deepsparse")
    assert run(*wanted, "--python", f"deepsparse={python}", "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert facts["versions"]["deepsparse"] == "1.8.0"
    (_, row) = facts["results"]
    assert row["name"] == "deepsparse"
    assert row["error"] is None
    assert row["max_relative_difference"] == 1.0  # it answers zeros
    shutil.rmtree(metadata)  # a package under another name: all but its version is known
    assert run(*wanted, "--python", f"deepsparse={python}", "--json") == 0
    assert "deepsparse" not in loads(capsys.readouterr().out)["versions"]
    (folder / "deepsparse.py").unlink()
    if importlib.util.find_spec("deepsparse") is None:
        said = refused(capsys, *wanted, "--python", f"deepsparse={python}")
        assert "it has no deepsparse): it needs deepsparse and membound installed" in said


def test_no_process_is_left(file, monkeypatch):
    lanes = []
    real = race._Lane
    monkeypatch.setattr(race, "_Lane", lambda *given: lanes.append(real(*given)) or lanes[-1])
    race.race(file, peers=(), runs=1)
    monkeypatch.setattr(real, "take_turn", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        race.race(file, peers=(), runs=1)
    assert len(lanes) == 2
    assert all(lane.process.returncode is not None for lane in lanes)


def test_an_interrupted_race_says_what_is_complete(file, monkeypatch, capsys):
    """Ctrl-C in the third round of three: two of them count, and each was announced."""
    real, turns = race._Lane.take_turn, []

    def take_turn(lane, runs):
        turns.append(runs)
        if len(turns) == 3:
            raise KeyboardInterrupt
        real(lane, runs)

    monkeypatch.setattr(race._Lane, "take_turn", take_turn)
    assert run("bench", file, "--runs", "5", "--rounds", "3", "--peers", "none", "--json") == 130
    captured = capsys.readouterr()
    (row,) = loads(captured.out)["results"]
    assert len(row["turns_ms"]) == 2
    assert row["min_ms"] == min(row["turns_ms"])
    said = captured.err.splitlines()
    assert said[:2] == ["loading: membound, 1 thread", "round 1 of 3: membound, 1 thread"]
    assert said[-1] == "membound: interrupted: these are the rounds that were complete"
    turns[:] = [0, 0]
    assert run("bench", file, "--runs", "5", "--peers", "none") == 130
    assert capsys.readouterr().out == ""


def test_a_contender_that_does_not_answer_is_given_up(file, monkeypatch):
    monkeypatch.setattr(race, "PATIENCE", 0.0)
    with pytest.raises(race.ModelError, match="does not run: no answer within 0 seconds"):
        race.race(file, peers=(), runs=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--peers", "tensorrt"),
            "there is no peer 'tensorrt': the peers are torch, onnxruntime, openvino, deepsparse",
        ),
        (("--peers", "litert"), "give a .tflite file of yours as tflite"),
        (("--tflite", "no.tflite"), "there is no file no.tflite"),
        (("--tflite", __file__), "is not a .tflite file: give one that TensorFlow wrote"),
        (("--operators", "--tflite", __file__), "--operators compares with no other runtime"),
        (("--threads", "0"), "not a list of counts"),
        (("--threads", "one"), "not a list of counts"),
        (("--python", "deepsparse"), "is not a peer and a program"),
        (("--python", "tensorrt=python"), "there is no peer 'tensorrt'"),
        (("--python", "deepsparse=no/such/python"), "name the Python that has deepsparse"),
        (("--python", "torch=a", "--python", "torch=b"), "names a peer twice"),
        (("--python", "deepsparse=python", "--peers", "torch"), "which is not among the peers: torch"),
        (("--runs", "0"), "--runs"),
        (("--batch", "0"), "--batch"),
    ],
)
def test_what_is_refused(file, options, words, capsys):
    assert words in refused(capsys, "bench", file, *options)


def test_the_machine_is_described_without_its_paths(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/membound", "bench", "/home/me/net.safetensors", "--runs", "3"])
    facts = describe(("numpy", "no-such-package"))
    assert facts["command"] == "membound bench net.safetensors --runs 3"
    assert facts["versions"].keys() == {"python", "numpy"}
    assert facts["hardware"]["cpu"]
    assert resident_bytes("nothing") is None


def test_layers_are_timed_against_their_floor(file, capsys):
    assert run("bench", file, "--operators", "--runs", "3", "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert all(row["ms"] >= 0 for row in facts["layers"])
    weighted = [row for row in facts["layers"] if row["format"] is not None]
    assert weighted
    for row in weighted:
        assert row["multiplications"] >= row["nonzeros"] > 0
        assert row["multiplications"] % row["nonzeros"] == 0
        assert row["floor_ms"] > 0
    assert run("bench", file, "--operators", "--runs", "1") == 0
    assert "billion a second" in capsys.readouterr().out
    assert "leave --peers, --python, --int8, --tflite and --rounds out" in refused(
        capsys, "bench", file, "--operators", "--rounds", "2"
    )
    assert "--operators takes one count of threads" in refused(
        capsys, "bench", file, "--operators", "--threads", "1,2"
    )


def test_versions_name_membound_and_the_commit_of_its_own_checkout(tmp_path):
    found = versions(("membound",))
    assert found["membound"] == mb.__version__
    assert found.get(COMMIT) == checkout_commit(Path(mb.__file__).resolve().parents[2])

    (tmp_path / "src" / "membound").mkdir(parents=True)
    assert checkout_commit(tmp_path) is None, "no repository"
    assert own_commit(tmp_path) is None
    (tmp_path / "commit.txt").write_text("0123456789ab\n")
    assert own_commit(tmp_path) == "0123456789ab", "of a wheel, which was built from it"
    (tmp_path / "commit.txt").unlink()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    checkout_commit.cache_clear()
    (head,) = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert checkout_commit(tmp_path) == head[:12]
    (tmp_path / "a").write_text("new")
    subprocess.run([*git, "add", "a"], check=True)
    checkout_commit.cache_clear()
    assert checkout_commit(tmp_path) == f"{head[:12]}+dirty"
    other = tmp_path / "src"
    checkout_commit.cache_clear()
    assert checkout_commit(other) is None, "a folder inside another project's checkout"
