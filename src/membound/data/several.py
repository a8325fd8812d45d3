"""Examples of several inputs, each kept as one row of numbers: what handles examples handles these as any others.

Whole numbers, such as those of words, are exact in float32 up to 2^24, which is all that a network's runtime takes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from membound.data.examples import ExampleSplit
from membound.data.finite import check_finite
from membound.data.splits import Array, Rows, as_indices
from membound.errors import DataError

MOST = 2**24


@dataclass(frozen=True)
class Input:
    """One of them: its name, its shape without the batch, and whether it takes whole numbers."""

    name: str
    shape: tuple[int, ...]
    whole: bool

    def __str__(self) -> str:
        kind = "whole numbers" if self.whole else "float32"
        return f"{self.name}: {kind} {list(self.shape)}"


@dataclass(frozen=True)
class Inputs:
    """All of them, in order; `named` says that the network is called with them by name.

    >>> inputs = Inputs.of({"ids": np.array([[3, 1]]), "x": np.zeros((1, 2, 2), np.float32)})
    >>> rows = inputs.pack({"ids": np.array([[3, 1], [0, 2]]), "x": np.ones((2, 2, 2), np.float32)})
    >>> rows.shape, inputs.unpack(rows)[0].tolist()
    ((2, 6), [[3, 1], [0, 2]])
    """

    parts: tuple[Input, ...]
    named: bool

    @staticmethod
    def of(arrays: Mapping[str, Array] | Sequence[Array]) -> "Inputs":
        """As arrays of some examples have them."""
        named = isinstance(arrays, Mapping)
        parts = [
            Input(name, tuple(array.shape[1:]), array.dtype.kind in "iub")
            for name, array in _by_name(arrays).items()
        ]
        return Inputs(tuple(parts), named)

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return sum(math.prod(part.shape) for part in self.parts)

    def pack(self, arrays: Mapping[str, Array] | Sequence[Array], what: str = "x") -> Array:
        """The rows [n, size] of examples; each array is [n, ...]."""
        given = _by_name(arrays)
        if list(given) != [part.name for part in self.parts]:
            wanted = ", ".join(part.name for part in self.parts)
            raise DataError(
                f"{what} has the inputs {', '.join(given)}, others have {wanted}: they must be alike"
            )
        rows = []
        for part in self.parts:
            array, name = given[part.name], f"{what}, input {part.name}"
            if array.ndim == 0:
                raise DataError(f"{name} is a single number: it must be [n, ...]")
            if tuple(array.shape[1:]) != part.shape or (array.dtype.kind in "iub") != part.whole:
                raise DataError(
                    f"{name} is {array.dtype} {list(array.shape[1:])}, others are {part}: they must be alike"
                )
            _check_values(array, name)
            rows.append(array.reshape(len(array), -1).astype(np.float32))
        if len({len(row) for row in rows}) > 1:
            sizes = ", ".join(f"{part.name} {len(row)}" for part, row in zip(self.parts, rows, strict=True))
            raise DataError(f"{what} has inputs of different numbers of examples: {sizes}")
        return np.concatenate(rows, 1)

    def unpack(self, rows: Any) -> list[Any]:
        """The arrays that a network takes, of rows that are numpy's or torch's."""
        found, begin = [], 0
        for part in self.parts:
            end = begin + math.prod(part.shape)
            array = rows[:, begin:end].reshape(-1, *part.shape)
            if part.whole:
                array = array.astype(np.int64) if isinstance(array, np.ndarray) else array.long()
            found.append(array)
            begin = end
        return found

    def call(self, network: Any, rows: Any) -> Any:
        """What a network gives for the examples of these rows."""
        given = self.unpack(rows)
        if self.named:
            return network(**{part.name: each for part, each in zip(self.parts, given, strict=True)})
        return network(*given)


@dataclass(frozen=True, eq=False, repr=False)
class SeveralSplit(ExampleSplit):
    """Examples of several inputs, held in memory: rows, and what they are made of."""

    inputs: Inputs

    def take(self, indices: Rows) -> "SeveralSplit":
        """The split of the chosen examples, copied."""
        chosen = as_indices(indices, len(self))
        return SeveralSplit(self.images[chosen], self.labels[chosen], self.inputs)


def inputs_of(split: Any) -> Inputs | None:
    """What the examples of a split are made of, if that is several inputs."""
    found = getattr(split, "inputs", None)
    return found if isinstance(found, Inputs) else None


def _by_name(arrays: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
    if isinstance(arrays, Mapping):
        return {str(name): array for name, array in arrays.items()}
    return {str(number): array for number, array in enumerate(arrays, 1)}


def _check_values(array: Array, name: str) -> None:
    if array.dtype.kind not in "iubf":
        raise DataError(f"{name} is {array.dtype}: it must be floating point or whole numbers")
    if array.size == 0:
        raise DataError(f"{name} has shape {list(array.shape)}: it is empty")
    if array.dtype.kind == "f":
        check_finite(name, array)
    elif array.dtype.kind != "b" and (int(array.max()) > MOST or int(array.min()) < -MOST):
        raise DataError(f"{name} has numbers beyond {MOST:,}, which float32 does not hold exactly")
