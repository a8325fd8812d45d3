"""What the file says beside its arrays: the graph, shapes, preprocessing and classes, as compact JSON.

Every byte counts, so what follows from the rest is left out: default attributes, the input of a node that takes the
output of the one before, the shape of a bias. docs/FORMAT.md describes it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from membound.store.container import load_json
from membound.store.graph import Graph, Input, Node, Output, Shape, freeze
from membound.store.operators import OPERATORS
from membound.store.rules import (
    COMPACT,
    MAX_NAME,
    MAX_NODES,
    MAX_PORTS,
    MAX_WINDOW,
    PACKED,
    PLAIN,
    RULE_PORTS,
    is_int,
    is_name,
    is_number,
    is_shape,
    refuse,
    show,
)

MAX_CLASSES = 1_000_000
_KEYS = {PLAIN: {"v", "in", "n", "out", "t", "p", "c", "i"}}
_KEYS[PACKED] = _KEYS[COMPACT] = _KEYS[PLAIN] | {"q"}
Activations = Mapping[int, tuple[float, int]]


@dataclass(frozen=True)
class Header:
    """The contents of `__metadata__["membound"]`; `shapes` are [stored] or [stored, original], by tensor."""

    graph: Graph
    shapes: dict[str, tuple[Shape, ...]]
    preprocess: dict[str, Any] | None = None
    classes: list[str] | None = None
    version: int = PLAIN
    activations: Activations = field(default_factory=dict)


def parse_header(text: str, names: Iterable[str]) -> Header:
    """The header in this text; `names` are those of the file's tensors.

    >>> parse_header('{"v":1,"in":[4],"n":[["linear","fc"]]}', ["fc.weight"]).graph.nodes
    (Node(op='linear', inputs=(0,), attributes={}, tensors={'w': 'fc.weight'}),)
    """
    return read_header(load_fields(text), names)


def load_fields(text: str) -> dict[str, Any]:
    """The description in this text, of a version that is known, with the keys that it may have."""
    fields = load_version(text)
    unknown, missing = fields.keys() - _KEYS[fields["v"]], {"in", "n"} - fields.keys()
    if unknown or missing:  # rule 15
        what = f"lacks {show(min(missing))}" if missing else f"has the unknown key {show(min(unknown))}"
        refuse(15, f"the description of the network {what}")
    return fields


def load_version(text: str) -> dict[str, Any]:
    """What this text says, of a version that is known."""
    fields = load_json(text, "the description of the network")
    version = fields.get("v")
    if not is_int(version, 1, 2**31):  # rule 14
        refuse(14, f"the version is {show(version)}: it must be a whole number from 1 up")
    if version not in _KEYS:  # rule 14
        refuse(
            14,
            f"written by a newer membound (version {version} of the format; this one reads {COMPACT}): upgrade",
        )
    return fields


def read_header(fields: dict[str, Any], names: Iterable[str]) -> Header:
    """The header in this description; `names` are those of the file's tensors."""
    if not isinstance(fields["in"], list) or not is_shape(fields["in"]):  # rule 16
        refuse(
            16,
            f"the input has the shape {show(fields['in'])}: up to 8 sizes from 1 up, at most 2^31 - 1 elements",
        )
    known = set(names)
    nodes = _nodes(fields["n"], known)
    outputs = _outputs(fields.get("out", len(nodes)))
    first = outputs[0].value if outputs else fields.get("out", len(nodes))
    graph = Graph(tuple(fields["in"]), nodes, first, _inputs(fields.get("i", {})), outputs)
    preprocess = _preprocess(fields.get("p"), graph.input_shape) if "p" in fields else None
    classes = _classes(fields["c"]) if "c" in fields else None
    shapes = _shapes(fields.get("t", {}), known)
    return Header(
        graph, shapes, preprocess, classes, fields["v"], _activations(fields.get("q", {}), len(nodes))
    )


def _nodes(items: Any, names: set[str]) -> tuple[Node, ...]:
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_NODES:  # rule 17
        refuse(17, f"the nodes must be a list of 1 to {MAX_NODES}")
    return tuple(_node(number, item, names) for number, item in enumerate(items, 1))


_TYPES = {"float32": False, "whole": True}


def _inputs(items: Any) -> tuple[Input, ...]:
    """What each input is called, and what numbers it takes."""
    if not isinstance(items, dict) or not all(map(is_name, items)) or len(items) > MAX_PORTS:  # rule 51
        refuse(RULE_PORTS, f"the inputs are {show(items)}: an object of up to {MAX_PORTS} names is allowed")
    for name, kind in items.items():
        if not isinstance(kind, str) or kind not in _TYPES:  # rule 51
            refuse(RULE_PORTS, f"input {show(name)} is {show(kind)}: float32 and whole are allowed")
    return tuple(Input(name, _TYPES[kind]) for name, kind in items.items())


