# What nanobind's stub generator cannot know about src/membound/_core.pyi:
#   python -m nanobind.stubgen -m membound._core -p src/kernels/core.pat -o src/membound/_core.pyi

membound._core.version:
    version: str

membound._core.project:
    \from numpy import float32
    \from numpy.typing import NDArray
    def project(array: NDArray[float32], t: int, isa: str | None = None, threads: int = 0) -> int:
        \doc

membound._core.Network.__init__:
    \from typing import Any
    def __init__(self, plans: list[dict[str, Any]], input_shape: Sequence[int], output: int, max_batch: int = 1, threads: int = 0, concurrency: int = 1, isa: str | None = None) -> None: ...

membound._core.Network.run:
    def run(self, input: NDArray[float32], output: NDArray[float32], batch: int) -> None:
        \doc

membound._core.Network.memory:
    def memory(self) -> tuple[int, int, int]:
        \doc
