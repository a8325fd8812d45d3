"""Iterable datasets: read once, to their end, since a fit trains several networks and needs examples by index."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch.utils import data as torch_data

from membound.errors import DataError, MemboundError, a_kind
from membound.train.arrays import Array, as_array, reason_of
from membound.train.several import as_pair, is_several

MOST_BYTES = 8 * 1024**3


def is_iterable_loader(data: Any) -> bool:
    """Whether this is a DataLoader of an IterableDataset."""
    return isinstance(data, torch_data.DataLoader) and isinstance(data.dataset, torch_data.IterableDataset)


def read_all(data: Iterable[Any], most: int = MOST_BYTES) -> tuple[Array, Array]:
    """All examples, (x, y); a DataLoader gives batches, a dataset single items.

    >>> class Numbers(torch_data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter((np.full(3, number, np.float32), number % 2) for number in range(5))
    >>> x, y = read_all(torch_data.DataLoader(Numbers(), batch_size=2))
    >>> x.shape, y.tolist()
    ((5, 3), [0, 1, 0, 1, 0])
    """
    batched = is_iterable_loader(data) and getattr(data, "batch_size", None) is not None
    xs: list[Array] = []
    ys: list[Array] = []
    taken, items = 0, _items(data)
    for number, item in enumerate(map(as_pair, items)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {number} of the data is {a_kind(item)}: it must be a pair (x, y)")
        if is_several(item[0]):
            raise DataError(
                f"item {number} of the data has several inputs, which are not read from a stream: pass a Dataset with "
                "__getitem__, or arrays ((a, b), y)"
            )
        x, y = (as_array(part, f"{name} of item {number}") for part, name in zip(item, "xy", strict=True))
        if batched and (x.ndim == 0 or y.ndim == 0 or len(x) != len(y)):
            raise DataError(
                f"batch {number} of the DataLoader has x {list(x.shape)} and y {list(y.shape)}: both must have a row "
                "for each example"
            )
        taken += x.nbytes + y.nbytes
        if taken > most:
            raise DataError(
                f"the data has not ended after {most / 1024**3:.3g} GiB, and it is held in memory: end it earlier, or "
                "pass a Dataset with __getitem__"
            )
        xs += list(x) if batched else [x]
        ys += list(y) if batched else [y]
    if not xs:
        raise DataError(
            "the data has no examples: it must give at least one batch each time that it is iterated"
        )
    return _stacked(xs, "x"), _stacked(ys, "y")


def _items(data: Iterable[Any]) -> Iterable[Any]:
    try:
        yield from data
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"the data cannot be read: {reason_of(error)}") from error


def _stacked(parts: list[Array], name: str) -> Array:
    if len(shapes := {part.shape for part in parts}) > 1:
        one, other = sorted(map(list, shapes))[:2]
        raise DataError(
            f"some {name} have shape {one}, others {other}: all must be alike (resize or pad them)"
        )
    return np.stack(parts)
