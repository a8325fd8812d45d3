"""fit(): what it promises is checked on the files that it writes."""

import dataclasses
import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fit_kills import Tiny, fit_tiny, kill_and_compare, ledger_keys
from profiles import chiefly, full
from safetensors.torch import load_file
from small import Small, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import membound as mb
from membound.data import ArraySplit, Dataset
from membound.errors import DataError, MemboundError, ModelError, TrainingError
from membound.run.net import EVERY, known_isas
from membound.search.jobs import carry_out
from membound.search.ledger import LEDGER
from membound.search.place import Watch
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.scoring import rounding_hurts
from membound.search.setup import make_problem
from membound.search.within import is_within
from membound.train.evaluation import Score
from membound.train.loop import Interrupted

TRAIN = (digits().images, digits().labels)
HELD_OUT = (digits(300, 400).images, digits(300, 400).labels)
SQUARE = (np.zeros((9, 1, 20, 20), np.uint8), np.zeros(9, np.int64))
TURNED = (HELD_OUT[0].transpose(0, 2, 3, 1), HELD_OUT[1])
BEYOND = (HELD_OUT[0], HELD_OUT[1] + 5)
FLOATS = (HELD_OUT[0].astype(np.float32) / 255, HELD_OUT[1])
FAST = {"steps": 20, "batch_size": 20}
# The default. Choosing takes most of the time of so short a fit, so few tests here do it.
CHOSEN = {"values": "auto"}
USED = 0.97  # of the budget, at least


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fit(model=Small, data=TRAIN, budget=None, **options):
    options = {"val_data": HELD_OUT, "dense": False, "values": "f16", **FAST, **options}
    return mb.fit(model, data, budget, **options)


def errors_of(net, images, labels) -> int:
    """Through a loaded file, one image at a time, with nothing of fit's own."""
    prepared = net.preprocess(images)
    return sum(int(net(prepared[i : i + 1])[0].argmax() != label) for i, label in enumerate(labels))


# The budget is a promise


@pytest.fixture(scope="module")
def frontier():
    return fit(budget=["6 KiB", 4000, "10%"], dense=True, **CHOSEN)


def test_several_budgets_give_a_network_each_in_their_order(frontier, tmp_path):
    assert [result.name for result in frontier] == ["6 KiB", "4000", "10%"]
    assert [result.limit for result in frontier[:2]] == [6144, 4000]
    for number, result in enumerate(frontier):
        path = tmp_path / f"{number}.safetensors"
        result.save(path)
        assert USED * result.limit <= os.path.getsize(path) <= result.limit
        assert result.file_bytes == result.size == os.path.getsize(path)
        assert mb.load(path).memory().weights == result.file_bytes


@pytest.mark.full
def test_a_part_is_one_of_the_dense_float32_file(frontier, tmp_path):
    about = frontier[2].files.preprocess
    mb.save(Small(), tmp_path / "dense.safetensors", torch.zeros(1, 1, 28, 28), preprocess=about)
    dense = os.path.getsize(tmp_path / "dense.safetensors")
    assert frontier[2].limit == int(0.1 * dense)
    assert frontier[0].dense["file_bytes"] == dense


def test_accuracy_is_that_of_the_file(frontier, tmp_path):
    for result in frontier:
        result.save(tmp_path / "net.safetensors")
        errors = errors_of(mb.load(tmp_path / "net.safetensors"), *HELD_OUT)
        assert (result.errors, result.images, result.accuracy_on) == (errors, 100, "validation")
        assert result.accuracy == 100 - errors
    assert frontier[0].dense["images"] == 100
    assert frontier[0].dense["accuracy"] == 100 - frontier[0].dense["errors"]


def test_the_network_in_torch_is_the_one_in_the_file(frontier, tmp_path):
    frontier[0].save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors")
    x = net.preprocess(HELD_OUT[0][:20])
    assert not frontier[0].model.training
    with torch.no_grad():
        assert np.allclose(frontier[0].model(torch.from_numpy(x)).numpy(), net(x), atol=1e-2)


