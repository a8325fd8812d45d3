"""Rules: which update belongs to which weight.

A pattern matches the full dotted name of a layer, and the first match wins in the order given. A layer's rule
touches its `weight`, of recurrent layers and of attention those that they have in its place. A wildcard selects only
weights of two or more dimensions, so '*' leaves batch-norm scales alone; an exact parameter name, such as 'fc1.bias',
selects anything.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import LBFGS, Optimizer

from membound.errors import RuleError, a_kind
from membound.modules import plain_keys, plain_name, wrapping
from membound.train.computed import computed_tensors, refuse_computed
from membound.train.sharded import check_layout, is_sharded
from membound.train.updates import Update

NAMES = {  # what layers call their weights that have none called `weight`
    (nn.RNNBase, nn.RNNCellBase): re.compile(r"weight_(ih|hh|hr)(_l\d+)?(_reverse)?"),
    (nn.MultiheadAttention,): re.compile(r"(in|q|k|v)_proj_weight"),
}


@dataclass(frozen=True)
class Target:
    """A weight and the update it gets; `group` is its place in the optimizer's param_groups.

    `state` is what the update keeps of it from step to step.
    """

    name: str
    weight: nn.Parameter
    group: int
    update: Update
    state: dict[str, Tensor] = field(default_factory=dict, compare=False)


def load_plain_(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state dict whose names are plain, whatever wrappers put before the model's own."""
    own = plain_keys({name: name for name in model.state_dict()})
    model.load_state_dict({own[name]: value for name, value in state.items()})


def select(model: nn.Module, rules: Mapping[str, Update]) -> dict[str, tuple[nn.Parameter, str]]:
    """Every parameter name that a rule selects, with the parameter and the pattern that wins."""
    check_rules(rules)
    parameters = _parameters(model)
    layers = _plain_layers(model)
    computed = _computed_weights(layers)
    # A layer of the user's that is called 'module' is no wrapper.
    has_own = any(name.startswith("module.") for name in parameters)
    chosen: dict[str, tuple[nn.Parameter, str]] = {}
    for pattern in rules:
        plain = plain_name(pattern)
        while not has_own and plain.startswith("module."):
            plain = plain.removeprefix("module.")
        missed = [layer for layer in computed if layer == plain or fnmatchcase(layer, plain)]
        refuse_computed(
            [computed[layer] for layer in missed if not _has_source(*computed[layer][:2], chosen)]
        )
        names = _selected(plain, parameters, layers)
        _check_reached(pattern, names, chosen)
        for name in names:
            chosen.setdefault(name, (parameters[name], pattern))
    return chosen


def _check_reached(pattern: str, names: list[str], chosen: dict[str, tuple[nn.Parameter, str]]) -> None:
    """The first match wins, so a rule whose layers all belong to earlier ones would do nothing, silently."""
    if all(name in chosen for name in names):
        earlier = _listed([f"'{taker}'" for taker in dict.fromkeys(chosen[name][1] for name in names)])
        raise RuleError(
            f"the rule '{pattern}' never applies: rules before it ({earlier}) take all of its layers; "
            "give the specific one first, or leave it out"
        )


def resolve(model: nn.Module, rules: Mapping[str, Update], optimizer: Optimizer) -> list[Target]:
    """Every weight that a rule selects, once, with its update; raises a RuleError for what cannot be."""
    groups = {id(weight): at for at, group in enumerate(optimizer.param_groups) for weight in group["params"]}
    targets: dict[int, Target] = {}
    for name, (weight, pattern) in select(model, rules).items():
        update = rules[pattern]
        _check_bounds(name, weight, pattern, update, model)
        if id(weight) not in groups:
            held = [name for name, value in _parameters(model).items() if id(value) in groups]
            if not held:
                raise RuleError(
                    "the optimizer holds no weight of this model: was it made from another model, or before this one "
                    "was copied? Make it from model.parameters()"
                )
            raise RuleError(
                f"the rule '{pattern}' selects '{name}', which the optimizer does not hold: it holds {_listed(held)}"
            )
        earlier = targets.get(id(weight))
        if earlier is None:
            targets[id(weight)] = Target(name, weight, groups[id(weight)], update)
            _check_target(targets[id(weight)], optimizer)
        elif earlier.update != update:
            raise RuleError(
                f"'{earlier.name}' and '{name}' are one tied weight with two different rules: give both the same"
            )
    return list(targets.values())


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return plain_keys(dict(model.named_parameters(remove_duplicate=False)))


