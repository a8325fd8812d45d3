"""What capture() refuses: one line each that names the module, the operator and what is supported."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import net
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from membound.capture import capture
from membound.capture.export import check_batches, private_copy
from membound.errors import ModelError

IMAGE, VECTOR, SEQUENCE = (3, 8, 8), (8,), (4, 8)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return 2 * x


class Inverted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.linalg.inv(x)


def broken():
    layer = nn.Conv2d(3, 2, 3)
    nn.init.constant_(layer.weight, float("nan"))
    return nn.Sequential(layer)


OPERATORS = {
    "softplus": (lambda: nn.Softplus(threshold=3), IMAGE, "its threshold is 3.0; from 15 on"),
    "a batch that is missing": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3)),
        (8, 8),
        r"0 \(Conv2d\): conv2d takes 4 axes, batch and channels included, and gets 3 .*as in x\[None\]",
    ),
    "channels that are missing": (lambda: nn.MaxPool1d(2), VECTOR, "takes 3 axes.*gets 2.*unsqueeze"),
    "volumes without channels": (lambda: nn.MaxPool3d(2), IMAGE, "max_pool3d.* takes 5 axes"),
    "sequences first": (
        lambda: net(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(8, 4)),
        SEQUENCE,
        r"rnn \(LSTM\): .*the batch must be the first axis of each input.*batch_first=True",
    ),
    "along the batch": (lambda: net(lambda m, x: x.softmax(0)), IMAGE, "it works along the batch"),
    "batch in a product": (
        lambda: net(lambda m, x: (x.transpose(0, 2) @ x.transpose(0, 2).transpose(2, 3)).transpose(0, 2)),
        IMAGE,
        "batch must be the first|the batch is one of the axes of its matrices",
    ),
    "a norm of groups in the batch": (
        lambda: net(lambda m, x: F.group_norm(x.reshape(-1, 1, 8, 8), 1).reshape(-1, 3, 8, 8)),
        IMAGE,
        "group_norm cannot .*the batch is not the first axis there, or holds other axes",
    ),
    "as many as a mask says": (
        lambda: net(lambda m, x: x[:, torch.tensor([True, False, True])]),
        IMAGE,
        r"index gives shape \(batch, u0, 8, 8\), whose size depends on numbers.*indices instead of a mask",
    ),
    **{
        f"no operator: {name}": (lambda function=function: net(lambda m, x: function(x)), VECTOR, expected)
        for name, function, expected in (
            ("the best", lambda x: x.topk(3)[0], "topk is not supported.*after the network, in numpy"),
            ("places", lambda x: x.sort(1)[0], "sort is not supported.*after the network"),
            (
                "where the most is",
                lambda x: x.max(1)[1].float(),
                "of the results of max only the first is.*in numpy",
            ),
            (
                "positions",
                lambda x: x[torch.arange(x.shape[0])],
                "arange gives shape .batch.*for nn.EmbeddingBag",
            ),
            ("each with each", lambda x: x @ x.T, "batch, batch.*mixes the images.*batch_first=True"),
            (
                "one of one",
                lambda x: x.reshape(-1, 8, 1).var(2),
                "var cannot .*it divides by 0: there are 1 elements",
            ),
            ("spectrum", lambda x: torch.fft.rfft(x).abs(), "_fft_r2c is not supported.*real numbers only"),
            ("complex", lambda x: torch.complex(x, x).abs(), "complex is not supported.*real numbers only"),
            ("noise", lambda x: x + torch.randn_like(x), "randn_like gives random numbers.*self.training"),
            ("shuffled", lambda x: x[torch.randperm(x.shape[0])], "randperm gives random numbers"),
            ("repeated 0 times", lambda x: x.repeat(1, 0), "repeat cannot .*it gives nothing"),
            ("some", lambda x: x.nonzero().float(), "nonzero is not supported.*torch.where"),
            ("rounded", torch.round, "round is not supported.*fake quantization"),
            ("logarithm", lambda x: (x.abs() + 1).log(), "log is not supported.*log_softmax"),
            ("chosen", lambda x: torch.where(x > 0, x, -x), "gt cannot .*relu, clamp, maximum"),
            ("mixed", lambda x: x / x.norm(), "linalg_vector_norm gives shape .*mixes the images of a batch"),
            ("doubled", lambda x: x.double(), "torch.float64; only float32.*leave the conversion out"),
            ("numpy", lambda x: torch.from_numpy(x.numpy() * 2), "cannot trace.*compute with torch, not"),
        )
    },
    "attention with dropout": (
        lambda: net(lambda m, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)),
        SEQUENCE,
        "its dropout stays on in eval mode; pass dropout_p only in training",
    ),
    "packed sequences": (
        lambda: net(
            lambda m, x: m.rnn(pack_padded_sequence(x, torch.tensor([4] * x.shape[0]), batch_first=True))[1][
                0
            ],
            rnn=nn.LSTM(8, 4, batch_first=True),
        ),
        SEQUENCE,
        "cannot trace.*sequences of one length",
    ),
    "a function of its own": (
        lambda: net(lambda m, x: Inverted.apply(x)),
        (8, 8),
        "linalg_inv_ex is not supported.*decompositions of matrices",
    ),
    "every other element written": (
        lambda: net(lambda m, x: torch.slice_scatter(2 * x, x[:, :, ::2], 2, step=2)),
        IMAGE,
        "slice_scatter cannot .*every other element",
    ),
    "no statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), IMAGE, "batch_norm"),
    "dropout that stays": (
        lambda: net(lambda m, x: F.dropout(x, 0.5, True)),
        IMAGE,
        "dropout cannot be captured: it stays on",
    ),
    "random": (lambda: net(lambda m, x: x + torch.rand(3, 1, 1)), IMAGE, "random numbers"),
    "half": (lambda: net(lambda m, x: x.half().float()), IMAGE, "float16; only float32"),
    "rounded": (lambda: net(lambda m, x: torch.div(x, 2, rounding_mode="floor")), IMAGE, "rounds"),
    "power": (lambda: net(lambda m, x: x**2.5), IMAGE, "its exponent is 2.5"),
    "not finite": (broken, IMAGE, r"0.weight has values that are not finite"),
    "infinite": (lambda: net(lambda m, x: x + float("inf")), IMAGE, "operand is inf"),
    "constant concatenated": (
        lambda: net(lambda m, x: torch.cat([x, torch.ones(3, 3, 8, 8)], 1)),
        IMAGE,
        ".",
    ),
}
BATCHES = {
    "view": (
        lambda: net(lambda m, x: x.view(1, -1)),
        r"view gives shape \(1, 192\*batch\).*batch must stay the first",
    ),
    "view of one": (
        lambda: net(lambda m, x: m.fc(x.view(1, -1)), fc=nn.Linear(192, 2)),
        "fixes the size of its batch",
    ),
    "view of three": (lambda: net(lambda m, x: x.view(3, -1)), "."),
    "flatten": (lambda: net(lambda m, x: x.flatten()), "batch must stay the first axis"),
    "mean": (lambda: net(lambda m, x: x - x.mean(0, keepdim=True)), "batch must stay the first axis"),
    "mean of all": (lambda: net(lambda m, x: x - x.mean()), "batch must stay the first axis"),
    "transposed": (lambda: net(lambda m, x: x.transpose(0, 1)), "batch must stay the first axis"),
    "half of it": (lambda: net(lambda m, x: x[:1]), "batch"),
    "its size": (lambda: net(lambda m, x: x * x.shape[0]), "mul depends on the size of the batch"),
    "its length": (lambda: net(lambda m, x: x * len(x)), "fixes the size of its batch"),
    "a constant": (lambda: net(lambda m, x: x + torch.ones(3, 1, 1, 1)), "."),
}
NETWORKS = {
    "no output": (lambda: net(lambda m, x: None), IMAGE, "none of them a tensor"),
    "two inputs": (
        lambda: nn.Bilinear(8, 8, 2),
        VECTOR,
        r"does not run on an input of shape \(1, 8\): TypeError",
    ),
    "another shape": (lambda: nn.Linear(9, 2), VECTOR, r"does not run on an input of shape \(1, 8\)"),
    "state": (Counter, IMAGE, "changes 'count' when it runs"),
    "nothing": (nn.Identity, IMAGE, "computes nothing"),
    "no input": (lambda: net(lambda m, x: torch.ones(3)), IMAGE, "does not depend on its input"),
    "control flow": (
        lambda: net(lambda m, x: x if x.sum() > 0 else -x),
        IMAGE,
        "depends on the numbers that it computes",
    ),
    "lazy": (lambda: nn.LazyLinear(3), VECTOR, "weight is not initialised"),
    "meta": (lambda: nn.Linear(8, 2, device="meta"), VECTOR, "meta device"),
    "no module": (lambda: F.relu, VECTOR, "a function cannot be captured"),
}
CASES = (
    OPERATORS | {f"batch: {name}": (make, IMAGE, text) for name, (make, text) in BATCHES.items()} | NETWORKS
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_networks(name, capfd):
    make, shape, expected = CASES[name]
    with pytest.raises(ModelError, match=expected) as caught:
        capture(make(), torch.zeros(1, *shape))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    if name in OPERATORS and "is not supported" in str(caught.value) and "supported are" in str(caught.value):
        assert "convolutions, linear layers" in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)), (3, 8, 8)),
        (lambda: nn.Conv2d(3, 4, 3), (3, 8, 8)),
        (lambda: nn.Conv2d(1, 4, 3), (1, 8, 8)),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2)), (3, 8, 8)),
    ],
)
def test_an_example_without_a_batch_is_told_what_it_lacks(make, shape):
    module = make()
    with pytest.raises(ModelError) as raised:
        capture(module, torch.zeros(shape))
    assert str(raised.value) == f"the example has shape {shape}: a batch is needed, such as example[None]"
    capture(module, torch.zeros(shape)[None])


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (torch.zeros(8), r"shape \(8,\): a batch is needed, such as example\[None\]"),
        (torch.zeros(0, 8), "give a batch"),
        (torch.zeros(1, 8, dtype=torch.int64), r"gets whole numbers; give it x.float\(\)"),
        (
            np.zeros((1, 8), np.uint8),
            "does not run on an input of shape .*: a layer computes in float32 and gets whole",
        ),
        ([1.0], "input 0 is a float; give a tensor"),
        ("x", "is a str"),
        (torch.zeros(1, 8) * 1j, "of torch.complex64"),
    ],
)
def test_examples(example, expected):
    with pytest.raises(ModelError, match=expected):
        capture(nn.Linear(8, 2), example)


class OnItsOwn(nn.Module):
    """Treats an image that comes alone differently."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x):
        return self.conv(x) if x.shape[0] > 2 else self.conv(-x)


