"""What writers of ONNX's operators work with: nodes and tensors as they come, and one node of ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.export.onnx_tensors import attribute, sparse_tensor, tensor, whole_steps
from membound.export.protobuf import Message
from membound.store.formats import Encoded
from membound.store.graph import Node, Shape
from membound.store.operators import attributes

INPUT, OUTPUT = "input", "output"
Array = npt.NDArray[Any]


class Writer:
    """Nodes and tensors as they come. A colon is in no name of a weight, so that made-up names of values have one."""

    def __init__(self, sparse: bool = False, taken: Sequence[str] = (INPUT, OUTPUT)) -> None:
        self.sparse = sparse
        self.taken = taken  # names of inputs and outputs, the first input's first
        self.nodes: list[Message] = []
        self.tensors: dict[str, Message] = {}
        self.sparse_tensors: dict[str, Message] = {}
        self.made: dict[str, str] = {}  # what stands for a weight, by its name
        self._constants: dict[tuple[str, Shape, bytes], str] = {}

    def emit(self, op: str, inputs: Sequence[str], output: str | None = None, **given: Any) -> str:
        """Add a node; the name of its output."""
        number = len(self.nodes)
        name = f"{op}:{number}"
        node = Message()
        for value in inputs:
            node.content(1, value)
        node.content(2, output or name).content(3, f"{op}_{number}").content(4, op)
        for key, value in given.items():
            node.content(5, attribute(key, value))
        self.nodes.append(node)
        return output or name

    def weight(self, name: str, array: Array, stored: Encoded | None = None) -> str:
        """A weight as floats, or, where `stored` is whole numbers times steps of rows, as those: the name of it."""
        known = f"{name}:" if name in self.taken else name
        if known in self.made:
            return self.made[known]
        dense = tensor(known, array)
        sparse = sparse_tensor(known, array) if self.sparse else None
        steps = None if stored is None else whole_steps(stored, array)
        self.made[known] = known
        if steps is not None and (sparse is None or steps[0].nbytes < sparse.size):
            whole, scales = steps
            self.tensors[f"{known}:int8"] = tensor(f"{known}:int8", whole)
            inputs = [f"{known}:int8", self.constant(scales)]
            self.made[known] = self.emit("DequantizeLinear", inputs, axis=0)
        elif sparse is not None and sparse.size < dense.size:
            self.sparse_tensors[known] = sparse
        else:
            self.tensors[known] = dense
        return self.made[known]

    def constant(self, value: Any, dtype: npt.DTypeLike = np.float32) -> str:
        """A tensor that no weight is; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"constant:{len(self._constants)}"
            self.tensors[self._constants[key]] = tensor(self._constants[key], array)
        return self._constants[key]

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(values, np.int64)


class Step:
    """One node of ours: its attributes `a`, the names of its inputs and weights, and the shapes around it."""

    def __init__(
        self,
        w: Writer,
        node: Node,
        inputs: list[str],
        roles: dict[str, str],
        shapes: list[Shape],
        out: Shape,
    ) -> None:
        self.w, self.op, self.a = w, node.op, attributes(node)
        self.inputs, self.roles, self.shapes, self.out = inputs, roles, shapes, out
        self.x, self.shape = (inputs[0], shapes[0]) if inputs else ("", ())
