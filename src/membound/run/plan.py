"""A stored network as the plan that the compiled core takes: one dictionary for each node.

It has the operator's name, the values and shapes that it has to do with, its `weight` and `constants` (a bias, or an
operand) where it has such; everything else is a list of numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from membound.store.formats import Encoded, decode
from membound.store.graph import Node, Shape
from membound.store.model import StoredModel
from membound.store.operators import attributes

# The orders of the enumerations in src/kernels/net_kernels.h and weight.h.
ACTIVATIONS = (
    "none",
    "relu",
    "leaky",
    "clip",
    "silu",
    "gelu",
    "gelu_tanh",
    "sigmoid",
    "tanh",
    "hardswish",
    "hardsigmoid",
    "elu",
)
BINARY = ("add", "sub", "mul", "div")
FORMATS = ("dense", "bitmask", "indexed", "csr", "delta")

Plan = dict[str, Any]
Tensors = Mapping[str, Encoded]


def plan(model: StoredModel) -> list[Plan]:
    """What each node does, with its shapes and arrays."""
    plans = []
    for number, node in enumerate(model.graph.nodes, 1):
        shapes = [model.shapes[value] for value in node.inputs]
        output = model.shapes[number]
        extra = _PLANNERS[node.op](node, shapes, output, model.tensors)
        about = {"op": node.op, "inputs": list(node.inputs)}
        plans.append(
            {**about, "input_shapes": [list(s) for s in shapes], "output_shape": list(output)} | extra
        )
    _fold_padding(plans, model.graph.output)
    return [
        {key: value if key in _NO_NUMBERS else _numbers(value) for key, value in p.items()} for p in plans
    ]


_NO_NUMBERS = ("op", "inputs", "input_shapes", "output_shape", "weight", "constants")


def _numbers(value: Any) -> list[float]:
    """A number, or numbers in lists of any depth, as one list."""
    return (
        [n for each in value for n in _numbers(each)] if isinstance(value, list | tuple) else [float(value)]
    )


def _fold_padding(plans: list[Plan], output: int) -> None:
    """Convolutions pad as they read: a node that only adds zeros around their images has nothing left to do."""
    for number, padding in enumerate(plans, 1):
        if padding["op"] != "pad" or number == output:
            continue
        readers = [plan for plan in plans if number in plan["inputs"]]
        around = padding["value"] == 0 and len(padding["pad"]) == 3 and not any(padding["pad"][0])
        if not around or any(plan["op"] != "conv" for plan in readers):
            continue
        (top, _), (left, _) = padding["pad"][1:]
        for plan in readers:
            plan["inputs"], plan["input_shapes"] = padding["inputs"], padding["input_shapes"]
            plan["window"][4] += top
            plan["window"][5] += left
        padding["op"] = "folded"  # the value keeps its number, and no room


def _weight(tensor: Encoded) -> Plan:
    return {
        "format": FORMATS.index(tensor.format),
        "rows": tensor.matrix.rows,
        "columns": tensor.matrix.columns,
        "entries": tensor.values.size,
        "half": tensor.values.dtype == np.float16,
        "values": tensor.values,
        "index": tensor.arrays[0] if tensor.arrays else None,
        "index_bytes": tensor.arrays[0].itemsize if tensor.arrays else 0,
        "pointers": tensor.arrays[1] if len(tensor.arrays) > 1 else None,
        "pointer_bytes": tensor.arrays[1].itemsize if len(tensor.arrays) > 1 else 0,
    }


def _dense(tensor: Encoded) -> Any:
    return np.ascontiguousarray(decode(tensor).reshape(-1))


def _activation(attribute: Any) -> list[float]:
    name, *numbers = attribute or ["none"]
    return [ACTIVATIONS.index(name), *numbers, *[0.0] * (2 - len(numbers))]


def _product(node: Node, tensors: Tensors) -> Plan:
    plan = {"weight": _weight(tensors[node.tensors["w"]]), "act": _activation(attributes(node)["act"])}
    return plan | ({"constants": _dense(tensors[node.tensors["b"]])} if "b" in node.tensors else {})


def _conv(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    a = attributes(node)
    kernel = tensors[node.tensors["w"]].shape[2:]
    window = [*kernel, *a["stride"], *a["pad"][:2], *a["dilation"]]
    return {"window": window, "groups": a["groups"]} | _product(node, tensors)


def _linear(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    return _product(node, tensors)


def _max_pool(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    a = attributes(node)
    return {"window": [*a["kernel"], *(a["stride"] or a["kernel"]), *a["pad"][:2], *a["dilation"]]}


def _average_pool(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    a = attributes(node)
    _, height, width = inputs[0]
    number = 0 if isinstance(a["count"], str) else a["count"]
    count = [a["count"] == "valid", height + a["pad"][2], width + a["pad"][3], number]
    return {"window": [*a["kernel"], *(a["stride"] or a["kernel"]), *a["pad"][:2], 1, 1], "count": count}


def _binary(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    a = attributes(node)
    plan: Plan = {
        "op": "binary",
        "kind": BINARY.index(node.op),
        "swap": a["swap"],
        "act": _activation(a["act"]),
    }
    if len(inputs) == 2:
        return plan
    if "c" in node.tensors:
        constant = tensors[node.tensors["c"]]
        return plan | {"constants": _dense(constant), "constant_shape": list(constant.shape)}
    value = np.array([a["value"]], np.float32)
    return plan | {"constants": value, "constant_shape": [1] * len(output)}


def _adaptive(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    return {"average": attributes(node)["kind"] == "avg"}


def _activate(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
    return {"act": _activation(attributes(node)["act"])}


def _attributes(*names: str) -> Callable[[Node, list[Shape], Shape, Tensors], Plan]:
    """For operators whose attributes say all."""

    def chosen(node: Node, inputs: list[Shape], output: Shape, tensors: Tensors) -> Plan:
        a = attributes(node)
        return {name: a[name] for name in names}

    return chosen


_PLANNERS: dict[str, Callable[[Node, list[Shape], Shape, Tensors], Plan]] = {
    "conv": _conv,
    "linear": _linear,
    "maxpool": _max_pool,
    "avgpool": _average_pool,
    "adaptive": _adaptive,
    "lrn": _attributes("size", "alpha", "beta", "k"),
    "act": _activate,
    "add": _binary,
    "sub": _binary,
    "mul": _binary,
    "div": _binary,
    "concat": _attributes("axis"),
    "reshape": _attributes(),
    "permute": _attributes("axes"),
    "slice": _attributes("axis", "start", "step"),
    "mean": _attributes("axes"),
    "softmax": _attributes("axis", "log"),
    "pad": _attributes("pad", "value"),
}
