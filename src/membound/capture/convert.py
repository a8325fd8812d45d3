"""From the operations of torch.export to a draft of the graph."""

import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx

from membound.capture.call import SUPPORTED, Call, Value
from membound.capture.draft import Draft
from membound.capture.export import FIXED, Exported, sizes
from membound.capture.lrn import Lrn, find_lrn
from membound.capture.operators import CONVERSIONS
from membound.errors import ModelError
from membound.store.graph import Shape


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
        self.path = _module_path(node)
        target: Any = node.target
        self.op = str(getattr(target, "_opname", None) or getattr(target, "__name__", target))

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
        if all(isinstance(found.get(part), Tensor) for part in node.all_input_nodes):
            return self._constant(found)
        if self.op in ("expand", "expand_as"):
            return self._expanded(found)
        if self.op not in CONVERSIONS:
            where = f" in {self.path!r}" if self.path else ""
            raise ModelError(f"the operator {self.op}{where} is not supported; {SUPPORTED}")
        call = self._call(self._arguments(found))
        self._check_arguments(call)
        return CONVERSIONS[self.op](call)

    def _call(self, arguments: Mapping[str, Any]) -> Call:
        return Call(self.op, self.path, arguments, self._shape(), self.draft, self.names)

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

    def _check_arguments(self, call: Call) -> None:
        parts = [part for part in self.node.all_input_nodes if _is_tensor(part.meta.get("val"))]
        for part in parts:
            val = part.meta["val"]
            if isinstance(val, Tensor) and val.dtype != torch.float32 and not _is_weight(part, call):
                call.fail(f"it works on {val.dtype}; only float32 is supported")

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
                call.fail("values are repeated only as an operand of add, sub, mul or div")
        return value

    def _shape(self) -> Shape:
        """The shape of the result without the batch, which must be its first axis and no other."""
        val = self.node.meta["val"]
        val = val if isinstance(val, Tensor) else val[0]
        where = f"{self.path or 'the network'}: {self.op}"
        if val.dtype != torch.float32:
            raise ModelError(f"{where} gives {val.dtype}; only float32 is supported")
        first, *rest = sizes(val) or [1]
        shape = tuple(size for size in rest if isinstance(size, int))
        if first != self.batch or len(shape) != len(rest):
            text = ", ".join(str(size).replace(str(self.batch), "batch") for size in (first, *rest))
            raise ModelError(
                f"{where} gives shape ({text}), whose first axis alone must be the batch; {FIXED}"
            )
        return shape


def _is_tensor(val: Any) -> bool:
    return isinstance(val, Tensor) or (
        isinstance(val, (list, tuple)) and any(isinstance(v, Tensor) for v in val)
    )


def _is_weight(node: fx.Node, call: Call) -> bool:
    return node.op == "placeholder" and any(isinstance(value, Tensor) for value in call.args.values())


def _module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if isinstance(entry, tuple)]
    return "" if not paths or paths[-1].startswith("_empty_nn_module_stack") else str(paths[-1])
