"""Averages and copies of a network under bounds: projected as it is, and never saved unnoticed beyond their bounds."""

import copy
import gc
import io
import os
import pickle
import pickletools
import warnings
import weakref
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import membound as mb
from membound.errors import Diverged, RuleError, TrainingError
from membound.modules import broken

EXAMPLE = torch.zeros(1, 40)
pytestmark = pytest.mark.filterwarnings("ignore:finish.. before any step")  # bounds matter here, not training


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 4))


def attached(model, rule=None, total_steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rules = {"*": rule or mb.l0_project(mb.ramp(1.0, 0.1), every=5)}
    return optimizer, mb.attach(optimizer, model, rules, total_steps=total_steps)


def train(model, optimizer, steps, average=None):
    for _ in range(steps):
        x = torch.randn(16, 40)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
        if average is not None:
            average.update_parameters(model)


def nonzeros(model) -> list[int]:
    return [int(weight.count_nonzero()) for weight in model.parameters() if weight.dim() > 1]


@pytest.fixture
def averaged():
    """A network that was trained to its bounds, and an average that is not within them."""
    model = network()
    optimizer, reg = attached(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    train(model, optimizer, 20, average)
    reg.finish()
    return model, reg, average


def saved_bytes(model, path) -> int:
    mb.save(model, path, EXAMPLE)
    return os.path.getsize(path)


def test_an_average_is_projected_to_the_final_bounds(averaged, tmp_path):
    model, reg, average = averaged
    before = average.module[0].weight.clone()
    assert sum(nonzeros(average)) > 400
    reg.project_(average)
    assert nonzeros(average) == nonzeros(model) == [80, 8]
    kept = average.module[0].weight
    assert torch.equal(kept[kept != 0], before[kept != 0])
    assert before[kept == 0].abs().max() <= before[kept != 0].abs().min()
    sizes = [saved_bytes(net, tmp_path / f"{n}.safetensors") for n, net in enumerate((model, average.module))]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "TRAINING.md").read_text()
    code = page.split("## Averages of the weights")[1].split("```python")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert mb.load("average.safetensors").model.tensors["0.weight"].nonzeros <= 500


def test_an_average_is_evaluated_at_the_present_bound():
    model = network()
    optimizer, reg = attached(model)
    average = AveragedModel(model)
    train(model, optimizer, 12, average)
    before = [weight.clone() for weight in average.parameters()]
    with reg.projected(average.module):
        assert nonzeros(average) == [layer.bound for layer in reg.report().layers]
        assert sum(nonzeros(model)) > sum(nonzeros(average))
        with pytest.raises(TrainingError, match="nested"), reg.projected():
            pass
    assert all(torch.equal(one, other) for one, other in zip(before, average.parameters(), strict=True))


def test_what_is_not_a_network_of_the_same_layers_is_refused(averaged):
    _, reg, average = averaged
    before = average.module[0].weight.clone()
    with pytest.raises(RuleError, match=r"no such weight as '0\.weight'"):
        reg.project_(nn.Linear(40, 20))
    with pytest.raises(RuleError, match=r"one of shape \(20, 41\) as '0.weight'"):
        reg.project_(nn.Sequential(nn.Linear(41, 20)))
    with pytest.raises(RuleError, match="not a network: give one with the same layers"):
        reg.project_(average.state_dict())
    with torch.no_grad():
        average.module[2].weight[0, 0] = torch.nan
    with pytest.raises(Diverged, match=r"'2.weight'"):
        reg.project_(average)
    assert torch.equal(average.module[0].weight, before)


# What save() says


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), AveragedModel]
)
def test_a_copy_that_exceeds_the_bounds_is_saved_with_a_warning(copied, tmp_path):
    model = network()
    optimizer, reg = attached(model)
    train(model, optimizer, 20)
    other = copied(model)
    reg.finish()
    net = getattr(other, "module", other)
    if copied is not AveragedModel:
        torch.nn.init.normal_(net[0].weight), torch.nn.init.normal_(net[2].weight)
    else:
        torch.nn.init.normal_(model[0].weight), torch.nn.init.normal_(model[2].weight)
        other.update_parameters(model), other.update_parameters(model)
    said = r"'0.weight' has 800 nonzeros, its bound is 80, and 1 more layer exceeds its bound: .*reg\.project_\(model\)"
    with pytest.warns(UserWarning, match=said):
        mb.save(net, tmp_path / "net.safetensors", EXAMPLE)
    reg.project_(net)
    mb.save(net, tmp_path / "net.safetensors", EXAMPLE)  # warnings are errors in tests


