"""What every layer takes on the device, as records."""

from collections.abc import Sequence
from typing import Any

from membound.micro.cost import estimate
from membound.micro.integers import Op
from membound.micro.layout import sum_bytes
from membound.micro.plan import MicroPlan


def list_layers(plan: MicroPlan, level: str) -> list[dict[str, Any]]:
    """Of each operation its constants in flash, its rows in RAM (padding and 32-bit sums included) and its work."""
    net, buffers = plan.net, plan.layout.buffers
    return [
        {
            "name": _name_op(net.ops, number),
            "operation": _say_operation(op),
            "flash_bytes": plan.flash_of(number),
            "row_bytes": buffers[op.output].nbytes + sum_bytes(op),
            "rows": buffers[op.output].rows,
            "height": net.images[op.output][1],
            "multiplications": plan.multiplications(number),
            "instructions": estimate(plan, level, number).instructions,
        }
        for number, op in enumerate(net.ops)
    ]


def list_beside(plan: MicroPlan) -> list[dict[str, Any]]:
    """What the arena holds beside the rows of layers: rows of the input, and the working room of convolutions."""
    buffer, working = plan.layout.buffers[0], plan.layout.working_bytes
    found: list[dict[str, Any]] = [
        {
            "name": "input",
            "operation": "rows that are fed",
            "row_bytes": buffer.nbytes,
            "rows": buffer.rows,
            "height": plan.net.images[0][1],
        }
    ]
    if working:
        found.append(
            {
                "name": "working room",
                "operation": "32-bit sums and decoded weights",
                "row_bytes": working,
                "rows": None,
                "height": None,
            }
        )
    return found


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
