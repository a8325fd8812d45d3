"""A stored network as the plan that the compiled core takes: one record for each node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.formats import Encoded, decode
from membound.store.graph import Node, Shape
from membound.store.model import StoredModel
from membound.store.operators import BINARY, OPERATORS, attributes
from membound.store.record import Given
from membound.store.resampling import taps

Numbers = Mapping[str, Any]  # by name: a number, or numbers in lists of any depth
Table = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Planned:
    """What one node does: its shapes, the weight that it computes on as stored, and its other tensors, dense."""

    op: str
    inputs: tuple[int, ...]
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    act: tuple[Any, ...] = ("none",)
    numbers: Numbers = field(default_factory=dict)
    weight: Encoded | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)


def plan(model: StoredModel, engine: str = "float") -> list[Planned]:
    """What each node does, with its shapes and arrays; of the engine int8, which convolutions may be in 8 bits."""
    plans = [_plan(model, *each) for each in enumerate(model.graph.nodes, 1)]
    if engine == "int8":
        plans = [replace(p, numbers={**p.numbers, "int8": 1}) if p.op == "conv" else p for p in plans]
    return _fold_padding(plans, model.graph.given)


def _plan(model: StoredModel, number: int, node: Node) -> Planned:
    a, roles = attributes(node), OPERATORS[node.op].roles
    tensors = {role: model.tensors[name] for role, name in node.tensors.items()}
    made = Planned(
        node.op,
        node.inputs,
        tuple(model.shapes[value] for value in node.inputs),
        model.shapes[number],
        a.get("act") or ("none",),
        weight=next((tensor for role, tensor in tensors.items() if roles[role].as_stored), None),
        tables={role: _dense(tensor) for role, tensor in tensors.items() if not roles[role].as_stored},
    )
    return PLANNERS[node.op](made, a, tensors)


def flat(value: Any) -> list[float]:
    """A number, or numbers in lists of any depth, as one list."""
    return [n for each in value for n in flat(each)] if isinstance(value, list | tuple) else [float(value)]


def _fold_padding(plans: list[Planned], outputs: tuple[int, ...]) -> list[Planned]:
    """Convolutions pad as they read: a node that only adds zeros around their images has nothing left to do."""
    for number, padding in enumerate(plans, 1):
        if padding.op != "pad" or number in outputs:
            continue
        pads, readers = padding.numbers["pad"], [plan for plan in plans if number in plan.inputs]
        around = padding.numbers["value"] == 0 and len(pads) == 3 and not any(pads[0])
        if not around or any(plan.op != "conv" for plan in readers):
            continue
        plans = [_read_through(plan, padding) if number in plan.inputs else plan for plan in plans]
        plans[number - 1] = replace(padding, op="folded")  # the value keeps its number, and no room
    return plans


def _read_through(conv: Planned, padding: Planned) -> Planned:
    (top, _), (left, _) = padding.numbers["pad"][1:]
    window = list(conv.numbers["window"])
    window[4], window[5] = window[4] + top, window[5] + left
    return replace(
        conv,
        inputs=padding.inputs,
        input_shapes=padding.input_shapes,
        numbers={**conv.numbers, "window": window},
    )


def _dense(tensor: Encoded) -> Table:
    return np.ascontiguousarray(decode(tensor).reshape(-1))


# What the core wants to know of each operator, beyond what all have.

Tensors = Mapping[str, Encoded]
Planner = Callable[[Planned, Given, Tensors], Planned]


def _conv(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    window = [*tensors["w"].shape[2:], *a["stride"], *a["pad"][:2], *a["dilation"]]
    return replace(plan, numbers={"window": window, "groups": a["groups"]})


def _max_pool(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    return replace(plan, numbers={"window": [*a["kernel"], *a["stride"], *a["pad"][:2], *a["dilation"]]})


def _average_pool(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    _, height, width = plan.input_shapes[0]
    number = 0 if isinstance(a["count"], str) else a["count"]
    count = [a["count"] == "valid", height + a["pad"][2], width + a["pad"][3], number]
    return replace(
        plan, numbers={"window": [*a["kernel"], *a["stride"], *a["pad"][:2], 1, 1], "count": count}
    )


def _adaptive(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    return replace(plan, numbers={"average": a["kind"] == "avg"})


def _binary(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    if len(plan.inputs) == 2:
        return replace(plan, numbers={"swap": a["swap"]})
    if "c" in tensors:
        return replace(plan, numbers={"swap": a["swap"], "constant_shape": tensors["c"].shape})
    ones = (1,) * len(plan.output_shape)
    return replace(
        plan,
        numbers={"swap": a["swap"], "constant_shape": ones},
        tables={"c": np.array([a["value"]], np.float32)},
    )


def _resize(plan: Planned, a: Given, tensors: Tensors) -> Planned:
    numbers: dict[str, Any] = {}
    for axis, name in ((0, "row"), (1, "column")):
        sizes = (plan.input_shapes[0][1 + axis], a["size"][axis])
        places, weights = taps(
            *sizes, a["kind"], a["corners"], None if a["scale"] is None else a["scale"][axis]
        )
        numbers |= {f"{name}s": places.reshape(-1).tolist(), f"{name}_weights": weights.reshape(-1).tolist()}
    return replace(plan, numbers=numbers)


def _take(*names: str) -> Planner:
    """For operators whose attributes say all."""
    return lambda plan, a, tensors: replace(plan, numbers={name: a[name] for name in names})


PLANNERS: Mapping[str, Planner] = {
    "conv": _conv,
    "linear": _take(),
    "maxpool": _max_pool,
    "avgpool": _average_pool,
    "adaptive": _adaptive,
    "upsample": _take("factor"),
    "lrn": _take("size", "alpha", "beta", "k"),
    "layernorm": _take("last", "eps"),
    "act": _take(),
    **{operator.name: _binary for operator in BINARY},
    "concat": _take("axis"),
    "reshape": _take(),
    "permute": _take("axes"),
    "slice": _take("axis", "start", "step"),
    "mean": _take("axes"),
    "softmax": _take("axis", "log"),
    "pad": _take("pad", "value"),
    "max": _take("axes"),
    "gather": _take("axis", "indices"),
    "resize": _resize,
    "matmul": _take("transpose", "scale"),
    "constant": _take(),
    "input": _take(),
    "embedding": _take(),
}
