"""What a network is called with while it is traced: one array, several in order, or several by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from membound.errors import ModelError, a_kind

Array = Tensor | NDArray[Any]
NO_AXIS = "the example has shape {}: a batch is needed, such as example[None]"
Example = Array | tuple[Array, ...] | list[Array] | Mapping[str, Array]


@dataclass(frozen=True)
class Examples:
    """The tensors of one call, by position and by name."""

    given: tuple[Tensor, ...]
    named: Mapping[str, Tensor]

    def __iter__(self) -> Any:
        return iter((*self.given, *self.named.values()))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Examples":
        return Examples(
            tuple(map(change, self.given)), {name: change(each) for name, each in self.named.items()}
        )

    def call(self, module: nn.Module) -> Any:
        return module(*self.given, **self.named)


def example_batch(example_input: Any, batch: int) -> Examples:
    """The first of the examples on the CPU, repeated: float32, or whole numbers as they are.

    >>> [x.shape for x in example_batch({"x": np.zeros((1, 2, 8)), "ids": np.zeros((1, 4), np.int64)}, 3)]
    [torch.Size([3, 2, 8]), torch.Size([3, 4])]
    """
    if isinstance(example_input, Mapping):
        named = {str(name): _repeated(each, batch, f" {name!r}") for name, each in example_input.items()}
        found = Examples((), named)
    elif isinstance(example_input, tuple | list):
        found = Examples(tuple(_repeated(each, batch, f" {n}") for n, each in enumerate(example_input)), {})
    else:
        found = Examples((_repeated(example_input, batch),), {})
    if not list(found):
        raise ModelError("the example input is empty: give a batch for each input of the network")
    return found


def with_axis(example_input: Any) -> Any:
    """The examples with an axis for the batch before each, as where the user has forgotten it."""
    if isinstance(example_input, Mapping):
        return {name: each[None] for name, each in example_input.items()}
    if isinstance(example_input, tuple | list):
        return tuple(each[None] for each in example_input)
    return example_input[None]


def shapes_of(example_input: Any) -> str:
    """
    >>> shapes_of(np.zeros((3, 4))), shapes_of((np.zeros((3, 4)), np.zeros(2)))
    ('(3, 4)', '(3, 4) and (2,)')
    """
    several = example_input.values() if isinstance(example_input, Mapping) else example_input
    each = several if isinstance(example_input, Mapping | tuple | list) else [example_input]
    return " and ".join(str(tuple(one.shape)) for one in each)


def _repeated(example: Any, batch: int, which: str = "") -> Tensor:
    if isinstance(example, np.ndarray):
        example = torch.from_numpy(np.ascontiguousarray(example))
    if not isinstance(example, Tensor):
        raise ModelError(
            f"the example input{which} is {a_kind(example)}; give a tensor or numpy array, or a tuple or dict of "
            "them for a network of several inputs"
        )
    if example.is_complex():
        raise ModelError(
            f"the example input{which} is of {example.dtype}; float32 and whole numbers are supported"
        )
    shape = tuple(example.shape)
    if len(shape) == 1 and example.is_floating_point() and 0 not in shape:
        raise ModelError(NO_AXIS.format(shape))
    if len(shape) < (2 if example.is_floating_point() else 1) or 0 in shape:
        raise ModelError(f"the example input{which} has shape {shape}; give a batch, such as (1, 3, 32, 32)")
    first = example.detach()[:1].to("cpu")
    if first.is_floating_point():
        first = first.to(torch.float32)
    return first.repeat(batch, *(1 for _ in shape[1:]))


def random_like(examples: Examples) -> Examples:
    """Other numbers of the same shapes: whole ones up to the largest of the example, which all are allowed there."""
    chance = torch.Generator().manual_seed(0)

    def drawn(example: Tensor) -> Tensor:
        if example.is_floating_point():
            return torch.randn(example.shape, generator=chance)
        low, high = min(0, int(example.min())), int(example.max())
        return torch.randint(low, high + 1, example.shape, generator=chance).to(example.dtype)

    return examples.map(drawn)
