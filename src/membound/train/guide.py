"""What a regularizer can be given to choose the counts of its bounds as training goes."""

from collections.abc import Mapping
from typing import Any, Protocol


class Guide(Protocol):
    """Chooses the counts that bounds read, where they follow from the whole network and not from a schedule.

    A regularizer asks its guide around every projection, and keeps its state with its own.
    """

    def rests(self, step: int) -> bool:
        """Whether there is no projection yet at this step."""
        ...

    def prepare(self, step: int) -> None:
        """Choose the counts of the projection that comes after this step."""
        ...

    def settle(self) -> None:
        """Choose the last counts: training is over, and `finish` imposes them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to go on exactly, as JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...
