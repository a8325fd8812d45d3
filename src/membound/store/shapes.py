"""The shapes of a network's values: exact, and strict about everything a graph can get wrong."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from membound.errors import ModelError
from membound.store.graph import ACTIVATIONS, OPERATORS, ROLES, Graph, Node, Shape, attributes
from membound.store.rules import (
    MAX_AXES,
    MAX_ELEMENTS,
    MAX_NODES,
    MAX_TOTAL,
    MAX_WINDOW,
    is_int,
    is_number,
    is_shape,
    refuse,
    show,
)

# The rules of docs/FORMAT.md that are checked here.
RULE_INPUTS, RULE_ATTRIBUTES, RULE_ROLES, RULE_SHAPES, RULE_LIMITS = 22, 23, 24, 25, 26

Attributes = dict[str, Any]


def infer_shapes(graph: Graph, tensor_shapes: Mapping[str, Shape]) -> list[Shape]:
    """The shape of every value, the input's first; a ModelError names the node that does not fit.

    >>> graph = Graph((1, 28, 28), (Node("maxpool", (0,), {"kernel": (2, 2)}),), 1)
    >>> infer_shapes(graph, {})
    [(1, 28, 28), (1, 14, 14)]
    """
    shapes = [_check_shape(graph.input_shape, "the input")]
    if not 1 <= len(graph.nodes) <= MAX_NODES:
        refuse(RULE_INPUTS, f"there are {len(graph.nodes)} nodes: 1 to {MAX_NODES} are allowed")  # rule 22
    if not is_int(graph.output, 1, len(graph.nodes)):
        refuse(RULE_INPUTS, f"the output is value {show(graph.output)}: 1 to {len(graph.nodes)} are allowed")
    total = math.prod(shapes[0])
    for number, node in enumerate(graph.nodes, 1):
        try:
            shapes.append(_check_shape(_infer(node, shapes, tensor_shapes), "its output"))
            total += math.prod(shapes[-1])
            if total > MAX_TOTAL:
                refuse(
                    RULE_LIMITS,
                    f"the values up to here have {total} elements: at most {MAX_TOTAL} are allowed",
                )
        except ModelError as error:
            refuse(
                error.rule or RULE_ATTRIBUTES,
                f"node {number} ({node.op if node.op in OPERATORS else show(node.op)}): {error}",
            )
    return shapes


def _infer(node: Node, shapes: list[Shape], tensor_shapes: Mapping[str, Shape]) -> Shape:
    given = attributes(node)
    for value in node.inputs:
        if not is_int(value, 0, len(shapes) - 1):  # rule 22
            refuse(RULE_INPUTS, f"takes value {show(value)}: the values before it are 0 to {len(shapes) - 1}")
    low, high = _ARITY.get(node.op, (1, 1))
    if not low <= len(node.inputs) <= high:  # rule 22
        allowed = str(low) if low == high else f"{low} to {high}"
        refuse(RULE_INPUTS, f"has {len(node.inputs)} inputs: {allowed} are allowed")
    _check_attributes(node.op, given)
    tensors = _tensor_shapes(node, tensor_shapes)
    return _SHAPES[node.op]([shapes[value] for value in node.inputs], given, tensors)


def _tensor_shapes(node: Node, tensor_shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of a node's tensors by role."""
    roles = ROLES.get(node.op, {})
    for role, name in node.tensors.items():
        if role not in roles:  # rule 24
            refuse(
                RULE_ROLES,
                f"has a tensor in the role {show(role)}: its roles are {', '.join(roles) or 'none'}",
            )
        if name not in tensor_shapes:  # rule 24
            refuse(RULE_ROLES, f"names the tensor {show(name)}, which is not there")
    for role, required in roles.items():
        if required and role not in node.tensors:  # rule 24
            refuse(RULE_ROLES, f"lacks its tensor {role}")
    return {
        role: _check_shape(tensor_shapes[name], f"tensor {show(name)}") for role, name in node.tensors.items()
    }


def _check_shape(shape: Sequence[int], what: str) -> Shape:
    """`shape` if it is one: up to 8 axes of 1 or more elements."""
    if not isinstance(shape, tuple | list) or len(shape) > MAX_AXES:  # rule 26
        refuse(RULE_LIMITS, f"{what} has the shape {shape!r:.80}: up to {MAX_AXES} axes are allowed")
    if not all(is_int(size, 1, MAX_ELEMENTS) for size in shape) or math.prod(shape) > MAX_ELEMENTS:  # rule 26
        text = f"{list(shape)}"
        refuse(RULE_LIMITS, f"{what} has the shape {text:.80}: 1 to {MAX_ELEMENTS} elements are allowed")
    return tuple(shape)


# What attributes may be.