@pytest.mark.parametrize(("batch", "ram"), [full(1, "24 KiB"), (8, "50 KiB")])
def test_ram_is_weights_and_working_memory_of_the_loaded_file(batch, ram, tmp_path):
    result = fit(ram=ram, batch=batch, **CHOSEN)
    result.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors", max_batch=batch, threads=1)
    assert net.memory().total <= net.memory(EVERY).total <= result.limit
    # With few bits most of it is values, in whole channels, and room for layers that are multiplied as dense.
    assert 0.7 * result.limit <= result.size
    assert result.size == result.facts["memory_bytes"] == net.memory(EVERY).total


@pytest.mark.parametrize("isa", chiefly(["neon"], known_isas()))
@pytest.mark.full
def test_ram_may_hold_on_one_instruction_set(isa, tmp_path):
    result = fit(ram="24 KiB", isa=isa, steps=10)
    result.save(tmp_path / "net.safetensors")
    assert result.size == mb.load(tmp_path / "net.safetensors", threads=1).memory(isa).total <= 24 * 1024


@pytest.mark.parametrize("values", ["auto", full("f16")])
def test_formats_for_speed_are_counted_by_the_budget(values, tmp_path):
    fast, small = (fit(budget="6 KB", values=values, prefer=prefer) for prefer in ("speed", "bytes"))
    for result in (fast, small):
        result.save(tmp_path / "net.safetensors")
        assert USED * 6000 <= os.path.getsize(tmp_path / "net.safetensors") == result.file_bytes <= 6000
        if result is fast:
            formats = {layer["format"] for layer in mb.inspect(tmp_path / "net.safetensors")["layers"]}
            assert formats == {"csr", "dense"}
    assert fast.facts["nonzeros"] < small.facts["nonzeros"]  # what it costs,
    (said,) = [note for note in fast.facts["tried"] if note.startswith("formats for speed")]
    least = dataclasses.replace(fast.files, prefer="bytes")(fast.model.state_dict())
    assert f"{least:,} of these {fast.file_bytes:,} bytes" in said  # is said
    assert not any("speed" in note for note in small.facts["tried"])


@pytest.mark.parametrize("bound", [full({"ram": "22 KiB"}), {"nonzeros": 900, "members": 2}])
def test_formats_for_speed_go_with_other_bounds(bound):
    result = fit(**bound, prefer="speed")
    assert 0.7 * result.limit <= result.size <= result.limit
    assert {layer["format"] for layer in result.facts["layers"]} == {"csr", "dense"}


def test_an_instruction_set_that_is_not_known():
    with pytest.raises(MemboundError, match="no instruction set 'sse2': choose scalar, avx2, avx512, neon"):
        fit(ram="28 KiB", isa="sse2")


def test_values_of_32_bits_and_nonzeros(tmp_path):
    result = fit(budget="6 KB", values="f32")
    result.save(tmp_path / "net.safetensors")
    assert result.values == "f32"
    assert USED * 6000 <= os.path.getsize(tmp_path / "net.safetensors") <= 6000
    result = fit(nonzeros=900)
    assert result.size == sum(int(p.count_nonzero()) for p in result.model.parameters())
    assert USED * 900 <= result.size <= 900


def test_a_budget_that_everything_fits_in_cuts_nothing():
    result = fit(budget="100%")
    assert all(bool(p.all()) for p in result.model.parameters())


def test_the_least_budget_that_is_named_can_be_met():
    with pytest.raises(MemboundError, match="allow at least that") as refused:
        fit(budget=200)
    least = int(str(refused.value).split("takes ")[1].split(";")[0].replace(",", ""))
    assert fit(budget=least, steps=5).file_bytes <= least


# Choices are made on other images than those that judge


def test_without_other_images_some_of_the_training_images_judge():
    told = []
    watch = Watch(done=lambda job, facts: told.append(job))
    result = fit(budget="5 KiB", val_data=None, dense=True, watch=watch)
    assert (result.accuracy_on, result.images) == ("validation", 30)
    assert result.accuracy == pytest.approx(100 - 100 * result.errors / 30)
    assert result.dense["accuracy"] is not None
    assert {job.key: job.everything for job in told} == {
        "estimate-5KiB-0": False, "dense-part": False, "dense": True, "final-5KiB-0": True,
    }  # fmt: skip


def test_images_for_the_last_word_are_not_chosen_by():
    told = []
    test = digits(400, 450)
    result = fit(
        budget="5 KiB", test_data=(test.images, test.labels), watch=Watch(done=lambda job, facts: told.append(job.key))
    )  # fmt: skip
    assert (result.accuracy_on, result.images) == ("test", 50)
    assert told == ["final-5KiB-0"]  # nothing is chosen, so nothing else is trained


