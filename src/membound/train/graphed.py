"""Work on a GPU, recorded once and replayed: launching one graph costs less than launching its kernels."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

WARM_UPS = 3  # torch asks for some before a recording, on a stream of their own


class Recorded:
    """A graph and the tensors that it reads: a call copies new values into them and replays it."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: Sequence[Tensor]) -> None:
        self.graph, self.inputs = graph, inputs

    def __call__(self, *values: Tensor) -> None:
        for own, value in zip(self.inputs, values, strict=True):
            own.copy_(value, non_blocking=True)
        self.graph.replay()


def record(
    work: Callable[..., object],
    values: Sequence[Tensor],
    *,
    model: nn.Module,
    kept: Sequence[Tensor] = (),
    warm_up: Callable[..., object],
) -> Recorded | None:
    """`work(*values)` as a graph, or None if it looks at values on the host, which cannot be recorded.

    Nothing of it happens yet: what `warm_up(*values)` does to the model's buffers and to the tensors in `kept` is
    undone.
    """
    before = [(value, value.clone()) for value in (*model.buffers(), *kept)]
    inputs = [value.clone() for value in values]
    stream = torch.cuda.current_stream()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(stream)
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            warm_up(*inputs)
    stream.wait_stream(side)
    model.zero_grad(set_to_none=True)
    # A workspace of matrix products belongs to a stream, of which torch has 32 that it hands out in turn: without this,
    # graphs of several networks could have one in common, and disturb each other when they are replayed side by side.
    torch._C._cuda_clearCublasWorkspaces()
    graph = torch.cuda.CUDAGraph()
    failed = False
    try:
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            work(*inputs)
    except RuntimeError:
        torch.cuda.synchronize()
        failed = True
    torch._C._cuda_clearCublasWorkspaces()
    stream.wait_stream(side)
    with torch.no_grad():
        for value, was in before:
            value.copy_(was)
    return None if failed else Recorded(graph, inputs)


def draws_random_numbers(model: nn.Module) -> bool:
    """Whether a training step of `model` draws random numbers, as dropout does."""
    return any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in model.modules())
