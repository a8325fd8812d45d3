"""Activations that are tables: which a network has, by the names that people know, and what they take of flash."""

from collections import Counter
from collections.abc import Iterable

from membound.micro.integers import Op

TABLE_BYTES = 256  # a number for each int8; every layer has a table of its own, since their scales differ
KNOWN_AS = {
    "relu": "ReLU", "leaky": "LeakyReLU", "silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU", "sigmoid": "Sigmoid",
    "tanh": "Tanh", "hardswish": "Hardswish", "hardsigmoid": "Hardsigmoid", "elu": "ELU", "mish": "Mish",
    "softplus": "Softplus",
}  # fmt: skip


def tables_of(ops: Iterable[Op]) -> dict[str, int]:
    """How many tables each activation has."""
    acts = (op.act for op in ops if op.rescale is not None and op.rescale.table is not None)
    return dict(Counter(KNOWN_AS.get(act, act) for act in acts))
