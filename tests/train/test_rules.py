"""Which rule gets which weight, and what is said when a rule cannot be."""

from typing import Any

import pytest
import torch
from by_hand import make_net
from torch import nn

import membound as mb
from membound.modules import plain_keys
from membound.train.rules import resolve, select

A, B, C = mb.l2_decay(0.1), mb.l1_shrink(0.1), mb.l0_project(0.5)


class Zoo(nn.Module):
    """Layers of every kind that a pattern may meet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.bn1 = nn.BatchNorm2d(2)
        self.block = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU())
        self.act = nn.ReLU()
        self.rnn = nn.LSTM(3, 2)
        self.fc1 = nn.Linear(3, 4)
        self.fc2 = nn.Linear(4, 2)


def sgd(model: nn.Module, **how: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), 0.1, **how)


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


EVERY = ["conv1.weight", "block.0.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "fc1.weight", "fc2.weight"]


def winners(model: nn.Module, rules: dict[str, Any]) -> dict[str, str]:
    return {name: pattern for name, (_, pattern) in select(model, rules).items()}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["fc1"], {"fc1.weight": "fc1"}),
        (["fc*"], {"fc1.weight": "fc*", "fc2.weight": "fc*"}),
        (["fc[2-9]"], {"fc2.weight": "fc[2-9]"}),
        (["?c1"], {"fc1.weight": "?c1"}),
        (["fc1", "fc*"], {"fc1.weight": "fc1", "fc2.weight": "fc*"}),
        (
            ["fc[12]", "*1"],
            {"fc1.weight": "fc[12]", "fc2.weight": "fc[12]", "conv1.weight": "*1"},
        ),
        (
            ["block.0", "*"],
            dict.fromkeys(EVERY, "*") | {"block.0.weight": "block.0"},
        ),
        (["*"], dict.fromkeys(EVERY, "*")),
        (["rnn"], dict.fromkeys(["rnn.weight_ih_l0", "rnn.weight_hh_l0"], "rnn")),
        (["block.*"], {"block.0.weight": "block.*"}),
        (["fc1.weight"], {"fc1.weight": "fc1.weight"}),
        (["fc1.bias", "fc*"], {"fc1.bias": "fc1.bias", "fc1.weight": "fc*", "fc2.weight": "fc*"}),
        (["bn1"], {"bn1.weight": "bn1"}),
        (["bn1.bias"], {"bn1.bias": "bn1.bias"}),
        (["rnn.weight_hh_l0"], {"rnn.weight_hh_l0": "rnn.weight_hh_l0"}),
        (["module.fc1"], {"fc1.weight": "module.fc1"}),
        (["_orig_mod.fc1"], {"fc1.weight": "_orig_mod.fc1"}),
        (["module.*"], dict.fromkeys(EVERY, "module.*")),
    ],
)
def test_the_first_match_wins_in_the_order_given(patterns: list[str], expected: dict[str, str]) -> None:
    assert winners(Zoo(), dict.fromkeys(patterns, A)) == expected


def test_each_weight_gets_the_update_of_the_pattern_that_wins() -> None:
    model = Zoo()
    targets = resolve(model, {"fc1": A, "fc*": B, "*": C}, sgd(model))
    assert {target.name: target.update for target in targets} == {
        "fc1.weight": A,
        "fc2.weight": B,
        "conv1.weight": C,
        "block.0.weight": C,
        "rnn.weight_ih_l0": C,
        "rnn.weight_hh_l0": C,
    }
    assert all(target.weight is model.get_parameter(target.name) for target in targets)


@pytest.mark.parametrize(
    ("patterns", "taker"),
    [
        (["*", "fc1"], r"'\*'"),
        (["fc1", "fc2", "fc*"], "'fc1', 'fc2'"),
        (["fc1", "module.fc1"], "'fc1'"),
        (["fc1", "fc1.weight"], "'fc1'"),
    ],
)
def test_a_rule_that_earlier_ones_leave_nothing_is_refused(patterns: list[str], taker: str) -> None:
    says = rf"never applies: rules before it \({taker}\) take all of its layers; give the specific one first"
    model = Zoo()
    with pytest.raises(mb.RuleError, match=says):
        mb.attach(sgd(model), model, dict.fromkeys(patterns, A))


@pytest.mark.parametrize(
    ("names", "plain"),
    [
        (["fc.weight"], ["fc.weight"]),
        (["module.fc.weight", "module.fc.bias"], ["fc.weight", "fc.bias"]),
        (["_orig_mod.fc.weight", "_orig_mod.fc.bias"], ["fc.weight", "fc.bias"]),
        (["module._orig_mod.fc.weight"], ["fc.weight"]),
        (["_orig_mod.module.fc.weight"], ["fc.weight"]),
        (["module.module.fc.weight"], ["fc.weight"]),
        (["block._orig_mod.0.weight"], ["block.0.weight"]),
        (["net.module.fc"], ["net.module.fc"]),
        (["module"], ["module"]),
        (["module.fc.weight", "head.weight"], ["module.fc.weight", "head.weight"]),  # one's own layer
        (
            ["module.module.weight", "module.head.weight"],
            ["module.weight", "head.weight"],
        ),  # the same, wrapped
        ([], []),
    ],
)
def test_prefixes_of_wrappers_are_ignored(names: list[str], plain: list[str]) -> None:
    assert list(plain_keys(dict.fromkeys(names))) == plain


class Wrapper(nn.Module):
    """Names as DistributedDataParallel makes them, without processes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class OwnModule(nn.Module):
    """A network with a layer that happens to be called 'module'."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 4)
        self.head = nn.ModuleDict({"module": nn.Linear(4, 2)})


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        Wrapper,
        lambda model: Wrapper(Wrapper(model)),
        lambda model: Wrapper(compiled(model)),
        lambda model: compiled(Wrapper(model)),
    ],
)
def test_rules_mean_the_same_on_wrapped_and_unwrapped_models(wrap: Any) -> None:
    for pattern in ("fc1", "module.fc1", "module.module.fc1", "module._orig_mod.fc1", "fc1.weight"):
        assert winners(wrap(Zoo()), {pattern: A}) == {"fc1.weight": pattern}
    assert winners(wrap(Zoo()), {"module.fc*": A}).keys() == {"fc1.weight", "fc2.weight"}
    with pytest.raises(mb.RuleError, match="the layer 'act' has no weight of its own"):
        select(wrap(Zoo()), {"module.act": A})
    for pattern in ("module", "module.weight"):
        assert winners(wrap(OwnModule()), {pattern: A}) == {"module.weight": pattern}
    assert winners(wrap(OwnModule()), {"head.module": A}) == {"head.module.weight": "head.module"}
    assert winners(wrap(OwnModule()), {"*": A}).keys() == {"module.weight", "head.module.weight"}
    assert winners(wrap(nn.Linear(3, 2)), {"*": A}) == {"weight": "*"}


def test_compiled_models_and_compiled_layers_keep_their_names() -> None:
    model = Zoo()
    assert winners(compiled(model), {"fc*": A}) == {"fc1.weight": "fc*", "fc2.weight": "fc*"}
    model.fc1 = compiled(model.fc1)
    assert winners(model, {"fc1": A}) == {"fc1.weight": "fc1"}


@pytest.mark.parametrize("wrap", [lambda model: model, compiled])
def test_a_model_that_is_one_layer_matches_a_wildcard(wrap: Any) -> None:
    assert winners(wrap(nn.Linear(3, 2)), {"*": A}) == {"weight": "*"}
    assert winners(wrap(nn.Linear(3, 2)), {"weight": A}) == {"weight": "weight"}


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (
            "fc3",
            r"'fc3' matches no layer: there are conv1 \(Conv2d\), bn1 \(BatchNorm2d\), block\.0 \(Conv2d\), .*"
            r"fc2 \(Linear\); did you mean 'fc",
        ),
        ("dense*", r"'dense\*' matches no layer: there are conv1 .*, fc2 \(Linear\)$"),
        ("FC1", "'FC1' matches no layer"),
        ("fc1.wieght", r"did you mean 'fc1\.weight'\?"),
        ("bn*", r"'bn\*' matches only weights of one dimension \(bn1\.weight\): .*name them exactly"),
        ("act", r"'act' has no weight of its own; there are conv1 \(Conv2d\), "),
        (
            "block",
            r"'block' has no weight of its own; inside it there are block\.0 \(Conv2d\), block\.1 \(BatchNorm2d\)$",
        ),
    ],
)
def test_a_pattern_that_selects_nothing_says_what_is_there(pattern: str, says: str) -> None:
    model = Zoo()
    with pytest.raises(mb.RuleError, match=says):
        mb.attach(sgd(model), model, {"conv1": A, pattern: A})


@pytest.mark.parametrize("update", [C, mb.palette(4), mb.chain(A, C)])
def test_a_norm_is_bounded_by_the_name_of_its_scales_only(update: Any) -> None:
    model = Zoo()
    says = (
        r"the rule 'block\.1' would bound the scales of a BatchNorm2d: .*, or 'block\.1\.weight' if you mean"
    )
    with pytest.raises(mb.RuleError, match=says):
        resolve(model, {"block.1": update}, sgd(model))
    for name in ("block.1.weight", "module.block.1.weight", "fc1.bias"):
        assert resolve(model, {name: update}, sgd(model))[0].name == name.removeprefix("module.")
    assert resolve(model, {"block.1": B}, sgd(model)), "a penalty on scales is a method of its own"


def test_recurrent_layers_and_attention_have_weights_of_other_names() -> None:
    attention = nn.MultiheadAttention(4, 2, kdim=3, add_bias_kv=True)
    model = nn.ModuleDict(
        {"attention": nn.MultiheadAttention(4, 2), "cross": attention, "rnn": nn.LSTM(4, 3, proj_size=2)}
    )
    rnn = {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.weight_hr_l0"}
    cross = {"cross.q_proj_weight", "cross.k_proj_weight", "cross.v_proj_weight"}
    own = {"attention.in_proj_weight", *cross, *rnn}
    assert winners(model, {"*": A}).keys() == {*own, "attention.out_proj.weight", "cross.out_proj.weight"}
    assert winners(model, {"rnn": A}).keys() == rnn
    assert winners(model, {"cross": A}).keys() == cross
    assert winners(nn.GRUCell(2, 3), {"*": A}).keys() == {"weight_ih", "weight_hh"}
    for name in own:
        assert winners(model, {name: A}) == {name: name}


def test_a_computed_weight_of_a_recurrent_layer_is_refused() -> None:
    model = nn.ModuleDict({"rnn": nn.LSTM(4, 3)})
    nn.utils.parametrizations.weight_norm(model["rnn"], "weight_hh_l0")
    with pytest.raises(mb.RuleError, match=r"layer 'rnn' is parametrized, .*\(layer, 'weight_hh_l0'\)"):
        select(model, {"*": A})
    source = "rnn.parametrizations.weight_hh_l0.original1"
    assert winners(model, {source: A, "*": A}) == {source: source, "rnn.weight_ih_l0": "*"}


def test_a_long_list_of_names_is_cut() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(30)))
    with pytest.raises(mb.RuleError, match=r"0 \(Linear\), 1 \(Linear\), .* and 10 more"):
        mb.attach(sgd(model), model, {"nothing": A})


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({}, "rules map layer names or patterns to updates"),
        ([], "rules map"),
        ([("fc1", A)], "rules map"),
        (None, "rules map .*None does not"),
        (A, "rules map"),
        ({"fc1": [A, B]}, r"the rule 'fc1' is \[.*\], not an update: .*chain\(\.\.\.\) for several"),
        ({"fc1": 5e-4}, "the rule 'fc1' is 0.0005, not an update"),
        ({"fc1": mb.l2_decay}, "the rule 'fc1' is <function"),
        ({"": A}, "a rule's key is the name of a layer or a pattern, not ''"),
        ({1: A}, "not 1"),
        ({"fc1": mb.l0_project(mb.ramp(1.0, 0.0))}, r"keep=0\.0 is not a fraction above 0, up to 1"),
        ({"fc1": mb.l0_project(13)}, r"'fc1\.weight' of shape \(4, 3\): keep=13 weights, but there are 12"),
        ({"fc1": mb.chain(A, mb.l0_project(13))}, "keep=13 weights"),
        ({"fc1": mb.l0_project(mb.ramp(20, 5))}, "keep=20 weights"),
        ({"fc1": mb.l0_project(mb.ramp(5, 20))}, "keep=20 weights"),
    ],
)
def test_rules_that_cannot_be(rules: Any, says: str) -> None:
    model = make_net()
    with pytest.raises(mb.RuleError, match=says):
        mb.attach(sgd(model), model, rules, total_steps=10)


@pytest.mark.parametrize("rule", [mb.l2_decay(0.1), mb.chain(mb.l1_shrink(0.1), mb.l2_decay(0.1))])
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda w: torch.optim.SGD(w, 0.1, weight_decay=5e-4), "0.0005"),
        (lambda w: torch.optim.AdamW(w, 0.1), "0.01"),
    ],
)
def test_decay_by_the_optimizer_and_by_a_rule_is_refused(make: Any, found: str, rule: Any) -> None:
    model = make_net()
    with pytest.raises(mb.RuleError, match=rf"'fc1\.weight' would decay twice: .*weight_decay={found}"):
        mb.attach(make(model.parameters()), model, {"fc1": rule})


def test_only_the_group_of_the_weight_decides_whether_it_would_decay_twice() -> None:
    model = make_net()
    groups = [{"params": model.fc1.parameters(), "weight_decay": 0.0}, {"params": model.fc2.parameters()}]
    mb.attach(torch.optim.AdamW(groups, 0.1), model, {"fc1": A, "fc2": B})


def test_the_optimizer_of_another_model_is_told_apart() -> None:
    optimizer = torch.optim.SGD(make_net().parameters(), 0.1)
    with pytest.raises(mb.RuleError, match="holds no weight of this model: was it made from another model"):
        mb.attach(optimizer, make_net(), {"*": A})


def test_a_matched_weight_that_the_optimizer_does_not_hold_is_named() -> None:
    model = make_net()
    optimizer = torch.optim.SGD(model.fc1.parameters(), 0.1)
    with pytest.raises(mb.RuleError, match=r"selects 'fc2\.weight', .* it holds fc1\.weight, fc1\.bias"):
        mb.attach(optimizer, model, {"*": A})


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3, bias=False, dtype=torch.float64)
        self.decoder = nn.Linear(3, 3, bias=False, dtype=torch.float64)
        self.decoder.weight = self.encoder.weight


@pytest.mark.parametrize(
    "rules",
    [
        {"*": A},
        {"encoder": A},
        {"decoder": A},
        {"encoder": A, "decoder": mb.l2_decay(0.1)},
    ],
)
def test_tied_weights_are_one_target(rules: Any) -> None:
    model = Tied()
    (target,) = resolve(model, rules, sgd(model))
    assert target.weight is model.encoder.weight
    assert target.update == A


@pytest.mark.parametrize(
    "rules",
    [
        {"encoder": A, "decoder": B},
        {"encoder": A, "*": B},
        {"encoder": mb.l0_project(5), "decoder": mb.l0_project(4)},
    ],
)
def test_conflicting_rules_for_tied_weights_are_refused(rules: Any) -> None:
    model = Tied()
    with pytest.raises(mb.RuleError, match=r"'encoder\.weight' and 'decoder\.weight' are one tied weight"):
        mb.attach(sgd(model), model, rules)


@pytest.mark.parametrize("pattern", ["fc", "*", "fc.weight"])
def test_a_lazy_layer_without_a_shape_is_refused(pattern: str) -> None:
    model = nn.ModuleDict({"fc": nn.LazyLinear(3)})
    with pytest.raises(mb.RuleError, match=r"'fc\.weight' has no shape yet: run the lazy model once"):
        mb.attach(sgd(model), model, {pattern: A})


def test_a_lazy_layer_with_a_shape_is_like_any_other() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    model(torch.ones(1, 2))
    assert winners(model, {"*": A}) == {"0.weight": "*"}


def test_complex_weights_are_refused() -> None:
    model = nn.ModuleDict({"fc": nn.Linear(3, 2, dtype=torch.complex64)})
    with pytest.raises(mb.RuleError, match=r"'fc\.weight' has the type torch\.complex64"):
        mb.attach(sgd(model), model, {"fc": A})


def test_a_differentiable_optimizer_is_refused() -> None:
    model = make_net()
    with pytest.raises(mb.RuleError, match="differentiable=True"):
        mb.attach(sgd(model, differentiable=True), model, {"fc1": A})


@pytest.mark.parametrize("rule", [mb.l2_decay(0.1), mb.l1_subgradient(0.1), mb.chain(C, mb.l2_decay(0.1))])
def test_lbfgs_is_refused_with_penalties_in_the_gradient(rule: Any) -> None:
    model = make_net()
    with pytest.raises(mb.RuleError, match="LBFGS searches along the loss"):
        mb.attach(torch.optim.LBFGS(model.parameters()), model, {"fc1": rule})


def test_a_refused_attach_leaves_nothing_behind() -> None:
    model = make_net()
    optimizer = sgd(model)
    with pytest.raises(mb.RuleError):
        mb.attach(optimizer, model, {"fc1": A, "fc3": A})
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    mb.attach(optimizer, model, {"fc1": A})
