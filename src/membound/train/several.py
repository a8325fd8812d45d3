"""Networks of several inputs, and data of them as people have it: ((a, b), y), ({"a": a, "b": b}, y), or a dict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import data as torch_data

from membound.data.several import Inputs, SeveralSplit
from membound.errors import DataError
from membound.train.arrays import Array, as_array, as_targets

TARGETS = ("labels", "label", "targets", "target", "y")  # what a dict's targets may be called
ONLY = (
    "x",
    "image",
    "images",
    "img",
    "pixel_values",
    "input",
    "inputs",
    "data",
)  # its only input, of a network of one


class Several(nn.Module):
    """A network that takes its inputs as one row for each example. Its own is `module`, as in torch's wrappers."""

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.module, self.inputs = module, inputs

    def forward(self, rows: Tensor) -> Any:
        return self.inputs.call(self.module, rows)

    def example(self) -> Any:
        """A batch of one, as the network itself takes it."""
        given = self.inputs.unpack(torch.zeros(1, self.inputs.size))
        if self.inputs.named:
            return {part.name: each for part, each in zip(self.inputs.parts, given, strict=True)}
        return tuple(given)


@dataclass(frozen=True)
class MakesSeveral:
    """Makes networks that take rows, of what makes networks."""

    make: Callable[[int], nn.Module]
    inputs: Inputs

    def __call__(self, seed: int) -> nn.Module:
        return Several(self.make(seed), self.inputs)


def plain(model: nn.Module) -> nn.Module:
    """The network that a person gave."""
    return model.module if isinstance(model, Several) else model


def split_item(item: Any, what: str = "the data") -> Any:
    """A dict that has its targets in it as a pair; all else as it is.

    >>> split_item({"ids": [1, 2], "labels": 3})
    ({'ids': [1, 2]}, 3)
    """
    if not isinstance(item, Mapping):
        return item
    found = [name for name in TARGETS if name in item]
    if len(found) != 1 or len(item) < 2:
        given = next((name for name in item if name in ONLY), "image")
        label = next((name for name in item if "label" in str(name)), "label")
        raise DataError(
            f"{what} is a dict with {', '.join(map(str, item)) or 'nothing'}: it must have inputs, and targets under "
            f"one of {', '.join(TARGETS)}; or give pairs (x, y), such as [(item[{given!r}], item[{label!r}]) for item "
            "in data]"
        )
    return {name: value for name, value in item.items() if name != found[0]}, item[found[0]]


def as_pair(item: Any) -> Any:
    """A dict with one image, under a usual name, and its target as a pair; all else as it is.

    >>> as_pair({"image": [0, 1], "label": 3})
    ([0, 1], 3)
    >>> as_pair({"ids": [1, 2], "labels": 3})
    {'ids': [1, 2], 'labels': 3}
    """
    if isinstance(item, Mapping) and len(item) == 2:
        inputs = [name for name in item if name in ONLY]
        targets = [name for name in item if name in TARGETS]
        if inputs and targets:
            return item[inputs[0]], item[targets[0]]
    return item


def is_several(x: Any) -> bool:
    """Whether x is more than one array: a dict, or a tuple or list of arrays."""
    if isinstance(x, Mapping):
        return True
    arrays = (np.ndarray, np.generic, Tensor)
    return isinstance(x, tuple | list) and len(x) > 0 and all(isinstance(each, arrays) for each in x)


def has_several(item: Any) -> bool:
    """Whether an item, or a batch, is of several inputs."""
    if isinstance(item, Mapping):
        return True
    return isinstance(item, tuple | list) and len(item) == 2 and is_several(item[0])


def from_several(pair: Any) -> SeveralSplit:
    """The split of ((a, b), y), of ({"a": a, "b": b}, y), or of a dict with its targets in it."""
    x, y = split_item(pair)
    arrays = as_arrays(x, "x")
    inputs = Inputs.of(arrays)
    rows, targets = inputs.pack(arrays), as_targets(as_array(y, "y"))
    if len(rows) != len(targets):
        raise DataError(f"x has {len(rows)} examples and y {len(targets)}: give one target for each example")
    return SeveralSplit(rows, targets, inputs)


def as_arrays(x: Any, what: str) -> dict[str, Array] | list[Array]:
    if isinstance(x, Mapping):
        return {str(name): as_array(each, f"{what}, input {name}") for name, each in x.items()}
    return [as_array(each, f"{what}, input {number}") for number, each in enumerate(x, 1)]


def _of_one(x: Any, what: str) -> Any:
    """The arrays of one example, as a batch."""
    arrays = as_arrays(x, what)
    if isinstance(arrays, dict):
        return {name: array[None] for name, array in arrays.items()}
    return [array[None] for array in arrays]


@dataclass(frozen=True)
class SeveralItems(torch_data.Dataset[Any]):
    """A dataset whose items are of several inputs, as one of rows."""

    dataset: Any
    inputs: Inputs

    @staticmethod
    def of(dataset: Any, first: Any) -> "SeveralItems":
        """`first` is its item 0."""
        x, _ = split_item(first, "item 0 of the data")
        return SeveralItems(dataset, Inputs.of(_of_one(x, "x of item 0 of the data")))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Array, Any]:
        x, y = split_item(self.dataset[index], f"item {index} of the data")
        what = f"x of item {index} of the data"
        row: Array = self.inputs.pack(_of_one(x, what), what)[0]
        return row, y


@dataclass(frozen=True)
class SeveralCollate:
    """What a DataLoader's collate_fn makes of items, with its inputs as rows."""

    collate: Callable[[list[Any]], Any]
    inputs: Inputs

    def __call__(self, items: Sequence[Any]) -> tuple[Array, Any]:
        what = "the batch of the DataLoader's collate_fn"
        x, y = split_item(self.collate(list(items)), what)
        return self.inputs.pack(as_arrays(x, what), what), y