@pytest.mark.full
def test_the_smallest_size_within_some_points_of_dense():
    told = {}
    watch = Watch(done=lambda job, facts: told.update({job.key: facts}))
    result = fit(within=30, val_data=None, steps=30, watch=watch)
    dense = told["dense-part"]
    good = {
        facts["size"]
        for key, facts in told.items()
        if key.startswith("within") and is_within(facts, dense, 30)
    }
    assert good
    assert result.limit * USED <= min(good) <= result.limit
    assert result.file_bytes <= result.limit
    assert [found["key"] for found in result.history] == [key for key in told if not key.startswith("final")]
    best = told[f"within-{result.limit}"]
    assert [found["won"] for found in result.history if found["key"] == best["job"]["key"]] == [True]
    # The one that was chosen is the estimate, through the runtime: it is not trained again.
    assert abs(result.accuracy - best["accuracy"]) <= 100 / 30 + 1e-9


# The greedy search


def test_a_greedy_search_tells_all_its_candidates_and_keeps_the_winners(tmp_path):
    run = tmp_path / "run"
    results = fit_tiny(run, ["4900", "5900"], dense=False)
    history = results[0].history
    rounds = max(found["round"] for found in history)
    assert rounds >= 2
    for number in range(1, rounds + 1):
        candidates = [found for found in history if found["round"] == number]
        assert {found["layer"] for found in candidates} == {"conv.weight", "fc1.weight", "fc2.weight"}
        (winner,) = [found for found in candidates if found["won"]]
        assert winner["accuracy"] == max(found["accuracy"] for found in candidates)
        weights = load_file(run / "weights" / f"{winner['key']}.safetensors")
        assert {name: int(weights[name].count_nonzero()) for name in winner["counts"]} == winner["counts"]
        assert sorted(path.stem for path in (run / "weights").glob(f"r{number:03}-*")) == [winner["key"]]
    for limit, result in zip((4900, 5900), results, strict=True):
        result.save(tmp_path / "net.safetensors")
        assert USED * limit <= os.path.getsize(tmp_path / "net.safetensors") <= limit
    lines = [json.loads(line) for line in (run / LEDGER).read_text().splitlines()]
    starts = {line["key"]: line["facts"]["job"]["start"] for line in lines if "facts" in line}
    (last,) = [found["key"] for found in history if found["round"] == rounds and found["won"]]
    assert starts["final-4900-0"] == last  # final networks go on from the winners within their limits


# Ensembles


@pytest.mark.parametrize(
    ("members", "values", "average", "near"), [(2, "f16", "scores", 1e-2), (3, "f32", "probabilities", 1e-4)]
)
@pytest.mark.one_in(2)
def test_members_share_the_budget_and_are_averaged(members, values, average, near, tmp_path):
    result = fit(budget="12 KiB", members=members, values=values, average=average, steps=15)
    result.save(tmp_path / "net.safetensors")
    assert USED * 12288 <= os.path.getsize(tmp_path / "net.safetensors") <= 12288
    net = mb.load(tmp_path / "net.safetensors")
    x = net.preprocess(HELD_OUT[0])
    with torch.no_grad():
        outputs = [member(torch.from_numpy(x)) for member in result.model.members]
    assert len(outputs) == len(result.members) == members
    assert not torch.equal(outputs[0], outputs[1])
    assert result.members == [pytest.approx(100 - errors, abs=2) for errors in map(errors_in, outputs)]
    if average == "probabilities":
        outputs = [out.softmax(1) for out in outputs]
    assert np.allclose(torch.stack(outputs).mean(0).numpy(), net(x), atol=near)
    assert result.errors == errors_of(net, *HELD_OUT)


def errors_in(outputs) -> int:
    return int((outputs.argmax(1).numpy() != HELD_OUT[1]).sum())


