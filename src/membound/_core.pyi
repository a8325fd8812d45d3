"""The compiled core of membound."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

version: str

def isas() -> list[str]:
    """The instruction sets available here, best last."""

def isa() -> str:
    """The instruction set in use: the best, or the one that MEMBOUND_ISA names."""

def known_isas() -> list[str]:
    """Every instruction set that there are kernels for, here or elsewhere."""

def project(array: NDArray[np.float32], t: int, isa: str | None = None, threads: int = 0) -> int:
    """Keep the t values of largest magnitude, in place, and set all others to +0.0.

    Of equal magnitudes the earlier are kept; zeros never are. Returns how many are kept, or -1, with
    nothing written, if a value is infinite or NaN. threads = 0 uses every CPU.
    """

class Network:
    """A planned network: one call runs all of it."""

    def __init__(
        self,
        plans: list[dict[str, Any]],
        input_shape: Sequence[int],
        output: int,
        max_batch: int = 1,
        threads: int = 0,
        concurrency: int = 1,
        isa: str | None = None,
    ) -> None: ...
    def run(self, input: NDArray[np.float32], output: NDArray[np.float32], batch: int) -> None:
        """Run a batch: contiguous float32 arrays in and out. The GIL is released."""

    def time(self, input: NDArray[np.float32], output: NDArray[np.float32], batch: int) -> list[float]:
        """Run a batch, and say how many seconds each operator took."""

    def memory(self, isa: str | None = None, max_batch: int = 0, threads: int = 0) -> tuple[int, int, int]:
        """Bytes of the load-time tables and of an arena, and how many arenas: here, or on any instruction set."""
