"""Operators that mix two values, gather from one or resize it, constants, inputs; `operators.py` has the others."""

from membound.store.graph import Shape
from membound.store.kinds import AXES, AXIS, FLAG, INDICES, NUMBER, SCALES, SIZES, WINDOW, one_of
from membound.store.record import (
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


def _matmul(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    left, right = inputs
    if len(left) != len(right) or len(left) < 2:
        wrong(
            f"its operands {list(left)} and {list(right)} must have as many axes as each other, at least two"
        )
    inner, columns = (right[-1], right[-2]) if a["transpose"] else (right[-2], right[-1])
    if left[-1] != inner:
        how = ", transposed," if a["transpose"] else ""
        wrong(f"its matrices {list(left[-2:])} and {list(right[-2:])}{how} do not fit")
    before = list(zip(left[:-2], right[:-2], strict=True))
    if any(m != n and 1 not in (m, n) for m, n in before):
        wrong(f"its operands {list(left)} and {list(right)} do not broadcast: axes must be equal or 1")
    return (*(max(m, n) for m, n in before), left[-2], columns)


def _gather(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, axis = inputs[0], checked_axis(inputs[0], a["axis"])
    if max(a["indices"]) >= shape[axis]:
        wrong(f"index {max(a['indices'])} is not there in axis {axis} of an input of shape {list(shape)}")
    return (*shape[:axis], len(a["indices"]), *shape[axis + 1 :])


def _resize(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    if a["corners"] and a["kind"] in ("nearest", "exact"):
        wrong(f"corners do not go with {a['kind']}")
    if a["corners"] and a["scale"] is not None:
        wrong("corners and a scale do not go together")
    return (image_sizes(inputs[0])[0], *a["size"])


def _constant(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    return tensors["c"]


def _input(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape: Shape = a["shape"]
    return shape


def _embedding(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    w = tensors["w"]
    if len(w) != 2:
        wrong(f"its weight has the shape {list(w)}: it must be [rows, columns]")
    return (*inputs[0], w[1])


MATMUL = Operator(
    "matmul",
    _matmul,
    "[...,m,k] and [...,k,n], or [...,n,k] -> [...,m,n]",
    {"transpose": Attribute(FLAG, False), "scale": Attribute(NUMBER, 1)},
    inputs=(2, 2),
)
MAX = Operator(
    "max",
    reduced,
    "the axes are 1 (keep) or gone",
    {"axes": Attribute(AXES, note="distinct and at least one"), "keep": Attribute(FLAG, False)},
)
GATHER = Operator(
    "gather",
    _gather,
    "as many as indices along the axis",
    {"axis": Attribute(AXIS), "indices": Attribute(INDICES)},
)
RESIZE = Operator(
    "resize",
    _resize,
    "[c,h,w] -> [c,*size]",
    {
        "kind": Attribute(one_of("nearest", "exact", "linear", "cubic")),
        "size": Attribute(WINDOW),
        "corners": Attribute(FLAG, False),
        "scale": Attribute(SCALES, None),
    },
)
CONSTANT = Operator(
    "constant", _constant, "nothing -> c's", roles={"c": Role("any", required=True)}, inputs=(0, 0)
)
INPUT = Operator("input", _input, "nothing -> shape", {"shape": Attribute(SIZES)}, inputs=(0, 0))
EMBEDDING = Operator(
    "embedding",
    _embedding,
    "[...] -> [...,o]",
    roles={"w": Role("[rows,o]", required=True, as_stored=True)},
)
