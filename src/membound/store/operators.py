"""The catalogue of operators: one record each, which everything that deals with networks reads.

A record says what a node may have and what comes out. What becomes of an operator elsewhere is one function each:
`run/plan.py` (for the compiled core), `export/onnx.py`, `capture/channels.py` (channels that may go) and
`capture/torch_graph.py`; tests/store/test_catalogue.py finds what is missing for one. The table in docs/FORMAT.md is
made of these records.

`pad` of a window is (top, left, bottom, right). The output of a window is
floor((size + before + after - dilation (kernel - 1) - 1) / stride) + 1. A max pool's padding is minus infinity, and
what rounding up adds at the end is part of its `pad`; an average pool has that in `over` (bottom, right), which is
never counted: its divisor is the window clipped to the padded image ("all"), to the image ("valid"), or a number.
`act` is a list: the activation and its numbers, such as ["relu"], ["leaky", 0.01], ["clip", 0, 6].
Operands of add, sub, mul, div, maximum and minimum have as many axes as each other and broadcast where an axis is 1;
with `swap` the constant is the left operand. A convolution over sequences is one over images of height 1.
Lists and tuples are one and the same in attributes; numbers are finite as float32.
"""

import math
from collections.abc import Mapping, Sequence

from membound.errors import ModelError
from membound.store.graph import Node, Shape, freeze
from membound.store.kinds import (
    ACTIVATION,
    AXES,
    AXIS,
    COUNT,
    FLAG,
    NUMBER,
    PADS,
    POSITIVE,
    SIDES,
    SIZES,
    WINDOW,
    one_of,
    whole,
    wholes,
)
from membound.store.mixing import CONSTANT, EMBEDDING, GATHER, INPUT, MATMUL, MAX, RESIZE
from membound.store.record import (
    REQUIRED,
    Attribute,
    Given,
    Operator,
    Role,
    Shapes,
    checked_axis,
    image_sizes,
    reduced,
    wrong,
)
from membound.store.rules import (
    MAX_AXES,
    MAX_ELEMENTS,
    MAX_NODES,
    MAX_WINDOW,
    RULE_INPUTS,
    RULE_LIMITS,
    refuse,
)


def attributes(node: Node) -> Given:
    """All attributes of a node: what it says, tuples for lists, and the defaults of what it leaves out.

    >>> attributes(Node("maxpool", (0,), {"kernel": [2, 2]}))
    {'kernel': (2, 2), 'stride': (2, 2), 'pad': (0, 0, 0, 0), 'dilation': (1, 1)}
    """
    operator = OPERATORS.get(node.op)
    if operator is None:
        raise ModelError(f"there is no such operator: the operators are {', '.join(OPERATORS)}")
    known = operator.attributes
    unknown = [name for name in node.attributes if name not in known]
    if unknown:
        raise ModelError(f"has no attribute {unknown[0]!r:.80}: the attributes are {', '.join(known)}")
    found = {name: freeze(node.attributes.get(name, each.default)) for name, each in known.items()}
    missing = [name for name, value in found.items() if value is REQUIRED]
    if missing:
        raise ModelError(f"lacks the attribute {missing[0]!r}")
    if "kernel" in found and found["stride"] is None:
        found["stride"] = found["kernel"]
    return found


