"""The graph of a network: what is computed, from what, in which order.

Values are numbered: 0 is the input, k is the output of the k-th node, counting from 1. The batch is not part of
any shape: an image is (channels, height, width), axis 0 is the channels. A node's weights are names of tensors.

    op        attributes (defaults)                          tensors   input -> output
    conv      stride (1, 1), pad (0, 0, 0, 0), dilation      w, b      (c, h, w) -> (o, h', w')
              (1, 1), groups (1), act
    linear    act                                            w, b      (..., f) -> (..., o)
    maxpool   kernel, stride (the kernel), pad, dilation               (c, h, w) -> (c, h', w')
    avgpool   kernel, stride (the kernel), pad, over (0, 0),           (c, h, w) -> (c, h', w')
              count ("all" or "valid" or a number)
    adaptive  kind ("avg" or "max"), size                              (c, h, w) -> (c, *size)
    lrn       size, alpha, beta, k                                     (c, ...) -> the same
    act       act                                                      any -> the same
    add, sub, mul, div   value, swap (False), act            c         two inputs, or one and `c` or `value`
    concat    axis                                                     any number of inputs
    reshape   shape                                                    as many elements
    permute   axes                                                     (d0, d1, ...) -> (d[axes[0]], ...)
    slice     axis, start, stop, step (1)
    mean      axes, keep (False)
    softmax   axis, log (False)
    pad       pad ((before, after), ...), value (0)

`pad` of a window is (top, left, bottom, right). The output of a window is
floor((size + before + after - dilation (kernel - 1) - 1) / stride) + 1. A max pool's padding is minus infinity, and
what rounding up adds at the end is part of its `pad`; an average pool has that in `over` (bottom, right), which is
never counted: its divisor is the window clipped to the padded image ("all"), to the image ("valid"), or a number.
`act` is a list: the activation and its numbers, such as ["relu"], ["leaky", 0.01], ["clip", 0, 6].
Operands of add, sub, mul and div have as many axes as each other and broadcast where an axis is 1; with `swap` the
constant is the left operand. A convolution over sequences is one over images of height 1.
Lists and tuples are one and the same in attributes; numbers are finite as float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from membound.errors import ModelError

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
}

REQUIRED = object()
_BINARY = {"value": None, "swap": False, "act": None}

# The attributes of each operator and their defaults; a pool's stride of None is its kernel.
OPERATORS: Mapping[str, Mapping[str, Any]] = {
    "conv": {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "act": None},
    "linear": {"act": None},
    "maxpool": {"kernel": REQUIRED, "stride": None, "pad": (0, 0, 0, 0), "dilation": (1, 1)},
    "avgpool": {"kernel": REQUIRED, "stride": None, "pad": (0, 0, 0, 0), "over": (0, 0), "count": "all"},
    "adaptive": {"kind": REQUIRED, "size": REQUIRED},
    "lrn": {"size": REQUIRED, "alpha": REQUIRED, "beta": REQUIRED, "k": REQUIRED},
    "act": {"act": REQUIRED},
    "add": _BINARY,
    "sub": _BINARY,
    "mul": _BINARY,
    "div": _BINARY,
    "concat": {"axis": REQUIRED},
    "reshape": {"shape": REQUIRED},
    "permute": {"axes": REQUIRED},
    "slice": {"axis": REQUIRED, "start": REQUIRED, "stop": REQUIRED, "step": 1},
    "mean": {"axes": REQUIRED, "keep": False},
    "softmax": {"axis": REQUIRED, "log": False},
    "pad": {"pad": REQUIRED, "value": 0},
}

# The tensors of each operator that has any; True where one is required.
ROLES: Mapping[str, Mapping[str, bool]] = {
    "conv": {"w": True, "b": False},
    "linear": {"w": True, "b": False},
    **{op: {"c": False} for op in ("add", "sub", "mul", "div")},
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


def attributes(node: Node) -> dict[str, Any]:
    """All attributes of a node: what it says, tuples for lists, and the defaults of what it leaves out.

    >>> attributes(Node("maxpool", (0,), {"kernel": [2, 2]}))
    {'kernel': (2, 2), 'stride': (2, 2), 'pad': (0, 0, 0, 0), 'dilation': (1, 1)}
    """
    known = OPERATORS.get(node.op)
    if known is None:
        raise ModelError(f"there is no such operator: the operators are {', '.join(OPERATORS)}")
    unknown = [name for name in node.attributes if name not in known]
    if unknown:
        raise ModelError(f"has no attribute {unknown[0]!r:.80}: the attributes are {', '.join(known)}")
    found = {name: freeze(node.attributes.get(name, default)) for name, default in known.items()}
    missing = [name for name, value in found.items() if value is REQUIRED]
    if missing:
        raise ModelError(f"lacks the attribute {missing[0]!r}")
    if "kernel" in found and found["stride"] is None:
        found["stride"] = found["kernel"]
    return found


def freeze(value: Any) -> Any:
    """Lists as tuples, at the depths that attributes have."""
    if isinstance(value, list | tuple):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value
