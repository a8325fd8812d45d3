"""Updates that users write: what is refused with a word about how to write it, and the page that shows two."""

import copy
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import membound as mb
from membound.train.updates import Moment

PAGE = Path(__file__).parents[2] / "docs" / "TRAINING.md"
NOW = Moment(step=1, progress=None, lr=0.1)


def trained(rules: Any, steps: int = 3, lr: float = 0.1, **more: Any) -> mb.Regularizer:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    reg = mb.attach(optimizer, model, rules, **more)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    return reg


def own(after: Callable[[Tensor, Moment], Any]) -> mb.Update:
    return mb.Update(("own",), (1,), after=after)


@pytest.mark.parametrize(
    ("steps", "total", "says"),
    [(5, 100, "'0.weight' and 1 more went to its final value at once"), (30, 10, "was over after step 10")],
)
def test_another_number_of_steps_than_was_planned_is_said(steps: int, total: int, says: str) -> None:
    reg = trained({"*": mb.l0_project(mb.ramp(1.0, 0.1), every=2)}, steps=steps, total_steps=total)
    with pytest.warns(UserWarning, match=f"finish.. after {steps} steps with total_steps={total}: .*{says}"):
        reg.finish()


@pytest.mark.parametrize(
    "rules", [{"*": mb.l0_project(0.5)}, {"*": mb.l0_project(mb.ramp(1.0, 0.1), every=2)}]
)
def test_nothing_is_said_of_about_as_many_steps_or_of_no_schedule(rules: Any) -> None:
    """Warnings are errors here."""
    trained(rules, steps=6, total_steps=10 if rules["*"].scheduled else 100).finish()


def test_an_optimizer_that_took_no_step_is_said() -> None:
    for rules in ({"*": mb.l0_project(0.5)}, {"*": mb.l2_decay(0.1)}):
        reg = trained(rules, steps=0, total_steps=100)
        with pytest.warns(
            UserWarning, match=r"finish\(\) before any step of this optimizer: nothing was trained"
        ):
            reg.finish()
        trained(rules, steps=0).finish()  # a network may be cut at once, too: warnings are errors here


def test_what_an_own_stage_raises_names_the_weight_and_the_update() -> None:
    with pytest.raises(
        mb.MemboundError, match=r"'0\.weight': the update 'own' failed: AttributeError: .*foo"
    ) as caught:
        trained({"0": own(lambda w, m: w.foo())})  # type: ignore[attr-defined]
    assert isinstance(caught.value.__cause__, AttributeError)


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (own(lambda w, m: w * 0.5), r"'0\.weight': the stage 'after' of the update 'own' .* such as w\.mul_\(0\.5\)"),
        (mb.Update(("pen",), (), before=lambda w, m: w.grad + w), r"'before' of the update 'pen' .* w\.grad\.add_"),
        (mb.chain(mb.l2_decay(0.1), own(lambda w, m: w.clamp(-1, 1))), r"the update 'own' returns a new tensor"),
    ],
)  # fmt: skip
def test_a_stage_that_returns_a_new_tensor_is_refused(update: mb.Update, says: str) -> None:
    with pytest.raises(mb.RuleError, match=says):
        trained({"*": update})


@pytest.mark.parametrize(
    "update",
    [
        own(lambda w, m: w.mul_(0.5)),
        own(lambda w, m: w[0].zero_()),
        own(lambda w, m: w.view(-1).clamp_(-0.1, 0.1)),
        own(lambda w, m: "done"),
        mb.Update(("own",), (), before=lambda w, m: w.grad.mul_(2)),
        mb.Update(("own",), (), before=lambda w, m: m.scratch.setdefault(id(w), w == 0)),
    ],
)
def test_what_functions_in_place_return_is_none_of_that(update: mb.Update) -> None:
    trained({"*": update}).finish()


