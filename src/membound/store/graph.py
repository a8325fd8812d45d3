"""The graph of a network: what is computed, from what, in which order.

Values are numbered: 0 is the input, k is the output of the k-th node, counting from 1. The batch is not part of
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
class Graph:
    """A network without its weights: nodes in the order they run, and the value that comes out."""

    input_shape: Shape
    nodes: tuple[Node, ...]
    output: int


def freeze(value: Any) -> Any:
    """Lists as tuples, at the depths that attributes have."""
    if isinstance(value, list | tuple):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value
