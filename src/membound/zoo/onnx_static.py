"""Sizes that an ONNX file computes, made constants: torch.export follows no sizes that are tensors.

Exporters compute the target of a Reshape, or the bounds of a Slice, from Shape nodes, and give even constant ones as
tensors. The network is run with two sizes of the batch; what each node gave tells its sizes. An axis that differs is
that of the batch, and stays free.
"""

from collections.abc import Container, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from membound.errors import WeightsError

BATCHES = (2, 3)
Sizes = tuple[int, ...]


class Reshape(nn.Module):
    """To known sizes; the one that the batch decides is -1."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)


class Expand(nn.Module):
    """To known sizes; the first may be that of the network's input."""

    def __init__(self, sizes: Sizes, batch: bool) -> None:
        super().__init__()
        self.sizes, self.batch = sizes, batch

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        return x.expand(given.shape[0], *self.sizes[1:]) if self.batch else x.expand(self.sizes)


class Slice(nn.Module):
    """Along some axes, forward only."""

    def __init__(self, bounds: Sequence[tuple[int, int, int, int]]) -> None:
        super().__init__()
        self.bounds = tuple(bounds)

    def forward(self, x: Tensor) -> Tensor:
        for axis, start, end, step in self.bounds:
            index = [slice(None)] * x.dim()
            index[axis] = slice(start, end, step)
            x = x[tuple(index)]
        return x


class Pad(nn.Module):
    """By known widths, as torch has them: of the last axis first."""

    def __init__(self, widths: list[int], mode: str, value: float) -> None:
        super().__init__()
        self.widths, self.mode, self.value = widths, mode, value

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.widths, self.mode, self.value if self.mode == "constant" else None)


class Split(nn.Module):
    """Into parts of known sizes."""

    def __init__(self, parts: list[int], axis: int) -> None:
        super().__init__()
        self.parts, self.axis = parts, axis

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.split(x, self.parts, self.axis)


class Take(nn.Module):
    """Known indices of an axis, or one of them, whose axis goes."""

    def __init__(self, axis: int, indices: list[int], single: bool) -> None:
        super().__init__()
        self.axis, self.single, self.index = axis, single, indices[0]
        self.register_buffer("indices", torch.tensor(indices), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.single:
            return x.select(self.axis, self.index)
        return x.index_select(self.axis, self.get_buffer("indices"))


class Resize(nn.Module):
    """By a factor of each axis, or to a size."""

    def __init__(
        self, mode: str, corners: bool | None, size: list[int] | None, factors: list[float] | None
    ) -> None:
        super().__init__()
        self.mode, self.corners, self.size, self.factors = mode, corners, size, factors

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, self.size, self.factors, self.mode, self.corners)


class _Recorder(fx.Interpreter):
    """Runs a network, and keeps the shape of every tensor, and the values of those that sizes are computed with."""

    def __init__(self, module: fx.GraphModule, known: set[fx.Node]) -> None:
        super().__init__(module)
        self.known, self.shapes, self.values = known, dict[fx.Node, Sizes](), dict[fx.Node, Any]()

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, Tensor):
            self.shapes[n] = tuple(found.shape)
        if n in self.known:
            self.values[n] = found
        return found


def with_constant_sizes(
    network: fx.GraphModule, shapes: Sequence[Sizes], whole: Sequence[bool]
) -> fx.GraphModule:
    """The same network, with its sizes as constants. `shapes` are those of its inputs, without the batch."""
    graph = network.graph
    known = _known(network)
    chance = torch.Generator().manual_seed(0)
    given = [
        torch.zeros(BATCHES[-1], *shape, dtype=torch.int64)
        if is_whole
        else torch.randn(BATCHES[-1], *shape, generator=chance)
        for shape, is_whole in zip(shapes, whole, strict=True)
    ]
    first, second = (_Recorder(network, known) for _ in BATCHES)
    network.eval()
    with torch.no_grad():
        for recorder, count in zip((first, second), BATCHES, strict=True):
            recorder.run(*(each[:count] for each in given))
        wanted = network(*given)
    known = _known(network, _repeated(network, first, second))
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in list(graph.nodes):
        if node.op == "call_module" and node not in known:
            made = _static(node, network, first, second)
            if made is not None:
                _replace_(network, node, made, inputs[0])
    for node in list(graph.nodes):
        if node in known and node.op != "get_attr" and any(user not in known for user in node.users):
            _keep_(network, node, first.values[node], second.values[node])
    graph.eliminate_dead_code()
    network.delete_all_unused_submodules()
    network.recompile()
    with torch.no_grad():
        _check_same(wanted, network(*given))
    return network