@pytest.mark.full
def test_an_ensemble_is_judged_as_a_whole_and_fits_in_memory(tmp_path):
    told = []
    watch = Watch(done=lambda job, facts: told.append(job))
    result = fit(Tiny, ram="30 KiB", members=2, val_data=None, steps=10, watch=watch, **CHOSEN)
    result.save(tmp_path / "net.safetensors")
    assert USED * 30720 <= mb.load(tmp_path / "net.safetensors", threads=1).memory(EVERY).total <= 30720
    assert [(job.key, job.bag is None) for job in told] == [
        (f"{kind}-30KiB-{member}", False) for kind in ("estimate", "final") for member in (0, 1)
    ]
    assert result.images == 30


# Any network


class Residual(nn.Module):
    """Batch norm, and a way around it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 5, stride=3, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.last = nn.Linear(8 * 64, 10)

    def forward(self, x):
        x = torch.relu(self.norm1(self.first(x)))
        return self.last(torch.relu(x + self.norm2(self.second(x))).flatten(1))


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 5, stride=3)
        self.deep = nn.Conv2d(12, 12, 3, groups=12)
        self.point = nn.Conv2d(12, 24, 1)
        self.last = nn.Linear(24 * 36, 10)

    def forward(self, x):
        x = torch.relu(self.point(torch.relu(self.deep(torch.relu(self.first(x))))))
        return self.last(x.flatten(1))


def test_a_residual_network_with_batch_norm(tmp_path):
    result = fit(Residual, budget="4 KiB", steps=30)
    result.save(tmp_path / "net.safetensors")
    assert USED * 4096 <= os.path.getsize(tmp_path / "net.safetensors") <= 4096
    assert result.errors == errors_of(mb.load(tmp_path / "net.safetensors"), *HELD_OUT)
    assert result.errors < 80  # of 100: it has learned something


@pytest.mark.full  # tests/search/test_bound.py leaves one alone
def test_depthwise_weights_are_left_alone_unless_they_are_not():
    assert bool(fit(Depthwise, budget="5 KiB", **CHOSEN).model.deep.weight.all())
    bounded = fit(Depthwise, budget="3 KiB", depthwise=True, **CHOSEN)
    assert not bool(bounded.model.deep.weight.all())
    assert USED * 3072 <= bounded.file_bytes <= 3072


def test_protected_layers_and_a_network_in_a_wrapper():
    result = fit(nn.DataParallel(Tiny()), budget="5000", protect="conv")
    assert bool(result.model.module.conv.weight.all())
    assert result.file_bytes <= 5000


class Tied(Tiny):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(20, 20)
        self.more = nn.Linear(20, 20)
        self.more.weight = self.again.weight

    def forward(self, x):
        x = torch.relu(self.fc1(torch.relu(self.conv(x)).flatten(1)))
        return self.fc2(torch.relu(self.more(torch.relu(self.again(x)))))


@pytest.mark.parametrize(("members", "budget"), [(1, 3000), (3, 8000)])
@pytest.mark.one_in(2)
@pytest.mark.full  # tests/search/test_bound.py counts them once
def test_tied_weights_stay_tied(members, budget):
    result = fit(Tied, budget=budget, members=members, steps=8, **CHOSEN)
    assert USED * budget <= result.file_bytes <= budget
    for network in result.model.members if members > 1 else [result.model]:
        assert network.more.weight is network.again.weight


def test_weights_that_are_trained_already_are_gone_on_from():
    trained = fit(budget="100%", steps=80, lr=0.02)
    result = fit(trained.model, budget="6 KiB", pretrained=True, steps=20, dense=True)
    assert result.dense["given_accuracy"] == pytest.approx(trained.accuracy, abs=1)  # that is of its file
    assert result.accuracy > fit(budget="6 KiB", steps=20).accuracy


def test_the_users_network_stays_as_it_is():
    model = Small().double().to(memory_format=torch.channels_last).eval()
    model.fc1.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    strides, modes = [p.stride() for p in model.parameters()], [part.training for part in model.modules()]
    result = fit(model, budget="5 KiB")
    assert result.model is not model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.dtype == torch.float64 for value in model.state_dict().values())
    assert [p.stride() for p in model.parameters()] == strides
    assert [part.training for part in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())


def test_the_same_call_gives_the_same_file(tmp_path):
    for number, seed in enumerate((3, 3, 4)):
        fit(budget="5 KiB", seed=seed, steps=12).save(tmp_path / f"{number}.safetensors")
    first, second, other = ((tmp_path / f"{n}.safetensors").read_bytes() for n in range(3))
    assert first == second != other


# Any data


def test_the_same_images_in_any_form_give_the_same_network():
    x = torch.from_numpy(TRAIN[0].astype(np.float32) / 255)
    y, held_out = torch.from_numpy(TRAIN[1]), (HELD_OUT[0].astype(np.float32) / 255, HELD_OUT[1])
    forms = [
        (x.numpy(), y.numpy()), (x, y), TensorDataset(x, y),
        DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True),
        [(x[i], y[i]) for i in range(len(x))],
    ]  # fmt: skip
    results = [fit(Tiny, form, 5000, val_data=held_out, steps=8) for form in forms]
    states = [result.model.state_dict() for result in results]
    assert all(torch.equal(state[name], states[0][name]) for state in states for name in state)
    assert len({result.accuracy for result in results}) == 1


def test_a_loaders_batch_size_is_taken_unless_another_is_asked_for():
    x = torch.from_numpy(TRAIN[0].astype(np.float32) / 255)
    loader = DataLoader(TensorDataset(x, torch.from_numpy(TRAIN[1])), batch_size=7, shuffle=True)
    held_out, said = (HELD_OUT[0].astype(np.float32) / 255, HELD_OUT[1]), []
    given = {"val_data": held_out, "steps": 8, "dense": False, "watch": Watch(warn=said.append)}

    def state(data, **more):
        return mb.fit(Tiny, data, 5000, **given, **more).model.state_dict()

    own, seven = state(loader), state((x, TRAIN[1]), batch_size=7)
    assert all(torch.equal(own[name], seven[name]) for name in own)
    assert not said
    nine, asked = state(loader, batch_size=9), state((x, TRAIN[1]), batch_size=9)
    assert all(torch.equal(nine[name], asked[name]) for name in own)
    assert said == ["batch_size=9 is used; the DataLoader's is 7"]


def test_held_out_examples_are_not_drawn():
    x, y = torch.from_numpy(HELD_OUT[0]), torch.from_numpy(HELD_OUT[1])
    drawn = DataLoader(TensorDataset(x, y), sampler=WeightedRandomSampler([1.0] * len(x), len(x)))
    with pytest.raises(DataError, match="judged once"):
        fit(Tiny, TRAIN, 5000, val_data=drawn, steps=8)


def test_a_dataset_brings_test_images_and_classes(tmp_path):
    data = Dataset("few", digits(), ArraySplit(*HELD_OUT), tuple("abcdefghij"))
    result = fit(Tiny, data, 5000, val_data=None, steps=8)
    result.save(tmp_path / "net.safetensors")
    assert (result.accuracy_on, result.images) == ("test", 100)
    assert mb.load(tmp_path / "net.safetensors").classes == list("abcdefghij")


def closeness(outputs, targets):
    return 1 - (outputs - targets).abs().mean()


def test_another_task_with_its_own_loss_and_score(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 16)).astype(np.float32)
    y = (x @ rng.normal(size=(16, 2)) / 4).astype(np.float32)
    make = partial(nn.Sequential, nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 2))
    result = fit(
        make, (x[:200], y[:200]), 1500, val_data=(x[200:], y[200:]), loss=nn.functional.mse_loss, score=closeness,
        steps=60, values="f16",
    )  # fmt: skip
    result.save(tmp_path / "net.safetensors")
    assert USED * 1500 <= os.path.getsize(tmp_path / "net.safetensors") <= 1500
    outputs = mb.load(tmp_path / "net.safetensors")(x[200:])
    assert result.accuracy == pytest.approx(1 - np.abs(outputs - y[200:]).mean(), abs=1e-5)
    assert result.errors is None
    untrained = 1 - np.abs(y[200:]).mean()
    assert result.accuracy > untrained


# Values


class Loud(Tiny):
    """A weight that 16 bits cannot hold, and a bias that makes up for it."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.fc2.weight[0, 0] = 1e5
            self.fc2.bias[0] = -1e5


