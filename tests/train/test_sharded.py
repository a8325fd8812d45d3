"""Weights sharded over processes: the same bits as in one process, whatever their number."""

import pytest
import torch
from sharded_ranks import network, project_many, refuse, rules, tensors, train, train_sharded

spawn = torch.multiprocessing.spawn


@pytest.mark.parametrize("size", [2, 3])
def test_a_sharded_projection_is_the_projection_of_the_whole_bit_for_bit(size, tmp_path):
    spawn(project_many, args=(size, str(tmp_path)), nprocs=size)
    for rank in range(size):
        assert int((tmp_path / f"{rank}.txt").read_text()) >= 5 * len(tensors())


@pytest.mark.parametrize("size", [2, 3])
def test_fully_sharded_training_is_training_in_one_process(size, tmp_path):
    """Penalties, shrinkage and projections; 30 steps in float64: 1e-10."""
    alone = network()
    reg = train(alone, slice(None))
    spawn(train_sharded, args=(size, str(tmp_path)), nprocs=size)
    found = torch.load(tmp_path / "sharded.pt", weights_only=True)
    assert found["nonzeros"] == {layer.name: layer.nonzeros for layer in reg.report().layers}
    for name, value in alone.state_dict().items():
        assert (value - found["weights"][name]).abs().max() < 1e-10, name
        assert torch.equal(value == 0, found["weights"][name] == 0), name
    assert len(rules()) == 3


def test_a_layout_that_cannot_be_is_refused(tmp_path):
    spawn(refuse, args=(2, str(tmp_path)), nprocs=2)
    assert "'weight' is sharded as" in (tmp_path / "0.txt").read_text()
    assert "first axis" in (tmp_path / "1.txt").read_text()
