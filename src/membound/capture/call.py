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

SUPPORTED = (
    "supported are convolutions, linear layers, batch norm, layer norm, pooling, LRN, nearest-neighbor "
    "upsampling of images, the usual activations, arithmetic, softmax, mean, padding, concatenation, slices, reshapes "
    "and permutations"
)


@dataclass(frozen=True)
class Value:
    """A value of the draft: its number and its shape without the batch."""

    number: int
    shape: Shape


@dataclass(frozen=True)
class Call:
    """An aten operator with its arguments by name: values, constant tensors and plain numbers."""

    op: str
    path: str
    where: str  # the path and the kind of the module, for messages
    args: Mapping[str, Any]
    shape: Shape
    draft: Draft
    names: Mapping[int, str]  # of the parameters and buffers, by the id of their tensors

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.args.get(name)
        return default if found is None else found

    def value(self, name: str) -> Value:
        found = self.args[name]
        if not isinstance(found, Value):
            self.fail(f"{name} must be computed from the input")
        return found

    def constant(self, name: str) -> Tensor:
        found = self.args[name]
        if not isinstance(found, Tensor):
            self.fail(f"{name} must be a parameter or a constant, not computed from the input")
        return found

    def axis(self, dim: int, rank: int | None = None) -> int:
        """The axis that torch calls `dim`, without the batch."""
        axes = len(self.value("self").shape) if rank is None else rank
        axis = (dim + axes + 1 if dim < 0 else dim) - 1
        if axis < 0:
            self.fail("it works along the batch")
        return axis

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
        raise ModelError(f"{self.where}: {self.op} cannot be captured: {reason}")