def _outputs(items: Any) -> tuple[Output, ...]:
    """Several outputs, numbered or named; of a single number none."""
    if not isinstance(items, list | dict):
        return ()
    names = items if isinstance(items, dict) else [" "]
    if not 1 <= len(items) <= MAX_PORTS or not all(map(is_name, names)):  # rule 50
        refuse(
            50, f"the outputs are {show(items)}: 1 to {MAX_PORTS} values are allowed, with names or without"
        )
    if isinstance(items, dict):
        return tuple(Output(value, name) for name, value in items.items())
    return tuple(map(Output, items))


def _node(number: int, item: Any, names: set[str]) -> Node:
    """A node from [operator, layer?, inputs?, attributes and tensors?]."""
    if not isinstance(item, list) or not item or not isinstance(item[0], str):  # rule 17
        refuse(17, f"node {number} is {show(item)}: it must be a list that starts with an operator")
    rest = list(item[1:])
    layer = rest.pop(0) if rest and isinstance(rest[0], str) else None
    inputs = rest.pop(0) if rest and isinstance(rest[0], list) else [number - 1]
    found = rest.pop(0) if rest and isinstance(rest[0], dict) else {}
    if rest:  # rule 17
        refuse(
            17,
            f"node {number} has {show(rest[0])} out of place: operator, layer, inputs, attributes is the order",
        )
    roles = OPERATORS[item[0]].roles if item[0] in OPERATORS else {}
    tensors = {role: found[role] for role in roles if role in found}
    if not all(isinstance(name, str) for name in tensors.values()) or (
        layer is not None and tensors
    ):  # rule 17
        refuse(17, f"node {number} must name its layer, or each of its tensors, by a string")
    if layer is not None:
        tensors = {"w": f"{layer}.weight"}
        if f"{layer}.bias" in names:
            tensors["b"] = f"{layer}.bias"
    attributes = {name: freeze(value) for name, value in found.items() if name not in roles}
    return Node(item[0], tuple(inputs), attributes, tensors)


def _shapes(items: Any, names: set[str]) -> dict[str, tuple[Shape, ...]]:
    """The shapes of tensors by name; the name of a layer stands for its weight."""
    if not isinstance(items, dict):  # rule 18
        refuse(18, "the shapes of tensors must be an object")
    found = {}
    for name, shapes in items.items():
        if (
            not isinstance(shapes, list) or len(shapes) not in (1, 2) or not all(map(is_shape, shapes))
        ):  # rule 18
            refuse(
                18,
                f"tensor {show(name)} has the shapes {show(shapes)}: [stored] or [stored, original] are allowed",
            )
        found[name if name in names else f"{name}.weight"] = tuple(map(tuple, shapes))
    if len(found) != len(items) or not found.keys() <= names:  # rule 18
        refuse(18, "there are shapes of a tensor that is not there, or twice those of one")
    return found


def _classes(items: Any) -> list[str]:
    """The names of classes; a number n stands for "0" to n - 1."""
    if is_int(items, 1, MAX_CLASSES):
        return list(map(str, range(items)))
    wrong = [] if not isinstance(items, list) else [i for i, name in enumerate(items) if not is_name(name)]
    if wrong:  # rule 20
        refuse(
            20,
            f"class {wrong[0]} is named {show(items[wrong[0]])}: 1 to {MAX_NAME} printable characters are allowed",
        )
    if not isinstance(items, list):  # rule 20
        refuse(20, "the classes must be their number, or a list of their names in printable characters")
    return list(items)


def _activations(items: Any, nodes: int) -> Activations:
    """The scale and the zero point of values by their numbers, which are strings in JSON."""
    if not isinstance(items, dict):  # rule 49
        refuse(49, f"the scales of activations are {show(items)}: they must be an object")
    numbers = {str(number): number for number in range(nodes + 1)}
    for name, item in items.items():
        pair = isinstance(item, list) and len(item) == 2
        if name not in numbers or not pair or not _is_positive(item[0]) or not is_int(item[1], -128, 255):
            refuse(  # rule 49
                49,
                f"value {show(name)} has the scale and zero point {show(item)}: of values 0 to {nodes}, "
                "a number above 0 and a whole number from -128 to 255 are allowed",
            )
    return {numbers[name]: (float(scale), zero) for name, (scale, zero) in items.items()}


def _preprocess(fields: Any, input_shape: Shape) -> dict[str, Any]:
    if not isinstance(fields, dict):  # rule 19
        refuse(19, f"the preprocessing is {show(fields)}: it must be an object")
    for name, value in fields.items():
        if name not in _PREPROCESS or not _PREPROCESS[name](value):  # rule 19
            refuse(19, f"the preprocessing has {show(name)} {show(value)}, which is not understood")
    for name in ("mean", "std"):
        numbers = fields.get(name)
        if isinstance(numbers, list) and len(input_shape) > 0 and len(numbers) != input_shape[0]:  # rule 19
            refuse(
                19, f"the preprocessing has a {name} of {len(numbers)} numbers for {input_shape[0]} channels"
            )
    return fields


