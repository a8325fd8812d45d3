"""Palettes written out by hand, in Python's own integers and fractions, one number after another."""

from collections import Counter
from fractions import Fraction

import numpy as np
import torch
from by_hand import project
from torch import Tensor

UNIT = Fraction(1, 1 << 24)


def rounded(value: float) -> float:
    return float(np.float16(np.float32(value)))


def fit(weight: Tensor, levels: int, before: list[float] | None = None) -> list[float]:
    """k-means from the entries before, or from where equal shares of the sum of magnitudes have their middles."""
    found = Counter(int(Fraction(rounded(value)) / UNIT) for value in weight.flatten().tolist())
    found.pop(0, None)
    values = sorted(found)
    if len(values) <= levels:
        return [float(value * UNIT) for value in values] or [2.0**-24]
    if before is not None and len(before) == levels:
        centers, used = cluster(found, [int(Fraction(entry) / UNIT) for entry in before], 10)
        if used:
            return centers
    places = []
    total = sum(abs(value) * found[value] for value in values)
    for part in range(1, 2 * levels, 2):
        left, at = total // (2 * levels) * part, 0
        while left >= abs(values[at]) * found[values[at]]:
            left -= abs(values[at]) * found[values[at]]
            at += 1
        places.append(at)
    apart: list[int] = []
    for number, place in enumerate(places):
        place = max(place, apart[-1] + 1) if apart else place
        apart.append(min(place, len(values) - levels + number))
    return cluster(found, [values[place] for place in apart], 30)[0]


def cluster(found: Counter[int], first: list[int], steps: int) -> tuple[list[float], bool]:
    """Lloyd's algorithm; and whether every center had a value in the last step."""
    centers = sorted([0, *first])
    mine: list[list[int]] = []
    for _ in range(steps):
        mine = [[] for _ in centers]
        for value, times in found.items():
            mine[centers.index(nearest_of(value, centers))] += [value] * times
        centers = [
            center if center == 0 or not values else (sum(values) + len(values) // 2) // len(values)
            for center, values in zip(centers, mine, strict=True)
        ]
    used = all(values for center, values in zip(centers, mine, strict=True) if center)
    return [rounded(float(center * UNIT)) for center in centers if center], used


def nearest_of(value, centers):
    """Of two as near, the lower one."""
    return min(sorted(centers), key=lambda center: abs(Fraction(value) - Fraction(center)))


def nearest(weight: Tensor, entries: list[float]) -> Tensor:
    """Of the entries and zero, to each weight as a 16-bit float."""
    chosen = [nearest_of(rounded(value), [0.0, *entries]) for value in weight.flatten().tolist()]
    return torch.tensor(chosen, dtype=weight.dtype).reshape(weight.shape)


class ByHand:
    """A palette in `train_by_hand`: `after` and `seen` of one weight."""

    def __init__(self, levels: int, every: int, begin: int, keep: int | None = None) -> None:
        self.levels, self.every, self.begin, self.keep = levels, every, begin, keep
        self.entries: list[float] | None = None

    def after(self, weight: Tensor, step: int) -> Tensor:
        if step == self.begin or (step > self.begin and step % self.every == 0):
            kept = weight if self.keep is None else project(weight, self.keep)
            self.entries = fit(kept, self.levels, self.entries)
        return weight

    def seen(self, weight: Tensor) -> Tensor:
        return weight if self.entries is None else nearest(weight, self.entries)
