"""What updates keep of a weight from step to step (`moment.state`), and how checkpoints hold it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from membound.errors import RuleError
from membound.train.sharded import is_sharded, shard_like


class Kept(Protocol):
    """A weight under a rule, and what is kept of it."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> Tensor: ...

    @property
    def state(self) -> dict[str, Tensor]: ...


def check_state(state: Mapping[Any, Any]) -> None:
    """Refuse what a checkpoint could not hold, when it is put there.

    >>> check_state({"steps": 3})
    Traceback (most recent call last):
    membound.errors.RuleError: moment.state['steps'] is of the type int: keep tensors there, such as torch.tensor(3)
    """
    for name, value in state.items():
        if not isinstance(name, str):
            raise RuleError(f"moment.state has {name!r}: the names of what it keeps are strings")
        if not isinstance(value, Tensor):
            such = f", such as torch.tensor({value!r})" if isinstance(value, int | float) else ""
            raise RuleError(
                f"moment.state[{name!r}] is of the type {type(value).__name__}: keep tensors there{such}"
            )


def carry_over_(targets: Sequence[Kept], before: Sequence[Kept]) -> None:
    """What was kept of weights goes on with them, where rules were matched again."""
    kept = {target.name: target.state for target in before}
    for target in targets:
        target.state.update(kept.get(target.name, {}))


def take_states(targets: Sequence[Kept]) -> dict[str, dict[str, dict[str, Tensor]]]:
    """What is kept of each weight, as it is now: a part of a handle's state, where there is anything."""
    kept = {
        target.name: {name: value.detach().clone() for name, value in target.state.items()}
        for target in targets
        if target.state
    }
    return {"state": kept} if kept else {}


@torch.no_grad()
def load_states_(targets: Sequence[Kept], saved: Any) -> None:
    """Go on with what `take_states` gave, where the weights are now."""
    names = {target.name for target in targets}
    if not isinstance(saved, Mapping) or not all(
        name in names and isinstance(of, Mapping) for name, of in saved.items()
    ):
        raise RuleError("the saved state has a `state` of other weights: load what state_dict() gave")
    for of in saved.values():
        check_state(of)
    for target in targets:
        target.state.clear()
        for name, value in saved.get(target.name, {}).items():
            target.state[name] = _placed(value, target.weight)


def _placed(value: Tensor, weight: Tensor) -> Tensor:
    """A copy where the weight is: this process's part, of what is as large as a weight that is sharded."""
    if is_sharded(weight) and not is_sharded(value) and value.shape == weight.shape:
        return shard_like(value, weight)
    return value.to(weight.device, copy=True)
