"""Weights of every supported kind into a network, and what does not fit."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from membound import zoo
from membound.data import Preprocess
from membound.errors import WeightsError
from membound.train.weights import load_weights_, save_weights


def lenet(seed):
    torch.manual_seed(seed)
    return zoo.lenet()


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_weights_and_preprocessing_come_back(tmp_path):
    net, other, path = lenet(0), lenet(1), tmp_path / "net.safetensors"
    mean = np.random.default_rng(0).random((1, 28, 28)).astype(np.float32)
    for preprocess in (
        Preprocess(scale=1 / 256),
        Preprocess(mean=mean),
        Preprocess(mean=mean[0, 0, :1], std=[2.0]),
    ):
        save_weights(path, net, preprocess, {"accuracy": 99.0})
        assert load_weights_(other, path) == preprocess
        assert same(net, other)


def test_the_file_is_plain_safetensors(tmp_path):
    save_weights(tmp_path / "net.safetensors", lenet(0), Preprocess(), {})
    assert load_file(tmp_path / "net.safetensors").keys() == lenet(0).state_dict().keys()


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"state_dict": s}, lambda s: {"model": s, "epoch": 3}]
)
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_torch_state_dicts_load(tmp_path, wrap, prefix):
    net, other = lenet(0), lenet(1)
    torch.save(wrap({prefix + k: v for k, v in net.state_dict().items()}), tmp_path / "net.pth")
    assert load_weights_(other, tmp_path / "net.pth") is None
    assert same(net, other)


def test_anybodys_safetensors_load_whatever_they_are_called(tmp_path):
    net, other = lenet(0), lenet(1)
    save_file(net.state_dict(), tmp_path / "weights")
    load_weights_(other, tmp_path / "weights")
    assert same(net, other)


class Hostile:
    def __reduce__(self):
        return (print, ("code was executed",))


def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path, capsys):
    torch.save(Hostile(), tmp_path / "net.pt")
    with pytest.raises(WeightsError, match="cannot be loaded safely"):
        load_weights_(lenet(0), tmp_path / "net.pt")
    assert "executed" not in capsys.readouterr().out


def without(key):
    return lambda state: {k: v for k, v in state.items() if k != key}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("fc1.bias"), "lacks fc1.bias"),
        (lambda s: s | {"fc9.weight": torch.ones(1)}, "has fc9.weight"),
        (lambda s: s | {"fc1.bias": torch.ones(3)}, r"fc1.bias is \(3,\) there, here \(500,\)"),
        (lambda s: s | {"fc1.bias": torch.full((500,), torch.nan)}, "fc1.bias contains NaN"),
    ],
)
def test_what_does_not_fit_is_said_and_the_network_unchanged(tmp_path, change, words):
    net, before = lenet(0), lenet(0)
    save_file(change(lenet(1).state_dict()), tmp_path / "net.safetensors")
    with pytest.raises(WeightsError, match=words):
        load_weights_(net, tmp_path / "net.safetensors")
    assert same(net, before)


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "net.caffemodel", "net"])
@pytest.mark.parametrize("content", [b"", b"junk", b"\x10\0\0\0\0\0\0\0{}", b"PK\x03\x04 not a zip"])
def test_damaged_files_get_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        load_weights_(lenet(0), tmp_path / name)
    assert "\n" not in str(caught.value)
    with pytest.raises(WeightsError, match="no file of weights"):
        load_weights_(lenet(0), tmp_path / "missing")
