"""About how many instructions a layer takes on a Cortex-M3, by what it does: within a tenth of what was counted.

The numbers are those of the loops of the runtime, compiled by gcc with -O2: results/micro.json has what emulated boards
count, and a test compares. Instructions are not cycles.
"""

from membound.micro.integers import Op
from membound.micro.plan import MicroPlan

# Of a multiplication: 8 outputs at a time, the pairs that are left over, and the last one.
EIGHT, PAIR, LAST = 2.2, 4.8, 7.2
VALUE = 34.0  # to decode a value of a weight: once for each row of outputs,
MOVE = 28.0  # and to go on to another row or column of the kernel
ROW = 420.0  # of outputs of a channel
OUTPUT = 14.0  # from a sum to int8
SUMMED = 14.0  # of an output of an addition
POOLED = 23.0  # of an element of a window


def instructions(plan: MicroPlan, number: int) -> int:
    """Of one operation for one image, in about."""
    op = plan.net.ops[number]
    rows, width = op.size
    outputs = rows * width * op.channels
    total = 0.0
    if op.kind == "conv":
        each = 8 * (width // 8) * EIGHT + (width % 8 // 2 * 2) * PAIR + width % 2 * LAST
        assert op.weight is not None
        moves = int((op.weight != 0).any(1).sum())
        total += rows * (plan.weights[number].count * (each + VALUE) + MOVE * moves)
        total += rows * op.channels * ROW + outputs * OUTPUT
    if op.kind == "sum" or op.then == "sum":
        total += SUMMED * outputs
    if op.kind == "table":
        total += POOLED * outputs
    if op.pool is not None:
        total += POOLED * _pooled(op)
    return round(total)


def all_instructions(plan: MicroPlan) -> int:
    """Of one image, in about."""
    return sum(instructions(plan, number) for number in range(len(plan.net.ops)))


def _pooled(op: Op) -> int:
    """Elements of all windows of a pool."""
    assert op.pool is not None
    kernel = op.pool.window.kernel
    return op.channels * op.pool.size[0] * op.pool.size[1] * kernel[0] * kernel[1]
