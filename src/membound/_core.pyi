"""The compiled core of membound."""

import numpy as np
from numpy.typing import NDArray

version: str

def isas() -> list[str]:
    """The instruction sets available here, best last."""

def isa() -> str:
    """The instruction set in use: the best, or the one that MEMBOUND_ISA names."""

def project(array: NDArray[np.float32], t: int, isa: str | None = None, threads: int = 0) -> int:
    """Keep the t values of largest magnitude, in place, and set all others to +0.0.

    Of equal magnitudes the earlier are kept; zeros never are. Returns how many are kept, or -1, with
    nothing written, if a value is infinite or NaN. threads = 0 uses every CPU.
    """
