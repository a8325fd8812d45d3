"""Several inputs and outputs, whole numbers and masks: from torch through the file to the runtime and ONNX."""

from functools import cache
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from profiles import chiefly
from torch import nn

from membound.bench.torch_graph import GraphModule
from membound.capture import capture
from membound.errors import ModelError
from membound.export.onnx import to_onnx
from membound.run import Net
from membound.run.calibration import calibrate_activations
from membound.store.file import read_bytes, to_bytes


class Both(nn.Module):
    """Numbers, pictures and words; a dict comes out, with a list in it."""

    def __init__(self):
        super().__init__()
        self.fc, self.conv = nn.Linear(4, 8), nn.Conv2d(2, 8, 3)
        self.words = nn.Embedding(11, 8, padding_idx=0)

    def forward(self, x, image, ids):
        mask = ids != 0
        mean = (self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        numbers = self.fc(x) + self.conv(image).mean((2, 3))
        return {"numbers": numbers, "words": mean, "both": [numbers * mean, numbers]}


class Towers(nn.Module):
    """Two inputs that never meet, of which torch does not know that their batches are as large."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(5, 4)

    def forward(self, left, right):
        return self.a(left).relu(), self.b(right)


class Masked(nn.Module):
    """Attention that leaves padding out, by a mask that comes in."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids, mask):
        places = torch.cumsum(mask, 1) * mask
        x = self.words(ids) + self.places(places)
        return self.layer(x, src_key_padding_mask=mask == 0)[:, 0]


class Weighed(nn.Module):
    """The weights of attention come out, too, which takes another path through torch."""

    def __init__(self):
        super().__init__()
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, off):
        return self.mix(x, x, x, key_padding_mask=off)