def _same(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    return inputs[0]


# Windows over images.


def _windows(size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """How many windows there are along one axis."""
    extent, padded = dilation * (kernel - 1) + 1, size + sum(pad)
    if extent > padded:
        wrong(f"a window over {extent} does not fit {padded}, padding included")
    return (padded - extent) // stride + 1


def _over_image(
    shape: Shape, kernel: Shape, stride: Shape, pad: Sequence[int], dilation: Shape = (1, 1)
) -> tuple[int, int]:
    height, width = (
        _windows(shape[1 + i], kernel[i], stride[i], (pad[i], pad[2 + i]), dilation[i]) for i in (0, 1)
    )
    return height, width


def _check_padded(shape: Shape, pad: Sequence[int]) -> None:
    channels, height, width = shape
    padded = channels * (height + pad[0] + pad[2]) * (width + pad[1] + pad[3])
    if padded > MAX_ELEMENTS:  # rule 26
        refuse(RULE_LIMITS, f"its padded input has {padded} elements: at most {MAX_ELEMENTS} are allowed")


def _check_bias(tensors: Shapes) -> None:
    w, b = tensors["w"], tensors.get("b")
    if b is not None and b != (w[0],):
        wrong(f"its bias has the shape {list(b)}: it must be [{w[0]}], as many as the outputs of its weight")


def _conv(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, w = image_sizes(inputs[0]), tensors["w"]
    if len(w) != 4:
        wrong(f"its weight has the shape {list(w)}: it must be [out, in / groups, height, width]")
    if w[1] * a["groups"] != shape[0] or w[0] % a["groups"]:
        wrong(f"its weight {list(w)} in {a['groups']} groups does not fit an input of {shape[0]} channels")
    if max(w[2:]) > MAX_WINDOW:  # rule 26
        refuse(RULE_LIMITS, f"its kernel is {list(w[2:])}: at most {MAX_WINDOW} a side is allowed")
    _check_bias(tensors)
    _check_padded(shape, a["pad"])
    return (w[0], *_over_image(shape, w[2:], a["stride"], a["pad"], a["dilation"]))


def _pool(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, dilation = image_sizes(inputs[0]), a.get("dilation", (1, 1))
    over = a.get("over", (0, 0))
    pad = (*a["pad"][:2], a["pad"][2] + over[0], a["pad"][3] + over[1])
    _check_padded(shape, pad)
    out = _over_image(shape, a["kernel"], a["stride"], pad, dilation)
    for i in (0, 1):
        if pad[i] > dilation[i] * (a["kernel"][i] - 1):
            wrong(f"its first window ends in the padding of {pad[i]}: it must reach the image")
        if (out[i] - 1) * a["stride"][i] - pad[i] >= shape[1 + i]:
            wrong(
                f"its last window starts beyond the image of {shape[1 + i]}: every window must reach the image"
            )
    return (shape[0], *out)


def _adaptive(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    return (image_sizes(inputs[0])[0], *a["size"])


def _upsample(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    channels, height, width = image_sizes(inputs[0])
    return (channels, height * a["factor"][0], width * a["factor"][1])


_ACT = Attribute(ACTIVATION, None)
_STRIDE, _DILATION = Attribute(WINDOW, (1, 1)), Attribute(WINDOW, (1, 1))
_SIDES = Attribute(SIDES, (0, 0, 0, 0))
_KERNEL = {"kernel": Attribute(WINDOW), "stride": Attribute(WINDOW, None), "pad": _SIDES}
_BIAS = Role("[o]")

CONV = Operator(
    "conv",
    _conv,
    "[i,h,w] -> [o,h',w']",
    {"stride": _STRIDE, "pad": _SIDES, "dilation": _DILATION, "groups": Attribute(whole(1), 1), "act": _ACT},
    {"w": Role("[o, i / groups, kh, kw]", required=True, as_stored=True), "b": _BIAS},
)
MAX_POOL = Operator("maxpool", _pool, "[c,h,w] -> [c,h',w']", {**_KERNEL, "dilation": _DILATION})
AVERAGE_POOL = Operator(
    "avgpool",
    _pool,
    "[c,h,w] -> [c,h',w']",
    {**_KERNEL, "over": Attribute(wholes(2, 0), (0, 0)), "count": Attribute(COUNT, "all")},
)
ADAPTIVE = Operator(
    "adaptive",
    _adaptive,
    "[c,h,w] -> [c,*size]",
    {"kind": Attribute(one_of("avg", "max")), "size": Attribute(WINDOW)},
)
UPSAMPLE = Operator(
    "upsample", _upsample, "[c,h,w] -> [c, h factor[0], w factor[1]]", {"factor": Attribute(WINDOW)}
)


# Products, norms and arithmetic.


def _linear(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, w = inputs[0], tensors["w"]
    if len(w) != 2:
        wrong(f"its weight has the shape {list(w)}: it must be [out, in]")
    if not shape or shape[-1] != w[1]:
        wrong(f"its weight {list(w)} does not fit an input of shape {list(shape)}")
    _check_bias(tensors)
    return (*shape[:-1], w[0])


def _lrn(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    if not inputs[0]:
        wrong("its input has no axes: it must have channels")
    return inputs[0]


def _layer_norm(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, last = inputs[0], a["last"]
    if last > len(shape):
        wrong(f"normalizes the last {last} axes of an input of shape {list(shape)}")
    for role, own in tensors.items():
        if own != shape[-last:]:
            wrong(f"its tensor {role} has the shape {list(own)}: it must be {list(shape[-last:])}")
    return shape


def _binary(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    constants = ("c" in tensors) + (a["value"] is not None)
    if len(inputs) + constants != 2:  # rule 22
        refuse(RULE_INPUTS, f"has {len(inputs)} inputs and {constants} constants: two operands are needed")
    if a["swap"] and not constants:
        wrong("swap goes with a constant: with two inputs, exchange them")
    if not constants or "c" in tensors:
        left, right = inputs if not constants else (inputs[0], tensors["c"])
        if len(left) != len(right) or any(
            m != n and 1 not in (m, n) for m, n in zip(left, right, strict=True)
        ):
            wrong(f"its operands {list(left)} and {list(right)} do not broadcast: axes must be equal or 1")
        return tuple(max(m, n) for m, n in zip(left, right, strict=True))
    return inputs[0]


LINEAR = Operator(
    "linear",
    _linear,
    "[...,f] -> [...,o]",
    {"act": _ACT},
    {"w": Role("[o,f]", required=True, as_stored=True), "b": _BIAS},
)
LRN = Operator(
    "lrn",
    _lrn,
    "at least one axis; the same",
    {"size": Attribute(whole(1, MAX_WINDOW)), **dict.fromkeys(("alpha", "beta", "k"), Attribute(NUMBER))},
)
LAYER_NORM = Operator(
    "layernorm",
    _layer_norm,
    "at least `last` axes; the same",
    {"last": Attribute(whole(1, MAX_AXES), 1), "eps": Attribute(POSITIVE, 1e-5)},
    {"w": Role("[the last axes]"), "b": Role("[the last axes]")},
)
ACT = Operator("act", _same, "the same", {"act": Attribute(ACTIVATION)})
BINARY = tuple(
    Operator(
        name,
        _binary,
        "two inputs, or one and either value or c",
        {"value": Attribute(NUMBER, None), "swap": Attribute(FLAG, False), "act": _ACT},
        {"c": Role("")},
        inputs=(1, 2),
    )
    for name in ("add", "sub", "mul", "div", "maximum", "minimum")
)


# Other shapes.


def _concat(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    first = inputs[0]
    axis = checked_axis(first, a["axis"])
    for shape in inputs:
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
            wrong(f"its inputs {list(first)} and {list(shape)} differ beyond axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in inputs), *first[axis + 1 :])


def _reshape(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape: Shape = a["shape"]
    if math.prod(shape) != math.prod(inputs[0]):
        wrong(f"{list(inputs[0])} and {list(shape)} have different numbers of elements")
    return shape


def _permute(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    if sorted(a["axes"]) != list(range(len(inputs[0]))):
        wrong(f"axes {list(a['axes'])} do not reorder those of an input of shape {list(inputs[0])}")
    return tuple(inputs[0][axis] for axis in a["axes"])


def _slice(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, axis = inputs[0], checked_axis(inputs[0], a["axis"])
    if not a["start"] < a["stop"] <= shape[axis]:
        wrong(
            f"{a['start']} to {a['stop']} is not a range within axis {axis} of an input of shape {list(shape)}"
        )
    return (*shape[:axis], -(-(a["stop"] - a["start"]) // a["step"]), *shape[axis + 1 :])


def _softmax(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    checked_axis(inputs[0], a["axis"])
    return inputs[0]


def _pad(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    if len(a["pad"]) != len(inputs[0]):
        wrong(f"pads {len(a['pad'])} axes of an input of shape {list(inputs[0])}: give one pair for each")
    return tuple(size + before + after for size, (before, after) in zip(inputs[0], a["pad"], strict=True))


CONCAT = Operator(
    "concat",
    _concat,
    "one or more, equal but for the axis -> their sizes added",
    {"axis": Attribute(AXIS)},
    inputs=(1, MAX_NODES),
)
RESHAPE = Operator("reshape", _reshape, "as many elements -> shape", {"shape": Attribute(SIZES)})
PERMUTE = Operator(
    "permute",
    _permute,
    "[d0,d1,...] -> [d[axes[0]],...]",
    {"axes": Attribute(AXES, note="every axis once")},
)
SLICE = Operator(
    "slice",
    _slice,
    "ceil((stop - start) / step) along the axis",
    {
        "axis": Attribute(AXIS),
        "start": Attribute(whole(0)),
        "stop": Attribute(whole(1), note="start < stop <= size"),
        "step": Attribute(whole(1), 1),
    },
)
MEAN = Operator(
    "mean",
    reduced,
    "the axes are 1 (keep) or gone",
    {"axes": Attribute(AXES, note="distinct and at least one"), "keep": Attribute(FLAG, False)},
)
SOFTMAX = Operator("softmax", _softmax, "the same", {"axis": Attribute(AXIS), "log": Attribute(FLAG, False)})
PAD = Operator(
    "pad",
    _pad,
    "sizes with both added",
    {"pad": Attribute(PADS, note="a pair for each axis"), "value": Attribute(NUMBER, 0)},
)

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        CONV, LINEAR, MAX_POOL, AVERAGE_POOL, ADAPTIVE, UPSAMPLE, LRN, LAYER_NORM, ACT, *BINARY, CONCAT, RESHAPE,
        PERMUTE, SLICE, MEAN, MAX, SOFTMAX, PAD, GATHER, RESIZE, MATMUL, CONSTANT, INPUT, EMBEDDING,
    )
}  # fmt: skip
