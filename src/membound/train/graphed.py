"""A computation on a GPU, recorded once and replayed: launching one graph costs less than launching its kernels."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

WARM_UPS = 3  # torch asks for some before a recording, on a stream of their own


class Recorded:
    """`compute(*inputs)`, a forward and backward pass of `model`, as a CUDA graph from the first call on.

    The gradients that it leaves are written over at every replay. What warm-ups and recording do to the model's
    buffers and to the tensors in `kept` is undone. What cannot be recorded, since it looks at values on the host, is
    computed call by call.
    """

    def __init__(self, compute: Callable[..., None], model: nn.Module, kept: Sequence[Tensor]) -> None:
        self.compute, self.model, self.kept = compute, model, kept
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] | None = None

    def __call__(self, *values: Tensor) -> None:
        if self.inputs is None:
            self.inputs = [value.clone() for value in values]
            self._record()
        if self.graph is None:
            self.compute(*values)
            return
        for own, value in zip(self.inputs, values, strict=True):
            own.copy_(value, non_blocking=True)
        self.graph.replay()

    def _record(self) -> None:
        assert self.inputs is not None
        before = [(value, value.clone()) for value in (*self.model.buffers(), *self.kept)]
        stream, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.compute(*self.inputs)
        stream.wait_stream(side)
        self.model.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                self.compute(*self.inputs)
            self.graph = graph
        except RuntimeError:
            torch.cuda.synchronize()
        stream.wait_stream(side)
        with torch.no_grad():
            for value, was in before:
                value.copy_(was)


def draws_random_numbers(model: nn.Module) -> bool:
    """Whether a training step of `model` draws random numbers, as dropout does."""
    return any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in model.modules())
