"""Int8 activations in training: rounded where the C code rounds them, by scales that stay where they are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import Small, digits, small_problem
from torch import Tensor, nn
from torch.nn import functional

import membound as mb
from membound.capture.capture import Tracer
from membound.data import Preprocess
from membound.data.augment import choose
from membound.run.micro_net import MicroNet
from membound.search.jobs import Job, Order, carry_out
from membound.search.measure import FileBytes
from membound.search.micro_points import find_points
from membound.search.problem import Target
from membound.search.teachers import make_teaching
from membound.train import stepping
from membound.train.activations import INPUT, RoundedActivations
from membound.train.batches import Feeder
from membound.train.graphed import record
from membound.train.loop import Interrupted, take_steps
from membound.train.run import Run, Settings

CPU = torch.device("cpu")
PIXELS = Preprocess(mean=np.full(1, 33, np.float32), std=np.full(1, 78, np.float32))


class Branches(nn.Module):
    """Skips, a concatenation, pools, in-place functions, dropout, and a layer that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 6, 3, padding=1, stride=2), nn.BatchNorm2d(6)
        self.left, self.right = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 4, 1)
        self.norm2 = nn.BatchNorm2d(6)
        nn.init.zeros_(self.norm2.weight)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(x)), inplace=True), 2)
        y = functional.relu(self.norm2(self.left(x)) + x)
        y = torch.cat([y, functional.relu6(self.right(y))], 1)
        scores: Tensor = self.head(self.drop(y.mean((2, 3))))
        return scores


