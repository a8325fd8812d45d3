"""From the operations of torch.export to a draft of the graph."""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, fx

from membound.capture import advice
from membound.capture.call import FIRST, Call, Place, Value
from membound.capture.draft import Draft
from membound.capture.export import Batch, Exported, sizes
from membound.capture.folded import convert_folded, takes_folded
from membound.capture.layout import ALONG, ELEMENTWISE, SPREADABLE, WHOLE, WHOLE_TYPES, find_place, followed
from membound.capture.lrn import Lrn, find_lrn
from membound.capture.operators import CONVERSIONS
from membound.errors import ModelError
from membound.store.graph import Input, Shape

MAKES = ("zeros", "ones", "new_zeros", "new_ones", "full", "new_full")  # tensors of one number
FILLS = ("zeros_like", "ones_like", "full_like", "fill", "zero")  # the same, in the shape of another
# These may speak of the batch's size, since the shape of the result says it again.
RESHAPES = ("view", "reshape", "_unsafe_view", "unflatten", "flatten", "squeeze", "unsqueeze", "expand")


def convert(exported: Exported) -> Draft:
    """The draft of an exported network, operation by operation; constants are computed beforehand."""
    draft, found = _begin(exported.inputs)
    names = {}
    for node in exported.outputs[0].graph.nodes:
        if node.name in exported.weights:
            found[node] = exported.weights[node.name]
            names[id(found[node])] = exported.names[node.name]
    norms: dict[fx.Node, Lrn] = {}
    for node in _needed(exported.outputs, norms):
        if node not in found:
            draft.origin = node
            found[node] = _Step(node, draft, names, exported.batch).run(found, norms.get(node))
    draft.outputs, draft.named, draft.origin = [], exported.named, None
    for number, node in enumerate(exported.outputs):
        out, which = found[node], _which(exported.named, number)
        if not isinstance(out, Value):
            raise ModelError(f"the network's output{which} does not depend on its input: leave it out")
        if out.whole:
            raise ModelError(f"the network's output{which} is of whole numbers: return it as floating point")
        if out.place != FIRST:
            raise _Step(node, draft, names, exported.batch).moved()
        draft.outputs.append(out.number)
    return draft


def _which(named: tuple[str, ...] | None, number: int) -> str:
    return "" if named is None else f" {named[number] or number}"


def _begin(inputs: tuple[fx.Node, ...]) -> tuple[Draft, dict[fx.Node, Any]]:
    """A draft with nothing but its inputs: the first is value 0, others are nodes."""
    shapes = [tuple(int(size) for size in sizes(node.meta["val"])[1:]) for node in inputs]
    draft, found = Draft(shapes[0]), dict[fx.Node, Any]()
    kinds = [not node.meta["val"].is_floating_point() for node in inputs]
    for node, shape, whole in zip(inputs, shapes, kinds, strict=True):
        number = draft.add("input", (), shape, {"shape": shape}, {}) if found else 0
        found[node] = Value(number, shape, whole=whole)
    if len(inputs) > 1 or kinds[0]:
        draft.inputs = tuple(map(Input, (node.name for node in inputs), kinds))
    return draft, found


def _needed(outputs: Sequence[fx.Node], norms: dict[fx.Node, Lrn]) -> list[fx.Node]:
    """What the outputs depend on, in order; the pieces of a normalisation are not, only its input."""
    needed = set(outputs)
    for node in reversed(outputs[0].graph.nodes):
        if node in needed:
            norm = find_lrn(node)
            if norm is not None:
                norms[node] = norm
            needed.update([norm.input] if norm is not None else node.all_input_nodes)
    return [node for node in outputs[0].graph.nodes if node in needed]


