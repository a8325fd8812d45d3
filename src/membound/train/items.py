"""Items of a Dataset, read when they are wanted."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils import data as torch_data

from membound.data import Split
from membound.data.several import Inputs, inputs_of
from membound.data.splits import Rows, as_indices
from membound.errors import DataError, MemboundError, a_kind
from membound.train.arrays import Array, as_array, as_inputs, as_targets, reason_of
from membound.train.loaders import Reading
from membound.train.several import SeveralCollate, SeveralItems, as_arrays, as_pair, has_several, split_item

Collate = Callable[[list[Any]], Any]

_BATCH = "the batch of the DataLoader's collate_fn"
_PROBES = 8  # items that are read to see whether `targets` says what the items say


@dataclass(frozen=True, eq=False)
class ItemSplit:
    """Items of a dataset that are read when they are wanted, from several threads at a time.

    Inputs may differ from one reading to the next (random augmentation), targets may not: they are known up front.
    """

    dataset: Any
    positions: npt.NDArray[np.intp]  # in the dataset
    labels: Any
    shape: Any
    dtype: Any
    collate: Collate | None = None  # of a DataLoader: what makes a batch of items

    @property
    def inputs(self) -> Inputs | None:
        """What rows are made of, where items are of several inputs."""
        return inputs_of(self.collate) or inputs_of(self.dataset)

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, indices: Rows) -> Array:
        """The chosen items, read now."""
        chosen = as_indices(indices, len(self))
        out = np.empty((len(chosen), *self.shape), self.dtype)
        positions = [int(self.positions[index]) for index in chosen]
        for place, (index, position, (x, y)) in enumerate(
            zip(chosen, positions, _read_items(self.dataset, positions, self.collate), strict=True)
        ):
            _check_alike(x, self.shape, self.dtype, position)
            if not _same_target(y, self.labels[index]):
                raise DataError(
                    f"item {position} of the data has another target than before ({_short(y)}, and "
                    f"{_short(self.labels[index])} before): targets must stay the same, only inputs may vary"
                )
            out[place] = x
        return out

    def take(self, indices: Rows) -> "ItemSplit":
        """The split of the chosen items; nothing is read."""
        chosen = as_indices(indices, len(self))
        return replace(self, positions=self.positions[chosen], labels=self.labels[chosen])


def from_items(dataset: Any, reading: Reading | None = None, collate: Collate | None = None) -> Split:
    try:
        count = len(dataset)
    except Exception as error:
        raise DataError(
            f"{type(dataset).__name__} has no length ({reason_of(error)}): define __len__"
        ) from error
    if count == 0:
        raise DataError(
            "the data has no examples: give at least one, such as a Dataset whose len() is over 0"
        )
    dataset, collate = _with_rows(dataset, collate)
    first, _ = next(_read_items(dataset, [0], collate))
    if first.size == 0:
        raise DataError(f"item 0 of the data has shape {list(first.shape)}: it is empty")
    labels = _known_targets(dataset, count, collate)
    if labels is None:
        labels = _read_targets(_Item(dataset, first.shape, first.dtype, collate), count, reading)
    return ItemSplit(dataset, np.arange(count), labels, first.shape, first.dtype, collate)


def _with_rows(dataset: Any, collate: Collate | None) -> tuple[Any, Collate | None]:
    """The same, where items are of several inputs as rows of all of them."""
    first = _get(dataset, 0)
    if collate is None:
        return SeveralItems.of(dataset, first) if has_several(first) else dataset, None
    batch = _collated(collate, [first])
    if not has_several(batch):
        return dataset, collate
    arrays = as_arrays(split_item(batch, _BATCH)[0], f"x of {_BATCH}")
    return dataset, SeveralCollate(collate, Inputs.of(arrays))


def _collated(collate: Collate, items: list[Any]) -> Any:
    try:
        return as_pair(collate(items))
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"the collate_fn of the DataLoader failed with {reason_of(error)}") from error


def _read_items(
    dataset: Any, indices: Sequence[int], collate: Collate | None
) -> Iterator[tuple[Array, Array]]:
    """Items as arrays, their inputs checked; with `collate`, those of the batch that it makes of them."""
    if collate is None:
        for index in indices:
            yield _as_item(_get(dataset, index), f"item {index} of the data")
        return
    batch = _collated(collate, [_get(dataset, index) for index in indices])
    what = _BATCH
    x, y = (
        as_array(part, name)
        for part, name in zip(_as_pair(batch, what), (f"x of {what}", f"y of {what}"), strict=True)
    )
    if x.ndim == 0 or y.ndim == 0 or not len(x) == len(y) == len(indices):
        raise DataError(
            f"{what} has x {list(x.shape)}, y {list(y.shape)} for {len(indices)} items: both must have a row for each"
        )
    for index, row, target in zip(indices, x, y, strict=True):
        yield _as_item((row, target), f"item {index} of the data")


def _get(dataset: Any, index: int) -> Any:
    try:
        return as_pair(dataset[index])
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"item {index} of the data cannot be read: {reason_of(error)}") from error


def _as_pair(item: Any, name: str) -> Any:
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise DataError(f"{name} is {a_kind(item)}{size}: it must be a pair (x, y)")
    return item


def _as_item(item: Any, name: str) -> tuple[Array, Array]:
    item = _as_pair(item, name)
    x = as_inputs(as_array(item[0], f"x in {name}"), f"x in {name}")
    if x.ndim == 0:
        raise DataError(f"x in {name} is a single number: it must have a shape, such as [1]")
    return x, as_array(item[1], f"y in {name}")


def _check_alike(x: Array, shape: Any, dtype: Any, index: int) -> None:
    if x.shape != shape or x.dtype != dtype:
        raise DataError(
            f"item {index} of the data is {x.dtype} {list(x.shape)}, the first is {dtype} {list(shape)}: "
            "all must be alike (resize or pad them in the dataset)"
        )


def _known_targets(dataset: Any, count: int, collate: Collate | None) -> Array | None:
    """The class numbers that a dataset holds apart from its items, if it does and some items agree with them."""
    labels = _own_targets(dataset)
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != count:
        return None
    for index in np.linspace(0, count - 1, min(count, _PROBES)).astype(int):
        if not _same_target(next(_read_items(dataset, [int(index)], collate))[1], labels[index]):
            return None
    return as_targets(labels)


def _own_targets(dataset: Any) -> Array | None:
    try:
        if type(dataset) is torch_data.Subset:
            whole = _own_targets(dataset.dataset)
            return None if whole is None else whole[as_indices(np.asarray(dataset.indices), len(whole))]
        targets = getattr(dataset, "targets", None)
        if not isinstance(targets, list | np.ndarray | Tensor) or getattr(dataset, "target_transform", None):
            return None
        return as_array(targets, "targets")
    except DataError:
        return None


@dataclass(frozen=True)
class _Item:
    """Reads one item's target; its input must be like the first one's."""

    dataset: Any
    shape: Any
    dtype: Any
    collate: Collate | None

    def target(self, index: int) -> Array:
        x, y = next(_read_items(self.dataset, [index], self.collate))
        _check_alike(x, self.shape, self.dtype, index)
        return y


def _read_targets(item: _Item, count: int, reading: Reading | None) -> Array:
    """The targets of all items, by reading each once: as a DataLoader reads, or by threads."""
    if reading is not None:
        found = list(map(np.asarray, reading.map(item.target, range(count))))
    else:
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            found = list(pool.map(item.target, range(count)))
    if len(shapes := {y.shape for y in found}) > 1:
        one, other = sorted(map(list, shapes))[:2]
        raise DataError(f"the targets of some items have shape {one}, of others {other}: all must be alike")
    return as_targets(np.stack(found))


def _same_target(found: Array, known: Any) -> bool:
    return found.dtype.kind in "iuf" and np.array_equal(np.ravel(found), np.ravel(known))


def _short(target: Array) -> str:
    return str(target) if np.size(target) == 1 else f"{target.dtype} {list(target.shape)}"