class Careless(Small):
    """Computes more in training than in testing."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.01 * x if self.training else x)


def files_of(network: nn.Module, preprocess: Preprocess = PIXELS) -> FileBytes:
    return FileBytes(Tracer(network, torch.zeros(1, 1, 28, 28)), "f32", preprocess)


def rounded_network(factory, steps=1, preprocess=PIXELS):
    torch.manual_seed(0)
    network = factory().eval()
    points = find_points(files_of(network, preprocess), network)
    assert points is not None
    rounded = RoundedActivations(points, steps, CPU)
    rounded.calibrate(network, Feeder(digits(), preprocess, CPU, torch.float32))
    return network, rounded


@pytest.mark.parametrize("factory", [Small, Branches])
def test_torch_rounds_where_the_c_code_does(factory):
    network, rounded = rounded_network(factory)
    _round_weights_(network)  # torch leaves these as they are
    files = files_of(network)
    settle = rounded.points.settle
    kept = dict(zip(settle.calls, rounded.scales.tolist(), strict=True))
    zeros = dict(zip(settle.calls, rounded.zeros.tolist(), strict=True))
    activations = {value: (kept[value], zeros[value]) for value in settle.calls}
    activations[0] = (settle.exact.scale, settle.exact.zero)
    device = MicroNet(files.stored(network.state_dict()), activations=activations)
    images = digits(300, 364).images
    with torch.no_grad():
        x = torch.from_numpy(PIXELS(images))
        here, plain = rounded.forward(network, x).numpy(), network(x).numpy()
    step = activations[device.model.graph.output][0]
    far, far_plain = (np.abs(device(images) - each).mean() for each in (here, plain))
    assert far < 0.1 * step
    assert far_plain > 0.2 * step


@torch.no_grad()
def _round_weights_(network):
    """To the int8 numbers that the device will have for each row."""
    for part in network.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            rows = part.weight.flatten(1)
            step = rows.abs().amax(1, keepdim=True) / 127
            part.weight.copy_(((rows / step).round() * step).view_as(part.weight))


def test_where_pixels_are_not_exact_the_input_is_rounded_as_well():
    _, rounded = rounded_network(Small, preprocess=Preprocess(mean=np.full(1, 33.3, np.float32)))
    assert rounded.points.calls[0] == INPUT


def test_rounding_the_input_counts_no_calls():
    """Or every value behind it is taken for another, and a network of float features learns nothing of use."""
    prepared = Preprocess(mean=np.full(1, 33.3, np.float32), std=np.full(1, 78, np.float32))
    network, rounded = rounded_network(Branches, preprocess=prepared)
    with torch.no_grad():
        x = torch.from_numpy(prepared(digits(300, 364).images))
        exact, here = network(x), rounded.forward(network, x)
    assert rounded.points.calls[0] == INPUT
    assert (here - exact).abs().mean() < 0.02 * exact.abs().max()


def test_a_network_that_trains_otherwise_than_it_is_tested_is_not_rounded():
    network = Careless()
    assert find_points(files_of(network), network) is None


def test_gradients_pass_but_where_values_are_clipped():
    network, rounded = rounded_network(Small)
    rounded.scales /= 4  # most of the large values are clipped now
    x = torch.from_numpy(PIXELS(digits(0, 50).images))
    found = {}
    for name, forward in (("plain", lambda: network(x)), ("rounded", lambda: rounded.forward(network, x))):
        network.zero_grad()
        forward().square().mean().backward()
        found[name] = network.conv1.weight.grad.clone()
    assert found["rounded"].abs().sum() > 0
    assert found["rounded"].norm() < 0.9 * found["plain"].norm()


def micro_problem(**changed):
    target = Target("file", "auto", micro=True, activations="trained")
    return replace(small_problem(steps=40), **{"target": target, **changed})


def test_a_run_that_goes_on_has_the_bits_of_one_that_was_not_stopped(tmp_path):
    problem = micro_problem()

    def trained(stop: int | None, folder) -> dict[str, Tensor]:
        torch.manual_seed(0)
        run = Run(
            Small(), digits(), problem.training.recipe, problem.data.preprocess, Settings(run_dir=folder), CPU,
            points=problem.points,
        )  # fmt: skip
        places = run.rounded.scales.data_ptr(), run.rounded.zeros.data_ptr()
        stopped = iter([False] * (stop or 1000) + [True] * 1000)
        try:
            for _ in take_steps(run, lambda: next(stopped)):
                pass
        except Interrupted:
            return {}
        assert run.rounded.begun
        assert places == (run.rounded.scales.data_ptr(), run.rounded.zeros.data_ptr())
        return run.model.state_dict()

    whole = trained(None, tmp_path / "whole")
    assert trained(34, tmp_path / "parts") == {}  # values are rounded since step 30
    again = trained(None, tmp_path / "parts")
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.full
def test_training_with_rounded_values_changes_the_network_and_its_scores():
    problem = micro_problem()
    plain = micro_problem(target=Target("file", "auto", micro=True, activations="calibrated"))
    orders = [Order(Job("a", 0, limit=6_000, everything=True))]
    ((_, rounded),) = carry_out(problem, orders, CPU)
    ((_, unrounded),) = carry_out(plain, orders, CPU)
    assert plain.points is None
    differing = [
        name for name in rounded.state if not torch.equal(rounded.state[name], unrounded.state[name])
    ]
    assert differing
    half = [h["loss"] for h in rounded.facts["history"]][:14]
    assert half == [h["loss"] for h in unrounded.facts["history"]][:14]  # the same until values are rounded


def test_it_can_be_left_out():
    with pytest.raises(mb.MemboundError, match="there are no activations 'none': choose trained or"):
        mb.fit(Small, digits(), 6_000, target="micro", activations="none")
    with pytest.raises(mb.MemboundError, match="on the target micro only"):
        mb.fit(Small, digits(), 6_000, activations="calibrated")


def test_values_are_rounded_in_bf16_as_well():
    """As near to the scales as 8 bits of a mantissa are: within half a step."""
    problem = micro_problem()
    torch.manual_seed(0)
    run = Run(
        Small(), digits(), problem.training.recipe, problem.data.preprocess, Settings(precision="bf16"), CPU,
        points=problem.points,
    )  # fmt: skip
    for _ in take_steps(run, lambda: False):
        pass
    assert run.rounded.begun
    assert all(value.isfinite().all() for value in run.model.state_dict().values())
    x = torch.linspace(-3, 3, 1000)
    call = run.rounded.points.calls[0]
    wide, narrow = run.rounded._round(call, x), run.rounded._round(call, x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    step = float(run.rounded.scales[0])
    # Rounded twice: the number itself, which may move it across a border, and what comes out.
    assert (narrow.float() - wide).abs().max() <= 1.5 * step + 3 * 2**-8


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@CUDA
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_steps_are_recorded_anew_when_values_are_rounded(monkeypatch, precision):
    problem, found, recordings = micro_problem(), [], []

    def spy(*args, **kwargs):
        recordings.append(record(*args, **kwargs))
        return recordings[-1]

    monkeypatch.setattr(stepping, "record", spy)
    for launched in (True, False):
        monkeypatch.setattr(stepping, "draws_random_numbers", lambda model, launched=launched: launched)
        torch.manual_seed(0)
        run = Run(
            Small(), digits(), problem.training.recipe, problem.data.preprocess, Settings(precision=precision),
            torch.device("cuda"), points=problem.points,
        )  # fmt: skip
        for _ in take_steps(run, lambda: False):
            pass
        assert run.rounded.begun
        found.append({name: value.cpu() for name, value in run.model.state_dict().items()})
    assert len(recordings) == 2
    assert None not in recordings
    for name, value in found[0].items():
        if precision == "float32":
            torch.testing.assert_close(found[1][name], value, rtol=1e-2, atol=1e-3)
        assert found[1][name].isfinite().all()


@CUDA
def test_networks_under_a_bound_learn_from_a_teacher_with_rounded_values():
    """All that benchmarks/micro_fit.py does on a GPU: two networks side by side, in bf16."""
    problem = micro_problem()
    training = replace(
        problem.training, precision="bf16", augment=choose("shift=1", (1, 28, 28), False, False)
    )
    torch.manual_seed(0)
    teaching = make_teaching(Small(), problem, 4.0, 0.9, passes=1e9)
    problem = replace(problem, training=training, teaching=teaching)
    orders = [Order(Job(str(seed), seed, limit=6_000, everything=True)) for seed in (0, 1)]
    outcomes = [outcome for _, outcome in carry_out(problem, orders, torch.device("cuda"))]
    for outcome in outcomes:
        assert all(value.isfinite().all() for value in outcome.state.values())
        assert outcome.facts["accuracy"] is not None