def _ints(length: int, low: int, high: int = MAX_WINDOW) -> tuple[Callable[[Any], bool], str]:
    def check(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == length and all(is_int(v, low, high) for v in value)

    return check, f"a list of {length} whole numbers from {low} to {high}"


def _int(low: int, high: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: is_int(value, low, high), f"a whole number from {low} to {high}"


def _is_axes(value: Any) -> bool:
    return (
        isinstance(value, tuple) and len(value) <= MAX_AXES and all(is_int(v, 0, MAX_AXES - 1) for v in value)
    )


def _is_pads(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= MAX_AXES and all(_ints(2, 0)[0](pair) for pair in value)


def _is_activation(value: Any) -> bool:
    if not isinstance(value, tuple) or not value or not isinstance(value[0], str):
        return False
    return ACTIVATIONS.get(value[0]) == len(value) - 1 and all(map(is_number, value[1:]))


_NUMBER = (is_number, "a finite float32 number")
_BOOL = (lambda value: isinstance(value, bool), "true or false")
_AXIS = _int(0, MAX_AXES - 1)
_AXES = (_is_axes, f"a list of axes from 0 to {MAX_AXES - 1}")
_PADS = (_is_pads, f"a list of pairs of whole numbers from 0 to {MAX_WINDOW}")
_SIZES = (is_shape, f"a list of up to {MAX_AXES} sizes from 1 up")
_ACT = (
    _is_activation,
    "a list of an activation and its numbers: "
    + ", ".join(name + (f" ({count})" if count else "") for name, count in ACTIVATIONS.items()),
)
_COUNT = (
    lambda value: value in ("all", "valid") if isinstance(value, str) else is_number(value) and value != 0,
    "'all', 'valid' or a number other than 0",
)

# By attribute; where operators differ, by operator and attribute.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "act": _ACT,
    "alpha": _NUMBER,
    "axes": _AXES,
    "axis": _AXIS,
    "beta": _NUMBER,
    "count": _COUNT,
    "dilation": _ints(2, 1),
    "groups": _int(1, MAX_ELEMENTS),
    "k": _NUMBER,
    "keep": _BOOL,
    "kernel": _ints(2, 1),
    "kind": (lambda value: isinstance(value, str) and value in ("avg", "max"), "'avg' or 'max'"),
    "log": _BOOL,
    "lrn size": _int(1, MAX_WINDOW),
    "over": _ints(2, 0),
    "pad": _ints(4, 0),
    "pad pad": _PADS,
    "shape": _SIZES,
    "size": _ints(2, 1),
    "start": _int(0, MAX_ELEMENTS),
    "step": _int(1, MAX_ELEMENTS),
    "stop": _int(1, MAX_ELEMENTS),
    "stride": _ints(2, 1),
    "swap": _BOOL,
    "value": _NUMBER,
}
_OPTIONAL = {"conv act", "linear act"} | {
    f"{op} {n}" for op in ("add", "sub", "mul", "div") for n in ("act", "value")
}


def _check_attributes(op: str, given: Attributes) -> None:
    for name, value in given.items():
        key = f"{op} {name}"
        if value is None and key in _OPTIONAL:
            continue
        check, allowed = _KINDS.get(key) or _KINDS[name]
        if not check(value):  # rule 23
            refuse(RULE_ATTRIBUTES, f"{name} is {show(value)}: it must be {allowed}")


# The shape that each operator makes.


def _wrong(message: str) -> NoReturn:
    refuse(RULE_SHAPES, message)  # rule 25


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        _wrong(f"its input has the shape {list(shape)}: it must be [channels, height, width]")
    return shape[0], shape[1], shape[2]


def _windows(size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """How many windows there are along one axis."""
    extent, padded = dilation * (kernel - 1) + 1, size + sum(pad)
    if extent > padded:
        _wrong(f"a window over {extent} does not fit {padded}, padding included")
    return (padded - extent) // stride + 1


def _check_padded(shape: Shape, pad: Sequence[int]) -> None:
    channels, height, width = shape
    padded = channels * (height + pad[0] + pad[2]) * (width + pad[1] + pad[3])
    if padded > MAX_ELEMENTS:  # rule 26
        refuse(RULE_LIMITS, f"its padded input has {padded} elements: at most {MAX_ELEMENTS} are allowed")


def _conv(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape, w = _image(inputs[0]), tensors["w"]
    if len(w) != 4:
        _wrong(f"its weight has the shape {list(w)}: it must be [out, in / groups, height, width]")
    if w[1] * a["groups"] != shape[0] or w[0] % a["groups"]:
        _wrong(f"its weight {list(w)} in {a['groups']} groups does not fit an input of {shape[0]} channels")
    if max(w[2:]) > MAX_WINDOW:  # rule 26
        refuse(RULE_LIMITS, f"its kernel is {list(w[2:])}: at most {MAX_WINDOW} a side is allowed")
    _check_bias(tensors)
    _check_padded(shape, a["pad"])
    return (w[0], *_over_image(shape, w[2:], a["stride"], a["pad"], a["dilation"]))


def _over_image(
    shape: Shape, kernel: Shape, stride: Shape, pad: Sequence[int], dilation: Shape = (1, 1)
) -> tuple[int, int]:
    height, width = (
        _windows(shape[1 + i], kernel[i], stride[i], (pad[i], pad[2 + i]), dilation[i]) for i in (0, 1)
    )
    return height, width


def _check_bias(tensors: Mapping[str, Shape]) -> None:
    w, b = tensors["w"], tensors.get("b")
    if b is not None and b != (w[0],):
        _wrong(f"its bias has the shape {list(b)}: it must be [{w[0]}], as many as the outputs of its weight")


def _linear(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape, w = inputs[0], tensors["w"]
    if len(w) != 2:
        _wrong(f"its weight has the shape {list(w)}: it must be [out, in]")
    if not shape or shape[-1] != w[1]:
        _wrong(f"its weight {list(w)} does not fit an input of shape {list(shape)}")
    _check_bias(tensors)
    return (*shape[:-1], w[0])


def _pool(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape, dilation = _image(inputs[0]), a.get("dilation", (1, 1))
    over = a.get("over", (0, 0))
    pad = (*a["pad"][:2], a["pad"][2] + over[0], a["pad"][3] + over[1])
    _check_padded(shape, pad)
    out = _over_image(shape, a["kernel"], a["stride"], pad, dilation)
    for i in (0, 1):
        if pad[i] > dilation[i] * (a["kernel"][i] - 1):
            _wrong(f"its first window ends in the padding of {pad[i]}: it must reach the image")
        if (out[i] - 1) * a["stride"][i] - pad[i] >= shape[1 + i]:
            _wrong(
                f"its last window starts beyond the image of {shape[1 + i]}: every window must reach the image"
            )
    return (shape[0], *out)


def _adaptive(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    return (_image(inputs[0])[0], *a["size"])


def _same(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    return inputs[0]


def _lrn(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    if not inputs[0]:
        _wrong("its input has no axes: it must have channels")
    return inputs[0]


def _binary(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    constants = ("c" in tensors) + (a["value"] is not None)
    if len(inputs) + constants != 2:  # rule 22
        refuse(RULE_INPUTS, f"has {len(inputs)} inputs and {constants} constants: two operands are needed")
    if a["swap"] and not constants:
        _wrong("swap goes with a constant: with two inputs, exchange them")
    if not constants or "c" in tensors:
        left, right = inputs if not constants else (inputs[0], tensors["c"])
        if len(left) != len(right) or any(
            m != n and 1 not in (m, n) for m, n in zip(left, right, strict=True)
        ):
            _wrong(f"its operands {list(left)} and {list(right)} do not broadcast: axes must be equal or 1")
        return tuple(max(m, n) for m, n in zip(left, right, strict=True))
    return inputs[0]


def _axis(shape: Shape, axis: int) -> int:
    if axis >= len(shape):
        _wrong(f"axis {axis} is not there in an input of shape {list(shape)}")
    return axis


def _concat(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    first = inputs[0]
    axis = _axis(first, a["axis"])
    for shape in inputs:
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
            _wrong(f"its inputs {list(first)} and {list(shape)} differ beyond axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in inputs), *first[axis + 1 :])


def _reshape(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape: Shape = a["shape"]
    if math.prod(shape) != math.prod(inputs[0]):
        _wrong(f"{list(inputs[0])} and {list(shape)} have different numbers of elements")
    return shape


def _permute(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    if sorted(a["axes"]) != list(range(len(inputs[0]))):
        _wrong(f"axes {list(a['axes'])} do not reorder those of an input of shape {list(inputs[0])}")
    return tuple(inputs[0][axis] for axis in a["axes"])


def _slice(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape, axis = inputs[0], _axis(inputs[0], a["axis"])
    if not a["start"] < a["stop"] <= shape[axis]:
        _wrong(
            f"{a['start']} to {a['stop']} is no range within axis {axis} of an input of shape {list(shape)}"
        )
    return (*shape[:axis], -(-(a["stop"] - a["start"]) // a["step"]), *shape[axis + 1 :])


def _mean(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    shape, axes = inputs[0], a["axes"]
    if not axes or len(set(axes)) != len(axes) or max(axes) >= len(shape):
        _wrong(f"axes {list(axes)} are not distinct axes of an input of shape {list(shape)}")
    kept = [(1 if i in axes else size) for i, size in enumerate(shape) if a["keep"] or i not in axes]
    return tuple(kept)


def _softmax(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    _axis(inputs[0], a["axis"])
    return inputs[0]


def _pad(inputs: list[Shape], a: Attributes, tensors: Mapping[str, Shape]) -> Shape:
    if len(a["pad"]) != len(inputs[0]):
        _wrong(f"pads {len(a['pad'])} axes of an input of shape {list(inputs[0])}: give one pair for each")
    return tuple(size + before + after for size, (before, after) in zip(inputs[0], a["pad"], strict=True))


_ARITY = {"concat": (1, MAX_NODES), "add": (1, 2), "sub": (1, 2), "mul": (1, 2), "div": (1, 2)}
_SHAPES: dict[str, Callable[[list[Shape], Attributes, Mapping[str, Shape]], Shape]] = {
    "conv": _conv,
    "linear": _linear,
    "maxpool": _pool,
    "avgpool": _pool,
    "adaptive": _adaptive,
    "lrn": _lrn,
    "act": _same,
    "add": _binary,
    "sub": _binary,
    "mul": _binary,
    "div": _binary,
    "concat": _concat,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "mean": _mean,
    "softmax": _softmax,
    "pad": _pad,
}