def _known(network: fx.GraphModule, but: Container[fx.Node] = ()) -> set[fx.Node]:
    """The nodes that sizes and constants decide, not what is in the input."""
    known: set[fx.Node] = set()
    for node in network.graph.nodes:
        kind = type(network.get_submodule(node.target)).__name__ if node.op == "call_module" else ""
        if node.op == "get_attr" or kind in ("OnnxShape", "OnnxConstant"):
            known.add(node)
        elif node.op in ("call_module", "call_function") and node not in but and node.all_input_nodes:
            known.update([node] if all(each in known for each in node.all_input_nodes) else [])
    return known


def _repeated(network: fx.GraphModule, first: _Recorder, second: _Recorder) -> set[fx.Node]:
    """Constants that are repeated for each example, such as class tokens: these are computed in every call."""
    found = set()
    for node, value in first.values.items():
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        layer = network.get_submodule(str(node.target)) if node.op == "call_module" else None
        if is_float and type(layer).__name__ == "OnnxExpand" and value.shape != second.values[node].shape:
            found.add(node)
    return found


def _static(node: fx.Node, network: fx.GraphModule, first: _Recorder, second: _Recorder) -> nn.Module | None:
    """What takes the place of a module that is given sizes as tensors; None where it may stay."""
    layer = network.get_submodule(str(node.target))
    kind = type(layer).__name__
    if kind in ("OnnxReshape", "OnnxSqueezeDynamicAxes", "OnnxUnsqueezeDynamicAxes"):
        return Reshape(_free(node, first.shapes[node], second.shapes[node]))
    if kind == "OnnxExpand":
        sizes = _free(node, first.shapes[node], second.shapes[node])
        if -1 in sizes[1:] or (sizes[:1] == (-1,) and first.shapes[node][0] != BATCHES[0]):
            raise _refused(node, "its size depends on that of the batch beyond the first axis")
        return Expand(sizes, batch=sizes[:1] == (-1,))
    if kind == "OnnxSlice":
        return _slice(node, first, second)
    if kind == "OnnxSplit13" and len(node.args) + len(node.kwargs) > 1:
        return Split(_arguments(node, ("split",), first, second)["split"][0], int(str(layer.axis)))
    if kind == "OnnxGather" and node.args[1] in first.values:
        return _take(node, layer, first, second)
    if kind == "OnnxPadDynamic":
        return _pad(node, layer, first, second)
    if kind in ("OnnxResize", "OnnxResizeV10"):
        return _resize(node, layer, first, second)
    return None


def _free(node: fx.Node, one: Sizes, other: Sizes) -> Sizes:
    """The sizes of a result, with -1 for the one that differs."""
    if len(one) != len(other) or sum(a != b for a, b in zip(one, other, strict=True)) > 1:
        raise _refused(node, f"its shape is {list(one)} or {list(other)}, by the size of the batch")
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))


def _arguments(node: fx.Node, names: Sequence[str], first: _Recorder, second: _Recorder) -> dict[str, Any]:
    """The constant arguments behind the first, as lists."""
    given = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
    found: dict[str, Any] = {}
    for name, argument in given.items():
        if argument is None:
            continue
        if not isinstance(argument, fx.Node) or argument not in first.values:
            raise _refused(node, f"{name} depends on what the network computes")
        one, other = first.values[argument], second.values[argument]
        found[name] = [one.flatten().tolist(), other.flatten().tolist()]
    return found


def _slice(node: fx.Node, first: _Recorder, second: _Recorder) -> nn.Module:
    names = ("starts", "ends", "axes", "steps")
    told = _arguments(node, names, first, second)
    given, source = first.shapes[node], first.shapes[node.all_input_nodes[0]]
    count = len(told["starts"][0])
    axes = told.get("axes", [list(range(count))])[0]
    bounds = []
    for number, axis in enumerate(axes):
        start, end, step = (
            told.get(name, [[1] * count] * 2) for name in ("starts", "ends", "steps")
        )  # steps are 1 where they are not said
        if step[0][number] < 1:
            raise _refused(node, "it runs backward")
        if given[axis] == source[axis] and step[0][number] == 1:
            continue  # all of it, the batch among them
        if start[0][number] != start[1][number] or end[0][number] != end[1][number]:
            raise _refused(node, "its bounds depend on the size of the batch")
        bounds.append((axis, start[0][number], end[0][number], step[0][number]))
    return Slice(bounds)