def _plain_layers(model: nn.Module) -> dict[str, nn.Module]:
    prefix = wrapping({plain_name(name): None for name, _ in model.named_parameters(remove_duplicate=False)})
    layers = {plain_name(name): layer for name, layer in model.named_modules()}
    return {
        name.removeprefix(prefix): layer
        for name, layer in layers.items()
        if not prefix.startswith(f"{name}.")
    }


def _computed_weights(layers: Mapping[str, nn.Module]) -> dict[str, tuple[str, str, str]]:
    """Layers whose weight is no parameter, so that a pattern would pass over them silently."""
    return {
        name: (name, tensor, way)
        for name, layer in layers.items()
        for tensor, way in computed_tensors(layer)
        if _is_weight(tensor, layer)
        and isinstance(weight := getattr(layer, tensor), Tensor)
        and weight.dim() >= 2
    }


def _has_source(layer: str, tensor: str, chosen: Mapping[str, object]) -> bool:
    """Whether a rule before names what the layer's weight is computed from."""
    sources = tuple(f"{layer}.{part}".lstrip(".") for part in (f"{tensor}_", f"parametrizations.{tensor}."))
    return any(name.startswith(sources) for name in chosen)


def _selected(
    pattern: str, parameters: dict[str, nn.Parameter], layers: Mapping[str, nn.Module]
) -> list[str]:
    if pattern in parameters:
        return [pattern]
    weights = _layers(parameters, layers)
    if pattern in layers:
        if own := [name for name, layer in weights.items() if layer == pattern]:
            return own
        inside = [name for name in parameters if name.startswith(f"{pattern}.")]
        named = _typed({name: weights[name] for name in inside if name in weights}, layers) or inside
        there = (
            f"inside it there are {_listed(named)}"
            if inside
            else f"there are {_listed(_typed(weights, layers))}"
        )
        raise RuleError(f"the layer '{pattern}' has no weight of its own; {there}")
    matched = [name for name, layer in weights.items() if fnmatchcase(layer, pattern)]
    selected = [
        name
        for name in matched
        if isinstance(parameters[name], UninitializedParameter) or parameters[name].dim() >= 2
    ]
    if matched and not selected:
        raise RuleError(
            f"the pattern '{pattern}' matches only weights of one dimension ({_listed(matched)}): "
            "a wildcard leaves those alone, so name them exactly"
        )
    if not selected:
        close = get_close_matches(pattern, [*filter(None, weights.values()), *parameters], n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        there = _listed(_typed(weights, layers) or list(parameters))
        raise RuleError(f"the pattern '{pattern}' matches no layer: there are {there}{hint}")
    return selected


def _check_bounds(name: str, weight: nn.Parameter, pattern: str, update: Update, model: nn.Module) -> None:
    """Who names a norm by its number may take it for another layer: its scales are bounded by their own name only."""
    bounds = update.bound is not None or update.levels is not None
    named = plain_name(pattern).endswith(name)
    if named or not bounds or isinstance(weight, UninitializedParameter) or weight.dim() >= 2:
        return
    kind = type(_plain_layers(model)[name.removesuffix(".weight")]).__name__
    raise RuleError(
        f"the rule '{pattern}' would bound the scales of a {kind}: name a layer whose weight has two or more "
        f"dimensions, or '{name}' if you mean the scales"
    )


def counterparts(targets: Sequence[Target], model: nn.Module) -> list[Target]:
    """The weights of the same names in another network, such as an average of the first."""
    if not isinstance(model, nn.Module):
        raise RuleError(f"this is {a_kind(model)}, not a network: give one with the same layers")
    there = plain_keys(dict(model.named_parameters(remove_duplicate=False)))
    for target in targets:
        found = there.get(target.name)
        if found is None or found.shape != target.weight.shape:
            has = "no such weight" if found is None else f"one of shape {tuple(found.shape)}"
            raise RuleError(
                f"the other network has {has} as '{target.name}' of shape {tuple(target.weight.shape)}: give a "
                "copy or an average of the network that attach() was given"
            )
    return [replace(target, weight=there[target.name]) for target in targets]


def check_rules(rules: Mapping[str, Update]) -> None:
    """Whether these are rules at all, whatever the model."""
    if not isinstance(rules, Mapping) or not rules:
        raise RuleError(
            "rules map layer names or patterns to updates, such as {'fc*': l0_project(keep=0.05)}: "
            f"{rules!r} does not"
        )
    for pattern, update in rules.items():
        if not isinstance(pattern, str) or not pattern:
            raise RuleError(f"a rule's key is the name of a layer or a pattern, not {pattern!r}")
        if not isinstance(update, Update):
            raise RuleError(
                f"the rule '{pattern}' is {update!r}, not an update: use l2_decay, l1_subgradient, l1_shrink, "
                "l0_project, palette, hold, chain(...) for several, or mb.Update(...) for one of your own"
            )


def _check_target(target: Target, optimizer: Optimizer) -> None:
    name, weight, update = target.name, target.weight, target.update
    if isinstance(weight, UninitializedParameter):
        raise RuleError(f"'{name}' has no shape yet: run the lazy model once on an example before attach()")
    group = optimizer.param_groups[target.group]
    if "l2_decay" in update.kinds and group.get("weight_decay", 0) != 0:
        raise RuleError(
            f"'{name}' would decay twice: the optimizer has weight_decay={group['weight_decay']}, the rule l2_decay; "
            "set the optimizer's to 0 for it"
        )
    if isinstance(optimizer, LBFGS) and {"l2_decay", "l1_subgradient"} & set(update.kinds):
        raise RuleError(
            f"'{name}': LBFGS searches along the loss that its closure returns, which contains no penalty in the "
            "gradient; add the penalty to the loss, or use l1_shrink or l0_project"
        )
    if isinstance(optimizer, LBFGS) and update.levels is not None and update.levels.begin < 1:
        raise RuleError(
            f"'{name}': LBFGS takes changes of gradients for curvature, and under a palette weights jump; train with "
            "SGD or Adam, or impose the palette at the end, palette(begin=1)"
        )
    if group.get("differentiable"):
        raise RuleError(f"'{name}': updates write weights in place, so differentiable=True cannot be right")
    if not weight.is_floating_point():
        raise RuleError(f"'{name}' has the type {weight.dtype}: updates need a real floating-point weight")
    if update.rank is not None and (update.bound is None or is_sharded(weight)):
        why = "a rank says which weights stay within a bound, and there is none"
        raise RuleError(
            f"'{name}': {why if update.bound is None else 'a rank takes weights that are not sharded'}"
        )
    if update.bound is not None or update.levels is not None:
        check_layout(name, weight)
        try:
            for progress in (0.0, 1.0):
                update.allowed(weight.numel(), progress)
                if update.levels is not None:
                    update.levels.check(progress)
        except RuleError as error:
            raise RuleError(f"'{name}' of shape {tuple(weight.shape)}: {error}") from None


def _layers(parameters: Iterable[str], layers: Mapping[str, nn.Module]) -> dict[str, str]:
    """The layer of every parameter that is a layer's weight; a model that is one layer is called ''."""
    split = {name: name.rpartition(".") for name in parameters}
    return {name: layer for name, (layer, _, own) in split.items() if _is_weight(own, layers.get(layer))}


def _is_weight(name: str, layer: nn.Module | None) -> bool:
    return name == "weight" or any(
        isinstance(layer, kinds) and names.fullmatch(name) is not None for kinds, names in NAMES.items()
    )


def _typed(weights: Mapping[str, str], layers: Mapping[str, nn.Module]) -> list[str]:
    """Layers that have a weight, each with its type: in an nn.Sequential, a name alone says little."""
    names = {
        layer: f"{layer} ({type(layers[layer]).__name__})" if layer else name
        for name, layer in weights.items()
    }
    return list(names.values())


def _listed(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) + more) if names else "none"
