"""From the operations of torch.export to a draft of the graph."""

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, fx

from membound.capture.call import FIRST, SUPPORTED, Call, Place, Value
from membound.capture.draft import Draft
from membound.capture.export import Exported, sizes
from membound.capture.layout import ALONG, SPREADABLE, find_place, followed
from membound.capture.lrn import Lrn, find_lrn
from membound.capture.operators import CONVERSIONS
from membound.errors import ModelError
from membound.store.graph import Shape

# These may speak of the batch's size, since the shape of the result says it again.
RESHAPES = ("view", "reshape", "_unsafe_view", "unflatten", "flatten", "squeeze", "unsqueeze", "expand")


def convert(exported: Exported) -> Draft:
    """The draft of an exported network, operation by operation; constants are computed beforehand."""
    shape = tuple(int(size) for size in sizes(exported.input.meta["val"])[1:])
    draft = Draft(shape)
    found: dict[fx.Node, Any] = {exported.input: Value(0, shape)}
    names = {}
    for node in exported.output.graph.nodes:
        if node.name in exported.weights:
            found[node] = exported.weights[node.name]
            names[id(found[node])] = exported.names[node.name]
    norms: dict[fx.Node, Lrn] = {}
    for node in _needed(exported.output, norms):
        if node not in found:
            found[node] = _Step(node, draft, names, exported.batch).run(found, norms.get(node))
    out = found[exported.output]
    if not isinstance(out, Value):
        raise ModelError("the network's output does not depend on its input")
    if out.place != FIRST:
        raise _Step(exported.output, draft, names, exported.batch).moved()
    draft.output = out.number
    return draft


def _needed(output: fx.Node, norms: dict[fx.Node, Lrn]) -> list[fx.Node]:
    """What the output depends on, in order; the pieces of a normalisation are not, only its input."""
    needed = {output}
    for node in reversed(output.graph.nodes):
        if node in needed:
            norm = find_lrn(node)
            if norm is not None:
                norms[node] = norm
            needed.update([norm.input] if norm is not None else node.all_input_nodes)
    return [node for node in output.graph.nodes if node in needed]


