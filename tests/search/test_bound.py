"""One bound for a whole network: along its ramp, at its end, and for networks and measures of all kinds."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from profiles import full
from small import EVERY, SCALE, STEPS, Small, digits, small_problem
from torch import nn

import membound as mb
from membound.capture import capture
from membound.errors import MemboundError, TrainingError
from membound.search.allocation import NonzeroCost
from membound.search.bound import NetworkBound, Ramp
from membound.search.measure import Nonzeros
from membound.search.problem import bounded_weights
from membound.store.choice import value_types
from membound.train.loop import Interrupted, take_steps
from membound.train.recipe import modern
from membound.train.run import Run, Settings

RAMP = Ramp(0.1, 0.5, 0.75)


class Tied(nn.Module):
    """The way back uses the weights of the way in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=3)
        self.one, self.two = nn.Linear(256, 256), nn.Linear(256, 256)
        self.two.weight = self.one.weight
        self.out = nn.Linear(256, 10)

    def forward(self, x):
        x = torch.relu(self.one(torch.relu(self.conv(x)).flatten(1)))
        return self.out(torch.relu(self.two(x)))


def with_norms():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 16, 3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def begin(problem, limit, *, run_dir=None, split=None, **options):
    """A run of the problem's network under a limit."""
    model, recipe = problem.make(1), problem.training.recipe

    def attach(optimizer, model):
        fields = {"measure": problem.measure, "cost": problem.cost, "types": problem.types, "score": "lamp"}
        return NetworkBound(
            model,
            problem.weights,
            limit=limit,
            total_steps=recipe.steps,
            every=EVERY,
            **{**fields, "ramp": RAMP, **options},
        ).attach(optimizer)

    settings = Settings(seed=1, device="cpu", evaluate_every=20, run_dir=run_dir)
    return Run(
        model,
        split or problem.data.part,
        recipe,
        SCALE,
        settings,
        torch.device("cpu"),
        held_out=problem.data.validation,
        bound=(attach, {"limit": limit}),
    )


def trained(problem, limit, **options):
    run = begin(problem, limit, **options)
    for _ in take_steps(run, lambda: False):
        pass
    return run


def least_use(kind, limit):
    """Memory is used in steps: with a channel of the first layer comes room for what it gives."""
    return limit - 5_500 if kind == "ram" else 0.97 * limit


def check_use(run, problem, limit):
    size = problem.measure(run.model.state_dict())
    assert least_use(problem.target.kind, limit) <= size <= limit
    for name in problem.weights:
        kept = int(run.model.get_parameter(name).count_nonzero())
        assert 1 <= kept <= run.reg.guide.counts[name]


# Along the ramp

LONG = 60  # steps, so that the ramp begins after the first projection


@pytest.mark.parametrize("kind", ["file", full("ram"), full("nonzeros")])
def test_dense_at_first_then_ever_fewer_then_at_the_limit(kind):
    problem = small_problem(kind=kind, steps=LONG)
    limit = {"file": 5_000, "ram": 43_000, "nonzeros": 2_000}[kind]
    run = begin(problem, limit)
    steps = take_steps(run, lambda: False)
    costs, nonzeros = [], []
    for step, _ in enumerate(steps, 1):
        if step <= LONG * RAMP.begin:
            assert Nonzeros(run.model)() == sum(map(math.prod, problem.shapes.values()))
            assert run.reg.guide.bound is None
        if step % EVERY == 0:
            costs.append(run.reg.guide.cost(run.reg.guide.counts))
            nonzeros.append(sum(run.reg.guide.counts.values()))
        if step == LONG * RAMP.until:
            assert least_use(kind, limit) <= run.reg.guide._size(run.reg.guide.counts) <= limit
            settled = dict(run.reg.guide.counts)
        if LONG * RAMP.until < step < LONG * RAMP.again:
            assert run.reg.guide.counts == settled
    at_ramp = costs[: round(LONG * RAMP.until / EVERY) - 1]
    assert at_ramp[0] == run.reg.guide.dense_cost
    assert all(after < before for before, after in pairwise(at_ramp))
    assert nonzeros[2] < nonzeros[1] < nonzeros[0] > 2 * nonzeros[-1]
    # The ramp leads to where the limit is, not to somewhere else: there is no fall at its end.
    assert abs(at_ramp[-1] - costs[-1]) < 0.1 * run.reg.guide.dense_cost
    check_use(run, problem, limit)


