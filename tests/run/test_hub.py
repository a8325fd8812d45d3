"""hf://org/name through the Hub's own package, against a Hub on this machine and its cache; folders to upload."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from local_hub import COMMIT, fill_cache, serve

import membound as mb
from membound.errors import ModelError
from membound.export.hub_folder import write_folder
from membound.run.hub import Address, parse
from membound.store.file import to_bytes
from membound.store.graph import Graph, Node
from membound.store.model import Model

pytest.importorskip("huggingface_hub")
CLASSES = ["dark", "bright"]
WEIGHT = np.zeros((2, 36), np.float32)
WEIGHT[0, :5], WEIGHT[1, :5] = -1, 1
NODES = (Node("reshape", (0,), {"shape": (36,)}), Node("linear", (1,), {}, {"w": "fc_1.weight"}))
ABOUT = {"preprocess": {"scale": 0.01, "mean": [100.0]}, "classes": CLASSES}
NET = to_bytes(Model(Graph((1, 6, 6), NODES, 2), {"fc_1.weight": WEIGHT}, {}, **ABOUT))
IMAGES = np.concatenate([np.full((4, 1, 6, 6), 30, np.uint8), np.full((4, 1, 6, 6), 200, np.uint8)])

# Every address with its output or its error; every command line with its code and what it printed.
SCRIPT = """
import contextlib, io, json, pickle, sys
import numpy as np
import membound as mb
from membound.cli import main

def load(address):
    try:
        net = mb.load(address)
        return {"classes": net.classes, "again": pickle.loads(pickle.dumps(net)).classes}
    except mb.ModelError as error:
        return {"error": str(error)}

def command(arguments):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(arguments)
        except SystemExit as stopped:
            return {"code": stopped.code, "out": out.getvalue(), "errors": errors.getvalue()}

given = json.loads(sys.argv[1])
found = [load(one) if isinstance(one, str) else command(one) for one in given]
assert "torch" not in sys.modules
print(json.dumps(found))
"""


def ask(folder: Path, given: list, **environment: str) -> list[dict]:
    """What a process says whose Hub and cache are these."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(given)],
        env={**known, **quiet, "HF_HOME": str(folder / "home"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def error_of(said: dict) -> str:
    assert "\n" not in said["error"]
    return said["error"]


# Addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://org/name", Address("org/name")),
        (Path("hf://org/name"), Address("org/name")),
        ("hf://org/na.me-2_x@v1.0", Address("org/na.me-2_x", "v1.0")),
        ("hf://org/name@refs/pr/3", Address("org/name", "refs/pr/3")),
        ("hf://org/name@refs/pr/3/a.safetensors", Address("org/name", "refs/pr/3", "a.safetensors")),
        ("hf://org/name/a/b.safetensors", Address("org/name", None, "a/b.safetensors")),
    ],
)
def test_addresses(text, address):
    assert parse(text) == address
    assert parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "hf://",
        "hf://name",
        "hf://org/",
        "hf://org/name@",
        "hf://org/name@v1@v2",
        "hf:///org/name",
        "hf://o g/n",
    ],
)
def test_what_is_no_address(text):
    with pytest.raises(ModelError, match="is not an address on the Hugging Face Hub: write hf://ORG/NAME"):
        mb.load(text)


def test_a_file_that_is_no_model_file():
    with pytest.raises(
        ModelError, match=r"hf://org/name/model.bin is not a model file: its name must end in"
    ):
        mb.load("hf://org/name/model.bin")