class Logic(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rest", torch.arange(5) > 0)

    def forward(self, a, b, x):
        on = ((a > 2) & (b <= 3)) | ~(a == b)
        low = x.masked_fill(a.bool() & self.rest, -torch.inf).softmax(1)
        return torch.where(on, x, 0.5 * x), low, (a >= b).float() + (a < 2).to(x.dtype)


def ids(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


CASES = {
    "both": (Both, lambda n: (numbers(n, 4), numbers(n, 2, 6, 6), ids(11, n, 3))),
    "towers": (Towers, lambda n: (numbers(n, 3), numbers(n, 5))),
    "masked": (Masked, lambda n: (ids(20, n, 8), (torch.arange(8) < ids(8, n, 1) + 1).long())),
    "weighed": (Weighed, lambda n: (numbers(n, 5, 8), torch.arange(5) > ids(4, n, 1))),
    "logic": (Logic, lambda n: (ids(6, n, 5), ids(6, n, 5), numbers(n, 5))),
}


def flat(found):
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else None
    return [found] if parts is None else [each for part in parts for each in flat(part)]


@cache
def made(name):
    """The module, its inputs and what capture made of it, which takes the longest."""
    torch.manual_seed(0)
    kind, example = CASES[name]
    module = kind().eval()
    return module, example, capture(module, example(4))


@pytest.mark.parametrize("name", chiefly(["both", "towers", "masked", "logic"], CASES))
@pytest.mark.parametrize("max_batch", chiefly([2], [1, 2]))
def test_the_runtime_agrees_with_torch(name, max_batch):
    module, example, model = made(name)
    net = Net(read_bytes(to_bytes(model)), max_batch=max_batch, threads=2)
    for batch in (1, 3):
        given = example(batch)
        with torch.no_grad():
            wanted = flat(module(*given))
        found = flat(net(*(x.numpy() for x in given)))
        by_name = {port.name: x.numpy() for port, x in zip(net.inputs, given, strict=True)}
        for one, two, three in zip(found, flat(net(**by_name)), wanted, strict=True):
            np.testing.assert_array_equal(one, two)
            np.testing.assert_allclose(one, three.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", chiefly(["both", "towers", "masked", "logic"], CASES))
def test_onnx_and_torch_graph_agree(name, tmp_path):
    module, example, model = made(name)
    np.savez(tmp_path / "w.npz", *model.scaled().tensors.values())
    dense = GraphModule(read_bytes(to_bytes(model)), tmp_path / "w.npz")
    session = onnxruntime.InferenceSession(b"".join(to_onnx(model)))
    given = example(3)
    with torch.no_grad():
        wanted, again = flat(module(*given)), dense(*given)
    names = [each.name for each in session.get_inputs()]
    whole = [x.long() if x.dtype == torch.bool else x for x in given]  # as it says in docs/DEPLOYING.md
    found = session.run(None, {name: x.numpy() for name, x in zip(names, whole, strict=True)})
    for one, two, three in zip(found, again, wanted, strict=True):
        np.testing.assert_allclose(one, three.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(two.numpy(), three.numpy(), rtol=1e-4, atol=1e-5)


def test_names_and_structure_stay():
    net = Net(read_bytes(to_bytes(made("both")[2])))
    assert [port.name for port in net.inputs] == ["x", "image", "ids"]
    assert [port.whole for port in net.inputs] == [False, False, True]
    assert [port.name for port in net.outputs] == ["numbers", "words", "both.0", "both.1"]
    assert isinstance(
        Net(read_bytes(to_bytes(made("towers")[2])))(*map(np.float32, ([[1] * 3], [[1] * 5]))), tuple
    )


def test_keywords_and_named_tuples():
    class Pair(NamedTuple):
        first: torch.Tensor
        nothing: None
        second: torch.Tensor

    class Net_(nn.Module):
        def forward(self, *, a, b=None):
            return Pair(a + b, None, a * b)

    x = np.ones((2, 3), np.float32)
    found = Net(read_bytes(to_bytes(capture(Net_(), {"a": x, "b": x}))))(b=x, a=2 * x)
    assert {name: float(each[0, 0]) for name, each in found.items()} == {"first": 3.0, "second": 2.0}


def test_an_input_that_is_not_used_is_still_taken():
    class Ignores(nn.Module):
        def forward(self, a, b):
            return 2 * a

    x = np.ones((1, 3), np.float32)
    net = Net(read_bytes(to_bytes(capture(Ignores(), (x, x)))))
    assert net(x, x).tolist() == [[2.0, 2.0, 2.0]]


def test_columns_of_an_embedding_that_nobody_reads_go():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 3)).eval()
    with torch.no_grad():
        net[1].weight[:, 2:4] = 0
        net[0].weight[:, 5] = 0
    given = ids(7, 4, 5)
    model = capture(net, given)
    assert model.tensors["0.weight"].shape == (7, 3)
    wanted = net(given).detach().numpy()
    np.testing.assert_allclose(Net(read_bytes(to_bytes(model)))(given.numpy()), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x, i: (x,), "takes 3 inputs, by position or by name"),
        (lambda x, i: (x, x, i, i), "takes 3 inputs"),
        (
            lambda x, i: (x, np.zeros((1, 2, 6, 6), np.float32), i.astype(np.float32)),
            "'ids' has the type float32",
        ),
        (
            lambda x, i: (x, np.zeros((2, 2, 6, 6), np.float32), i),
            "batches of different sizes: x 1, image 2, ids 1",
        ),
        (lambda x, i: (x, x, i), r"'image' has the shape \(1, 4\)"),
        (lambda x, i: (x, np.zeros((1, 2, 6, 6), np.float32), i + 2**25), "float32 does not hold exactly"),
        (lambda x, i: (x, np.zeros((1, 2, 6, 6), np.float32), i + 11), "out of range: index 11"),
    ],
)
def test_calls_that_do_not_fit_say_what_would(given, words):
    net = Net(read_bytes(to_bytes(made("both")[2])))
    with pytest.raises(ModelError, match=words):
        net(*given(np.zeros((1, 4), np.float32), np.zeros((1, 3), np.int64)))


@pytest.mark.parametrize(
    ("forward", "example", "words"),
    [
        (lambda a, b: (a, a + b), 2, "an output of the network is its input"),
        (lambda a, b: {"y": a + b, "n": torch.ones(3)}, 2, "output n does not depend on its input"),
        (lambda a, b: (a > b) * a, 2, "decides by numbers that are not whole"),
        (lambda a, b: (a + b).long() * 2.0, 2, "rounds to torch.int64"),
        (lambda a: a, 0, "the example input is empty"),
    ],
)
def test_what_cannot_be_captured_is_said(forward, example, words):
    class Given(nn.Module):
        pass

    Given.forward = lambda self, *args: forward(*args)
    with pytest.raises(ModelError, match=words):
        capture(Given(), tuple(torch.ones(1, 3) for _ in range(example)))


def test_integers_are_for_one_input_and_one_output():
    """Said of the network, whatever the images are."""
    with pytest.raises(
        ModelError, match="inputs: 2, outputs: 2: the microcontroller's runtime has one of each"
    ):
        calibrate_activations(read_bytes(to_bytes(made("towers")[2])), np.zeros((3, 7), np.float32))