def test_a_weight_beyond_16_bits_is_fitted_in_32():
    result = fit(Loud, budget=6000, protect=["fc2"], lr=1e-9, steps=4, **CHOSEN)
    assert result.values.endswith("p8")  # with scales that hold it
    assert result.file_bytes <= 6000
    assert fit(Loud, nonzeros=900, protect=["fc2"], lr=1e-9, steps=4, **CHOSEN).values == "f32"
    with pytest.raises(ModelError, match="65504"):
        fit(Loud, budget=6000, values="f16")


@pytest.mark.parametrize("bound", [{"budget": 2000}, full({"within": 40})])
@pytest.mark.full
def test_a_weight_that_grows_beyond_16_bits_is_fitted_again_in_32(bound, tmp_path):
    def workers(problem, orders, show):
        for job, outcome in carry_out(problem, orders, torch.device("cpu"), show):
            if problem.target.values in ("auto", "f16") and job.limit is not None:
                raise ModelError("the value 1e5 does not fit f16")
            yield job, outcome

    told: list[str] = []
    watch = Watch(done=lambda job, facts: told.append(job.key))
    result = fit(Tiny, **bound, workers=workers, run_dir=tmp_path / "run", steps=5, watch=watch, **CHOSEN)
    assert result.values == "f32"
    assert USED * result.limit <= result.file_bytes <= result.limit
    assert all(key.endswith("-f32") for key in told if not key.startswith("dense"))
    with pytest.raises(ModelError, match="does not fit"):
        fit(Tiny, **bound, workers=workers, values="f16", steps=5)