@pytest.mark.parametrize(
    ("kind", "values", "limits"),
    [
        ("file", "f16", (1_400, 9_000)),
        full("file", "f32", (2_000, 20_000)),
        ("ram", "f16", (23_500, 46_000)),  # between them is a step: dense convolutions take more room
        full("ram", "f32", (30_000,)),
        ("nonzeros", "f16", (75, 6_000)),
    ],
)
@pytest.mark.one_in(2)
def test_the_limit_holds_and_is_used(kind, values, limits):
    problem = small_problem(kind=kind, values=values)
    for limit in limits:
        run = trained(problem, limit)
        check_use(run, problem, limit)
        assert run.finished
        allowed = sum(run.reg.guide.counts.values())
        assert 0.9 * allowed <= run.history[-1]["nonzeros"] <= allowed


@pytest.mark.parametrize("score", [full("magnitude"), "uniform"])
def test_other_scores_meet_the_limit_too(score):
    problem = small_problem()
    check_use(trained(problem, 4_000, score=score), problem, 4_000)


def test_batch_norms_and_depthwise_layers_are_left_as_they_are():
    problem = small_problem(with_norms)
    assert problem.weights == ("0.weight", "4.weight", "8.weight")
    run = trained(problem, 4_000)
    check_use(run, problem, 4_000)
    assert not (run.model[3].weight == 0).any()
    assert not (run.model[1].weight == 0).any()


@pytest.mark.parametrize("kind", ["file", "nonzeros"])
def test_tied_weights_count_once(kind):
    problem = small_problem(Tied, kind)
    assert problem.weights == ("conv.weight", "one.weight", "out.weight")
    limit = {"file": 20_000, "nonzeros": 5_000}[kind]
    run = trained(problem, limit)
    check_use(run, problem, limit)
    assert run.model.one.weight is run.model.two.weight


def test_the_end_keeps_the_counts_that_training_had_where_they_fit():
    problem = small_problem(kind="nonzeros")
    run = begin(problem, 1_500)
    for step, _ in enumerate(take_steps(run, lambda: False), 1):
        if step == STEPS - 1:
            counts = dict(run.reg.guide.counts)
    assert run.reg.guide.counts == counts


@pytest.mark.parametrize("kind", ["file", full("nonzeros")])
def test_a_limit_above_dense_changes_nothing(kind):
    problem = small_problem(kind=kind)
    free = begin(problem, 10**6)
    free.reg.detach()
    free.reg, free.bound = None, None
    for _ in take_steps(free, lambda: False):
        pass
    run = trained(problem, problem.measure.dense())
    assert run.reg.guide.counts == problem.sizes
    for name, value in free.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value), name


def test_proportions_are_kept_whatever_the_scores():
    problem = small_problem(kind="nonzeros")
    wanted = {"conv1.weight": 10, "conv2.weight": 300, "fc1.weight": 50, "fc2.weight": 100}
    run = trained(problem, 60 + 920, proportions=wanted)
    check_use(run, problem, 980)
    for name, count in wanted.items():
        assert run.reg.guide.counts[name] == pytest.approx(2 * count, rel=0.02, abs=1)


# Channels that die


@pytest.mark.parametrize(("kind", "limit"), [("file", 1_600), ("ram", 21_566)])
@pytest.mark.one_in(2)
@pytest.mark.full
def test_a_network_of_which_little_is_left_still_uses_the_limit(kind, limit):
    """Most channels are dead, so that the file has far fewer weights than the counts say, and memory has jumps."""
    problem = small_problem(partial(mb.zoo.lenet), kind, steps=20)
    run = trained(problem, limit)
    check_use(run, problem, limit)
    kept = sum(int((run.model.get_parameter(name).flatten(1) != 0).any(1).sum()) for name in problem.weights)
    assert kept < 300  # of 580 channels


