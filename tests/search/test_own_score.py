"""A strategy of the user's own: scores that decide which weights of the whole network stay."""

import functools
import zlib
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from profiles import full
from small import Small, digits

import membound as mb
from membound.search.allocation import score_curves
from membound.search.bound import NetworkBound
from membound.search.place import Watch
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.train.fingerprints import describe_function, source_digest
from membound.train.projection import project_by_

DATA = (digits().images, digits().labels)
OTHERS = (digits(300, 400).images, digits(300, 400).labels)


def fit(**options):
    options = {"steps": 20, "batch_size": 20, "dense": False, "budget": "6 KiB", **options}
    return mb.fit(Small, DATA, val_data=OTHERS, **options)


def magnitude(name: str, weight: torch.Tensor) -> torch.Tensor:
    return weight.abs()


def even(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Magnitudes, but every second column counts next to nothing."""
    return weight.abs() * torch.where(torch.arange(weight.shape[-1]) % 2 == 0, 1.0, 1e-6)


def taylor(name: str, weight: torch.Tensor) -> torch.Tensor:
    return (weight * weight.grad).abs()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("values", [full("f16"), "auto"])
def test_ones_own_magnitudes_are_the_strategy_of_that_name(values):
    mine, named = fit(strategy=magnitude, values=values), fit(strategy="magnitude", values=values)
    for name, weight in named.model.state_dict().items():
        assert torch.equal(mine.model.state_dict()[name], weight), name
    assert mine.file_bytes == named.file_bytes
    assert mine.facts["asked"]["strategy"] == "magnitude"
    assert "strategy=magnitude" in mine.facts["asked"]["call"]
    told, other = mine.to_dict(), named.to_dict()
    assert list(told)[:2] == ["strategy", "strategy_source"]
    assert told["strategy"] == other["strategy"] == "magnitude"  # whose source tells them apart
    assert told["strategy_source"] == source_digest(magnitude) != source_digest(even)
    assert other["strategy_source"] is None


def test_the_highest_scores_stay_and_the_budget_holds():
    fitted = fit(strategy=even, values="f16")
    weights = [w for name, w in fitted.model.state_dict().items() if name.endswith("weight") and w.dim() > 1]
    cut = [weight for weight in weights if 2 * weight.count_nonzero() < weight.numel()]
    assert sum(int(weight.count_nonzero()) for weight in cut) > 500
    for weight in cut:
        assert weight[..., ::2].count_nonzero() > 0 == weight[..., 1::2].count_nonzero()
    assert 0.9 * 6144 < fitted.file_bytes <= 6144


def test_a_score_sees_the_gradient(tmp_path):
    fitted = fit(strategy=taylor)
    assert fitted.file_bytes <= 6144
    fitted.report(tmp_path / "page.html")
    assert "taylor" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda name, weight: weight.sum(), r"'conv1\.weight' have shape \(\): .* \(6, 1, 5, 5\)"),
        (lambda name, weight: 3, r"scores of 'conv1\.weight' are of the type int"),
        (lambda name, weight: -weight.abs(), r"a score is -\S+: scores are finite, and at least 0"),
        (lambda name, weight: -weight.abs() / 0, r"a score is -inf: .*; look for a division by 0"),
        (lambda name, weight: weight.mul_(0).abs() + 1, r"'conv1\.weight': it writes into the weight or its gradient"),
        (lambda name, weight: weight.grad.abs_() + 1, r"it writes into the weight or its gradient: give a new tensor"),
    ],
)  # fmt: skip
def test_what_is_no_score_is_refused(score, says):
    told = []
    with pytest.raises(mb.MemboundError, match=says) as refused:
        fit(strategy=score, watch=Watch(say=told.append))
    assert refused.value.about == ("strategy",)
    wants_gradient = "grad" in score.__code__.co_names
    assert bool(told) == wants_gradient, "what needs no gradient is refused before anything is trained"


def test_scores_that_change_from_call_to_call_are_told_before_training():
    """Neither the check nor a score that fails in it changes what is trained."""
    seen = []

    def pose(score):
        warned = []
        make_problem(Small, Examples(train_data=DATA), Choices(strategy=score), Target(), warn=warned.append)
        return warned

    def by_name(name, weight):
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.rand(weight.shape, generator=generator)

    def at_random(name, weight):
        seen.append(name)
        return torch.rand_like(weight)

    before = torch.get_rng_state()
    (said,) = pose(at_random)
    assert "other scores for the same weights ('conv1.weight')" in said
    assert seen[-2:] == ["conv1.weight"] * 2
    assert [pose(score) for score in (by_name, taylor, even, lambda name, weight: {}[name])] == [[]] * 4
    torch.manual_seed(3)
    make_problem(Small, Examples(train_data=DATA), Choices(strategy=magnitude), Target())
    plain = torch.rand(1)
    torch.manual_seed(3)
    pose(at_random)
    assert torch.equal(torch.rand(1), plain)
    torch.set_rng_state(before)


def test_wrong_arguments_are_refused_before_training():
    says = r"^strategy takes \(w\), and is called with \(name, weight\)"
    with pytest.raises(mb.MemboundError, match=says) as refused:
        Choices(strategy=lambda w: w.abs())
    assert refused.value.about == ("strategy",)


@pytest.mark.parametrize("values", [full("f16"), "auto"])
def test_a_score_that_raises_is_named_with_its_weight(values):
    with pytest.raises(mb.MemboundError) as refused:
        fit(strategy=lambda name, weight: weight.abs() * {}[name], values=values)
    says = "your strategy function failed at weight 'conv1.weight': KeyError: 'conv1.weight'"
    assert str(refused.value) == says
    assert isinstance(refused.value.__cause__, KeyError)


def test_an_update_is_no_strategy():
    with pytest.raises(
        mb.MemboundError, match=r"^strategy is an update .* mb\.attach\(optimizer, model"
    ) as refused:
        Choices(strategy=mb.l0_project(0.1))
    assert refused.value.about == ("strategy",)


def test_what_is_no_strategy_says_what_is():
    with pytest.raises(mb.MemboundError, match=r"no strategy 3: choose global, .* a function"):
        Choices(strategy=3)


def test_a_changed_score_does_not_go_on_with_an_old_run(tmp_path):
    first = fit(strategy=magnitude, run_dir=tmp_path)
    again = fit(strategy=magnitude, run_dir=tmp_path)
    assert all(
        torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True)
    )
    with pytest.raises(mb.TrainingError, match="strategy"):
        fit(strategy=even, run_dir=tmp_path)


def test_a_function_is_told_apart_by_its_source_where_there_is_one():
    assert describe_function(magnitude) == describe_function(magnitude) != describe_function(even)
    half, third = (functools.partial(magnitude, part) for part in (0.5, 0.3))
    assert describe_function(half) != describe_function(third)
    names: dict = {}
    exec("def typed(name, weight):\n    return weight.abs()", names)
    assert describe_function(names["typed"]) == "typed, source unknown"


def test_curves_are_the_sorted_scores_and_zeros_have_none():
    weight = torch.tensor([0.0, -2.0, 1.0])
    curve = score_curves({"a": weight}, lambda name, weight: torch.tensor([9.0, 1.0, 3.0]))["a"]
    assert curve.scores.tolist() == [3.0, 1.0, 0.0]


def test_projection_by_rank_keeps_the_highest_and_ties_go_to_the_earlier():
    rng = np.random.default_rng(0)
    for _ in range(50):
        weight = torch.from_numpy(rng.normal(size=(4, 5)).astype(np.float32))
        scores = torch.from_numpy(rng.integers(1, 6, (4, 5)).astype(np.float32))
        count = int(rng.integers(0, 21))
        kept = np.zeros(20, bool)
        kept[np.argsort(-scores.numpy().ravel(), kind="stable")[:count]] = True
        expected = torch.where(torch.from_numpy(kept).view(4, 5), weight, 0.0)
        project_by_(weight, count, lambda _, scores=scores: scores)
        assert torch.equal(weight, expected)


def test_of_weights_without_a_rank_the_largest_stay_and_the_count_is_met():
    weight = torch.tensor([1.0, -5.0, 2.0, 0.0, 3.0, -4.0])
    project_by_(weight, 4, lambda _: torch.tensor([0.5, 0.0, 0.1, 9.0, 0.0, 0.0]))
    assert weight.tolist() == [1.0, -5.0, 2.0, 0.0, 0.0, -4.0]
    project_by_(weight, 1, lambda _: torch.tensor([0.5, 0.0, 0.1, 9.0, 0.0, 0.0]))
    assert weight.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.full
def test_a_score_by_gradients_uses_the_budget_as_global_does():
    """Many weights have no gradient in a batch of 20 digits: they score 0, and once all of them went."""
    fitted = fit(strategy=taylor, steps=60, budget="4 KiB")
    assert 0.93 * 4096 < fitted.file_bytes <= 4096
    kinds = {layer["name"]: layer["values"] for layer in fitted.facts["layers"]}
    assert kinds["fc1.weight"] in ("p2", "p3", "p4", "p5", "p6"), (
        "tiny weights that stay do not make bits cheap"
    )


@pytest.mark.full
def test_a_network_cut_by_gradients_is_never_dense_again(monkeypatch):
    """Tiny weights are rounded to zero: were they free, nearly all would be allowed at the end of the ramp."""
    allowed, prepare = [], NetworkBound.prepare

    def count(bound: NetworkBound, step: int) -> None:
        prepare(bound, step)
        allowed.append(sum(bound.counts.values()))

    monkeypatch.setattr(NetworkBound, "prepare", count)
    fit(strategy=taylor, steps=60, budget=1500)
    assert min(allowed) < 0.5 * allowed[0]
    assert max(allowed) == allowed[0]


def test_rules_take_a_rank_too():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rule = mb.chain(
        mb.l0_project(0.25, every=2, rank=lambda w: w.clamp_min(0)), mb.palette(4, every=2, begin=0)
    )
    reg = mb.attach(optimizer, model, {"*": rule})
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    reg.finish()
    assert 0 < int(model.weight.count_nonzero()) <= 8
    assert model.weight.min() == 0
    with pytest.raises(mb.RuleError, match="one rank"):
        mb.chain(rule, mb.l0_project(0.5, rank=torch.abs))
    with pytest.raises(mb.RuleError, match="there is none"):
        mb.attach(optimizer, model, {"*": mb.Update(("own",), (), before=print, rank=torch.abs)})


@dataclass(frozen=True)
class Powered:
    power: float

    def __call__(self, name, weight):
        return weight.abs() ** self.power


def _powered(name, weight, power):
    return weight.abs() ** power


def test_values_of_a_partial_and_of_a_dataclass_belong_to_the_name():
    named = [Choices(strategy=each).strategy_name for each in (partial(_powered, power=3), Powered(2.0))]
    assert named == ["_powered(power=3)", "Powered(power=2.0)"]
