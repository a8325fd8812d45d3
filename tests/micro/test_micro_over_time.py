"""Networks of sequences [channels, time]: the same C, bit for bit, as over images [channels, time, 1]."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import membound as mb
from membound.capture.capture import Tracer, capture
from membound.errors import ModelError
from membound.micro.over_time import along_height
from membound.run import Net
from membound.run.calibration import calibrate_activations
from membound.run.micro_net import MicroNet, describe_plan
from membound.search.measure import FileBytes
from membound.search.micro_points import find_points
from membound.store.file import read_bytes, to_bytes

CHANNELS, FRAMES = 3, 64
X = np.random.default_rng(0).normal(size=(48, CHANNELS, FRAMES)).astype(np.float32)


class Written(nn.Module):
    """Layers, and what is done with them."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.written = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x, *more):
        return self.written(self, x, *more)


def conv(tall, rows, columns, kernel, stride=1, pad=0, dilation=1, groups=1):
    if not tall:
        return nn.Conv1d(rows, columns, kernel, stride, pad, dilation, groups)
    pads = pad if pad == "same" else (pad, 0)
    return nn.Conv2d(rows, columns, (kernel, 1), (stride, 1), pads, (dilation, 1), groups)


def one(tall, name, *sizes, **options):
    """A pool or a norm of either kind."""
    made = [(size, 0 if place == 2 else 1) if tall else size for place, size in enumerate(sizes)]
    return getattr(nn, f"{name}{2 if tall else 1}d")(*made, **options)


def chain(tall):
    norm = nn.BatchNorm2d(8) if tall else nn.BatchNorm1d(8)
    return nn.Sequential(
        conv(tall, 3, 8, 5, 2, 1), norm, nn.ReLU(), one(tall, "MaxPool", 3, 2, 1),
        conv(tall, 8, 8, 3, 1, "same", 2, groups=8), nn.Tanh(), one(tall, "AvgPool", 3, 2, 1, ceil_mode=True),
        conv(tall, 8, 4, 1), nn.ReLU6(), one(tall, "AdaptiveAvgPool", 1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def kept_whole(tall):
    pools = [one(tall, "AvgPool", 3, 2, 1, count_include_pad=False), one(tall, "AdaptiveMaxPool", 8)]
    return nn.Sequential(conv(tall, 3, 6, 5, 1, 2), *pools, nn.Flatten(), nn.Linear(48, 3))


def causal(tall):
    """Padding of its own, a skip, a concatenation and a mean: as networks over time have them."""

    def forward(m, x):
        before = (0, 0, 2, 0) if tall else (2, 0)
        x = F.relu(m.stem(F.pad(x, before)))
        x = F.relu(x + m.norm(m.inner(F.pad(x, before))))
        x = torch.cat([m.left(x), F.silu(m.right(x))], 1)
        return m.last(x.mean((2, 3) if tall else 2))

    return Written(
        forward,
        stem=conv(tall, 3, 8, 3),
        inner=conv(tall, 8, 8, 3),
        norm=nn.BatchNorm2d(8) if tall else nn.BatchNorm1d(8),
        left=conv(tall, 8, 4, 5, 2, 2),
        right=conv(tall, 8, 4, 1, 2),
        last=nn.Linear(8, 3),
    )


def every_frame(tall):
    """Scores for each step of time."""
    return nn.Sequential(conv(tall, 3, 4, 5, 1, 2), nn.ReLU(), conv(tall, 4, 2, 1))


def on_device(network, x):
    """The network in float, and as a microcontroller has it."""
    stored = read_bytes(to_bytes(capture(network.eval(), torch.from_numpy(x[:1])), "p8"))
    return Net(stored, max_batch=len(x)), MicroNet(stored, activations=calibrate_activations(stored, x))


@pytest.mark.parametrize("make", [chain, kept_whole, causal, every_frame])
def test_the_same_network_over_images_gives_the_same_bits_in_the_same_room(make):
    torch.manual_seed(0)
    along, tall = make(False), make(True)
    tall.load_state_dict(
        {name: part[..., None] if part.ndim == 3 else part for name, part in along.state_dict().items()}
    )
    floats, device = on_device(along, X)
    _, other = on_device(tall, X[..., None])
    found = device.integers(X)
    assert found.shape == floats(X).shape
    assert np.array_equal(found.reshape(len(X), -1), other.integers(X[..., None]).reshape(len(X), -1))
    assert describe_plan(device.plan) == describe_plan(other.plan)  # bytes, time and what identifies it
    wanted = floats(X)
    assert np.sqrt(((device(X) - wanted) ** 2).mean()) < 0.05 * wanted.std()


def test_ram_does_not_grow_with_time():
    torch.manual_seed(0)
    longer = np.concatenate([X, X, X], 2)
    contexts = [on_device(chain(False), x)[1].memory().context for x in (X, longer)]
    assert contexts[0] == contexts[1]


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Conv2d(3, 4, 3, padding=1)),
            "takes Conv1d, pools over time",
        ),
        (nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv2d(1, 4, 3)), "maps that are made of a sequence"),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.Linear(62, 2)), "linear layers of one vector only"),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(1, 4)), "reshapes a map only to a vector"),
        (
            Written(
                lambda m, x: m.last(F.pad(m.conv(x).flatten(1), (1, 1))),
                conv=nn.Conv1d(3, 1, 1),
                last=nn.Linear(66, 1),
            ),
            "pads height and width",
        ),
        (Written(lambda m, x: m.conv(x.mT), conv=nn.Conv1d(FRAMES, 4, 1)), "has no permute"),
        (
            Written(lambda m, x: m.conv(x) + x.mean(1, True), conv=nn.Conv1d(3, 1, 1)),
            "mean over height and width",
        ),
    ],
)
def test_what_is_no_convolution_over_time_is_refused(network, said):
    with pytest.raises(ModelError, match=said):
        on_device(network, X)