def test_a_branch_on_the_size_of_the_batch_is_refused():
    with pytest.raises(ModelError, match="batch"):
        capture(OnItsOwn(), torch.zeros(1, 1, 8, 8))


class Rounds(nn.Module):
    """Rounds differently in batches of other sizes, as torch's kernels may, and far more."""

    def forward(self, x):
        shift = 1e6 * len(x)
        return (x + shift) - shift


def test_rounding_is_no_branch_on_the_size_of_the_batch():
    x = torch.randn(3, 8)
    assert (Rounds()(x)[:1] - Rounds()(x[:1])).abs().max() > 1e-2  # what float32 makes of it
    check_batches(private_copy(Rounds()), x)


def test_a_network_of_large_cancellations_is_captured():
    """Products of one row and of three are summed in another order, and all but the rounding cancels."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 4, bias=False))
    with torch.no_grad():
        net[0].bias.fill_(1e5)
        net[1].weight.sub_(net[1].weight.mean(1, keepdim=True))
    assert [node.op for node in capture(net, torch.zeros(1, 64)).graph.nodes] == ["linear", "linear"]


class OnlySingle(OnItsOwn):
    """Has a constant in float32, so that it does not run in float64."""

    def forward(self, x):
        return nn.functional.conv2d(super().forward(x), torch.ones(1, 2, 1, 1))


def test_a_network_that_runs_in_float32_alone_is_checked_in_it():
    check_batches(private_copy(nn.Sequential(nn.Conv2d(1, 2, 3), OnlyFloat())), torch.zeros(1, 1, 8, 8))
    with pytest.raises(ModelError, match="branch on the size of the batch"):
        check_batches(private_copy(OnlySingle()), torch.zeros(1, 1, 8, 8))


class OnlyFloat(nn.Module):
    def forward(self, x):
        return nn.functional.conv2d(x, torch.ones(1, 2, 1, 1))


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class Signs(nn.Module):
    def forward(self, x):
        return torch.sign(x) * x


def test_messages_show_the_line_and_a_way_out():
    with pytest.raises(
        ModelError, match=r"depends on the numbers .*test_refused.py:\d+ `if x.sum\(\) > 0:`.*torch.where"
    ):
        capture(Branches(), torch.zeros(1, 3))
    words = (
        r"the operator sign is not supported \(in `return torch.sign\(x\) \* x`\); tanh or clamp may stand in"
    )
    with pytest.raises(ModelError, match=words):
        capture(Signs(), torch.zeros(1, 3))
