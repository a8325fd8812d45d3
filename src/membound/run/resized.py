"""A stored network for an input of another size, where its graph allows that."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from membound.errors import ModelError
from membound.store.graph import Graph, Node, Shape
from membound.store.model import StoredModel
from membound.store.operators import attributes
from membound.store.shapes import infer_shapes


def resized(model: StoredModel, input_shape: Sequence[int]) -> StoredModel:
    """The same network with another input shape, without the batch; weights stay, shapes follow.

    Windows, norms, attention over any number of tokens and pools follow by themselves. A reshape follows where it only
    joins axes, or goes back to a shape that there was; a resize keeps its factor, a slice that takes a whole axis still
    does. What is bound to a size, such as a linear layer behind a flattened image or a table of positions, is refused,
    and so are several inputs. So are sums and windows over all of an axis: the file has their number as a constant.
    """
    wanted = tuple(input_shape)
    if len(model.graph.taken) > 1:
        raise ModelError(
            "a network of several inputs keeps their shapes: save it again with inputs of other sizes"
        )
    if len(wanted) != len(model.shapes[0]) or not all(isinstance(n, int) and n > 0 for n in wanted):
        raise ModelError(
            f"input_shape is {wanted}: give {len(model.shapes[0])} sizes from 1 up, without the batch, such as "
            f"{model.shapes[0]}",
            about="input_shape",
        )
    if math.prod(wanted) >= 2**31:
        raise ModelError(
            f"input_shape is {wanted}: at most 2^31 - 1 elements are allowed", about="input_shape"
        )
    if wanted == model.shapes[0]:
        return model
    tensors = {name: tensor.shape for name, tensor in model.tensors.items()}
    nodes: list[Node] = []
    shapes = [wanted]
    for number, node in enumerate(model.graph.nodes, 1):
        before = [model.shapes[value] for value in node.inputs]
        now = [shapes[value] for value in node.inputs]
        try:
            if before != now and node.op == "reshape":
                node = _reshape(node, before[0], now[0], model.shapes[: number + 1], shapes)
            elif before != now and node.op in _FOLLOWERS:
                node = _FOLLOWERS[node.op](node, before, now, model.shapes[number])
            elif node.op == "mul" and node.inputs[0] > 0:
                _check_sum(node, model.graph.nodes[node.inputs[0] - 1], model.shapes, shapes)
            # The graph up to here: its last shape is what this node gives.
            shapes.append(_shape(wanted, (*nodes, node), shapes, tensors))
        except ModelError as error:
            what = next(iter(node.tensors.values()), node.op)
            new, old = (", ".join(map(str, map(list, known))) for known in (now, before))
            raise ModelError(
                f"the network cannot take an input of {list(wanted)}: node {number} ({node.op}, {what})"
                f"{f' has {new} instead of {old}' if new != old else ''}: "
                f"{str(error).partition(': ')[2] or error}",
                about="input_shape",
            ) from None
        nodes.append(node)
    graph = replace(model.graph, input_shape=wanted, nodes=tuple(nodes))
    preprocess = None if model.preprocess is None else _without_crop(model.preprocess, wanted)
    return replace(model, graph=graph, shapes=shapes, preprocess=preprocess)


def _shape(
    wanted: Shape, nodes: tuple[Node, ...], shapes: list[Shape], tensors: Mapping[str, Shape]
) -> Shape:
    """What the last node gives: inferred on a graph whose values before it are inputs."""
    node = nodes[-1]
    given = tuple(Node("input", (), {"shape": shapes[value]}) for value in node.inputs)
    alone = Graph((1,), (*given, replace(node, inputs=tuple(range(1, len(given) + 1)))), len(given) + 1)
    return infer_shapes(alone, tensors)[-1]


def _without_crop(preprocess: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """A crop follows the size of the image."""
    if "crop" not in preprocess:
        return preprocess
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ModelError(
            f"the file crops its images to squares, and {list(shape)} is none: choose a height that is the width",
            about="input_shape",
        )
    return {**preprocess, "crop": shape[1]}


def _bound(reason: str) -> NoReturn:
    raise ModelError(f"bound: {reason}")


def _reshape(node: Node, before: Shape, now: Shape, old_shapes: Sequence[Shape], shapes: list[Shape]) -> Node:
    """Where axes are only joined, or stay, the new sizes are joined in the same way; else a shape comes back."""
    out = old_shapes[-1]
    shape: list[int] = []
    for old, new, sizes in _groups(before, now, out):
        followed = list(sizes) if old == new else _joined(old, new, sizes)
        if followed is None:
            return replace(
                node, attributes={**node.attributes, "shape": _seen(before, now, out, old_shapes, shapes)}
            )
        shape += followed
    return replace(node, attributes={**node.attributes, "shape": tuple(shape)})


def _joined(old: Shape, new: Shape, sizes: Shape) -> list[int] | None:
    """The new sizes where the last of them takes all that has changed: those before it divide what has not."""
    kept = 0
    while kept < len(old) and old[kept] == new[kept]:
        kept += 1
    last = max((i for i, size in enumerate(sizes) if size != 1), default=len(sizes) - 1)
    ahead = math.prod(sizes[:last])
    if last < 0 or math.prod(old[:kept]) % ahead:
        return None
    return [*sizes[:last], math.prod(new) // ahead, *sizes[last + 1 :]]


def _seen(before: Shape, now: Shape, out: Shape, old_shapes: Sequence[Shape], shapes: list[Shape]) -> Shape:
    """What a shape that there was before, and comes back, has become: if that is one and the same."""
    found = {
        new
        for old, new in zip(old_shapes[:-1], shapes, strict=True)
        if old == out and math.prod(new) == math.prod(now)
    }
    if len(found) != 1:
        _bound(f"it splits {list(before)} into {list(out)}, which says nothing of other sizes")
    return found.pop()


def _groups(before: Shape, now: Shape, out: Shape) -> list[tuple[Shape, Shape, Shape]]:
    """The fewest axes of both sides that hold as many elements as each other, from the first on."""
    found, i, j = [], 0, 0
    while i < len(before) or j < len(out):
        first, second = i, j
        left, right = 1, 1
        while True:
            if left == right and (i > first or j > second) and (i > first or j == len(out)):
                break
            if (left <= right and i < len(before)) or j == len(out):
                left *= before[i]
                i += 1
            else:
                right *= out[j]
                j += 1
            if left == right and i > first and j > second:
                break
        found.append((before[first:i], now[first:i], out[second:j]))
    return found


def _slice(node: Node, before: list[Shape], now: list[Shape], out: Shape) -> Node:
    a = attributes(node)
    axis = a["axis"]
    size, new = before[0][axis], now[0][axis]
    if size == new:
        return node
    if a["start"] >= a["step"] or a["stop"] + a["step"] <= size:
        _bound(
            f"it takes {a['start']} to {a['stop']} of an axis of {size}, which says nothing of other sizes"
        )
    return replace(node, attributes={**node.attributes, "stop": new})


def _resize(node: Node, before: list[Shape], now: list[Shape], out: Shape) -> Node:
    """The same factor, where that gives whole pixels."""
    sizes = []
    for old, new, size in zip(before[0][1:], now[0][1:], out[1:], strict=True):
        if size * new % old:
            _bound(
                f"{old} pixels become {size}, and by that factor {new} would become {size * new / old:.2f}"
            )
        sizes.append(size * new // old)
    return replace(node, attributes={**node.attributes, "size": tuple(sizes)})


def _pool(node: Node, before: list[Shape], now: list[Shape], out: Shape) -> Node:
    """A window over all of an axis may be meant as such: torch's code knows, the file does not."""
    a = attributes(node)
    sizes = zip(a["kernel"], before[0][1:], now[0][1:], strict=True)
    if not any(a["pad"]) and any(window == old != new and old > 1 for window, old, new in sizes):
        _bound(
            f"its window of {list(a['kernel'])} is as large as the image was, which says nothing of other sizes; "
            "use nn.AdaptiveAvgPool2d, or save the network with an example of that size"
        )
    return node


