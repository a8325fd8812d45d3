"""A graph while it is being made: nodes under stable numbers, shapes of their values, weights by name."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from membound.store import operators
from membound.store.formats import scale_rows
from membound.store.graph import Graph, Input, Node, Output, Shape

Array = NDArray[np.float32]

BINARY = tuple(operator.name for operator in operators.BINARY)


@dataclass
class Draft:
    """The nodes in the order they run; value 0 is the input and a node's number is that of its output.

    A weight that is in `scales` stands for its product with them, one number a row: kept apart, because the few
    different values that a weight may have would become different ones in every row.
    """

    input_shape: Shape
    nodes: dict[int, Node] = field(default_factory=dict)
    shapes: dict[int, Shape] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)
    scales: dict[str, Array] = field(default_factory=dict)
    original_shapes: dict[str, Shape] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    outputs: list[int] = field(default_factory=lambda: [0])
    named: tuple[str, ...] | None = (
        None  # of outputs, of a tuple empty ones; None: a single one, without a name
    )
    origin: Any = None  # where what is being added comes from
    origins: dict[int, Any] = field(default_factory=dict)

    @property
    def output(self) -> int:
        """The first of the outputs."""
        return self.outputs[0]

    @output.setter
    def output(self, number: int) -> None:
        self.outputs[0] = number

    def __post_init__(self) -> None:
        self.shapes[0] = self.input_shape

    def add(
        self,
        op: str,
        inputs: tuple[int, ...],
        shape: Shape,
        attributes: Mapping[str, Any],
        tensors: Mapping[str, str],
    ) -> int:
        """Append a node; the number of its value."""
        number = max(self.nodes, default=0) + 1
        self.nodes[number] = Node(op, inputs, dict(attributes), dict(tensors))
        self.shapes[number] = shape
        self.origins[number] = self.origin
        return number

    def name(self, wanted: str) -> str:
        """A tensor's name that is not taken: the wanted one, or with a number behind it."""
        name, count = wanted, 1
        while name in self.tensors:
            name, count = f"{wanted}_{count}", count + 1
        return name

    def bias_name(self, weight: str) -> str:
        """The name of a bias that a layer did not have: conv1.weight gives conv1.bias."""
        stem, dot, last = weight.rpartition(".")
        return self.name(f"{stem}{dot}bias" if last == "weight" else f"{weight}.bias")

    def weight(self, name: str) -> Array:
        """A tensor as the network computes with it: times the scales of its rows."""
        array, scales = self.tensors[name], self.scales.get(name)
        return array if scales is None else scale_rows(array, scales)

    def users(self) -> dict[int, list[int]]:
        """For every value the nodes that read it, each as often as it does; -1 stands for an output."""
        users: dict[int, list[int]] = {number: [] for number in (0, *self.nodes)}
        for number, node in self.nodes.items():
            for value in node.inputs:
                users[value].append(number)
        for number in self.outputs:
            users[number].append(-1)
        return users

    def uses(self) -> Counter[str]:
        """How many nodes name each tensor."""
        return Counter(name for node in self.nodes.values() for name in node.tensors.values())

    def redirect(self, old: int, new: int) -> None:
        """Read `new` wherever `old` was read, and drop the node of `old`."""
        for number, node in self.nodes.items():
            if old in node.inputs:
                inputs = tuple(new if value == old else value for value in node.inputs)
                self.nodes[number] = replace(node, inputs=inputs)
        self.outputs = [new if number == old else number for number in self.outputs]
        del self.nodes[old], self.shapes[old]

    def drop_dead(self) -> None:
        """Drop the nodes that no output depends on, but for inputs, and the tensors that no node names."""
        needed = {*self.outputs, *(number for number, node in self.nodes.items() if node.op == "input")}
        for number in reversed(self.nodes):
            if number in needed:
                needed.update(self.nodes[number].inputs)
        self.nodes = {number: node for number, node in self.nodes.items() if number in needed}
        self.shapes = {number: shape for number, shape in self.shapes.items() if number in (0, *self.nodes)}
        uses = self.uses()
        self.tensors = {name: array for name, array in self.tensors.items() if name in uses}
        self.scales = {name: scales for name, scales in self.scales.items() if name in uses}
        self.original_shapes = {n: shape for n, shape in self.original_shapes.items() if n in uses}

    def graph(self) -> Graph:
        """The finished graph: nodes numbered in the order they run."""
        number = {0: 0} | {old: new for new, old in enumerate(self.nodes, 1)}
        nodes = tuple(
            replace(node, inputs=tuple(number[value] for value in node.inputs))
            for node in self.nodes.values()
        )
        numbers = [number[value] for value in self.outputs]
        outputs = () if self.named is None else tuple(map(Output, numbers, self.named))
        return Graph(self.input_shape, nodes, numbers[0], self.inputs, outputs)
