"""Weights that others trained with Caffe give the accuracies that others measured."""

import gzip
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from profiles import full

import membound as mb
from membound import zoo
from membound.errors import WeightsError

ROOT = Path(__file__).parents[2]


def find(*parts):
    """A file in MEMBOUND_DATA, the repository's data or ../shared/data; without it the test is skipped."""
    folders = [ROOT / "data", ROOT.parent / "shared" / "data"]
    if os.environ.get("MEMBOUND_DATA"):
        folders.insert(0, Path(os.environ["MEMBOUND_DATA"]))
    for folder in folders:
        if folder.joinpath(*parts).is_file():
            return folder.joinpath(*parts)
    pytest.skip(f"no {'/'.join(parts)} in MEMBOUND_DATA or ../shared/data")


def model(name):
    return find("caffemodels", f"{name}.caffemodel")


@pytest.fixture(scope="module")
def mnist():
    images = gzip.decompress(find("mnist", "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress(find("mnist", "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    images = np.frombuffer(images, np.uint8).reshape(-1, 1, 28, 28)
    return images.astype(np.float32) * np.float32(zoo.lenet().caffe_solver.scale), np.frombuffer(
        labels, np.uint8
    )


@pytest.fixture(scope="module")
def cifar10():
    mean = zoo.read_binaryproto(find("caffemodels", "cifar10_mean.binaryproto"))
    records = np.fromfile(find("cifar-10-batches-bin", "test_batch.bin"), np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) - mean, records[:, 0]


@torch.no_grad()
def errors(net, data):
    images, labels = data
    found = [
        net(torch.from_numpy(images[i : i + 1000])).argmax(1).numpy() for i in range(0, len(images), 1000)
    ]
    return int((np.concatenate(found) != labels).sum())


@pytest.mark.parametrize(
    ("name", "expected"),
    [full("lenet_a", 86), full("lenet_b", 95), full("lenet_dns_original", 91), ("lenet_dns_sparse", 91)],
)
@pytest.mark.full  # ten thousand images
def test_lenet_on_mnist(name, expected, mnist):
    net = zoo.lenet().eval()
    zoo.load_caffemodel(net, model(name))
    assert abs(errors(net, mnist) - expected) <= 2


@pytest.mark.parametrize(("name", "expected"), [("cifar10_quick_a", 2509), ("cifar10_quick_b", 2453)])
def test_quick_on_cifar10(name, expected, cifar10):
    net = zoo.cifar10_quick().eval()
    zoo.load_caffemodel(net, model(name))
    assert abs(errors(net, cifar10) - expected) <= 2


def test_the_pruned_lenet_has_3993_nonzeros():
    net = zoo.lenet()
    zoo.load_caffemodel(net, model("lenet_dns_sparse"))
    counts = {name: int((p != 0).sum()) for name, p in net.named_parameters()}
    weights = [counts[f"{layer}.weight"] for layer in ("conv1", "conv2", "fc1", "fc2")]
    assert weights == [72, 770, 2920, 215]
    assert sum(counts.values()) - sum(weights) == 16
    assert sum(counts.values()) == 3993


def test_the_pruned_lenet_answers_from_its_file_as_in_torch(mnist, tmp_path):
    net, images = zoo.lenet(), mnist[0][:1000]
    zoo.load_caffemodel(net, model("lenet_dns_sparse"))
    mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 1, 28, 28))
    deployed = mb.load(tmp_path / "net.safetensors", max_batch=100)
    assert (tmp_path / "net.safetensors").stat().st_size < 20_480
    with torch.no_grad():
        assert np.array_equal(deployed(images).argmax(1), net(torch.from_numpy(images)).argmax(1).numpy())


def test_layers_are_found_under_caffes_names():
    assert list(zoo.read_caffemodel(model("lenet_b"))) == ["conv1", "conv2", "ip1", "ip2"]
    assert list(zoo.read_caffemodel(model("cifar10_quick_a"))) == ["conv1", "conv2", "conv3", "ip1", "ip2"]
    assert [b.shape for b in zoo.read_caffemodel(model("lenet_b"))["ip1"]] == [
        (1, 1, 500, 800),
        (1, 1, 1, 500),
    ]
    assert [b.shape for b in zoo.read_caffemodel(model("lenet_a"))["ip1"]] == [(500, 800), (500,)]


def test_a_mean_image_of_the_training_set():
    mean = zoo.read_binaryproto(find("caffemodels", "cifar10_mean.binaryproto"))
    assert mean.shape == (3, 32, 32)
    records = [
        np.fromfile(find("cifar-10-batches-bin", f"data_batch_{i}.bin"), np.uint8) for i in range(1, 6)
    ]
    images = np.concatenate(records).reshape(-1, 3073)[:, 1:]
    np.testing.assert_allclose(mean.ravel(), images.mean(0, dtype=np.float64), atol=1e-2)


@pytest.mark.parametrize("name", ["lenet_a", "lenet_b", "cifar10_quick_a", "cifar10_quick_b"])
def test_a_real_file_cut_short_loads_whole_or_not_at_all(name, tmp_path):
    content, part = model(name).read_bytes(), tmp_path / "part.caffemodel"
    make = zoo.lenet if name.startswith("lenet") else zoo.cifar10_quick
    whole, net = make(), make()
    zoo.load_caffemodel(whole, model(name))
    before = [p.detach().clone() for p in net.parameters()]
    sizes = {*range(1, 40), *(len(content) - i for i in range(1, 60))}
    sizes |= set(random.Random(0).sample(range(len(content)), 100))
    part.write_bytes(content)
    complete = 0
    for size in sorted(sizes, reverse=True):
        os.truncate(part, size)
        try:
            zoo.load_caffemodel(net, part)
        except WeightsError:
            assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
            continue
        complete += 1  # all the weights are there, and only the loss layer behind them is not
        assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), net.parameters(), strict=True))
        for parameter, value in zip(net.parameters(), before, strict=True):
            parameter.data.copy_(value)
    assert complete == 1
