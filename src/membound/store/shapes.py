"""The shapes of a network's values: exact, and strict about everything a graph can get wrong."""

import math
from collections.abc import Mapping, Sequence

from membound.errors import ModelError
from membound.store.graph import Graph, Node, Shape
from membound.store.operators import OPERATORS, attributes
from membound.store.record import Given, Operator
from membound.store.rules import (
    MAX_AXES,
    MAX_ELEMENTS,
    MAX_NODES,
    MAX_PORTS,
    MAX_TOTAL,
    RULE_ATTRIBUTES,
    RULE_INPUTS,
    RULE_LIMITS,
    RULE_PORTS,
    RULE_ROLES,
    is_int,
    refuse,
    show,
)


def infer_shapes(graph: Graph, tensor_shapes: Mapping[str, Shape]) -> list[Shape]:
    """The shape of every value, the input's first; a ModelError names the node that does not fit.

    >>> graph = Graph((1, 28, 28), (Node("maxpool", (0,), {"kernel": (2, 2)}),), 1)
    >>> infer_shapes(graph, {})
    [(1, 28, 28), (1, 14, 14)]
    """
    shapes = [_check_shape(graph.input_shape, "the input")]
    if not 1 <= len(graph.nodes) <= MAX_NODES:
        refuse(RULE_INPUTS, f"there are {len(graph.nodes)} nodes: 1 to {MAX_NODES} are allowed")  # rule 22
    for value in (graph.output, *graph.given):
        if not is_int(value, 1, len(graph.nodes)):
            refuse(RULE_INPUTS, f"the output is value {show(value)}: 1 to {len(graph.nodes)} are allowed")
    inputs = len(graph.taken)
    if len(graph.inputs) not in (0, inputs) or inputs > MAX_PORTS:  # rule 51
        refuse(
            RULE_PORTS,
            f"there are {inputs} inputs, {len(graph.inputs)} of them named: all or none, up to {MAX_PORTS}",
        )
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
    operator = OPERATORS[node.op]
    low, high = operator.inputs
    if not low <= len(node.inputs) <= high:  # rule 22
        allowed = str(low) if low == high else f"{low} to {high}"
        refuse(RULE_INPUTS, f"has {len(node.inputs)} inputs: {allowed} are allowed")
    _check_attributes(operator, given)
    tensors = _tensor_shapes(operator, node, tensor_shapes)
    return operator.shape([shapes[value] for value in node.inputs], given, tensors)


def _check_attributes(operator: Operator, given: Given) -> None:
    for name, value in given.items():
        attribute = operator.attributes[name]
        if value is None and attribute.default is None:
            continue
        if not attribute.kind.allows(value):  # rule 23
            refuse(RULE_ATTRIBUTES, f"{name} is {show(value)}: it must be {attribute.kind.text}")


def _tensor_shapes(operator: Operator, node: Node, tensor_shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of a node's tensors by role."""
    roles = operator.roles
    for role, name in node.tensors.items():
        if role not in roles:  # rule 24
            refuse(
                RULE_ROLES,
                f"has a tensor in the role {show(role)}: its roles are {', '.join(roles) or 'none'}",
            )
        if name not in tensor_shapes:  # rule 24
            refuse(RULE_ROLES, f"names the tensor {show(name)}, which is not there")
    for role, about in roles.items():
        if about.required and role not in node.tensors:  # rule 24
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
