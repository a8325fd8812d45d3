"""Ensembles: several networks, averaged, as one network, so that one file and one call hold them all."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from torch import Tensor, nn
from torch.nn.functional import softmax

from membound.errors import ModelError, a_kind
from membound.search.bounds import Average


class Ensemble(nn.Module):
    """Members on the same input; their outputs averaged, or the probabilities (softmax over classes) of each.

    The members are called '0', '1' and so on, in this module and in its state dict. One member's scores are its own.

    >>> import torch
    >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> x = torch.ones(1, 2)
    >>> torch.equal(Ensemble([first, second])(x), (first(x) + second(x)) * 0.5)
    True
    >>> float(Ensemble([first, second], "probabilities")(x).detach().sum().round(decimals=5))
    1.0
    """

    def __init__(self, members: Iterable[nn.Module], average: Average = "scores") -> None:
        super().__init__()
        if average not in get_args(Average):
            raise ModelError(f"there is no average of {average!r}: take 'scores' or 'probabilities'")
        found = list(members)
        if not found:
            raise ModelError("an ensemble needs at least one member: this one has none")
        self.average = average
        for number, member in enumerate(found):  # names as short as can be: each is in the file's header
            if not isinstance(member, nn.Module):
                raise ModelError(f"member {number} is {a_kind(member)}: give torch.nn.Modules")
            self.add_module(str(number), member)

    @property
    def members(self) -> list[nn.Module]:
        """The networks, in order; one that was given twice is there twice."""
        return [member for member in self._modules.values() if member is not None]

    def forward(self, x: Tensor) -> Tensor:
        """The average of the members' scores or probabilities; the classes are along axis 1."""
        # Sums and one product: the store has them, and the members' weights stay what they are. A member that works
        # in place on its input, as a first nn.ReLU(inplace=True) does, must not change what the next one sees.
        members = self.members
        outputs = [member(x.clone() if len(members) > 1 else x) for member in members]
        shapes = {tuple(out.shape[1:]) for out in outputs}
        if len(shapes) > 1:
            raise ModelError(f"members give outputs of different shapes: {sorted(shapes)}")
        if self.average == "probabilities":
            outputs = [softmax(out, 1) for out in outputs]
        total: Tensor = outputs[0]
        for out in outputs[1:]:
            total = total + out
        return total * (1 / len(outputs)) if len(outputs) > 1 else total


def join_states(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The state dict of an ensemble from those of its members, in order.

    >>> list(join_states([nn.Linear(1, 1).state_dict(), nn.Linear(1, 1, bias=False).state_dict()]))
    ['0.weight', '0.bias', '1.weight']
    """
    return {f"{number}.{name}": value for number, state in enumerate(states) for name, value in state.items()}