# Through the Hub's package


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    """What is said of each address while the Hub is there, and afterwards when it is not."""
    folder = tmp_path_factory.mktemp("online")
    repositories = {
        "org/one": {"model.safetensors": NET, "README.md": b"# One"},
        "org/two": {"a.safetensors": NET, "nets/b.safetensors": NET},
        "org/none": {"README.md": b"", "config.json": b"{}"},
    }
    addresses = [
        "hf://org/one", "hf://org/one@v1", f"hf://org/one@{COMMIT}", "hf://org/two/nets/b.safetensors",
        "hf://org/one@v2", "hf://org/three", "hf://org/two", "hf://org/none", "hf://org/one/other.safetensors",
    ]  # fmt: skip
    with serve(repositories) as endpoint:
        said = dict(zip(addresses, ask(folder, addresses, HF_ENDPOINT=endpoint), strict=True))
    gone = ask(folder, addresses[:6], HF_ENDPOINT=endpoint)
    return said, dict(zip(addresses, gone, strict=False))


def test_a_repository_a_revision_and_a_file_are_loaded(online):
    for address in (
        "hf://org/one",
        "hf://org/one@v1",
        f"hf://org/one@{COMMIT}",
        "hf://org/two/nets/b.safetensors",
    ):
        assert online[0][address] == {"classes": CLASSES, "again": CLASSES}


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://org/one@v2", "hf://org/one@v2: the repository has no revision 'v2': name a branch"),
        ("hf://org/three", "hf://org/three: there is no such repository, or it is private"),
        (
            "hf://org/two",
            "has 2 files that may be the model: name one, as in hf://org/two/a.safetensors (or nets/b.sa",
        ),
        (
            "hf://org/none",
            "has no model file: one that ends in .safetensors is needed, there is README.md, config.js",
        ),
        ("hf://org/one/other.safetensors", "hf://org/one/other.safetensors: the repository has no such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(online, address, words):
    assert words in error_of(online[0][address])


def test_what_was_fetched_is_there_without_the_hub(online):
    for address in ("hf://org/one", "hf://org/one@v1", "hf://org/two/nets/b.safetensors"):
        assert online[1][address] == {"classes": CLASSES, "again": CLASSES}
    assert "hf://org/three: the Hugging Face Hub cannot be reached" in error_of(online[1]["hf://org/three"])
    assert error_of(online[1]["hf://org/three"]).endswith("and it is not in the cache")


def test_every_command_takes_an_address_offline(tmp_path):
    fill_cache(tmp_path / "cache", "org/one", {"model.safetensors": NET})
    fill_cache(tmp_path / "cache", "org/plain", {"w.safetensors": plain_weights()})
    np.save(tmp_path / "x.npy", IMAGES)
    labels = np.repeat([0, 1], 4)
    np.savez(tmp_path / "own.npz", x_train=IMAGES, y_train=labels, x_test=IMAGES, y_test=labels)
    commands = [
        ["inspect", "hf://org/one", "--json"],
        ["run", "hf://org/one@main", "x.npy", "--json"],
        ["evaluate", "hf://org/one/model.safetensors", "--data", "own.npz", "--json"],
        ["bench", "hf://org/one", "--peers", "none", "--runs", "2", "--json"],
        ["export", "hf://org/one", "--onnx", "net.onnx", "--json"],
        ["export", "hf://org/one", "--hub", "folder", "--data", "own.npz", "--json"],
    ]
    refused = [["inspect", "hf://org/two"], ["evaluate", "hf://org/plain", "--data", "own.npz"]]
    *done, two, plain = ask(
        tmp_path, commands + refused, HF_HUB_CACHE=str(tmp_path / "cache"), HF_HUB_OFFLINE="1"
    )
    assert [one["code"] for one in done] == [0] * len(commands), done
    inspected, ran, evaluated, _, onnx, hub = (json.loads(one["out"]) for one in done)
    assert inspected["file_bytes"] == evaluated["file_bytes"] == onnx["file_bytes"] == len(NET)
    assert [row[0]["class"] for row in ran["top"]] == ["dark"] * 4 + ["bright"] * 4
    assert evaluated["accuracy"] == hub["accuracy"] == 100
    assert (tmp_path / "folder" / "model.safetensors").read_bytes() == NET
    for said, words in (
        (
            two,
            "hf://org/two: the Hugging Face Hub is not asked because HF_HUB_OFFLINE is set, and it is not in the cache",
        ),
        (plain, "w.safetensors holds weights without their network, or its header is damaged"),
    ):
        assert said["code"] == 1
        assert said["errors"].startswith("membound: error: ")
        assert said["errors"].count("\n") == 1
        assert words in said["errors"]


def plain_weights() -> bytes:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return len(header).to_bytes(8, "little") + header + b"\0\0\0\0"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"hf://org/name .* is not installed: .* pip install '\.\[hub\]'"):
        mb.load("hf://org/name")


