"""A training step on a GPU, recorded once and replayed: launching one graph costs less than launching its kernels."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

WARM_UPS = 3  # torch asks for some before a recording, on a stream of their own


class Recorded:
    """`compute(*inputs)`, a forward and backward pass of `model`, and `update()`: a graph from the second call on.

    The first call only computes: it leaves the update to its caller, so that whatever an optimizer makes at its first
    step is there when the graph is recorded. The gradients are written over at every replay. What warm-ups do to the
    model's buffers and to the tensors in `kept` is undone. What cannot be recorded, since it looks at values on the
    host, is computed call by call.
    """

    def __init__(
        self,
        compute: Callable[..., object],
        model: nn.Module,
        kept: Sequence[Tensor],
        update: Callable[[], None] | None = None,
    ) -> None:
        self.compute, self.model, self.kept, self.update = compute, model, kept, update
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []

    def __call__(self, *values: Tensor) -> bool:
        """Compute; whether the update was made, too."""
        self.calls += 1
        if self.calls == 2:
            self.inputs = [value.clone() for value in values]
            self.graph = self._record()
        if self.graph is None:
            self.compute(*values)
            return False
        for own, value in zip(self.inputs, values, strict=True):
            own.copy_(value, non_blocking=True)
        self.graph.replay()
        return self.update is not None

    def _record(self) -> torch.cuda.CUDAGraph | None:
        before = [(value, value.clone()) for value in (*self.model.buffers(), *self.kept)]
        stream = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.compute(*self.inputs)
        stream.wait_stream(side)
        self.model.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        failed = False
        try:
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                self.compute(*self.inputs)
                if self.update is not None:
                    self.update()
        except RuntimeError:
            torch.cuda.synchronize()
            failed = True
        stream.wait_stream(side)
        with torch.no_grad():
            for value, was in before:
                value.copy_(was)
        return None if failed else graph


def draws_random_numbers(model: nn.Module) -> bool:
    """Whether a training step of `model` draws random numbers, as dropout does."""
    return any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in model.modules())
