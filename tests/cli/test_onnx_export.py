"""export_onnx: what it writes, what it says of the input, and what it refuses."""

import json

import numpy as np
import pytest
import torch
from deployed import run
from torch import nn

import membound as mb
from membound.export.onnx import to_onnx

PREPARED = "float32 [batch, 1, 6, 6], prepared: pixels times 1/255 (in its metadata)"
MEAN_IMAGE = mb.data.Preprocess(mean=np.full((1, 6, 6), 40.0))


@pytest.fixture
def file(tmp_path):
    return saved(tmp_path, mb.data.Preprocess(scale=1 / 255))


def saved(folder, preprocess):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))
    mb.save(net, folder / "net.safetensors", torch.zeros(1, 1, 6, 6), preprocess=preprocess)
    return folder / "net.safetensors"


@pytest.mark.parametrize("sparse", [False, True])
def test_a_file_and_a_loaded_network_give_the_same_model(file, tmp_path, sparse):
    net, target = mb.load(file), tmp_path / "net.onnx"
    made = mb.export_onnx(file, str(target), sparse=sparse)
    content = target.read_bytes()
    assert content == b"".join(to_onnx(net.model, sparse))
    assert (made.path, made.onnx_bytes, made.input) == (target, len(content), PREPARED)
    assert made.dense_onnx_bytes == sum(map(len, to_onnx(net.model)))
    assert made.file_bytes == file.stat().st_size
    assert mb.export_onnx(net, target, sparse=sparse) == made
    assert target.read_bytes() == content


def test_the_command_says_how_its_input_is_prepared(file, tmp_path, capsys):
    command = ("export", file, "--onnx", tmp_path / "net.onnx")
    assert run(*command) == 0
    assert f"\ninput     {PREPARED}\n" in capsys.readouterr().out
    assert run(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out)["input"] == PREPARED


@pytest.mark.parametrize(
    ("preprocess", "says"),
    [
        (None, ""),
        (mb.data.Preprocess(takes="float32"), ""),
        (mb.data.Preprocess(), ", prepared: pixels as they are, from 0 to 255"),
        (
            mb.data.Preprocess(mean=[3.0], std=[2.0], takes="float32"),
            ", prepared: training data minus mean, divided by std (in its metadata)",
        ),
        (MEAN_IMAGE, ", prepared: pixels minus a mean image (in its metadata, without the mean image)"),
    ],
)
def test_other_inputs(preprocess, says, tmp_path):
    file = saved(tmp_path, preprocess)
    assert mb.export_onnx(file, tmp_path / "net.onnx").input == f"float32 [batch, 1, 6, 6]{says}"


def test_inputs_of_whole_numbers_have_their_names(tmp_path):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(9, 4), nn.Linear(6, 2)

        def forward(self, x, ids):
            return self.last(torch.cat([x, self.table(ids).mean(1)], 1))

    mb.save(Words(), tmp_path / "net.safetensors", (torch.zeros(1, 2), torch.ones(1, 3, dtype=torch.long)))
    made = mb.export_onnx(tmp_path / "net.safetensors", tmp_path / "net.onnx")
    assert made.input == "x: float32 [batch, 2], ids: int64 [batch, 3]"


def test_what_is_refused(file, tmp_path):
    (tmp_path / "other.onnx").write_bytes(b"onnx")
    for net, path, says in (
        (file, tmp_path / "net.txt", r"net\.txt: let the name of an ONNX model end in \.onnx"),
        (file, 3, "path=3: a path is needed"),
        (3, tmp_path / "net.onnx", "net=3: a path is needed"),
        (tmp_path / "other.onnx", tmp_path / "net.onnx", "is an ONNX model, not a model file"),
        (tmp_path, tmp_path / "net.onnx", "is a folder: name a model file"),
        (file, tmp_path / "no" / "net.onnx", "there is no folder"),
    ):
        with pytest.raises(mb.ModelError, match=says):
            mb.export_onnx(net, path)
    with pytest.raises(mb.MemboundError, match="did you mean sparse"):
        mb.export_onnx(file, tmp_path / "net.onnx", sparce=True)
    assert not (tmp_path / "net.onnx").exists()