class _Step:
    """One operation: computed now where it is constant, else converted by the table."""

    def __init__(self, node: fx.Node, draft: Draft, names: Mapping[int, str], batch: int | str) -> None:
        self.node, self.draft, self.names, self.batch = node, draft, names, batch
        self.path, self.where = _place(node)
        target: Any = node.target
        self.op = str(getattr(target, "_opname", None) or getattr(target, "__name__", target))
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            self.op = self.op.removesuffix("_")  # in place: exported only where that is the same

    def run(self, found: Mapping[fx.Node, Any], norm: Lrn | None) -> Any:
        node = self.node
        if not _is_tensor(node.meta.get("val")):
            return None  # arithmetic on the batch's size; the shapes of results say all there is
        if norm is not None:
            numbers = {"size": norm.size, "alpha": norm.alpha, "beta": norm.beta, "k": norm.k}
            return self._call({}).emit("lrn", found[norm.input], **cast(Any, numbers))
        if node.target is operator.getitem:
            parts, index = cast(tuple[fx.Node, int], node.args)
            return found[parts][index]
        tensors = [part for part in node.all_input_nodes if _is_tensor(part.meta.get("val"))]
        if all(isinstance(found.get(part), Tensor) for part in tensors):
            spread = [part for part in tensors if self._depends_on_batch(part)]
            if not self._depends_on_batch(node) and not spread:
                return self._constant(found)
            if self._depends_on_batch(node):
                return self._spread(found, bool(spread))
        if self.op in ("expand", "expand_as"):
            return self._expanded(found)
        if self.op in ("zeros_like", "ones_like"):
            return self._filled(float(self.op == "ones_like"))
        if self.op not in CONVERSIONS:
            raise ModelError(f"{self.where}: the operator {self.op} is not supported; {SUPPORTED}")
        sized = [part for part in node.all_input_nodes if not _is_tensor(part.meta.get("val"))]
        if sized and self.op not in RESHAPES:
            raise ModelError(f"{self.where}: an argument of {self.op} depends on the size of the batch")
        call = self._call(self._arguments(found))
        if self.op not in ALONG and any(value.place != FIRST for value in _values(call.args)):
            call.fail("the batch is not the first axis there, or holds other axes, too")
        return _placed(CONVERSIONS[self.op](call), call.place)

    def _call(self, arguments: Mapping[str, Any]) -> Call:
        values = _values(arguments)
        shape, found = self._shape()
        place: Place | None = found
        if self.op in RESHAPES and values:
            place = followed(values[0], shape, found)
        elif found.fold > 1:
            same = [value.place for value in values if value.place.fold == found.fold]
            place = Place(found.at, found.fold, same[0].outer) if same else None
        if place is None:
            raise self.moved()
        return Call(self.op, self.path, self.where, arguments, shape, place, self.draft, self.names)

    def _depends_on_batch(self, node: fx.Node) -> bool:
        """Whether the batch is in the shape of a result, or of the first of several."""
        val: Any = node.meta.get("val")
        val = val if isinstance(val, Tensor) else next(each for each in val if isinstance(each, Tensor))
        return isinstance(self.batch, str) and any(isinstance(size, str) for size in sizes(val))

    def _spread(self, found: Mapping[fx.Node, Any], spread: bool) -> Any:
        """A constant repeated for every image of the batch is kept once: with a batch of 1."""
        val = self.node.meta["val"]
        if spread and self.op in SPREADABLE and not isinstance(val, Tensor):
            return self._constant(found)
        layout = find_place(val, self.batch)
        if layout is None:
            raise self.moved()
        place = layout[1]
        shape = [1 if dim == place.at else int(size) for dim, size in enumerate(sizes(val))]
        arguments = self._arguments(found)
        source = arguments.get("self", arguments.get("input"))
        if place.fold == 1 and self.op in RESHAPES and isinstance(source, Tensor):
            return source.expand(shape) if self.op == "expand" else source.reshape(shape)
        if place.fold == 1 and self.op in ("zeros", "ones", "new_zeros", "new_ones", "full", "new_full"):
            known = {"zeros": 0.0, "ones": 1.0}
            return torch.full(
                shape, known.get(self.op.removeprefix("new_"), arguments.get("fill_value", 0.0))
            )
        if place.fold == 1 and spread and self.op in SPREADABLE:
            return self._constant(found)
        raise self.moved()

    def _filled(self, number: float) -> Tensor:
        """Zeros or ones of the shape of a value: a constant with a batch of 1."""
        shape, place = self._shape()
        if place.fold > 1:
            raise self.moved()
        return torch.full((*shape[: place.at], 1, *shape[place.at :]), number)

    def _constant(self, found: Mapping[fx.Node, Any]) -> Any:
        """What depends on weights only."""
        if torch.Tag.nondeterministic_seeded in getattr(self.node.target, "tags", ()):
            raise ModelError(f"{self.where}: {self.op} gives random numbers, which cannot be stored")
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), lambda part: found[part])
        return self.node.target(*args, **{key: value for key, value in kwargs.items() if key != "device"})  # type: ignore[operator]

    def _arguments(self, found: Mapping[fx.Node, Any]) -> dict[str, Any]:
        """The arguments by their names in the operator's schema, with its defaults."""
        node = self.node
        arguments: dict[str, Any] = {}
        schema = node.target._schema  # type: ignore[union-attr]
        for index, argument in enumerate(schema.arguments):
            default = node.kwargs.get(argument.name, argument.default_value)
            given = node.args[index] if index < len(node.args) else default
            arguments[argument.name] = fx.map_arg(given, lambda part: found.get(part))
        return arguments

    def _expanded(self, found: Mapping[fx.Node, Any]) -> Value:
        """A value repeated along axes is left as it is where its users broadcast it anyway."""
        call = self._call(self._arguments(found))
        value = call.value("self")
        for user in self.node.users:
            others = [part for part in user.all_input_nodes if part is not self.node]
            same = [part.meta["val"].shape == self.node.meta["val"].shape for part in others]
            name = getattr(user.target, "_opname", "")
            if (
                name not in ("add", "sub", "mul", "div")
                or same != [True]
                or len(value.shape) != len(call.shape)
            ):
                return replace(self._repeated(call, value), place=call.place)
        return replace(value, place=call.place)

    def _repeated(self, call: Call, value: Value) -> Value:
        """Really repeated, along axes that are 1."""
        missing = len(call.shape) - len(value.shape)
        if missing < 0 or value.place.fold != call.place.fold or value.place.at > call.place.at:
            call.fail("values are repeated only along axes of their own")
        value = call.reshape(value, (1,) * missing + value.shape)
        for axis, size in enumerate(call.shape):
            if value.shape[axis] != size:
                shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
                value = call.emit("gather", value, out=shape, axis=axis, indices=(0,) * size)
        return value

    def _shape(self) -> tuple[Shape, Place]:
        """The shape of the result without the batch, and where the batch is: in one axis."""
        val = self.node.meta["val"]
        val = val if isinstance(val, Tensor) else val[0]
        if val.dtype != torch.float32:
            raise ModelError(f"{self.where}: {self.op} gives {val.dtype}; only float32 is supported")
        found = find_place(val, self.batch)
        if found is None:
            raise self.moved()
        return found

    def moved(self) -> ModelError:
        """What is said where the batch does not stay apart from the other axes."""
        val = self.node.meta["val"]
        text = ", ".join(
            str(size).replace(str(self.batch), "batch")
            for size in sizes(val if isinstance(val, Tensor) else val[0])
        )
        return ModelError(
            f"{self.where}: {self.op} gives shape ({text}), but the batch must stay the first axis, and free: "
            "write x.flatten(1), not x.view(1, -1)"
        )


def _values(arguments: Mapping[str, Any]) -> list[Value]:
    """The values among the arguments, in lists, too."""
    items = [
        item
        for given in arguments.values()
        for item in (given if isinstance(given, list | tuple) else (given,))
    ]
    return [item for item in items if isinstance(item, Value)]


def _placed(result: Any, place: Place) -> Any:
    """What a conversion gave, with the batch where torch has it."""
    if isinstance(result, list):
        return [replace(each, place=place) for each in result]
    return replace(result, place=place)


def _is_tensor(val: Any) -> bool:
    return isinstance(val, Tensor) or (
        isinstance(val, (list, tuple)) and any(isinstance(v, Tensor) for v in val)
    )


def _place(node: fx.Node) -> tuple[str, str]:
    """The path of the module that an operation belongs to, and the same for messages: 'layers.0 (LSTM)'."""
    stack = [entry for entry in (node.meta.get("nn_module_stack") or {}).values() if isinstance(entry, tuple)]
    if not stack or str(stack[-1][0]).startswith("_empty_nn_module_stack"):
        return "", "the network"
    path, kind = stack[-1]
    name = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    return str(path), f"{path or 'the network'} ({name})"
