"""Weights of every supported kind into a network, and what does not fit."""

import errno
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from membound import zoo
from membound.data import Preprocess
from membound.errors import MemboundError, WeightsError
from membound.train.job import image_size
from membound.train.weights import load_weights_, save_weights, saved_facts


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
        (
            lambda s: s | {"fc1.bias": torch.full((500,), 1e300, dtype=torch.float64)},
            "fc1.bias contains NaN or infinity, as torch.float32",
        ),
        (
            lambda s: s | {"fc1.bias": torch.ones(500, dtype=torch.int64)},
            "fc1.bias has the type torch.int64, the network's is torch.float32",
        ),
        (lambda s: s | {"fc1.bias": torch.ones(500, dtype=torch.bool)}, "has the type torch.bool"),
        (lambda s: s | {"fc1.bias": torch.ones(500, dtype=torch.complex64)}, "has the type torch.complex64"),
    ],
)
def test_what_does_not_fit_is_said_and_the_network_unchanged(tmp_path, change, words):
    net, before = lenet(0), lenet(0)
    save_file(change(lenet(1).state_dict()), tmp_path / "net.safetensors")
    with pytest.raises(WeightsError, match=words):
        load_weights_(net, tmp_path / "net.safetensors")
    assert same(net, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_float_types_are_converted(tmp_path, dtype):
    net = lenet(0)
    save_file({k: v.to(dtype) for k, v in lenet(1).state_dict().items()}, tmp_path / "net.safetensors")
    load_weights_(net, tmp_path / "net.safetensors")
    assert same(net, lenet(1).to(dtype).float())


class OwnModule(nn.Module):
    """A network with a layer that happens to be called 'module', as wrappers call what they wrap."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.module = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)  # its count of batches is an integer


def test_an_own_layer_called_module_keeps_its_name(tmp_path):
    path = tmp_path / "net.safetensors"
    save_weights(path, OwnModule(0), Preprocess(), {})
    assert "module.weight" in load_file(path)
    net = OwnModule(1)
    load_weights_(net, path)
    assert same(net, OwnModule(0))
    wrapped = nn.ModuleDict({"module": OwnModule(2)})  # names as DistributedDataParallel makes them
    save_weights(path, wrapped, Preprocess(), {})
    assert load_file(path).keys() == OwnModule(2).state_dict().keys()
    load_weights_(net, path)
    assert same(net, OwnModule(2))


def test_a_file_says_how_it_was_trained(tmp_path):
    path = tmp_path / "net.safetensors"
    save_weights(path, lenet(0), Preprocess(), {"seed": 7, "image_size": 28, "accuracy": 99.0})
    assert saved_facts(path) == {"seed": 7, "image_size": 28}
    save_weights(path, lenet(0), Preprocess(), {"seed": "seven", "image_size": None})
    assert saved_facts(path) == {}
    save_file(lenet(0).state_dict(), path, {"membound": "[1]"})
    assert saved_facts(path) == {}
    torch.save(lenet(0).state_dict(), tmp_path / "net.pt")
    assert saved_facts(tmp_path / "net.pt") == saved_facts(tmp_path / "missing") == {}


def test_a_full_disk_is_said_with_the_name_of_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "net.safetensors"
    path.write_bytes(b"what was there")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MemboundError, match=r"net\.safetensors cannot be written: No space left"):
        save_weights(path, lenet(0), Preprocess(), {})
    assert [(place.name, place.read_bytes()) for place in tmp_path.iterdir()] == [
        (path.name, b"what was there")
    ]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "net.safetensors")
    save_weights(tmp_path / "link.safetensors", lenet(0), Preprocess(), {})
    assert (tmp_path / "link.safetensors").is_symlink()
    assert load_file(tmp_path / "net.safetensors")


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "net.caffemodel", "net"])
@pytest.mark.parametrize("content", [b"", b"junk", b"\x10\0\0\0\0\0\0\0{}", b"PK\x03\x04 not a zip"])
def test_damaged_files_get_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        load_weights_(lenet(0), tmp_path / name)
    assert "\n" not in str(caught.value)
    with pytest.raises(WeightsError, match="no file of weights"):
        load_weights_(lenet(0), tmp_path / "missing")


@pytest.mark.parametrize(
    ("net", "data", "saved", "side"),
    [
        ("alexnet", "photos", None, 256),
        ("alexnet", "photos", 240, 240),
        ("alexnet", "mnist", 240, None),
        ("alexnet", "mine.NPZ", None, None),
        ("lenet", "photos", None, None),
        ("lenet", "photos", 28, 28),
        ("mine:net", "photos", None, None),
    ],
)
def test_the_side_that_a_folder_is_read_at(net, data, saved, side):
    assert image_size(net, data, saved) == side


def test_a_file_of_another_kind_is_named_by_its_suffix(tmp_path):
    (tmp_path / "own.json").write_text('{"accuracy": 99}')
    with pytest.raises(
        WeightsError, match=r"\.json is not a file of weights: give \.safetensors, \.pt or \.caffemodel"
    ):
        load_weights_(nn.Linear(2, 2), tmp_path / "own.json")
