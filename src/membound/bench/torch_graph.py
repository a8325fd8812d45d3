"""A stored network as a torch module, dense: what torch itself does with it, operation by operation."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from membound.capture.torch_graph import Step, step
from membound.store.model import StoredModel


class GraphModule(nn.Module):
    """The graph of `model` with dense weights from an .npz, which numbers them in the order of the model's tensors."""

    def __init__(self, model: StoredModel, arrays: Path) -> None:
        super().__init__()
        with np.load(arrays, allow_pickle=False) as found:
            weights = {
                name: torch.from_numpy(found[f"arr_{number}"]) for number, name in enumerate(model.tensors)
            }
        self.inputs, self.outputs = model.graph.taken, model.graph.given
        self.steps: list[tuple[Step, tuple[int, ...]]] = []
        for node in model.graph.nodes:
            named = {role: weights[name] for role, name in node.tensors.items()}
            self.steps.append((step(node, named) if node.op != "input" else _given, node.inputs))

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        known = {number: _numbers(x) for number, x in zip(self.inputs, given, strict=True)}
        values = [known[0]]
        for number, (compute, inputs) in enumerate(self.steps, 1):
            values.append(known[number] if number in known else compute(*(values[each] for each in inputs)))
        batch = len(given[0])  # a constant is a batch of one
        return tuple(values[number].expand(batch, *values[number].shape[1:]) for number in self.outputs)


def _given(*inputs: Tensor) -> Tensor:
    raise AssertionError("an input is not computed")


def _numbers(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.float()
