"""The reader that docs/FORMAT.md shows reads what save() writes."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb

PAGE = Path(__file__).parents[2] / "docs" / "FORMAT.md"


@pytest.mark.parametrize("prefer", ["bytes", "speed"])
def test_the_reader_of_the_page_reads_every_format(tmp_path, prefer):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    there: dict = {}
    exec(block, there)
    torch.manual_seed(0)
    formats = set()
    for kept in (1.0, 0.5, 0.1, 0.02, 0.001):
        layer, file = nn.Linear(60, 60), tmp_path / f"{kept}.safetensors"
        least = layer.weight.data.abs().flatten().topk(max(round(kept * 3600), 1)).values[-1]
        layer.weight.data *= layer.weight.data.abs() >= least
        stored = mb.save(layer, file, torch.zeros(1, 60), prefer=prefer)
        about, tensors = there["read_plain"](file)
        assert about["v"] == 1
        assert tensors.keys() == {"weight", "bias"}
        for name, found in tensors.items():
            np.testing.assert_array_equal(found, layer.state_dict()[name].numpy())
        formats.add(stored.tensors["weight"].format)
    assert formats >= ({"dense", "bitmask", "delta"} if prefer == "bytes" else {"dense", "csr"})
