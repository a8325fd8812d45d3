"""What a fit says of itself: records of layers, who taught, who was judged; and whose its running statistics are."""

import copy
import re

import numpy as np
import pytest
import torch
from profiles import full
from small import Small, digits
from torch import nn

import membound as mb
from membound.run.inspection import Inspection

DATA = digits(0, 200).images, digits(0, 200).labels
HOW = {"values": "f16", "steps": 20, "batch_size": 20, "device": "cpu", "progress": False}


def test_a_fit_and_its_file_have_the_same_records_of_layers(tmp_path):
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    fitted = mb.fit(wide, DATA, "1200", test_data=DATA, dense=False, **HOW)
    fitted.save(tmp_path / "net.safetensors")
    layers = fitted.facts["layers"]
    assert layers == mb.inspect(tmp_path / "net.safetensors")["layers"]
    parts = ("value_bytes", "position_bytes", "scale_bytes", "palette_bytes")
    for layer in layers:
        assert layer.keys() == layers[0].keys()
        assert layer["size"] == np.prod(layer["shape"])
        assert layer["original_size"] == np.prod(layer["original_shape"])
        assert layer["bytes"] == sum(layer[key] for key in parts)
    dropped = [layer["name"] for layer in layers if layer["shape"] != layer["original_shape"]]
    assert "1.weight" in dropped
    assert "3.bias" not in dropped


def test_every_key_of_an_inspection_is_documented(tmp_path):
    stored = mb.save(Small(), tmp_path / "net.safetensors", torch.zeros(1, 1, 28, 28))
    facts = mb.inspect(stored)
    words = set(re.findall(r"`(\w+)`", Inspection.__doc__))
    assert {*facts, *facts["parts"], *facts["paper"], *facts["layers"][0]} <= words


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, ("dense", 3.0, 0.5)),
        full({"temperature": 2, "teacher_part": 0.9}, ("dense", 2, 0.9)),
        full({"teacher": "none"}, (None, None, None)),
        ({"dense": False}, (None, None, None)),
        ({"teacher": Small(), "dense": False}, ("Small", 3.0, 0.5)),
    ],
)
def test_a_fit_says_who_taught(asked, told):
    training = mb.fit(Small, DATA, "6 KiB", test_data=DATA, **(HOW | {"steps": 4} | asked)).facts["training"]
    assert tuple(training[name] for name in ("teacher", "temperature", "teacher_part")) == told


def test_without_test_images_it_is_said_that_a_copy_was_judged(tmp_path, capsys):
    fitted = mb.fit(Small, DATA, "6 KiB", **(HOW | {"steps": 4, "progress": True}))
    said = capsys.readouterr().err
    assert (fitted.accuracy_on, fitted.images, fitted.facts["is_estimate"]) == ("validation", 20, True)
    assert "2 networks, 4 steps of 20 each; each is trained twice, once without the 20 examples" in said
    assert said.rstrip().endswith("give test data to measure these")
    fitted.report(tmp_path / "r.html")
    copied = "No test images: this is the accuracy of a copy, trained without the 20 images that measure it"
    assert copied in (tmp_path / "r.html").read_text()
    for held_out in ("test_data", "val_data"):
        judged = mb.fit(Small, DATA, "6 KiB", **(HOW | {"steps": 4, held_out: DATA}))
        assert judged.facts["is_estimate"] is False
        judged.report(tmp_path / "r.html")
        assert "of a copy" not in (tmp_path / "r.html").read_text()
        assert "copies" not in capsys.readouterr().err


@pytest.mark.parametrize("values", ["f16", full("auto")])
def test_running_statistics_at_the_end_are_those_of_the_final_network(values):
    """From the ramp's end on the bound stays, and the learning rate goes to 0: to average again changes little."""

    def make():
        conv = nn.Conv2d(1, 6, 5, stride=3)
        return nn.Sequential(conv, nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10))

    images, labels = digits(0, 600).images, digits(0, 600).labels
    fitted = mb.fit(
        make,
        (images, labels),
        "2 KB",
        test_data=DATA,
        dense=False,
        **(HOW | {"values": values, "steps": 150}),
    )
    own = fitted.model[1]
    x = torch.from_numpy(fitted.files.preprocess(images)).float()
    again = copy.deepcopy(fitted.model)
    torch.optim.swa_utils.update_bn(x.split(20), again)
    assert fitted.model[0].weight.count_nonzero() < fitted.model[0].weight.numel()
    alive = again[1].running_var > 1e-6
    assert alive.sum() >= 3
    shift = (own.running_mean - again[1].running_mean).abs() / again[1].running_var.sqrt()
    ratio = own.running_var / again[1].running_var
    assert shift[alive].max() < 0.1
    assert 0.8 < ratio[alive].min() <= ratio[alive].max() < 1.25
