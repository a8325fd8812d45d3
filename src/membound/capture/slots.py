"""What must stay or go together: the channels of a network's values, gathered into slots."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

PINNED = 0  # the slot of everything that must stay


@dataclass
class Slots:
    """A forest of slots; `same` joins two, and joining one to PINNED keeps it.

    >>> slots = Slots()
    >>> a, b = slots.fresh(2), slots.fresh(2)
    >>> slots.same(a, b); slots.pin(b[1:])
    >>> slots.roots(a) == slots.roots(b), slots.roots(a) == PINNED
    (array([ True,  True]), array([False,  True]))
    """

    parents: list[int] = field(default_factory=lambda: [PINNED])

    def fresh(self, count: int) -> Ids:
        first = len(self.parents)
        self.parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def root(self, slot: int) -> int:
        while self.parents[slot] != slot:
            self.parents[slot] = self.parents[self.parents[slot]]
            slot = self.parents[slot]
        return slot

    def roots(self, ids: Ids) -> Ids:
        return np.array([self.root(slot) for slot in ids.tolist()], dtype=np.int64)

    def same(self, left: Ids, right: Ids) -> None:
        for pair in zip(left.tolist(), right.tolist(), strict=True):
            first, second = sorted(map(self.root, pair))
            self.parents[second] = first

    def pin(self, ids: Ids) -> None:
        self.same(ids, np.full(ids.shape, PINNED))


def relax(removed: Mask, some: list[Ids], even: list[Ids]) -> Mask:
    """As much of a removal as leaves one of each in `some`, and as many in each group of each in `even`.

    >>> relax(np.array([False, True, True, True, True]), [np.array([1, 2])], [np.array([[0, 3], [2, 4]])])
    array([False, False,  True,  True, False])
    """
    removed = removed.copy()
    changed = True
    while changed:
        changed = False
        for ids in some:
            if ids.size and removed[ids].all():
                removed[ids[0]], changed = False, True
        for groups in even:
            gone = removed[groups]
            spare = min(int(gone.sum(1).min()), groups.shape[1] - 1)
            for ids, out in zip(groups, gone, strict=True):
                back = ids[out][spare:]
                changed |= bool(removed[back].any())
                removed[back] = False
    return removed