def _take(node: fx.Node, layer: nn.Module, first: _Recorder, second: _Recorder) -> nn.Module:
    """Numbers count from the end where they are below zero."""
    told = _arguments(node, ("indices",), first, second)["indices"]
    axis, indices = int(getattr(layer, "_axis", 0)), node.args[1]
    assert isinstance(indices, fx.Node)
    if told[0] != told[1] or first.values[indices].dim() > 1:
        raise _refused(node, "its indices have several axes, or depend on the size of the batch")
    size = first.shapes[node.all_input_nodes[0]][axis]
    return Take(axis, [index % size for index in told[0]], first.values[indices].dim() == 0)


def _pad(node: fx.Node, layer: nn.Module, first: _Recorder, second: _Recorder) -> nn.Module:
    told = _arguments(node, ("pads", "constant_value", "axes"), first, second)
    widths, rank = told["pads"][0], len(first.shapes[node])
    if told["pads"][1] != widths or "axes" in told or len(widths) != 2 * rank:
        raise _refused(node, "its widths are not those of all axes")
    pairs = list(zip(widths[:rank], widths[rank:], strict=True))
    while pairs and pairs[0] == (0, 0):
        pairs.pop(0)
    flat = [width for pair in reversed(pairs) for width in pair]
    return Pad(flat, str(layer.mode), float(told.get("constant_value", [[0.0]])[0][0]))


def _resize(node: fx.Node, layer: nn.Module, first: _Recorder, second: _Recorder) -> nn.Module:
    names = ("scales",) if type(layer).__name__ == "OnnxResizeV10" else ("roi", "scales", "sizes")
    layer = getattr(layer, "_resize", layer)
    told = _arguments(node, names, first, second)
    source, given = first.shapes[node.all_input_nodes[0]], first.shapes[node]
    onnx_mode, corners = str(layer.onnx_mode), layer.align_corners
    plane = len(source) - 2
    modes = {
        "nearest": "nearest",
        "linear": ("linear", "bilinear", "trilinear")[plane - 1],
        "cubic": "bicubic",
    }
    if onnx_mode not in modes or source[:2] != given[:2] or (onnx_mode == "cubic" and plane != 2):
        raise _refused(node, f"{onnx_mode} from {list(source)} to {list(given)} has no counterpart in torch")
    if onnx_mode == "nearest" and any(b % a for a, b in zip(source[2:], given[2:], strict=True)):
        raise _refused(node, "the nearest pixel is rounded otherwise in torch, where sizes are no multiples")
    factors = told.get("scales", [[]])[0][2:]
    # Factors in float32 that only say the sizes are those of the sizes.
    sizes = zip(factors, source[2:], given[2:], strict=False)
    by_factor = onnx_mode != "nearest" and any(abs(f * one - other) > 1e-6 * other for f, one, other in sizes)
    return Resize(
        modes[onnx_mode],
        None if onnx_mode == "nearest" else bool(corners),
        None if by_factor else list(given[2:]),
        factors if by_factor else None,
    )


def _replace_(network: fx.GraphModule, node: fx.Node, made: nn.Module, given: fx.Node) -> None:
    network.add_submodule(str(node.target), made)  # under the name that it had
    node.args = (node.args[0], given) if isinstance(made, Expand) else (node.args[0],)
    node.kwargs = {}


def _keep_(network: fx.GraphModule, node: fx.Node, one: Any, other: Any) -> None:
    """A constant that the network computes with: its value."""
    if not isinstance(one, Tensor) or one.shape != other.shape or not torch.equal(one, other):
        raise _refused(node, "what follows computes with the size of the batch")
    name = f"constant_{node.name}"
    network.register_buffer(name, one.clone())
    with network.graph.inserting_before(node):
        node.replace_all_uses_with(network.graph.get_attr(name))


def _check_same(wanted: Any, found: Any) -> None:
    pairs = zip(
        *(each if isinstance(each, tuple | list) else [each] for each in (wanted, found)), strict=True
    )
    if not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs):
        raise WeightsError("the network gives another answer with its sizes as constants")


def _refused(node: fx.Node, why: str) -> WeightsError:
    return WeightsError(f"{node.target}: {why}")
