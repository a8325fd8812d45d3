"""The compiled core of membound."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import numpy.typing


version: str = '0.1.0'

def isas() -> list[str]:
    """The instruction sets available here, best last."""

def isa() -> str:
    """
    The instruction set in use: the best, or the one that MEMBOUND_ISA names.
    """

def project(array: numpy.typing.NDArray[numpy.float32], t: int, isa: str | None = None, threads: int = 0) -> int:
    """
    Keep the t values of largest magnitude, in place, and set all others to +0.0.

    Of equal magnitudes the earlier are kept; zeros never are. Returns how many are kept, or -1, with
    nothing written, if a value is infinite or NaN. threads = 0 uses every CPU.
    """

class Matrix:
    """
    A weight in the layout and type of values that it is stored in; the arrays are kept, palette and scales copied.
    """

    def __init__(self, layout: str, values_type: str, rows: int, columns: int, entries: int, values: numpy.typing.NDArray[Any], arrays: Sequence[numpy.typing.NDArray[Any]], palette: numpy.typing.NDArray[numpy.float32] | None = None, scales: numpy.typing.NDArray[numpy.float32] | None = None, parameter: int = 0) -> None:
        """
        The arrays of rice are the high and the low parts of its gaps, its parameter the bits of a low part. Codes
        (p1 to p8) have a palette of up to as many entries as there are codes; each row is multiplied by its scale.
        """

class OpPlan:
    """An operator with its shapes, numbers and tensors."""

    def __init__(self, op: str, inputs: Sequence[int], input_shapes: Sequence[Sequence[int]], output_shape: Sequence[int], activation: str, activation_numbers: Sequence[float], numbers: Mapping[str, Sequence[float]], weight: Matrix | None, tables: Mapping[str, numpy.typing.NDArray[numpy.float32]]) -> None: ...

class Network:
    """A planned network: one call runs all of it."""

    def __init__(self, plans: Sequence[OpPlan], input_shape: Sequence[int], outputs: Sequence[int], max_batch: int = 1, threads: int = 0, concurrency: int = 1, isa: str | None = None) -> None: ...

    def run(self, inputs: Sequence[numpy.typing.NDArray[numpy.float32]], outputs: Sequence[numpy.typing.NDArray[numpy.float32]], batch: int) -> None:
        """
        Run a batch: contiguous float32 arrays in and out, one for each input and output. The GIL is released.
        """

    def time(self, inputs: Sequence[numpy.typing.NDArray[numpy.float32]], outputs: Sequence[numpy.typing.NDArray[numpy.float32]], batch: int) -> list[float]:
        """Run a batch, and say how many seconds each operator took."""

    def memory(self, isa: str | None = None, max_batch: int = 0, threads: int = 0) -> tuple[int, int, int]:
        """
        Bytes of the load-time tables and of an arena, and how many arenas: here, or on any instruction set.
        """

def operators() -> list[str]:
    """The operators that it runs."""

def layouts() -> list[str]:
    """The layouts of positions that it reads."""

def value_types() -> list[str]:
    """The types of values that it reads."""

def activations() -> list[str]:
    """The activations that it knows."""

def known_isas() -> list[str]:
    """Every instruction set that there are kernels for, here or elsewhere."""

class Micro:
    """A network in integers, run by the C sources of microcontrollers."""

    def __init__(self, net: dict[str, object], values: list[dict[str, object]], ops: list[dict[str, object]], arena_bytes: int) -> None: ...

    def run(self, images: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[numpy.int8], pixels: bool) -> None:
        """Run images [n, numbers] of bytes; the outputs are written."""
