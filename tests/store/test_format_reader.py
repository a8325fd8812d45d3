"""examples/read_file.py, the reader in numpy that docs/FORMAT.md names, reads what membound reads, in every format."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.capture.capture import Tracer
from membound.store.compact import DICTIONARY
from membound.store.file import assemble, encode_tensors, read
from membound.store.formats import decode, encode
from membound.store.layouts import LAYOUTS
from membound.store.packed import LAYOUT_CODES, PALETTE_CODES, TYPE_CODES

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_file.py"
THERE = runpy.run_path(str(EXAMPLE))
KINDS = [TYPE_CODES[code].name for code in TYPE_CODES]


def compare(file: Path) -> dict:
    """What the example reads is what membound reads; the description comes back."""
    about, tensors = THERE["read"](file)
    stored = read(file)
    assert tensors.keys() == stored.tensors.keys()
    for name, found in tensors.items():
        expected = decode(stored.tensors[name])
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected, err_msg=name)
    return about


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 36, 60),
        nn.Linear(60, 5),
    )
    with torch.no_grad():
        made[1].running_var.uniform_(0.5, 2.0)
        for layer in (made[0], made[4], made[5]):
            layer.weight *= torch.rand_like(layer.weight) < 0.1
            layer.weight.flatten()[0] = layer.bias.flatten()[0] = 0.5
    return made.eval()


@pytest.fixture(scope="module")
def tracer() -> Tracer:
    return Tracer(network(), torch.zeros(1, 2, 8, 8))


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("kind", KINDS)
def test_the_example_reads_every_layout_and_every_type_of_values(tracer, tmp_path, kind, layout, compact):
    model = tracer.model()
    tensors = encode_tensors(model, kind)
    for name, array in model.tensors.items():
        if array.ndim > 1:
            tensors[name] = encode(decode(tensors[name]), layout, kind)
    parts, _ = assemble(model, tensors, kind, compact=compact)
    (tmp_path / "net.safetensors").write_bytes(b"".join(map(bytes, parts)))
    about = compare(tmp_path / "net.safetensors")
    few = kind.startswith("p") or LAYOUTS[layout].packed
    assert about["v"] == (1 if not few else 3 if compact else 2)


@pytest.mark.parametrize("values", ["f32", "f16", "p8", "p4", "p2"])
@pytest.mark.parametrize("prefer", ["bytes", "speed"])
def test_the_example_reads_what_save_writes(tmp_path, values, prefer):
    """With scales of rows, and with a bias that is sparse."""
    net = network()
    with torch.no_grad():
        net[4].bias[3:] = 0
    mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 2, 8, 8), values=values, prefer=prefer)
    compare(tmp_path / "net.safetensors")


def test_the_example_knows_the_codes_and_the_dictionary():
    assert THERE["DICTIONARY"] == DICTIONARY
    assert list(THERE["LAYOUTS"]) == [LAYOUT_CODES[code].name for code in sorted(LAYOUT_CODES)]
    assert len(PALETTE_CODES) == 5


def test_the_example_runs_without_membound_and_torch(tmp_path):
    mb.save(network(), tmp_path / "net.safetensors", torch.zeros(1, 2, 8, 8), values="p4")
    text = EXAMPLE.read_text()
    assert "import membound" not in text
    assert "import torch" not in text
    done = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "net.safetensors"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("version 3, input [2, 8, 8], ")