class _Step:
    """One operation: computed now where it is constant, else converted by the table."""

    def __init__(self, node: fx.Node, draft: Draft, names: Mapping[int, str], batch: Batch) -> None:
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
            return self._part(parts, found[parts], index)
        if self.op not in CONVERSIONS and self._draws():
            raise ModelError(
                f"{self.where}: {self.op} gives random numbers, which cannot be stored{_code(node)}: leave them out in "
                "eval mode (if self.training: ...)"
            )
        tensors = [part for part in node.all_input_nodes if _is_tensor(part.meta.get("val"))]
        if all(isinstance(found.get(part), Tensor) for part in tensors):
            spread = [part for part in tensors if self._depends_on_batch(part)]
            if not self._depends_on_batch(node) and not spread:
                return self._constant(found)
            if self._depends_on_batch(node):
                return self._spread(found, bool(spread))
        if self.op in ("expand", "expand_as"):
            return self._expanded(found)
        if self.op in MAKES and not self._depends_on_batch(node):
            val = self._result()
            return torch.full(val.shape, self._number(self._arguments(found)), dtype=val.dtype)
        if self.op in (*MAKES, *FILLS):
            return self._filled(self._number(self._arguments(found)))
        if self.op not in CONVERSIONS:
            raise self._unknown()
        self._check_rank()
        sized = [part for part in node.all_input_nodes if not _is_tensor(part.meta.get("val"))]
        if sized and self.op not in RESHAPES:
            raise ModelError(f"{self.where}: an argument of {self.op} depends on the size of the batch")
        call = self._call(self._arguments(found))
        if self.op not in ALONG and any(value.place != FIRST for value in _values(call.args)):
            if takes_folded(call):
                return _placed(convert_folded(call, CONVERSIONS[self.op]), call)
            call.fail("the batch is not the first axis there, or holds other axes, too")
        return _placed(CONVERSIONS[self.op](call), call)

    def _check_rank(self) -> None:
        """Convolutions, pools and resizing take a batch and channels; torch does without a batch, too."""
        axes = re.search(r"(\d)d(_with_indices)?$", self.op)
        given = next((part.meta["val"] for part in self.node.all_input_nodes[:1]), None)
        if axes and isinstance(given, Tensor) and given.dim() != int(axes[1]) + 2:
            raise ModelError(
                f"{self.where}: {self.op} takes {int(axes[1]) + 2} axes, batch and channels included, and gets "
                f"{given.dim()}{_code(self.node)}: {advice.NO_BATCH}, or an axis of channels by x.unsqueeze(1)"
            )

    def _part(self, parts: fx.Node, results: Sequence[Any], index: int) -> Any:
        """One of several results: of a pool or a maximum, all but the places of what was found."""
        if index >= len(results):
            op = getattr(parts.target, "_opname", parts.name)
            raise ModelError(
                f"{_place(parts)[1]}: of the results of {op} only the first is supported{_code(parts)}; "
                f"{advice.AFTER}"
            )
        return results[index]

    def _draws(self) -> bool:
        """Whether this draws random numbers."""
        return torch.Tag.nondeterministic_seeded in getattr(self.node.target, "tags", ())

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
        return Call(
            self.op,
            self.path,
            self.where,
            arguments,
            shape,
            place,
            self.draft,
            self.names,
            self._result().dtype,
            _code(self.node),
        )

    def _depends_on_batch(self, node: fx.Node) -> bool:
        """Whether the batch is in the shape of a result, or of the first of several."""
        val: Any = node.meta.get("val")
        val = val if isinstance(val, Tensor) else next(each for each in val if isinstance(each, Tensor))
        return not isinstance(self.batch, int) and any(isinstance(size, str) for size in sizes(val))

    def _spread(self, found: Mapping[fx.Node, Any], spread: bool) -> Any:
        """A constant repeated for every image of the batch is kept once: with a batch of 1."""
        val = self.node.meta["val"]
        if spread and self.op in SPREADABLE and not isinstance(val, Tensor):
            return self._constant(found)
        layout = find_place(val, self.batch) if isinstance(val, Tensor) else None
        if layout is None:
            raise self.moved()
        place = layout[1]
        shape = [1 if dim == place.at else int(size) for dim, size in enumerate(sizes(val))]
        arguments = self._arguments(found)
        source = arguments.get("self", arguments.get("input"))
        if place.fold == 1 and self.op in RESHAPES and isinstance(source, Tensor):
            return source.expand(shape) if self.op == "expand" else source.reshape(shape)
        if place.fold == 1 and self.op == "repeat" and isinstance(source, Tensor):
            times = [1 if dim == place.at else int(n) for dim, n in enumerate(arguments["repeats"])]
            own = (1,) * (len(times) - source.dim()) + tuple(source.shape)
            if own[place.at] == 1:
                return source.reshape(own).repeat(times)
        if place.fold > 1 and place.at == 0 and isinstance(source, Tensor) and self._leads():
            return source.reshape(
                place.fold, *shape[1:]
            )  # windows of every image, folded into the batch behind it
        if place.fold > 1 and spread and self.op in ELEMENTWISE and self._is_folded(place):
            return self._constant(found)
        if place.fold == 1 and self.op in (*MAKES, *FILLS):
            return torch.full(shape, self._number(arguments))
        along = arguments.get("dim") if self.op == "cumsum" else None
        if along is not None and along % len(shape) == place.at:
            raise self.moved()
        if place.fold == 1 and spread and self.op in SPREADABLE:
            return self._constant(found)
        raise self.moved()

    def _leads(self) -> bool:
        """Whether this is a reshape of something whose first axis is the batch alone."""
        given = self.node.args[0] if self.node.args else None
        found = find_place(given.meta["val"], self.batch) if isinstance(given, fx.Node) else None
        return self.op in RESHAPES and found is not None and found[1] == FIRST

    def _is_folded(self, place: Place) -> bool:
        """Whether all arguments that hold the batch have the same axes folded into it as the result."""
        parts = [part for part in self.node.all_input_nodes if _is_tensor(part.meta.get("val"))]
        places = [find_place(part.meta["val"], self.batch) for part in parts if self._depends_on_batch(part)]
        return all(found is not None and found[1] == place for found in places)

    def _number(self, arguments: Mapping[str, Any]) -> float:
        """What zeros, ones and their kin are full of."""
        number = arguments.get("fill_value", arguments.get("value", float("ones" in self.op)))
        if isinstance(number, Tensor) and number.numel() == 1:
            return float(number)
        if not isinstance(number, int | float):
            raise ModelError(
                f"{self.where}: {self.op} writes a computed number everywhere{_code(self.node)}: expand it instead"
            )
        return float(number)

    def _filled(self, number: float) -> Tensor:
        """Zeros or ones of the shape of a value: a constant with a batch of 1."""
        shape, place = self._shape()
        if place.fold > 1:
            raise self.moved()
        return torch.full((*shape[: place.at], 1, *shape[place.at :]), number)

    def _constant(self, found: Mapping[fx.Node, Any]) -> Any:
        """What depends on weights only."""
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
                return replace(self._repeated(call, value), place=call.place, whole=value.whole)
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
        val = self._result()
        if val.dtype != torch.float32 and not (val.dtype in WHOLE_TYPES and self.op in WHOLE):
            raise ModelError(
                f"{self.where}: {self.op} gives {val.dtype}; only float32 is supported{_code(self.node)}: leave the "
                "conversion out, or do it after the network"
            )
        found = find_place(val, self.batch)
        if found is None:
            raise self.moved()
        return found

    def _result(self) -> Tensor:
        """What torch gave, or the first of several."""
        val: Any = self.node.meta["val"]
        return val if isinstance(val, Tensor) else next(each for each in val if isinstance(each, Tensor))

    def _unknown(self) -> ModelError:
        """What is said of an operator that the runtime does not have."""
        return ModelError(
            f"{self.where}: the operator {self.op} is not supported{_code(self.node)}; {advice.for_operator(self.op)}"
        )

    def moved(self) -> ModelError:
        """What is said where the batch does not stay apart from the other axes."""
        if self.op in advice.OPERATORS and self.op not in CONVERSIONS:
            return self._unknown()
        text = ", ".join(map(str, sizes(self._result())))
        for symbol in () if isinstance(self.batch, int) else self.batch:
            text = text.replace(symbol, "batch")
        if re.search(r"\bu\d+\b", text):  # as torch calls sizes that only running tells
            return ModelError(
                f"{self.where}: {self.op} gives shape ({text}), whose size depends on numbers{_code(self.node)}: take "
                "constant indices instead of a mask, or torch.where, which keeps the size"
            )
        if "batch" not in text and not isinstance(self.batch, int):
            return ModelError(
                f"{self.where}: {self.op} gives shape ({text}){_code(self.node)}, which mixes the images of a batch; "
                "the batch must stay the first axis: name other axes, as in x.mean((1, 2, 3), keepdim=True)"
            )
        recurrent = re.search(r"\((LSTM|GRU|RNN)\)", self.where)
        if self.op == "arange" or text.count("batch") > 1 or recurrent:
            return ModelError(
                f"{self.where}: {self.op} gives shape ({text}), which mixes the images of a batch{_code(self.node)}; "
                f"{advice.EMBEDDING_BAG if self.op == 'arange' else advice.BATCH_FIRST}"
            )
        return ModelError(
            f"{self.where}: {self.op} gives shape ({text}), but the batch must stay the first axis, and free: "
            f"write x.flatten(1), not x.view(1, -1), or x.reshape(x.shape[0], ...){_code(self.node)}"
        )


def say_origin(node: fx.Node) -> str:
    """The module that an operation belongs to, and the line of code that it comes from: 'gate (Gate), in `x * y`'."""
    code = _code(node).strip(" ()")
    return _place(node)[1] + (f", {code}" if code else "")


def _code(node: fx.Node) -> str:
    """The line of the network's own code that an operation comes from, for messages."""
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    return f" (in `{lines[-1][:100]}`)" if lines and not lines[-1].startswith("File ") else ""


def _values(arguments: Mapping[str, Any]) -> list[Value]:
    """The values among the arguments, in lists, too."""
    items = [
        item
        for given in arguments.values()
        for item in (given if isinstance(given, list | tuple) else (given,))
    ]
    return [item for item in items if isinstance(item, Value)]


def _placed(result: Any, call: Call) -> Any:
    """What a conversion gave, with the batch where torch has it, and its kind of numbers."""
    if isinstance(result, list):
        return [_placed(each, call) for each in result]
    return replace(result, place=call.place, whole=not call.dtype.is_floating_point)


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
