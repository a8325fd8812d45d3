"""How large a weight is: the bits of a float without its sign, as an integer, which order as magnitudes do."""

import torch

from membound.errors import RuleError

# The unsigned part of each float type as an integer: (integer type, bits without the sign, bits of infinity).
BITS = {
    torch.float32: (torch.int32, 0x7FFF_FFFF, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    torch.float16: (torch.int16, 0x7FFF, 0x7C00),
    torch.bfloat16: (torch.int16, 0x7FFF, 0x7F80),
}


class NonFiniteError(ValueError):
    """A weight is NaN or infinite, so that magnitudes mean nothing."""


def bits_of(dtype: torch.dtype) -> tuple[torch.dtype, int, int]:
    """The integer type of a float type, its bits without the sign, and the bits of infinity."""
    if dtype not in BITS:
        raise RuleError(
            f"l0_project needs weights of type float32, float64, float16 or bfloat16, not {dtype}"
        )
    return BITS[dtype]
