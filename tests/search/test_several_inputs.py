"""fit and evaluate with networks of several inputs, and of outputs with names."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import membound as mb
from membound.cli import main
from membound.data.several import Inputs, inputs_of
from membound.errors import DataError, MemboundError
from membound.run.evaluation import evaluate_file, open_for_evaluation
from membound.train.user_data import as_split

SHORT = {"steps": 150, "batch_size": 32, "device": "cpu", "solver": "adamw", "lr": 0.05}


class Words(nn.Module):
    """Scores of two classes from the numbers of words and from features."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 16), nn.Linear(16 + 6, 2)

    def forward(self, ids, features):
        return self.head(torch.cat([self.words(ids).mean(1), features], 1))


class Both(Words):
    """The same, and how sure it is, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.sure = nn.Linear(6, 1)

    def forward(self, ids, features):
        return {"scores": super().forward(ids, features), "sure": self.sure(features)}


def examples(count, seed):
    """The class is whether more words are below 10, or, with features above, the other way round."""
    chance = np.random.default_rng(seed)
    ids = chance.integers(0, 20, (count, 5))
    features = chance.standard_normal((count, 6)).astype(np.float32)
    return ids, features, ((ids < 10).sum(1) > 2).astype(np.int64)


@pytest.fixture(scope="module")
def data():
    ids, features, y = examples(400, 0)
    return {"ids": ids, "features": features}, y


def test_arrays_in_order(data, tmp_path):
    x, y = data
    other = examples(100, 1)
    torch.manual_seed(0)
    found = mb.fit(Words(), (tuple(x.values()), y), "2 KB", test_data=(other[:2], other[2]), **SHORT)
    assert type(found.model) is Words
    assert found.accuracy > 80
    assert found.dense["accuracy"] > 80
    assert found.file_bytes <= 2000
    found.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors")
    assert [(port.name, port.whole) for port in net.inputs] == [("ids", True), ("features", False)]
    right = (net(*other[:2]).argmax(1) == other[2]).mean()  # without any code of fit's
    assert 100 * right == pytest.approx(found.accuracy)


def test_named_outputs_and_a_loader_of_dicts(data):
    x, y = data
    items = [{"ids": x["ids"][i], "features": x["features"][i], "labels": y[i]} for i in range(len(y))]

    def loss(outputs, targets):
        assert set(outputs) == {"scores", "sure"}
        return (
            nn.functional.cross_entropy(outputs["scores"], targets) + 0.01 * outputs["sure"].square().mean()
        )

    def score(outputs, targets):
        return (outputs["scores"].argmax(1) == targets).float().mean()

    torch.manual_seed(0)
    found = mb.fit(
        Both(),
        DataLoader(items, batch_size=32, shuffle=True),
        "3 KB",
        loss=loss,
        score=score,
        dense=False,
        **SHORT,
    )
    assert found.accuracy_on == "validation"
    assert found.accuracy > 0.8


def test_a_loader_with_its_own_collate(data):
    x, y = data
    items = [(x["ids"][i], x["features"][i], y[i]) for i in range(len(y))]

    def collate(batch):
        ids, features, targets = zip(*batch, strict=True)
        return (torch.tensor(np.stack(ids)), torch.tensor(np.stack(features))), torch.tensor(targets)

    split = as_split(DataLoader(items, batch_size=4, collate_fn=collate))
    inputs = inputs_of(split)
    assert inputs is not None
    assert [part.shape for part in inputs.parts] == [(5,), (6,)]
    ids, features = inputs.unpack(split.read(np.arange(3)))
    assert np.array_equal(ids, x["ids"][:3])
    assert np.array_equal(features, x["features"][:3])
    assert inputs_of(split.take(np.arange(2))) == inputs


def test_evaluate_and_fit_from_an_npz(data, tmp_path, capsys):
    (x, y), (ids, features, wanted) = data, examples(100, 1)
    named = {f"x_train.{name}": array for name, array in x.items()}
    tests = {"x_test.ids": ids, "x_test.features": features, "y_test": wanted}
    np.savez(tmp_path / "words.npz", **named, y_train=y, **tests)
    torch.manual_seed(0)
    found = mb.fit(Words(), mb.data.load(tmp_path / "words.npz"), "2 KB", dense=False, **SHORT)
    assert found.accuracy_on == "test"
    found.save(tmp_path / "net.safetensors")
    facts = evaluate_file(
        open_for_evaluation(tmp_path / "net.safetensors"), mb.data.load(tmp_path / "words.npz")
    )
    net = mb.load(tmp_path / "net.safetensors")
    assert facts["errors"] == int((net(ids=ids, features=features).argmax(1) != wanted).sum()) == found.errors
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(tmp_path / "net.safetensors"), "--data", str(tmp_path / "words.npz")])
    assert ended.value.code == 0
    assert f"{found.accuracy:.2f} %" in capsys.readouterr().out


def test_evaluate_says_which_inputs_are_missing(data, tmp_path):
    x, y = data
    mb.save(Words(), tmp_path / "net.safetensors", tuple(torch.from_numpy(each[:1]) for each in x.values()))
    net = open_for_evaluation(tmp_path / "net.safetensors")
    np.savez(tmp_path / "one.npz", x_train=x["features"], y_train=y, x_test=x["features"], y_test=y)
    with pytest.raises(DataError, match=r"x_test\.ids, x_test\.features"):
        evaluate_file(net, mb.data.load(tmp_path / "one.npz"))
    swapped = {f"x_{half}.{name}": x["features"] for half in ("train", "test") for name in x}
    np.savez(tmp_path / "floats.npz", **swapped, y_train=y, y_test=y)
    with pytest.raises(DataError, match="this network takes ids: whole numbers"):
        evaluate_file(net, mb.data.load(tmp_path / "floats.npz"))


def test_inputs_must_be_alike(data):
    x, y = data
    good = tuple(x.values())
    for bad, reason in (
        (((good[0], good[1][:10]), y), "different numbers of examples"),
        (((good[0] + 2**25, good[1]), y), "beyond 16,777,216"),
        (((good[0], np.full_like(good[1], np.nan)), y), "not finite"),
        ((good, y[:10]), "400 examples and y 10"),
        (({"a": good[0], "b": np.float32(3)}, y), "single number"),
        ({"ids": good[0], "features": good[1]}, "targets under one of labels"),
        (
            [{"ids": good[0][0], "labels": 1}, {"words": good[0][1], "labels": 0}],
            "inputs words, others have ids",
        ),
        ([((good[0][0], good[1][0]), 1), ((good[0][0], good[1][0][:3]), 0)], "they must be alike"),
    ):
        with pytest.raises(DataError, match=reason):
            as_split(bad)


@pytest.mark.parametrize(("keyword", "value"), [("members", 2), ("teacher", Words()), ("augment", "mirror")])
def test_what_is_for_one_input_is_refused(data, keyword, value):
    x, y = data
    with pytest.raises(MemboundError, match=f"{keyword} .*have several: leave it out"):
        mb.fit(Words(), (tuple(x.values()), y), "2 KB", **SHORT, **{keyword: value})


def test_iterables_of_several_inputs_are_refused(data):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([((np.zeros(2, np.float32), np.zeros(3, np.float32)), 1)] * 3)

    with pytest.raises(DataError, match="several inputs"):
        as_split(Stream())


def test_rows_keep_every_kind_of_number():
    arrays = [np.array([[2**24, -(2**24)]]), np.array([[0.1]], np.float32), np.array([[True]])]
    inputs = Inputs.of(arrays)
    for given, found in zip(arrays, inputs.unpack(inputs.pack(arrays)), strict=True):
        assert np.array_equal(given, found)