def test_a_network_between_projections_is_saved_with_a_warning(tmp_path):
    model = network()
    optimizer, reg = attached(model)
    train(model, optimizer, 13)
    with pytest.warns(UserWarning, match="has 800 nonzeros, its bound is") as warned:
        mb.save(model, tmp_path / "net.safetensors", EXAMPLE)
    assert warned[0].filename == __file__  # the line that saves is shown, none of membound's
    with reg.projected():
        mb.save(model, tmp_path / "net.safetensors", EXAMPLE)
    reg.finish()
    mb.save(model, tmp_path / "net.safetensors", EXAMPLE)


def test_bounds_that_hold_or_are_given_up_are_not_warned_of(tmp_path):
    model = network()
    optimizer, reg = attached(model, mb.l0_project(0.1, every=5), total_steps=None)
    assert [name for name, *_ in broken(model)] == ["0.weight", "2.weight"]
    train(model, optimizer, 5)
    assert not list(broken(model))
    reg.detach()
    nn.init.normal_(model[0].weight)
    assert not list(broken(model))
    optimizer, reg = attached(model, mb.l0_project(0.5, every=5))
    reg.finish()
    optimizer, hold = attached(model, mb.hold(), total_steps=None)
    train(model, optimizer, 3)
    hold.finish()
    assert nonzeros(model) == [400, 8]
    assert not list(broken(model))
    mb.save(nn.DataParallel(model), tmp_path / "net.safetensors", EXAMPLE)


@pytest.mark.filterwarnings("ignore::membound.train.ending.OneShot")
def test_another_attach_to_a_copy_leaves_the_first_network_alone():
    model = network()
    _, reg = attached(model, mb.l0_project(0.5))
    reg.finish()
    other = copy.deepcopy(model)
    _, tighter = attached(other, mb.l0_project(0.1))
    tighter.finish()
    assert not list(broken(model))
    assert not list(broken(other))


@pytest.mark.filterwarnings("ignore::membound.train.ending.OneShot")
def test_a_fit_does_not_take_over_the_bounds_of_an_earlier_training(tmp_path):
    model = network()
    _, reg = attached(model, mb.l0_project(0.01))
    reg.finish()
    x = np.random.default_rng(0).normal(size=(50, 40)).astype(np.float32)
    fitted = mb.fit(model, (x, x[:, :4].argmax(1)), "60%", steps=5, dense=False)
    assert not list(broken(fitted.model))


# What the note must not do


def test_the_note_is_in_no_state_dict_keeps_nothing_alive_and_needs_no_membound():
    model = network()
    names = list(model.state_dict())
    _, reg = attached(model)
    assert list(model.state_dict()) == names
    buffer = io.BytesIO()
    torch.save(model, buffer)
    with zipfile.ZipFile(buffer) as file:
        (pickled,) = (name for name in file.namelist() if name.endswith("/data.pkl"))
        codes = list(pickletools.genops(file.read(pickled)))
    loaded = {str(argument).split(".")[0] for code, argument, _ in codes if code.name == "GLOBAL"}
    assert "torch" in loaded
    assert "membound" not in loaded
    gone = weakref.ref(reg)
    reg.detach()
    del reg
    gc.collect()
    assert gone() is None


def test_a_note_does_not_disturb_compiled_or_scripted_networks():
    model = network()
    _, reg = attached(model)
    reg.finish()
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(3, 40)
    assert torch.equal(compiled(x), model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about itself
        assert torch.equal(torch.jit.trace(model, x)(x), model(x))