@pytest.mark.parametrize("rule", [own(lambda w, m: w.mul_(math.nan)), mb.l2_decay(1e30)])
def test_a_weight_without_a_bound_that_is_not_finite_is_found(rule: mb.Update) -> None:
    reg = trained({"*": rule}, steps=12, lr=1e30)
    says = r"'0\.weight' has a weight that is NaN or infinite after step 12"
    with pytest.raises(mb.Diverged, match=says):
        reg.report()
    with pytest.raises(mb.Diverged, match=says):
        reg.finish()
    assert not reg.finished


def test_on_a_cpu_it_stops_training() -> None:
    with pytest.raises(mb.Diverged, match=r"'0\.weight' .* after step 100:"):
        trained({"*": own(lambda w, m: w.mul_(math.nan))}, steps=101)


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        (lambda size, p: size * 0.1, r"'0\.weight' .*the bound of 'own' gives 3\.2 for 32 weights: .* from 0 to 32"),
        (lambda size, p: 2 * size, r"gives 64 for 32 weights"),
        (lambda size, p: -1, r"gives -1"),
        (lambda size, p: None, r"gives None"),
        (lambda size, p: True, r"gives True"),
        (lambda size, p: round(size * (1 - p)), r"does not work without progress .* total_steps"),
    ],
)  # fmt: skip
def test_a_bound_that_is_no_count_is_refused(bound: Any, says: str) -> None:
    for update in (mb.Update(("own",), (), bound=bound), mb.chain(mb.Update(("own",), (), bound=bound))):
        with pytest.raises(mb.RuleError, match=says):
            trained({"*": update})


def test_a_bound_of_ones_own_holds_after_finish() -> None:
    reg = trained(
        {"*": mb.Update(("own",), (), bound=lambda size, p: round(size * (1 - p / 2)))}, total_steps=3
    )
    reg.finish()
    assert [(layer.nonzeros, layer.bound) for layer in reg.report().layers] == [(16, 16), (4, 4)]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kinds": "u"}, r"kinds is 'u'; it is a tuple of a name, such as \('clip',\)"),
        ({"kinds": (1,)}, r"kinds is \(1,\)"),
        ({"arguments": 0.5}, r"arguments is 0\.5; it is a tuple"),
        ({"after": 3}, r"after is 3; give a function"),
        ({"bound": 12}, r"bound is 12; give a function"),
        (
            {"after": lambda w: None},
            r"after takes \(w\), and is called with .*: write after\(weight, moment\)",
        ),
        (
            {"before": lambda w, m, lr: None},
            r"before takes \(w, m, lr\), and is called with \(weight, moment\)",
        ),
        ({"bound": lambda size: 1}, r"bound takes \(size\), and is called with \(size, progress\)"),
        ({}, r"'own' would do nothing: give it a before, an after or a bound"),
        ({"rank": torch.abs}, r"'own' would do nothing"),
        ({"rank": lambda: 1}, r"rank takes \(\), and is called with \(weight\)"),
        ({"rank": lambda w, state, more: 1}, r"rank takes \(w, state, more\), and is called with \(weight\)"),
        ({"every": 0}, r"every is 0; it is a whole number of steps from 1"),
        ({"every": 2, "steady_after": True}, r"steady_after with every=2"),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(fields: Any, says: str) -> None:
    with pytest.raises(mb.RuleError, match=f"Update: {says}"):
        mb.Update(**{"kinds": ("own",), "arguments": (), **fields})


def test_a_stage_rests_between_its_steps_whatever_others_do() -> None:
    alone: list[int] = []
    chained: list[int] = []
    rules = {
        "0": mb.Update(("own",), (), after=lambda w, m: alone.append(m.step), every=2),
        "1": mb.chain(
            mb.Update(("own",), (), after=lambda w, m: chained.append(m.step), every=3), mb.l1_shrink(1e-3)
        ),
    }
    trained(rules, steps=6)
    assert (alone, chained) == ([2, 4, 6], [3, 6])