def _product(node: Node, before: list[Shape], now: list[Shape], out: Shape) -> Node:
    """Attention divides by the root of how many elements are multiplied and added up."""
    old, new = before[0][-1], now[0][-1]
    if old != new and attributes(node)["scale"] != 1:
        _bound(
            f"its scale is for products of {old} elements, and there are {new}; save the network with an example of "
            "that size"
        )
    return node


def _check_sum(node: Node, source: Node, old_shapes: Sequence[Shape], shapes: list[Shape]) -> None:
    """A sum is a mean times the number of elements, which the network may have divided by again."""
    if source.op != "mean":
        return
    axes = attributes(source)["axes"]
    old, new = (math.prod(known[source.inputs[0]][axis] for axis in axes) for known in (old_shapes, shapes))
    if old != new and attributes(node)["value"] == old:
        _bound(
            f"it adds up {old} elements, and there are {new}; take the mean, or save the network with an example of "
            "that size"
        )


def _gather(node: Node, before: list[Shape], now: list[Shape], out: Shape) -> Node:
    axis = attributes(node)["axis"]
    if before[0][axis] != now[0][axis]:
        _bound("it takes listed indices of an axis of another size")
    return node


_FOLLOWERS: Mapping[str, Callable[[Node, list[Shape], list[Shape], Shape], Node]] = {
    "slice": _slice,
    "resize": _resize,
    "gather": _gather,
    "maxpool": _pool,
    "avgpool": _pool,
    "matmul": _product,
}
