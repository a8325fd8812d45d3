"""The graph of a network: what is computed, from what, in which order.

Values are numbered: 0 is the input, k is the output of the k-th node, counting from 1; further inputs are nodes of the
operator "input". The batch is not part of
any shape: an image is (channels, height, width), axis 0 is the channels. A node's weights are names of tensors. What
operators there are, and what each takes and gives, is in `operators.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]

# Activations and how many numbers each takes.
ACTIVATIONS = {
    "relu": 0,
    "leaky": 1,  # slope below 0
    "clip": 2,  # low, high
    "silu": 0,
    "gelu": 0,
    "gelu_tanh": 0,
    "sigmoid": 0,
    "tanh": 0,
    "hardswish": 0,
    "hardsigmoid": 0,
    "elu": 1,
    "mish": 0,
    "softplus": 0,
    "sqrt": 0,
}


@dataclass(frozen=True)
class Node:
    """One operation; `tensors` maps roles (w, b, c) to names of tensors."""

    op: str
    inputs: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """What an input is called, and whether it takes whole numbers, such as the indices of an embedding."""

    name: str
    whole: bool = False


@dataclass(frozen=True)
class Output:
    """A value that comes out; those of a dict have names."""

    value: int
    name: str = ""


@dataclass(frozen=True)
class Graph:
    """A network without its weights: nodes in the order they run, and the value that comes out.

    `inputs` says of each input, in order, what it is: nothing of one of float32 without a name. `outputs` has all that
    come out where the network gives a tuple or a dict; `output` is then the first of them.
    """

    input_shape: Shape
    nodes: tuple[Node, ...]
    output: int
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()

    @property
    def taken(self) -> tuple[int, ...]:
        """The values that are inputs."""
        return (0, *(number for number, node in enumerate(self.nodes, 1) if node.op == "input"))

    @property
    def given(self) -> tuple[int, ...]:
        """The values that come out."""
        return tuple(output.value for output in self.outputs) or (self.output,)


def freeze(value: Any) -> Any:
    """Lists as tuples, at the depths that attributes have."""
    if isinstance(value, list | tuple):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value