def _is_positive(value: Any) -> bool:
    return is_number(value) and bool(np.float32(value) > 0)


def _is_list(value: Any, check: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MAX_WINDOW and all(map(check, value))


# What Preprocess.from_json accepts.
_PREPROCESS: dict[str, Callable[[Any], bool]] = {
    "scale": lambda value: is_number(value) and value != 0,
    "mean": lambda value: value == "image" or _is_list(value, is_number),
    "std": lambda value: _is_list(value, _is_positive),
    "crop": lambda value: is_int(value, 1, 2**31 - 1),
    "mirror": lambda value: isinstance(value, bool),
    "takes": lambda value: value in ("uint8", "float32"),
}


def resolve_shapes(header: Header, plain: Mapping[str, Shape]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Stored and original shapes of tensors; `plain` are the shapes of those that are dense.

    A bias that has no shapes of its own follows its weight: one for each of its rows, now and originally.
    """
    given = dict(header.shapes)
    for node in header.graph.nodes:
        weight, bias = node.tensors.get("w", ""), node.tensors.get("b")
        if bias is not None and bias not in given:
            given[bias] = follow(given.get(weight) or ((plain[weight],) if weight in plain else ()))
    stored = {name: shapes[0] for name, shapes in given.items() if shapes} | dict(plain)
    original = {name: shapes[1] for name, shapes in given.items() if len(shapes) > 1}
    return stored, original


def follow(weight: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes of a bias that follow from those of its weight.

    >>> follow(((8, 1, 5, 5), (20, 1, 5, 5))), follow(((8, 3), (8, 4)))
    (((8,), (20,)), ((8,),))
    """
    rows = [shape[:1] for shape in weight]
    return tuple(rows[:1] if len(rows) == 2 and rows[0] == rows[1] else rows)


def format_header(header: Header, sparse: set[str], packed: Collection[str] = ()) -> str:
    """The text of this header; `sparse` tensors have no shape in the container, `packed` ones say theirs themselves."""
    graph = header.graph
    fields: dict[str, Any] = {"v": header.version, "in": list(graph.input_shape)}
    fields["n"] = [_format_node(number, node, header.shapes) for number, node in enumerate(graph.nodes, 1)]
    if graph.outputs:
        named = {output.name: output.value for output in graph.outputs}
        fields["out"] = named if len(named) == len(graph.outputs) and "" not in named else list(graph.given)
    elif graph.output != len(graph.nodes):
        fields["out"] = graph.output
    if graph.inputs:
        fields["i"] = {each.name: "whole" if each.whole else "float32" for each in graph.inputs}
    tensors = _format_shapes(header, sparse, packed) or None
    scales = {str(number): list(pair) for number, pair in header.activations.items()} or None
    given = {"t": tensors, "p": header.preprocess, "c": _format_classes(header.classes), "q": scales}
    fields |= {key: value for key, value in given.items() if value is not None}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _format_classes(classes: list[str] | None) -> list[str] | int | None:
    return len(classes) if classes and classes == list(map(str, range(len(classes)))) else classes


def _format_node(number: int, node: Node, names: Mapping[str, Any]) -> list[Any]:
    item: list[Any] = [node.op]
    layer = node.tensors.get("w", "").removesuffix(".weight")
    short = {"w": f"{layer}.weight"} | ({"b": f"{layer}.bias"} if f"{layer}.bias" in names else {})
    roles = {} if dict(node.tensors) == short else dict(node.tensors)
    if node.tensors and not roles:
        item.append(layer)
    if node.inputs != (number - 1,):
        item.append(list(node.inputs))
    default = {name: freeze(each.default) for name, each in OPERATORS[node.op].attributes.items()}
    if "kernel" in default:
        default["stride"] = freeze(node.attributes["kernel"])
    said = {
        name: value
        for name, value in node.attributes.items()
        if freeze(value) != default[name] and value is not None
    }
    if roles or said:
        item.append(roles | said)
    return item


def _format_shapes(header: Header, sparse: set[str], packed: Collection[str]) -> dict[str, list[Shape]]:
    """The shapes that do not follow from the container or, for a bias, from its weight."""
    biases: dict[str, tuple[Shape, ...]] = {}
    for node in header.graph.nodes:
        if "b" in node.tensors and "w" in node.tensors:
            biases.setdefault(node.tensors["b"], follow(header.shapes[node.tensors["w"]]))
    said = {}
    for name, shapes in header.shapes.items():
        if name in packed:
            continue
        if shapes != biases[name] if name in biases else name in sparse or len(shapes) > 1:
            layer = name.removesuffix(".weight")
            said[name if layer in header.shapes else layer] = list(shapes)
    return said
