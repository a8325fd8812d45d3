"""What becomes of each tensor of a network in a file: the type of its values, and whether it is in a packed layer."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.exact import AUTO, exact_type
from membound.store.graph import Graph, Node
from membound.store.model import Model
from membound.store.operators import OPERATORS, attributes
from membound.store.values import F16, F32, value_type

Values = str | Mapping[str, str]
FINE = "p8"  # for weights whose few values would cost more than they save


def value_types(model: Model, values: Values) -> dict[str, str]:
    """The type of every tensor.

    f32 and f16 are for all of them. One of p1 to p8 is for the weights of layers; the first of them and depthwise
    convolutions, which have few weights of much effect, get p8. A mapping is for the tensors that it names. What is
    left over is f16, or f32 where it does not fit that. 'auto' rounds nothing: weights of layers that have few values
    are codes of as few bits as hold them exactly, all else is f32.
    """
    if values == AUTO:
        weights = layer_weights(model.graph)
        return {
            name: exact_type(array) if name in weights else F32.name for name, array in model.tensors.items()
        }
    if isinstance(values, str):
        if not value_type(values).coded:
            return dict.fromkeys(model.tensors, values)
        values = {name: FINE if _is_fine(model, name) else values for name in layer_weights(model.graph)}
    if not isinstance(values, Mapping):
        raise ModelError(
            f"values is {values!r}: name a type such as 'p4' or 'f16', 'auto', or map names of tensors to types"
        )
    unknown = values.keys() - model.tensors.keys()
    if unknown:
        known = ", ".join(list(model.tensors)[:20])
        raise ModelError(
            f"there is no tensor {min(unknown)!r} to store as {values[min(unknown)]}: there are {known}"
        )
    for each in values.values():
        value_type(each)
    return {name: values.get(name) or _half(array) for name, array in model.tensors.items()}


def float_type(values: Values) -> str:
    """The type of what has none of its own, such as a mean image."""
    if values == AUTO:
        return F32.name
    return values if isinstance(values, str) and not value_type(values).coded else F16.name


def _half(array: npt.NDArray[Any]) -> str:
    return F16.name if np.abs(array).max(initial=0) < 65520 else F32.name  # from there on f16 is infinite


def layer_weights(graph: Graph) -> dict[str, Node]:
    """The weights that are computed on as they are stored, in order, with the first node of each."""
    found: dict[str, Node] = {}
    for node in graph.nodes:
        for role, about in OPERATORS[node.op].roles.items():
            if about.as_stored:
                found.setdefault(node.tensors[role], node)
    return found


def _is_fine(model: Model, name: str) -> bool:
    weights = layer_weights(model.graph)
    groups = attributes(weights[name]).get("groups", 1)
    return name == next(iter(weights)) or (groups > 1 and model.tensors[name].shape[1] == 1)


class Place(NamedTuple):
    """Where a weight is packed: the name of the array, and of the bias that is in it."""

    array: str
    bias: str | None


def places(
    graph: Graph, tensors: Collection[str], more: Collection[str], may_be_bias: Collection[str]
) -> Iterator[tuple[str, Place]]:
    """The weights that are packed: those of layers, and `more`; biases are taken along if they may be."""
    for weight in dict.fromkeys([*layer_weights(graph), *more]):
        layer = weight.removesuffix(".weight")
        if layer in ("", weight) or layer in tensors:
            yield weight, Place(weight, None)
            continue
        bias = f"{layer}.bias"
        yield weight, Place(layer, bias if bias in may_be_bias and bias not in more else None)
