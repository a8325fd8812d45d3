"""The table of supported operators says what is so: of the code's own table, with layers that run as in torch."""

import numpy as np
import operators_page
import pytest
import torch
from profiles import chiefly

import membound as mb

LAYERS = {name: example for layers in operators_page.LAYERS.values() for name, example in layers.items()}


def test_the_page_is_made_of_the_table_of_conversions():
    """If not: python tools/operators_page.py"""
    assert operators_page.PAGE.read_text() == operators_page.make_page()


def test_every_operator_is_of_a_kind_that_people_look_for():
    """If not: name it in KINDS of tools/operators_page.py"""
    assert operators_page.rows()[operators_page.OTHER] == []
    sorted_in = [name for names, _ in operators_page.KINDS.values() for name in names.split()]
    assert len(set(sorted_in)) == len(sorted_in)


@pytest.mark.parametrize("name", chiefly(["Conv2d"], sorted(LAYERS)))
def test_a_layer_that_the_page_names_runs_as_in_torch(name, tmp_path):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    module = make().eval()
    x = torch.randn(3, *shape)
    mb.save(module, tmp_path / "net.safetensors", x[:1])
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(
        mb.load(tmp_path / "net.safetensors")(x.numpy()), expected, rtol=2e-5, atol=2e-5
    )
