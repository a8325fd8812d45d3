"""Whether a saved state of rules goes with the rules that are attached: numbers of others would be wrong, silently."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from membound.errors import RuleError


def check_same_rules(state: Any, here: Mapping[str, Any]) -> None:
    """Refuse a state that is not of these rules, and say what differs.

    >>> here = {"step": 0, "total_steps": 9, "layers": ["fc1.weight"], "rules": ["l0_project(0.2, 100)"]}
    >>> check_same_rules({**here, "rules": ["l0_project(0.1, 100)"]}, here)
    Traceback (most recent call last):
    membound.errors.RuleError: the saved state is of l0_project(0.1, 100) for 'fc1.weight', and here it is \
l0_project(0.2, 100): attach the same rules, or start over
    """
    if not isinstance(state, Mapping):
        raise RuleError(f"the saved state is {state!r}: load what state_dict() gave")
    if missing := here.keys() - state.keys() - {"rules", "state"}:  # which older ones do not have
        raise RuleError(
            f"the saved state lacks {', '.join(sorted(missing))}: load what state_dict() of attached rules gave"
        )
    for key in ("total_steps", "layers"):
        if state[key] != here[key]:
            raise RuleError(
                f"the saved state has {key}={state[key]!r}, here it is {here[key]!r}: attach the same rules"
            )
    saved = state.get("rules", here["rules"])
    if saved != here["rules"]:
        pairs = zip(here["layers"], saved, here["rules"], strict=False)
        layer, there, mine = next(
            (each for each in pairs if each[1] != each[2]), ("all", saved, here["rules"])
        )
        raise RuleError(
            f"the saved state is of {there} for '{layer}', and here it is {mine}: attach the same rules, or start over"
        )
    if not isinstance(state["step"], Integral) or state["step"] < 0:
        raise RuleError(f"the saved state has step={state['step']!r}: a whole number from 0 is needed")
