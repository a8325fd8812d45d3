"""Operators of ONNX that onnx2torch does not know, written with those that it does: what newer versions of ONNX and
other frameworks than torch have."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FIRST = [0, 3, 1, 2]  # from channels last to channels first
LARGEST = float(np.finfo(np.float32).max)


@dataclass
class _Rewriting:
    """One node, the shapes that are known, and what takes its place."""

    node: Any
    shapes: Mapping[str, Sequence[int]]
    constants: dict[str, Any]  # arrays by name; new ones are added to the file
    made: list[Any] = field(default_factory=list)

    def attribute(self, name: str, default: Any = None) -> Any:
        from onnx import helper

        found = next((each for each in self.node.attribute if each.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def sizes(self) -> Sequence[int]:
        """The shape of the first input; empty where it is not known."""
        return self.shapes.get(self.node.input[0], ())

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"{self.node.output[0]}/constant_{len(self.constants)}"
        self.constants[name] = np.array(value, kind)
        return name

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """A node of one output, which is the rewritten node's own where `out` says so."""
        from onnx import helper

        name = out or f"{self.node.output[0]}/{op}_{len(self.made)}"
        self.made.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def again(self, *inputs: str, without: Sequence[str] = (), **attributes: Any) -> None:
        """The same node with other inputs and attributes."""
        from onnx import helper

        node = type(self.node)()
        node.CopyFrom(self.node)
        kept = [each for each in node.attribute if each.name not in (*without, *attributes)]
        del node.attribute[:], node.input[:]
        node.input.extend(inputs)
        node.attribute.extend([*kept, *(helper.make_attribute(*pair) for pair in attributes.items())])
        self.made.append(node)


def rewrite_(model: Any) -> None:
    """Rewrite the nodes of a model; a node whose sizes are not known stays as it is.

    Reductions are those of version 17, so that a newer model has to be read as one of that version.
    """
    from onnx import numpy_helper

    graph = model.graph
    _channels_first_(graph)
    shapes = _shapes(model)
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    before = set(constants)
    nodes = []
    for node in graph.node:
        step = _Rewriting(node, shapes, constants)
        rewrite = _REWRITES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rewrite is not None:
            rewrite(step)
        nodes += step.made or [node]
    del graph.node[:]
    graph.node.extend(nodes)
    new = (numpy_helper.from_array(constants[name], name) for name in constants if name not in before)
    graph.initializer.extend(new)


def _channels_first_(graph: Any) -> None:
    """Images that come with their channels last, and are turned at once, come turned: data sets have them so."""
    outputs = {each.name for each in graph.output}
    for each in graph.input:
        users = [node for node in graph.node if each.name in node.input]
        turned = {node.output[0] for node in users if _turns(node)}
        if not users or len(turned) != len(users) or turned & outputs:
            continue
        axes = [type(axis).FromString(axis.SerializeToString()) for axis in each.type.tensor_type.shape.dim]
        del each.type.tensor_type.shape.dim[:]
        each.type.tensor_type.shape.dim.extend(axes[at] for at in FIRST)
        for node in users:
            graph.node.remove(node)
        for node in graph.node:
            for number, name in enumerate(node.input):
                if name in turned:
                    node.input[number] = each.name


def _turns(node: Any) -> bool:
    return node.op_type == "Transpose" and [list(each.ints) for each in node.attribute] == [FIRST]


def _shapes(model: Any) -> dict[str, list[int]]:
    """Shapes that follow from those of the inputs; the batch is 0, and so is any other size that is not known."""
    import onnx

    try:
        known = onnx.shape_inference.infer_shapes(model)
    except Exception:  # onnx raises errors of its own for graphs that it cannot follow
        known = model
    return {
        each.name: [axis.dim_value for axis in each.type.tensor_type.shape.dim]
        for each in (*known.graph.value_info, *known.graph.input, *known.graph.output)
    }


def _same_padding(step: _Rewriting) -> None:
    """auto_pad as numbers: as much padding as makes the output the input's size over the stride, rounded up."""
    same = step.attribute("auto_pad", b"NOTSET").decode()
    sizes = step.sizes()[2:]
    if same not in ("SAME_UPPER", "SAME_LOWER") or not sizes or min(sizes) < 1:
        return
    weight = step.constants.get(step.node.input[1]) if step.node.op_type == "Conv" else None
    kernel = step.attribute("kernel_shape", None if weight is None else list(weight.shape[2:]))
    if kernel is None:
        return
    ones = [1] * len(kernel)
    strides, dilations = step.attribute("strides", ones), step.attribute("dilations", ones)
    begin, end = [], []
    for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((math.ceil(size / stride) - 1) * stride + dilation * (window - 1) + 1 - size, 0)
        less, more = total // 2, total - total // 2
        begin.append(less if same == "SAME_UPPER" else more)
        end.append(more if same == "SAME_UPPER" else less)
    pads = begin + end
    if step.node.op_type == "MaxPool" and begin != end:
        around = step.constant([0, 0, *begin, 0, 0, *end], np.int64)
        padded = step.add("Pad", step.node.input[0], around, step.constant(-LARGEST), mode="constant")
        step.again(padded, without=["auto_pad"], pads=[0] * len(pads))
    else:
        step.again(*step.node.input, without=["auto_pad"], pads=pads)


