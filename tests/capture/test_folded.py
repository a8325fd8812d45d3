"""Windows folded into the batch, values written into others, constants repeated for every image: against torch."""

import numpy as np
import pytest
import torch
from architectures import net
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import chiefly, examples
from torch import nn

from membound.capture import capture
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


def agree(network, *shape, few=1e-5):
    network = network.eval()
    run = Net(read_bytes(to_bytes(capture(network, torch.zeros(1, *shape)))), max_batch=2, threads=1)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = network(x.clone()).numpy()
    found = run(x.numpy())
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=few, atol=few)


class Windows(nn.Module):
    """A layer on each of the windows of an image."""

    def __init__(self, layer: nn.Module, rows: int, columns: int) -> None:
        super().__init__()
        self.layer, self.rows, self.columns = layer, rows, columns

    def forward(self, x):
        batch, channels, height, width = x.shape
        down, right = height // self.rows, width // self.columns
        x = x.view(batch, channels, down, self.rows, right, self.columns).permute(0, 2, 4, 1, 3, 5)
        x = self.layer(x.reshape(-1, channels, self.rows, self.columns))
        return x.reshape(batch, down, right, *x.shape[1:])


LAYERS = {
    "of one pixel": lambda: nn.Conv2d(4, 6, 1),
    "with a norm": lambda: nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()),
    "depthwise": lambda: nn.Conv2d(4, 4, 5, padding=2, groups=4),
    "that steps over pixels": lambda: nn.Conv2d(4, 3, 2, stride=3),
    "padded to the same size": lambda: nn.Conv2d(4, 3, (2, 3), padding="same"),
    "max pool": lambda: nn.MaxPool2d(2),
    "average pool": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    "adaptive pool": lambda: nn.AdaptiveAvgPool2d((2, 3)),
    "bilinear": lambda: nn.Upsample(scale_factor=1.5, mode="bilinear"),
    "nearest": lambda: nn.Upsample(scale_factor=2),
    "pixel shuffle": lambda: nn.PixelShuffle(2),
}


@pytest.mark.parametrize("name", chiefly(["with a norm", "depthwise", "adaptive pool"], LAYERS))
def test_layers_on_windows(name):
    torch.manual_seed(0)
    agree(Windows(LAYERS[name](), 6, 5), 4, 12, 15)


@pytest.mark.full
@examples(60)
@given(PAIR, PAIR, st.tuples(st.integers(0, 3), st.integers(0, 3)), PAIR, st.sampled_from([1, 2, 4]))
def test_convolutions_of_windows(kernel, stride, padding, dilation, groups):
    sizes = [n + 2 * p - d * (k - 1) for n, p, d, k in zip((5, 4), padding, dilation, kernel, strict=True)]
    assume(min(sizes) >= 1)
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups)
    agree(Windows(layer, 5, 4), 4, 10, 12)


def test_convolutions_of_sequences_in_the_batch():
    def forward(m, x):
        return m.conv(x.reshape(-1, 4, 10)).reshape(x.shape[0], 3, 6, -1)

    agree(net(forward, conv=nn.Conv1d(4, 6, 3, stride=2, padding=1)), 3, 4, 10)


def written(change):
    """A network that writes into a tensor of its own."""

    def forward(m, x):
        y = 2 * x
        change(y, x)
        return y + 1

    return net(forward)


def write_into_zeros(m, x):
    y = torch.zeros(x.shape[0], 3, 6)
    y[:, 0] = x[:, 1]
    y[:, 1:] = x[:, 2:4] * 2
    return y


WRITES = {
    "a slice": written(lambda y, x: y[:, 1:3].copy_(x[:, :2])),
    "the last slice": written(lambda y, x: y[:, -1].copy_(x[:, 0])),
    "some columns": written(lambda y, x: y[:, :, 2:].mul_(3.0)),
    "one element of each row": written(lambda y, x: y[:, :, 0].add_(x[:, :, 5])),
    "a number": written(lambda y, x: y[:, 1].fill_(0.25)),
    "zero": written(lambda y, x: y[:, 1:3].zero_()),
    "all of it": written(lambda y, x: y[:].copy_(x)),
    "zeros": net(write_into_zeros),
}


@pytest.mark.parametrize("name", chiefly(["a slice", "zeros"], WRITES))
def test_values_written_into_others(name):
    agree(WRITES[name], 4, 6)


def repeated(m, x):
    return x @ torch.eye(6).unsqueeze(0).repeat(x.shape[0], 1, 1) + torch.full((x.shape[0], 4, 6), 0.5)


CONSTANTS = {
    "repeated for each image": net(repeated),
    "a table of indices": net(lambda m, x: x[:, torch.tensor([[0, 3], [2, 2], [1, 0]])]),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name):
    agree(CONSTANTS[name], 4, 6)


def write_into_input(m, x):
    x[:, 0] = 3
    return x * 2


def test_a_write_into_the_input_does_not_reach_the_caller():
    agree(net(write_into_input), 4, 6)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_cells(cell):
    torch.manual_seed(0)
    agree(net(lambda m, x: m.cell(x)[0] if cell is nn.LSTMCell else m.cell(x), cell=cell(6, 5)), 6)


def test_exponentials():
    """Through sigmoids: to a few roundings of each, however large or small they are."""
    network = net(lambda m, x: torch.exp(x * 20))
    x = np.linspace(-4, 4, 801, dtype=np.float32)[None]
    run = Net(read_bytes(to_bytes(capture(network, torch.zeros(1, 801)))), threads=1)
    np.testing.assert_allclose(run(x)[0], np.exp(20 * x[0].astype(np.float64)), rtol=2e-5)


def test_more_indices_than_one_node_holds():
    places = torch.randint(0, 40, (20_000,), generator=torch.Generator().manual_seed(0))
    agree(net(lambda m, x: x[:, places]), 40)


def test_convolutions_over_volumes_in_a_network_that_torch_takes_apart():
    """An operator that nobody converts makes torch write all convolutions as aten.convolution."""

    def forward(m, x):
        y = m.conv(x) + m.back(x)
        y[:, 0] = y[:, 1]
        return y

    torch.manual_seed(0)
    layers = {"conv": nn.Conv3d(2, 3, 3, padding=1), "back": nn.ConvTranspose3d(2, 3, 3, padding=1)}
    agree(net(forward, **layers), 2, 4, 5, 6, few=1e-4)
