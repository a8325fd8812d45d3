"""One operation of an exported network, seen by the function that converts it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from membound.capture.draft import Draft
from membound.errors import ModelError
from membound.store.graph import Shape
from membound.store.operators import OPERATORS


@dataclass(frozen=True)
class Place:
    """Where the batch lies in torch's shape: in axis `at`, which may hold `fold` items of each image, too.

    Of these, `outer` come before the batch, as in (tokens * batch, ...); the others follow it, as in
    (batch * windows, ...).
    """

    at: int = 0
    fold: int = 1
    outer: int = 1

    def axis(self, dim: int) -> int:
        """The axis of the graph's shape for torch's `dim`."""
        return dim if dim < self.at or self.fold > 1 else dim - 1


FIRST = Place()


@dataclass(frozen=True)
class Value:
    """A value of the draft: its number, its shape without the batch, and where torch has the batch."""

    number: int
    shape: Shape
    place: Place = FIRST
    whole: bool = False  # whole numbers, or true and false as 1 and 0

    @property
    def rank(self) -> int:
        """The axes that torch counts."""
        return len(self.shape) + (self.place.fold == 1)


@dataclass(frozen=True)
class Call:
    """An aten operator with its arguments by name: values, constant tensors and plain numbers."""

    op: str
    path: str
    where: str  # the path and the kind of the module, for messages
    args: Mapping[str, Any]
    shape: Shape
    place: Place
    draft: Draft
    names: Mapping[int, str]  # of the parameters and buffers, by the id of their tensors
    dtype: torch.dtype = torch.float32  # of the result
    code: str = ""  # the line of the network that calls it

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.args.get(name)
        return default if found is None else found

    def value(self, name: str) -> Value:
        found = self.args[name]
        if not isinstance(found, Value):
            self.fail(f"{name} is a constant here; it must be computed from the input")
        return found

    def lead(self) -> Value:
        """The first value among the arguments."""
        return next(value for value in self.args.values() if isinstance(value, Value))

    def constant(self, name: str) -> Tensor:
        found = self.args[name]
        if not isinstance(found, Tensor):
            self.fail(f"{name} must be a parameter or a constant, not computed from the input")
        return found

    def axis(self, dim: int, of: Value | None = None) -> int:
        """The axis of a value, by default the first argument, that torch calls `dim`."""
        value = self.value("self") if of is None else of
        dim = dim + value.rank if dim < 0 else dim
        if dim == value.place.at:
            self.fail("it works along the batch")
        return value.place.axis(dim)

    def emit(
        self,
        op: str,
        *inputs: Value,
        out: Shape | None = None,
        named: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> Value:
        """Append a node, by default of the shape that torch gave to this operation's result."""
        out = self.shape if out is None else out
        given = {
            key: value for key, value in attributes.items() if value != OPERATORS[op].attributes[key].default
        }
        numbers = tuple(value.number for value in inputs)
        return Value(self.draft.add(op, numbers, out, given, named or {}), out)

    def constant_value(self, tensor: Tensor) -> Value:
        """A constant as a value, the same for every image; its batch, if torch gave it one, is 1."""
        shape = (1,) * (len(self.shape) + 1 - tensor.dim()) + tuple(tensor.shape)
        at = self.place.at
        if self.place.fold > 1 or len(shape) != len(self.shape) + 1 or shape[at] != 1:
            self.fail(f"a constant of shape {tuple(tensor.shape)} meets the batch")
        own = shape[:at] + shape[at + 1 :]
        return self.emit("constant", out=own, named={"c": self.tensor(tensor, shape=own)})

    def reshape(self, value: Value, shape: Shape) -> Value:
        return value if value.shape == shape else self.emit("reshape", value, out=shape, shape=shape)

    def tensor(self, tensor: Tensor, wanted: str = "", shape: Shape | None = None) -> str:
        """Enter a constant among the graph's tensors, in `shape`; its name is torch's, or else `wanted`."""
        if tensor.is_complex():
            self.fail(f"a constant is of {tensor.dtype}; only real numbers are supported")
        array = np.ascontiguousarray(tensor.detach().to(torch.float32).numpy())
        array = array if shape is None else array.reshape(shape)
        name = self.names.get(id(tensor)) or wanted or f"constant_{len(self.draft.tensors)}"
        if not np.isfinite(array).all():
            self.fail(f"{name} has values that are not finite")
        if name in self.draft.tensors and np.array_equal(self.draft.tensors[name], array):
            return name
        name = self.draft.name(name)
        self.draft.tensors[name] = array
        return name

    def within(self, name: str) -> str:
        """The name of a weight of the module that this operation belongs to."""
        return f"{self.path}.{name}" if self.path else name

    def fail(self, reason: str) -> NoReturn:
        raise ModelError(f"{self.where}: {self.op} cannot be captured: {reason}{self.code}")
