"""What of the runtime a planned network uses, and what that takes."""

from membound.micro.code import SMALL, Code, Features, code_for, parts_of
from membound.micro.plan import MicroPlan


def features(plan: MicroPlan) -> Features:
    """What of the runtime a network uses."""
    return parts_of(plan.net.ops, [packed.sparse for packed in plan.weights.values()])


def code_of(plan: MicroPlan, level: str = SMALL) -> Code:
    """What the runtime takes for a network, and the functions of its net.c."""
    return code_for(features(plan), level)


def constants_of(plan: MicroPlan, level: str = SMALL) -> int:
    """Bytes of a network's constants: above -Os, gcc begins every array at a multiple of 4."""
    return plan.flash_bytes + (0 if level == SMALL else plan.padding_bytes)