MEASURES = {
    "most vanish": lambda count: 500 + count // 7,
    "each costs nine": lambda count: 300 + 9 * count,
    "curved": lambda count: 200 + count**2 // 900,
    "jumps": lambda count: 400 + count // 500 * 480 + count % 500 // 25,
    "nothing until late": lambda count: 100 + max(count - 7_000, 0) * 10,
    "falls now and then": lambda count: 300 + count + (40 if count // 100 % 2 else 0),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("limit", [700, 1_500, 4_000])
def test_counts_are_found_however_the_size_depends_on_them(name, limit):
    torch.manual_seed(0)
    model = Small()
    weights = bounded_weights(model)

    def measure(state, types=None):
        return MEASURES[name](sum(int(state[key].count_nonzero()) for key in weights))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = NetworkBound(
        model,
        weights,
        measure=measure,
        limit=limit,
        cost=NonzeroCost(),
        score="lamp",
        total_steps=10,
    ).attach(optimizer)
    dense = measure(model.state_dict())
    reg.finish()
    size = measure(model.state_dict())
    assert size <= limit
    assert size >= min(0.97 * limit, dense) or name == "jumps"
    possible = max(MEASURES[name](count) for count in range(4, 8_500) if MEASURES[name](count) <= limit)
    assert size >= 0.97 * possible


# What cannot be


def bound_on(model, limit, **options):
    problem = small_problem()
    fields = {
        "measure": problem.measure,
        "cost": problem.cost,
        "score": "lamp",
        "total_steps": 20,
        "every": 5,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bound = NetworkBound(model, problem.weights, limit=limit, **{**fields, **options})
    return optimizer, bound.attach(optimizer)


def test_a_limit_that_cannot_be_met_is_said_before_anything_is_lost():
    torch.manual_seed(0)
    model = Small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _, reg = bound_on(model, 900)
    with pytest.raises(
        TrainingError, match=r"cannot be brought to 900: with one weight a layer it takes 1,\d+; allow"
    ):
        reg.finish()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not reg.finished
    reg.detach()


def test_it_is_said_when_the_ramp_begins_not_when_it_ends():
    run = begin(small_problem(), 900)
    with pytest.raises(TrainingError, match="cannot be brought to 900"):
        for _ in take_steps(run, lambda: False):
            pass
    assert run.step <= STEPS * RAMP.begin + EVERY
    assert Nonzeros(run.model)() == 8_474 - 60 + sum(
        int((run.model.get_parameter(f"{n}.bias") != 0).sum()) for n in ("conv1", "conv2", "fc1", "fc2")
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("score", ["lamp", "uniform"])
def test_weights_that_are_not_finite_are_named(bad, score):
    torch.manual_seed(0)
    model = Small()
    optimizer, reg = bound_on(model, 5_000, score=score)
    for step in range(1, 6):
        optimizer.zero_grad()
        model(torch.rand(4, 1, 28, 28)).square().mean().backward()
        if step == 5:
            with torch.no_grad():
                model.fc1.weight[3, 4] = bad
            with pytest.raises(
                TrainingError, match=r"'fc1.weight' has a weight that is NaN or infinite after step 5"
            ):
                optimizer.step()
        else:
            optimizer.step()
    with pytest.raises(TrainingError, match=r"'fc1.weight' has a weight that is NaN"):
        reg.finish()
    reg.detach()


@pytest.mark.parametrize("span", [(0.5, 0.5), (0.6, 0.2), (-0.1, 0.5), (0.5, 1.1)])
def test_ramps_that_cannot_be(span):
    with pytest.raises(MemboundError, match="0 <= begin < until <= 1"):
        Ramp(*span)


# Looking, and going on


def test_inside_projected_the_counts_hold_and_outside_all_is_as_before():
    problem = small_problem()
    run = begin(problem, 4_000)
    for step, _ in enumerate(take_steps(run, lambda: False), 1):
        if step not in (3, 22, 48):
            continue
        before = {name: value.clone() for name, value in run.model.state_dict().items()}
        with run.reg.projected():
            for name in problem.weights:
                kept = int(run.model.get_parameter(name).count_nonzero())
                assert kept == run.reg.guide.counts[name]
            if step == 48:
                assert problem.measure(run.model.state_dict()) <= 1.02 * 4_000
        assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
        dense = sum(run.reg.guide.counts.values()) == sum(problem.sizes.values())
        assert dense == (step == 3)


def facts(run):
    history = [{key: value for key, value in entry.items() if key != "seconds"} for entry in run.history]
    return history, run.reg.guide.counts, run.reg.guide.bound


@pytest.mark.parametrize("stop", [11, full(22)])
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path, stop):
    problem = small_problem(with_norms)
    whole = trained(problem, 5_000)
    first = begin(problem, 5_000, run_dir=tmp_path)
    with pytest.raises(Interrupted):
        for _ in take_steps(first, lambda: first.step == stop):
            pass
    torch.manual_seed(99)
    second = trained(problem, 5_000, run_dir=tmp_path)
    assert second.resumed == stop
    assert facts(second) == facts(whole)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name
    third = trained(problem, 5_000, run_dir=tmp_path)  # which has nothing left to do
    assert third.resumed == STEPS
    assert facts(third) == facts(whole)
    assert third.score == whole.score


def test_half_precision_in_the_file_is_what_is_measured():
    """Weights that f16 makes zero take no room, and the limit is used all the same."""
    problem = small_problem()
    torch.manual_seed(0)
    model = problem.make(0)
    with torch.no_grad():
        model.fc1.weight[:, 96:] *= 1e-7
    _, reg = bound_on(model, 10_000)
    reg.finish()
    assert 0.97 * 10_000 <= problem.measure(model.state_dict()) <= 10_000


def test_counts_follow_the_scores():
    """At the end the weights that are left are those that score best."""
    problem = small_problem(kind="nonzeros")
    torch.manual_seed(0)
    model = Small()
    with torch.no_grad():
        model.fc1.weight[:, 50:] *= 1e-3
    scores = {}
    for name in problem.weights:
        squares = model.get_parameter(name).detach().double().square().flatten().sort(descending=True).values
        scores[name] = squares / squares.cumsum(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = NetworkBound(
        model,
        problem.weights,
        measure=problem.measure,
        limit=4_000,
        cost=problem.cost,
        score="lamp",
        total_steps=10,
    ).attach(optimizer)
    reg.finish()
    lowest = min(scores[name][count - 1] for name, count in reg.guide.counts.items())
    highest = max(
        scores[name][count] for name, count in reg.guide.counts.items() if count < len(scores[name])
    )
    assert highest <= lowest * 1.01
    assert reg.guide.counts["fc1.weight"] < 0.3 * problem.sizes["fc1.weight"]


def test_a_recipe_without_a_single_projection_ends_at_the_limit(tmp_path):
    """Three steps are fewer than lie between two projections."""
    problem = small_problem(steps=3)
    recipe = modern("sgd", 3, 20, lr=0.05)
    model = problem.make(0)

    def attach(optimizer, model):
        return NetworkBound(
            model,
            problem.weights,
            measure=problem.measure,
            limit=3_000,
            cost=problem.cost,
            score="lamp",
            total_steps=3,
            every=50,
        ).attach(optimizer)

    run = Run(
        model,
        digits(),
        recipe,
        SCALE,
        Settings(device="cpu"),
        torch.device("cpu"),
        bound=(attach, None),
    )
    for _ in take_steps(run, lambda: False):
        pass
    check_use(run, problem, 3_000)


def test_which_weights_are_bounded_by_default():
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(4, 8),
            "lstm": nn.LSTM(8, 8),
            "attention": nn.MultiheadAttention(8, 2),
            "norm": nn.LayerNorm(8),
            "head": nn.Linear(8, 2),
        }
    )
    recurrent = ("lstm.weight_ih_l0", "lstm.weight_hh_l0")
    attention = ("attention.in_proj_weight", "attention.out_proj.weight")
    assert bounded_weights(model) == ("embedding.weight", *recurrent, *attention, "head.weight")
    assert bounded_weights(model, protect=("lstm", "attention*")) == ("embedding.weight", "head.weight")
    assert bounded_weights(model, ("lstm", "*", "head")) == (
        *recurrent,
        "embedding.weight",
        *attention,
        "head.weight",
    )


def test_the_first_layer_is_one_layer_of_all_branches():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.second, self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.first(x).relu() + self.second(x).relu())

    model = capture(Two().eval(), torch.zeros(1, 8))
    types = value_types(model, "p4")
    assert {name: types[name] for name in types if name.endswith("weight")} == {
        "first.weight": "p8",
        "second.weight": "p4",
        "head.weight": "p4",
    }