@pytest.mark.full
def test_values_are_widened_only_where_rounding_costs_accuracy(monkeypatch):
    said = []
    monkeypatch.setattr(
        "membound.search.fitting.rounding_hurts", lambda problem, files, state: files(state) < 3000
    )
    # Which of two networks has learned more in five steps is chance.
    monkeypatch.setattr("membound.search.wider.score_on_training", lambda stored, _: [Score(9, 5, 0.1)] * 2)
    results = fit(
        Tiny, budget=[2900, 5000, 2600], val_data=None, watch=Watch(say=said.append), steps=5, **CHOSEN
    )
    assert [result.values for result in results] == ["f32", "p8", "f32"]
    for result in results:
        assert result.file_bytes <= result.limit
        assert result.values == "p8" or result.file_bytes >= USED * result.limit
    assert sum("again in f32" in text for text in said) == 2
    least = int(
        str(refusal(Tiny, budget=500, values="f16")).split("takes ")[1].split(";")[0].replace(",", "")
    )
    (result,) = fit(Tiny, budget=[least + 10], watch=Watch(say=said.append), steps=5, **CHOSEN)
    assert result.values == "f16"
    assert "stay" in said[-1]


def pose(model, data, val_data):
    return make_problem(model, Examples(train_data=data, val_data=val_data), Choices(), Target())


@pytest.mark.parametrize(("difference", "hurts"), [(1e-4, True), (1e-2, False)])
def test_rounding_hurts_where_it_makes_classes_the_same(difference, hurts):
    model = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [1 + difference]]))
    data = (np.ones((50, 1), np.float32), np.ones(50, np.int64))
    problem = pose(model, data, data)
    assert rounding_hurts(problem, problem.files, model.state_dict()) is hurts


class Noisy(torch.utils.data.Dataset):
    """Images that are never twice the same."""

    def __init__(self, split) -> None:
        self.split, self.rng = split, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index):
        image = self.split.images[index].astype(np.float32) / 255
        return image + self.rng.normal(size=image.shape).astype(np.float32) / 2, int(self.split.labels[index])


def test_rounding_is_judged_on_the_very_same_inputs():
    torch.manual_seed(0)
    model = Tiny()
    problem = pose(model, Noisy(digits(0, 200)), FLOATS)
    for _ in range(3):  # with other noise for each network, some errors would differ
        assert not rounding_hurts(problem, problem.files, model.state_dict())


# What cannot be is said at once