def _global_max(step: _Rewriting) -> None:
    axes = list(range(2, len(step.sizes())))
    if axes:
        step.add("ReduceMax", step.node.input[0], out=step.node.output[0], axes=axes, keepdims=1)


def _reduction(step: _Rewriting) -> None:
    """Axes as an attribute, as they were up to version 17."""
    if len(step.node.input) == 2 and step.node.input[1] in step.constants:
        axes = [int(axis) for axis in step.constants[step.node.input[1]].flatten()]
        if axes and not step.attribute("noop_with_empty_axes", 0):
            step.again(step.node.input[0], without=["noop_with_empty_axes"], axes=axes)


def _gelu(step: _Rewriting) -> None:
    x, out = step.node.input[0], step.node.output[0]
    half = step.add("Mul", x, step.constant(0.5))
    if step.attribute("approximate", b"none").decode() == "tanh":
        cube = step.add("Mul", step.add("Mul", x, x), x)
        inner = step.add("Add", x, step.add("Mul", cube, step.constant(0.044715)))
        bent = step.add("Tanh", step.add("Mul", inner, step.constant(math.sqrt(2 / math.pi))))
    else:
        bent = step.add("Erf", step.add("Div", x, step.constant(math.sqrt(2))))
    step.add("Mul", half, step.add("Add", bent, step.constant(1.0)), out=out)


def _mish(step: _Rewriting) -> None:
    x = step.node.input[0]
    step.add("Mul", x, step.add("Tanh", step.add("Softplus", x)), out=step.node.output[0])


def _split(step: _Rewriting) -> None:
    """Into so many parts, of which the last may be smaller: their sizes."""
    count, axis, sizes = step.attribute("num_outputs"), step.attribute("axis", 0), step.sizes()
    if count is None or not sizes or sizes[axis] < 1:
        return
    each = -(-sizes[axis] // count)
    parts = [min(each, sizes[axis] - each * number) for number in range(count)]
    step.again(step.node.input[0], step.constant(parts, np.int64), without=["num_outputs"])


def _depth_to_space(step: _Rewriting) -> None:
    """Where the blocks are the first part of the channels, as TensorFlow has them."""
    sizes, block = step.sizes(), step.attribute("blocksize")
    if step.attribute("mode", b"DCR").decode() == "DCR" and len(sizes) == 4 and min(sizes[1:]) > 0:
        channels, height, width = sizes[1] // block**2, *sizes[2:]
        _rearrange(
            step,
            [0, block, block, channels, height, width],
            [0, 3, 4, 1, 5, 2],
            [0, channels, height * block, width * block],
        )


def _space_to_depth(step: _Rewriting) -> None:
    sizes, block = step.sizes(), step.attribute("blocksize")
    if len(sizes) == 4 and min(sizes[1:]) > 0:
        channels, height, width = sizes[1], sizes[2] // block, sizes[3] // block
        _rearrange(
            step,
            [0, channels, height, block, width, block],
            [0, 3, 5, 1, 2, 4],
            [0, channels * block**2, height, width],
        )


def _rearrange(step: _Rewriting, apart: list[int], order: list[int], together: list[int]) -> None:
    split = step.add("Reshape", step.node.input[0], step.constant(apart, np.int64))
    moved = step.add("Transpose", split, perm=order)
    step.add("Reshape", moved, step.constant(together, np.int64), out=step.node.output[0])


def _clip(step: _Rewriting) -> None:
    """Without its lower bound, which onnx2torch takes for one that is computed."""
    if len(step.node.input) == 3 and not step.node.input[1]:
        step.again(step.node.input[0], step.constant(-LARGEST), step.node.input[2])


_REDUCTIONS = (
    "ReduceMax",
    "ReduceMin",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceProd",
)
_REWRITES: Mapping[str, Callable[[_Rewriting], None]] = {
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool"), _same_padding),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "GlobalMaxPool": _global_max,
    "Gelu": _gelu,
    "Mish": _mish,
    "Split": _split,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Clip": _clip,
}
