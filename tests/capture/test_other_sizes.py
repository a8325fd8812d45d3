"""load(file, input_shape=...): the same answers as torch gives to inputs of another size, or a reason why not."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import net
from torch import nn

import membound as mb
from membound.errors import ModelError


def channels_added_up():
    """Sums along an axis that keeps its size."""
    return net(lambda m, x: F.normalize(m.conv(x), dim=1).sum(1), conv=nn.Conv2d(3, 4, 3))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.c = nn.Conv2d(14, 2, 3, padding=1)

    def forward(self, x):
        one = self.a(x).relu()
        two = self.b(F.max_pool2d(one, 2)).relu()
        up = F.interpolate(two, size=one.shape[-2:], mode="bilinear")
        return self.c(torch.cat([up, one], 1))


class Tokens(nn.Module):
    """Attention over as many tokens as there are pixels."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(self.patch(x).flatten(2).transpose(1, 2)).mean(1)


class Focus(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(12, 4, 3)

    def forward(self, x):
        parts = [x[..., a::2, b::2] for a in (0, 1) for b in (0, 1)]
        return self.conv(torch.cat(parts, 1)).mean((2, 3))


def pooled():
    body = (nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(8, 4))


@pytest.mark.parametrize("make", [pooled, UNet, Tokens, Focus, channels_added_up])
def test_as_torch(make, tmp_path):
    torch.manual_seed(0)
    network = make().eval()
    mb.save(network, tmp_path / "net.safetensors", torch.zeros(1, 3, 16, 16))
    for shape in ((3, 24, 32), (3, 8, 8)):
        loaded = mb.load(tmp_path / "net.safetensors", input_shape=shape, max_batch=2)
        x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            wanted = network(x).numpy()
        np.testing.assert_allclose(loaded(x.numpy()), wanted, rtol=1e-4, atol=1e-5)
        assert loaded.input_shape == shape
        assert loaded.output_shape == wanted.shape[1:]


def test_memory_is_of_the_new_size(tmp_path):
    mb.save(UNet(), tmp_path / "net.safetensors", torch.zeros(1, 3, 16, 16))
    path = tmp_path / "net.safetensors"
    small, large = (mb.load(path, input_shape=(3, n, n), threads=1).memory() for n in (16, 64))
    assert large.arena > 10 * small.arena
    assert large.weights == small.weights


class Positions(Tokens):
    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1, 16, 8))

    def forward(self, x):
        return self.layer(self.patch(x).flatten(2).transpose(1, 2) + self.place).mean(1)


def over_all(function):
    """A function of all pixels, whose number the file has as a constant."""
    return net(lambda m, x: function(m.conv(x)), conv=nn.Conv2d(3, 4, 3, padding=1))


@pytest.mark.parametrize(
    ("network", "shape", "words"),
    [
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(784, 2)),
            (3, 20, 20),
            "node 3 .linear, 2.weight",
        ),
        (Positions(), (3, 20, 20), "place"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), (1, 20, 20), "0.weight"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), (20, 20), "give 3 sizes from 1 up"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), (3, 0, 20), "give 3 sizes from 1 up"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), (3, 100000, 100000), "at most 2.31 - 1 elements"),
        (nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3)), (3, 20, 20), "listed indices"),
        (over_all(lambda x: F.avg_pool2d(x, x.shape[2:])), (3, 17, 19), "as large as the image was"),
        (over_all(lambda x: F.max_pool2d(x, (x.shape[2], 1))), (3, 32, 16), "as large as the image was"),
        (over_all(lambda x: x.sum((2, 3))), (3, 20, 20), r"\(mul, mul\): it adds up 256 elements"),
        (over_all(lambda x: x.sum(2) / x.shape[2]), (3, 20, 16), "it adds up 16 elements, and there are 20"),
        (
            over_all(lambda x: F.scaled_dot_product_attention(x.flatten(2), x.flatten(2), x.flatten(2))),
            (3, 8, 16),
            "its scale is for products of 256 elements, and there are 128",
        ),
        (over_all(lambda x: x.flatten(2).norm(dim=2)), (3, 20, 20), "it adds up 256 elements"),
    ],
)
def test_networks_that_are_bound_to_their_size_say_why(network, shape, words, tmp_path):
    mb.save(network.eval(), tmp_path / "net.safetensors", torch.zeros(1, 3, 16, 16))
    with pytest.raises(ModelError, match=words):
        mb.load(tmp_path / "net.safetensors", input_shape=shape)


def test_a_sequence_that_was_unrolled_keeps_its_length(tmp_path):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 5, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    mb.save(Last(), tmp_path / "net.safetensors", torch.zeros(1, 2, 4))
    with pytest.raises(ModelError, match="says nothing of other sizes"):
        mb.load(tmp_path / "net.safetensors", input_shape=(3, 4))
