"""What people look at in notebooks and at prompts: tables that stand alone and escape names, and short lines."""

from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.data.pictures import FolderSplit
from membound.run.inspection import inspect
from membound.search.deployed import Fitted
from membound.store.file import read

EVIL = "<img src=x onerror=alert(1)>&"
LAYER = {
    "name": EVIL,
    "shape": [4, 3],
    "nonzeros": 5,
    "format": "csr",
    "bytes": 31,
    "size": 12,
    "original_size": 12,
    "values": "p4",
    "distinct": 7,
}


def rows(html: str) -> list[list[str]]:
    """The cells of all rows; the markup is well-formed and asks for nothing from elsewhere."""
    tree = ElementTree.fromstring(html)
    assert {element.tag for element in tree.iter()} <= {
        "div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"
    }  # fmt: skip
    assert all(element.attrib.keys() <= {"style"} for element in tree.iter())
    return [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]


@pytest.fixture
def path(tmp_path):
    torch.manual_seed(0)
    linear = nn.Linear(8, 4)
    with torch.no_grad():
        linear.weight[:, 1:] = 0
    path = tmp_path / "net.safetensors"
    stored = mb.save(nn.Sequential(linear, nn.ReLU(), nn.Linear(4, 2)), path, torch.zeros(1, 8))
    assert repr(stored) == f"StoredModel({path.stat().st_size:,} bytes, 18 nonzeros in 4 tensors)"
    return path


def test_a_net_shows_its_layers_and_its_memory(path):
    net = mb.load(path, threads=1)
    assert repr(net) == f"Net((8,) -> (2,), {path.stat().st_size:,} bytes)"
    html = net._repr_html_()
    assert "8 → 2" in html
    assert f"{net.memory().total:,} bytes of memory" in html
    table = rows(html)
    assert table[0] == ["layer", "shape", "format", "values", "nonzeros", "kept", "bytes"]
    assert [row[0] for row in table[1:]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert table[1][3:6] == ["f32", "4", "12.50%"]


def test_an_inspection_is_a_dictionary_that_shows_itself(path):
    facts = inspect(read(path))
    assert isinstance(facts, dict)
    assert f"{facts['file_bytes']:,} bytes: 18 of 46 parameters are not zero" in facts._repr_html_()
    facts["layers"][0]["name"] = EVIL
    assert rows(facts._repr_html_())[1][0] == EVIL


def make_fitted(**others) -> Fitted:
    facts = {
        "file_bytes": 20_412,
        "memory_bytes": 178_728,
        "latency_ms": 0.11,
        "nonzeros": 6483,
        "layers": [LAYER],
    }
    given = {
        "model": nn.Identity(), "limit": 20_480, "size": 20_412, "file_bytes": 20_412, "values": "f16",
        "accuracy": 98.971, "accuracy_on": "test", "errors": 103, "images": 10_000, "members": [], "history": [],
        "dense": {**facts, "accuracy": 99.12, "file_bytes": 1_725_280}, "facts": facts, "name": "20 KiB",
    }  # fmt: skip
    return Fitted(**given | others)


def test_what_fit_returns_shows_itself_beside_dense():
    fitted = make_fitted(name=EVIL)
    assert repr(make_fitted()) == "Fitted('20 KiB': 20,412 bytes, accuracy 98.97 % on test, dense 99.12 %)"
    left = make_fitted(limit=30_000)
    assert repr(left).startswith("Fitted('20 KiB': 20,412 of 30,000 bytes, accuracy")
    table = rows(fitted._repr_html_())
    assert table[1][:3] == ["dense", "accuracy 99.12 % on test", "1,725,280"]
    assert table[2] == [EVIL, "accuracy 98.97 % on test", "20,412", "178,728", "0.110 ms", "6,483"]
    assert table[4] == [EVIL, "4 x 3", "csr", "p4, 7 values", "5", "41.67%", "31"]
    int8 = {"accuracy": 99.1, "file_bytes": 433_072, "memory_bytes": 559_340, "nonzeros": 428_526}
    table = rows(make_fitted(dense={**fitted.dense, "int8": int8})._repr_html_())
    assert table[2] == [
        "dense, 8 bits",
        "accuracy 99.10 % on test",
        "433,072",
        "559,340",
        "\N{EN DASH}",
        "428,526",
    ]


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"accuracy": None, "errors": None}, "accuracy not measured"),
        ({"accuracy": 0.87312, "errors": None}, "score 0.8731 on test"),
    ],
)
def test_a_fit_without_accuracy_or_with_a_score_says_so(others, words):
    fitted = make_fitted(dense=None, **others)
    assert words in repr(fitted)
    assert rows(fitted._repr_html_())[1][1] == words


@pytest.mark.filterwarnings("ignore:finish.. before any step")
def test_a_regularizer_and_its_report_show_themselves():
    model = nn.Sequential()
    model.add_module(EVIL.replace(".", ""), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(keep=0.25)}, total_steps=5000)
    assert repr(reg) == "Regularizer(step 0 of 5,000, weights under rules: 1)"
    reg.finish()
    assert repr(reg).endswith("finished)")
    table = rows(reg.report()._repr_html_())
    assert table[1] == [f"{EVIL}.weight", "4 x 8", "bitmask", "8", "8", "36"]
    assert repr(mb.l0_project(keep=0.25)) == "Update(kinds=('l0_project',), arguments=(0.25, 100))"


def test_data_say_what_they_are_and_not_what_is_in_them():
    mnist = mb.data.load("mnist")
    assert repr(mnist) == "Dataset('mnist': 60,000 training and 10,000 test images, 1 x 28 x 28, 10 classes)"
    assert repr(mnist.test) == "ArraySplit(10,000 images, 1 x 28 x 28 uint8)"
    assert repr(FolderSplit(("a.png", "b.png"), np.array([0, 1]), 64)) == "FolderSplit(2 images, 3 x 64 x 64)"
