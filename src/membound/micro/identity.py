"""Which network it is: a number that a device can report, and that the model file gives, too."""

from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from membound.micro.integers import IntegerNet


def identify(net: IntegerNet) -> str:
    """8 hexadecimal digits, from all numbers that outputs depend on; names, layout and form of weights are left out.

    >>> from membound.micro.arithmetic import Quantization
    >>> one, other = (IntegerNet([], [], [Quantization(scale, 0)], 0, [], True, "") for scale in (0.5, 0.25))
    >>> len(identify(one)), identify(one) == identify(other)
    (8, False)
    """
    return sha256(_text(net).encode()).hexdigest()[:8]


def _text(part: Any) -> str:
    """The same for the same numbers on every machine."""
    if isinstance(part, np.ndarray):
        return f"{part.shape}{part.astype(np.int64).tolist()}"
    if is_dataclass(part):
        return "".join(
            f"{field.name}:{_text(getattr(part, field.name))};"
            for field in fields(part)
            if field.name not in ("name", "dropped", "act", "linear")
        )
    if isinstance(part, list | tuple):
        return f"[{','.join(map(_text, part))}]"
    return str(part.item() if isinstance(part, np.generic) else part)