def test_two_sequences_are_refused_as_two_images_are():
    network = Written(lambda m, x, y: m.conv(x + y), conv=nn.Conv1d(CHANNELS, 2, 3)).eval()
    x = torch.from_numpy(X[:1])
    with pytest.raises(ModelError, match="inputs: 2"):
        MicroNet(read_bytes(to_bytes(capture(network, (x, x)), "p8")), activations={})


def test_training_rounds_sequences_where_it_rounds_images():
    torch.manual_seed(0)
    points = []
    for tall in (False, True):
        network, shape = causal(tall).eval(), (1, CHANNELS, FRAMES, *[1] * tall)
        points.append(find_points(FileBytes(Tracer(network, torch.zeros(shape)), "f32"), network))
    assert points[0].calls == points[1].calls


def test_images_are_left_as_they_are():
    stored = read_bytes(to_bytes(capture(nn.Conv2d(3, 4, (1, 3)).eval(), torch.zeros(1, 3, 1, 9)), "p8"))
    assert along_height(stored) is stored


def test_an_export_says_how_sequences_are_fed(tmp_path):
    torch.manual_seed(0)
    mb.save(chain(False).eval(), tmp_path / "n.safetensors", torch.from_numpy(X[:1]))
    mb.export_c(tmp_path / "n.safetensors", tmp_path / "c", images=X, input_unit=0.01)
    header, readme = ((tmp_path / "c" / name).read_text() for name in ("net.h", "README.md"))
    assert "NET_CHANNELS 3" in header
    assert "NET_HEIGHT 64" in header
    assert "NET_WIDTH 1" in header
    assert "x [N, 3, 64] or [N, 3, 64, 1]" in " ".join(readme.split())
    (line,) = (line.strip() for line in readme.splitlines() if "tofile" in line)
    for x in (X, X[..., None]):
        eval(line.replace("examples.bin", str(tmp_path / "examples.bin")), {"x": x})
        fed = np.fromfile(tmp_path / "examples.bin", np.float32).reshape(len(X), FRAMES, CHANNELS)
        assert np.array_equal(fed, X.transpose(0, 2, 1))
