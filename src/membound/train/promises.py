"""What attach() promises of a network, noted on its layers: copies of the network, averages included, carry it along.

A note is plain data: no state dict has it, and a pickled network needs nothing of ours to be loaded.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from membound.modules import NOTE
from membound.train.rules import Target


class Bounds(dict[str, int]):
    """How many nonzeros each parameter of a layer may have now.

    Copies of the layer have the same object, so that a bound that tightens later tightens for them, too.
    """

    def __deepcopy__(self, memo: Any) -> "Bounds":
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class Promises:
    """The notes of one attach()."""

    def __init__(self, model: nn.Module, targets: Sequence[Target]) -> None:
        self._places: list[tuple[Target, Bounds, str]] = []
        bounded = {id(target.weight): target for target in targets if target.update.bound is not None}
        for layer in model.modules():
            mine = {key: bounded[id(p)] for key, p in layer._parameters.items() if id(p) in bounded}
            if mine:  # a note of its own from now on: copies made before keep theirs
                note = layer.__dict__[NOTE] = Bounds(layer.__dict__.get(NOTE, {}))
                self._places += [(target, note, key) for key, target in mine.items()]

    def tell(self, progress: float | None) -> None:
        """What is allowed now."""
        for target, note, key in self._places:
            note[key] = target.update.allowed(target.weight.numel(), progress)

    def withdraw(self) -> None:
        """Nothing is promised any more."""
        for _, note, key in self._places:
            note.pop(key, None)


def forget_(model: nn.Module) -> None:
    """Take the notes off a network."""
    for layer in model.modules():
        layer.__dict__.pop(NOTE, None)