def test_a_bare_function_is_told_about_update() -> None:
    with pytest.raises(mb.RuleError, match=r"mb\.Update\(\.\.\.\) for one of your own"):
        trained({"*": lambda w: w})


def test_the_updates_of_the_page_are_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n((?:(?!^```).)*def hoyer.*?)^```$", PAGE.read_text(), re.S | re.M)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(block, names)
    assert "0.weight" in capsys.readouterr().out
    assert int(names["model"][2].weight.count_nonzero()) == 40

    weight = nn.Parameter(torch.randn(3, 5, dtype=torch.float64))
    (weight.abs().sum() ** 2 / weight.square().sum()).backward()
    assert weight.grad is not None
    expected, weight.grad = 0.3 * weight.grad, torch.zeros_like(weight)
    with torch.no_grad():
        names["hoyer"](0.3).before(weight, NOW)
    torch.testing.assert_close(weight.grad, expected)

    rows = torch.tensor([[3.0, 4.0], [0.03, 0.04]])
    names["group_lasso"](1.0).after(rows, NOW)
    torch.testing.assert_close(rows, torch.tensor([[2.94, 3.92], [0.0, 0.0]]))


def summing(every: int = 3) -> mb.Update:
    """Keeps the sum of all gradients, in `before`; the largest sums stay."""

    def before(w: Tensor, moment: Moment) -> None:
        moment.state.setdefault("sum", torch.zeros_like(w)).add_(w.grad)

    def rank(w: Tensor, state: dict[str, Tensor]) -> Tensor:
        return state.get("sum", w).abs()

    return mb.chain(mb.Update(("summing",), (), before=before), mb.l0_project(0.5, every=every, rank=rank))


def summed(steps: list[int]) -> tuple[nn.Module, mb.Regularizer]:
    """Trained so many steps, saved, loaded into new objects, and trained on."""
    torch.manual_seed(0)
    batches, model, saved = torch.randn(20, 16, 8), nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), None
    for begin, end in itertools.pairwise([0, *steps]):
        model = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reg = mb.attach(optimizer, model, {"*": summing()})
        if saved is not None:
            reg.load_state_dict(saved)
        for batch in batches[begin:end]:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        file = io.BytesIO()
        torch.save(reg.state_dict(), file)
        file.seek(0)
        saved = torch.load(file)
        if end != steps[-1]:
            reg.detach()
    return model, reg


def test_what_an_update_keeps_is_in_a_checkpoint() -> None:
    (one, whole), (other, resumed) = summed([20]), summed([7, 20])
    assert whole.state_dict()["state"]["0.weight"].keys() == {"sum"}
    for (name, value), mine in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, mine), name
    average = copy.deepcopy(one)
    for reg, model in ((whole, one), (resumed, other)):
        reg.finish()
        assert torch.equal(model[0].weight != 0, one[0].weight != 0)
    nn.init.ones_(average[0].weight)
    whole.project_(average)  # by the same sums, of the weight that was trained
    best = whole.state_dict()["state"]["0.weight"]["sum"].abs()
    assert best[average[0].weight != 0].min() >= best[average[0].weight == 0].max()


def test_what_a_stage_kept_may_be_returned_and_layers_that_come_later_take_nothing_away() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    own = mb.Update(("own",), (), before=lambda w, m: m.state.setdefault("n", torch.tensor(0)).add_(1))
    reg = mb.attach(optimizer, model[:1], {"*": own})
    for step in range(4):
        if step == 2:
            optimizer.add_param_group({"params": list(model[1].parameters())})
        optimizer.zero_grad()
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
    assert int(reg.state_dict()["state"]["0.weight"]["n"]) == 4


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ({"n": 3}, r"'0\.weight': moment\.state\['n'\] is of the type int: .* such as torch\.tensor\(3\)"),
        ({"of": [1]}, r"moment\.state\['of'\] is of the type list: keep tensors there$"),
        ({3: torch.zeros(1)}, r"moment\.state has 3: the names of what it keeps are strings"),
    ],
)
def test_what_a_checkpoint_could_not_hold_is_refused_at_once(kept: Any, says: str) -> None:
    with pytest.raises(mb.RuleError, match=says):
        trained({"*": own(lambda w, m: m.state.update(kept))}, steps=1)