# Folders to upload


@pytest.fixture
def file(tmp_path):
    (tmp_path / "net.safetensors").write_bytes(NET)
    return tmp_path / "net.safetensors"


def card_of(folder: Path):
    """The card, as the Hub's package understands it."""
    from huggingface_hub import ModelCard

    return ModelCard.load(folder / "README.md")


def test_a_folder_with_all_that_is_known(file, tmp_path):
    dense = {"file_bytes": 12_345, "nonzeros": 72, "accuracy": 99.5}
    write_folder(tmp_path / "tiny", file, accuracy=98.764, data="mnist", dense=dense)
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == ["README.md", "model.safetensors"]
    assert mb.load(tmp_path / "tiny" / "model.safetensors").classes == CLASSES
    card = card_of(tmp_path / "tiny")
    about = card.data.to_dict()
    assert about["library_name"] == "membound"
    assert about["pipeline_tag"] == "image-classification"
    assert about["datasets"] == ["ylecun/mnist"]
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type, result.metric_value) == ("mnist", "accuracy", 98.76)
    assert f"| bytes of the file | {len(NET):,} | 12,345 |" in card.text
    assert "| nonzeros | 10 | 72 |" in card.text
    assert "| accuracy on test images of mnist | 98.76 % | 99.50 % |" in card.text
    assert r"| fc\_1.weight | 2 x 36 | 10 | 13.89% |" in card.text
    assert 'net = mb.load("hf://ORG/tiny")' in card.text
    assert "its 2 classes are dark, bright." in card.text


def test_a_folder_of_a_network_of_which_little_is_known(tmp_path):
    nodes = (Node("linear", (0,), {}, {"w": "w"}),)
    (tmp_path / "net.safetensors").write_bytes(
        to_bytes(Model(Graph((4,), nodes, 1), {"w": np.ones((3, 4), np.float32)}))
    )
    write_folder(tmp_path / "little", tmp_path / "net.safetensors")
    card = card_of(tmp_path / "little")
    assert card.data.eval_results is None
    assert "pipeline_tag" not in card.data.to_dict()
    assert "| nonzeros | 12 | 12 |" in card.text
    assert "| bytes of the file | " in card.text
    assert "accuracy" not in card.text
    assert "It takes prepared float32 of [batch, 4], with " in card.text


def test_what_is_there_is_never_written_over(file, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("mine")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for folder, words in (
        ("full", "not an empty folder"),
        (file.name, "is a file: give a folder"),
        ("no/f", "no folder"),
    ):
        with pytest.raises(ModelError, match=words):
            write_folder(tmp_path / folder, file)
    with pytest.raises(ModelError, match="not a model file"):
        write_folder(tmp_path / "new", tmp_path / "full" / "README.md")
    assert sorted(tmp_path.rglob("*")) == before
    write_folder(tmp_path / "empty", file)
    assert (tmp_path / "empty" / "model.safetensors").read_bytes() == NET


def test_a_disk_that_is_full_leaves_nothing(file, tmp_path, monkeypatch):
    from membound.export import hub_folder

    def fail(path, parts, named):
        raise ModelError(f"{named}: cannot be written: No space left on device")

    monkeypatch.setattr(hub_folder, "write_whole", fail)
    with pytest.raises(ModelError, match="No space left"):
        write_folder(tmp_path / "new", file)
    assert list(tmp_path.iterdir()) == [file]
