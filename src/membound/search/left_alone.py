"""Weights that no bound holds, because patterns select those of torch's layers only."""

from membound.search.problem import Problem
from membound.search.request import Choices
from membound.train.rules import select
from membound.train.updates import l0_project

SHARE = 0.05  # of all parameters: what is less hardly shows in a file
SHOWN = 4  # names


def note_left_alone(problem: Problem, choices: Choices) -> list[str]:
    """Said before training of large parameters, in modules of the user's own, that no pattern has named."""
    if "*" not in choices.layers:
        return []  # who names layers has chosen
    model = problem.make(0)
    bounded = select(model, {"*": l0_project(1.0)})
    named = {*bounded, *problem.weights, *choices.protect}
    own = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.dim() >= 2 and parameter.requires_grad and name not in named
    }
    total = sum(parameter.numel() for parameter in model.parameters())
    if sum(own.values()) < SHARE * total:
        return []
    names = sorted(own, key=lambda name: -own[name])
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [
        f"{sum(own.values()):,} of {total:,} parameters are in {shown}{more}, outside of torch's layers, and stay "
        f"dense: to bound {'it' if len(names) == 1 else 'them'}, too, name '*' and {shown}{more} as layers"
    ]