def test_states_of_other_weights_are_refused() -> None:
    reg = trained({"0": summing()})
    saved = reg.state_dict()
    for wrong in ({"9.weight": {"sum": torch.zeros(1)}}, {"0.weight": 3}, 3, {"0.weight": {"sum": 3}}):
        with pytest.raises(mb.RuleError, match=r"of other weights|is of the type int"):
            reg.load_state_dict({**saved, "state": wrong})
    assert reg.state_dict()["state"].keys() == {"0.weight"}
    del saved["state"]
    reg.load_state_dict(saved)  # nothing was kept then
    assert "state" not in reg.state_dict()


def test_a_rank_with_a_default_gets_the_weight_alone() -> None:
    trained({"*": mb.l0_project(0.5, every=1, rank=lambda w, power=2: w.abs() ** power)}).finish()


def with_norm(update: mb.Update, **norm: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, **norm), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = mb.attach(optimizer, model, {"0": update})
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    reg.finish()


SPARSE = mb.l0_project(0.5, every=2)


@pytest.mark.parametrize(
    "update",
    [SPARSE, mb.chain(mb.l1_shrink(1e-4), SPARSE), mb.Update(("own",), (), bound=lambda size, progress: size // 2)],
)  # fmt: skip
def test_finish_says_that_statistics_of_batch_norms_are_of_denser_networks(update: mb.Update) -> None:
    with pytest.warns(UserWarning, match=r"batch norm: '0\.weight' left the bound .*update_bn") as told:
        with_norm(update)
    assert Path(told[0].filename) == Path(__file__), "the line that called finish()"


@pytest.mark.parametrize(
    "update", [mb.l0_project(0.5, every=1), mb.chain(SPARSE, mb.hold()), mb.l2_decay(1e-4)]
)
def test_it_says_nothing_where_they_are_not(update: mb.Update) -> None:
    with_norm(update)  # warnings are errors here
    with_norm(SPARSE, track_running_stats=False)


class Branches(nn.Module):
    """A bounded layer beside a norm; `mode` says what else there is."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode, self.steps = mode, 0
        self.first, self.norm, self.bounded = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        x = self.first(x)
        if self.mode == "beside":
            return self.norm(x) + self.bounded(x)
        if self.mode == "joined":
            return self.norm(x + self.bounded(x))
        if self.mode == "in place":
            y = x.clone()
            y.add_(self.bounded(x))
            return self.norm(y)
        if self.mode == "again":
            return self.norm(self.bounded(self.norm(x)))
        if self.mode == "by values" and x.sum() > 1e9:
            return x
        return self.bounded(self.norm(x))


@pytest.mark.parametrize(
    ("mode", "tells"),
    [
        ("before", False),
        ("beside", False),
        ("joined", True),
        ("in place", True),
        ("again", True),
        ("by values", True),
    ],
)
def test_only_norms_that_may_come_after_a_bounded_layer_are_stale(mode: str, tells: bool) -> None:
    model = Branches(mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = mb.attach(optimizer, model, {"bounded": SPARSE})
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    random = torch.get_rng_state()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        reg.finish()
    assert [each.category.__name__ for each in told] == ["StaleStatistics"] * tells
    assert isinstance(model.last, torch.Tensor), "the network's own attributes are left alone"
    assert torch.equal(random, torch.get_rng_state())


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(mb.RuleError, match="bound is 3; give a function, or leave it out"):
        mb.Update(("own",), (), bound=3)  # type: ignore[arg-type]
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(0.5)})
    with pytest.raises(mb.RuleError, match=r"lacks .*: load what state_dict\(\) of attached rules gave"):
        reg.load_state_dict(optimizer.state_dict())
