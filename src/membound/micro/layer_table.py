"""What every layer takes on the device, as records."""

from collections.abc import Sequence
from typing import Any

from membound.micro.cost import estimate
from membound.micro.integers import Op
from membound.micro.plan import MicroPlan


def list_layers(plan: MicroPlan, level: str) -> list[dict[str, Any]]:
    """Of each operation its constants in flash, its rows in RAM (padding included) and its work, in order."""
    net, buffers = plan.net, plan.layout.buffers
    return [
        {
            "name": _name_op(net.ops, number),
            "operation": _say_operation(op),
            "flash_bytes": plan.flash_of(number),
            "row_bytes": buffers[op.output].nbytes,
            "rows": buffers[op.output].rows,
            "height": net.images[op.output][1],
            "multiplications": plan.multiplications(number),
            "instructions": estimate(plan, level, number).instructions,
        }
        for number, op in enumerate(net.ops)
    ]


def _name_op(ops: Sequence[Op], number: int) -> str:
    """A layer by its name; what has no weights by the layer that it comes after, since a file has no name of it."""
    op = ops[number]
    before = [each.name for each in ops[:number] if each.weight is not None]
    if op.weight is not None:
        return op.name
    kind = op.name.partition(" ")[0]
    return f"{kind} after {before[-1]}" if before else kind


def _say_operation(op: Op) -> str:
    kind = "linear" if op.linear else op.kind
    return kind if op.then == "store" else f"{kind} + {op.then}"