def refusal(*given, **options) -> MemboundError:
    with pytest.raises(MemboundError) as refused:
        fit(*given, **options)
    return refused.value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 200}, "a budget of 200 bytes cannot be met: .* takes [0-9,]+; allow at least that"),
        ({"budget": ["40%", "0.2 KiB"]}, "a budget of 0.2 KiB .* cannot be met"),
        ({"budget": 600, "members": 4}, "4 such networks take [0-9,]+; allow at least that"),
        ({"ram": 5000}, "a bound on memory of 5,000 bytes cannot be met"),
        ({"ram": "5XB"}, "ram: '5XB' is not a size"),
        ({"budget": 2000, "step": 3}, "no keyword 'step': did you mean steps?"),
        ({"nonzeros": 3}, "cannot be met"),
        ({"nonzeros": "4 KiB"}, "whole number"),
        ({}, "give one bound .budget, .*: got none"),
        ({"budget": 2000, "nonzeros": 5000}, "got budget and nonzeros"),
        ({"budget": 2000, "ram": 5000}, "allow at least these two"),
        ({"budget": 2000, "within": 1}, "budget and within"),
        ({"budget": []}, "there is no budget"),
        ({"budget": 0.1}, "0.1 is not understood"),
        ({"budget": True}, "True is not understood"),
        ({"budget": -5}, "-5"),
        ({"budget": "5 KiBs"}, "not a size"),
        ({"budget": "0%"}, "more than 0%"),
        ({"budget": "140%"}, "at most 100%"),
        ({"budget": [5000, "5000"]}, "not all different"),
        ({"within": -1}, "within=-1"),
        ({"within": "1"}, "within='1'"),
        ({"within": 1, "members": 2}, "leave out members or strategy='greedy'"),
        ({"within": 1, "strategy": "greedy"}, "leave out members or strategy='greedy'"),
        ({"strategy": "clever"}, "no strategy 'clever': choose global"),
        ({"members": 0}, "members=0"),
        ({"members": 2.5}, "members=2.5"),
        ({"average": "median"}, "'median'"),
        ({"values": "f8"}, "no values 'f8'"),
        ({"prefer": "fast"}, "no preference 'fast': choose bytes or speed"),
        ({"within": 1, "prefer": "speed"}, "within looks for the smallest file"),
        ({"target": "micro", "prefer": "speed"}, "leave prefer out"),
        ({"budget": 300, "prefer": "speed"}, "or leave prefer out, allow at least that"),
        ({"batch": 0}, "batch=0"),
        ({"seed": -1}, "seed=-1"),
        ({"steps": 0}, "steps=0"),
        ({"lr": "fast"}, "lr='fast'"),
        ({"greedy_step": "0.2"}, "greedy_step='0.2'"),
        ({"rules": {}}, r"no keyword 'rules': .*mb\.attach\(optimizer, model, rules\); .*mb\.save\(.*budget=size"),
        ({"epochs": 3}, "no keyword 'epochs': did you mean steps"),
        ({"num_steps": 3}, "no keyword 'num_steps': did you mean steps"),
        ({"strategy": "lamp"}, "there is no strategy 'lamp': LAMP is 'global'"),
        ({"nothing": 3}, "no keyword 'nothing': there are budget, ram, nonzeros, within, stages and .* more"),
        ({"solver": "lion"}, "no solver 'lion'"),
        ({"layers": 3}, "layers=3"),
        ({"layers": ["fc9"]}, "fc9"),
        ({"protect": "*"}, "no weight is left"),
        ({"device": "tpu"}, "tpu"),
        ({"val_data": SQUARE}, r"val_data of \[1, 20, 20\] and uint8: they must be alike; the network takes"),
        ({"test_data": TURNED}, r"and those of test_data have their channels last: give x\.transpose\(0, 3, 1, 2\)"),
        ({"val_data": FLOATS}, "the training data .* type uint8, val_data of .* float32"),
        ({"val_data": BEYOND}, "labels up to 14"),
        ({"test_data": BEYOND}, "labels up to 14"),
        ({"data": SQUARE, "val_data": None}, "does not take images of shape .*: layer 'fc1' takes .* features"),
        ({"data": "mnist"}, "mb.data.load"),
        ({"loss": "mse"}, "loss is 'mse'"),
        ({"model": 3}, "the model is an int"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_training(options, message, monkeypatch, tmp_path):
    def train(*_):
        pytest.fail("a network is trained")

    monkeypatch.setattr("membound.search.workshop.carry_out", train)
    bounds = {"budget", "ram", "nonzeros", "within"}
    if options and not bounds & options.keys():
        options = {"budget": 2000, **options}
    with pytest.raises(MemboundError, match=message) as refused:
        fit(**{"model": Tiny, **options}, run_dir=tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()  # another budget may be tried there


# Runs that last


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was left in its second round, and where its jobs were counted."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        fit_tiny(run, workers=stopping(6))
    assert ledger_keys(run) == ["dense-part", *(f"r001-{layer}" for layer in ("conv", "fc1", "fc2")),
                                *(f"r002-{layer}" for layer in ("conv", "fc1"))]  # fmt: skip
    return run


def stopping(after: int, trained: list[str] | None = None):
    """Workers that stop the whole fit when so many jobs are done."""
    left = [after]

    def workers(problem, orders, show):
        for job, outcome in carry_out(problem, orders, torch.device("cpu"), show):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            if trained is not None:
                trained.append(job.key)
            yield job, outcome

    return workers


@pytest.fixture
def again(stopped, tmp_path):
    """A copy of that run, to be damaged."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_a_fit_goes_on_where_it_was(again):
    trained: list[str] = []
    result = fit_tiny(again, workers=stopping(100, trained))
    assert trained[0] == "r002-fc2"
    assert trained[-2:] == ["dense", "final-5000-0"]
    peace = fit_tiny(None)
    assert all(
        torch.equal(v, peace.model.state_dict()[name]) for name, v in result.model.state_dict().items()
    )
    assert [found["key"] for found in result.history] == [found["key"] for found in peace.history]
    once_more: list[str] = []
    assert fit_tiny(again, workers=stopping(0, once_more)).accuracy == result.accuracy
    assert once_more == []


def test_a_winner_whose_weights_are_gone_is_no_silent_restart(again):
    (winner,) = (again / "weights").glob("r001-*")
    winner.unlink()
    with pytest.raises(TrainingError, match=f"{winner.name} is gone, .* delete line [0-9]+ of .*{LEDGER}"):
        fit_tiny(again)


def test_a_corrupt_line_is_named(again):
    lines = (again / LEDGER).read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"accuracy", b"accurasy", 1)
    (again / LEDGER).write_bytes(b"\n".join(lines))
    with pytest.raises(TrainingError, match=f"{LEDGER}, line 3 is damaged .* delete that line"):
        fit_tiny(again)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": 4000}, 'budget was "5000", and is "4000" now'),
        ({"greedy_step": 0.4}, "greedy_step was 0.3, and is 0.4 now"),
        ({"val_data": HELD_OUT}, "val_data was not given"),
        ({"seed": 1}, "seed was 0, and is 1"),
        ({"loss": nn.functional.cross_entropy}, 'loss was not given, and is "cross_entropy" now'),
        (
            {"steps": 7, "seed": 3},
            "seed was 0, and is 3 now; steps was [0-9]+, and is 7 now: choose",
        ),
        ({"steps": None, "effort": "quick"}, "steps was [0-9]+, and is not given now: choose"),
        ({"values": "f32"}, 'values was "f16", and is "f32" now: choose'),
    ],
)
def test_another_fit_in_the_same_place_is_refused(again, changed, message):
    with pytest.raises(TrainingError, match=f"belongs to another run: {message}"):
        fit_tiny(again, **changed)


def test_a_damaged_checkpoint_is_named(again):
    checkpoint = again / "jobs" / "r002-fc2" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_bytes(b"half of it")
    with pytest.raises(TrainingError, match=r"r002-fc2/checkpoint.safetensors is not a readable"):
        fit_tiny(again)
    checkpoint.unlink()
    assert fit_tiny(again).file_bytes <= 5000


@pytest.mark.full
@pytest.mark.parametrize("kills", [1, 20])
def test_a_fit_survives_kills_at_random_moments(tmp_path, kills):
    result = kill_and_compare(tmp_path, kills=kills, seed=7)
    assert result["identical"]
    assert len(result["finished_at_kill"]) == kills
    calls = [len(json.loads(file.read_text())) for file in tmp_path.glob("killed-*/run/environment.json")]
    assert max(calls) > 1  # it was really called again


def test_an_interrupted_fit_says_what_is_left_of_it(monkeypatch):
    def interrupt(*given):
        raise Interrupted

    monkeypatch.setattr("membound.search.fit.fit_all", interrupt)
    with pytest.raises(
        Interrupted,
        match=r"nothing was saved: call it again; with run_dir='runs/a', an interrupted call can be resumed",
    ):
        mb.fit(nn.Flatten(), TRAIN, "4KB")
    with pytest.raises(Interrupted, match=r"call fit again with run_dir='runs/b' to go on"):
        mb.fit(nn.Flatten(), TRAIN, "4KB", run_dir="runs/b")
