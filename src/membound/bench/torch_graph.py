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
        self.output = model.graph.output
        self.steps: list[tuple[Step, tuple[int, ...]]] = []
        for node in model.graph.nodes:
            named = {role: weights[name] for role, name in node.tensors.items()}
            self.steps.append((step(node, named), node.inputs))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for compute, inputs in self.steps:
            values.append(compute(*(values[number] for number in inputs)))
        out = values[self.output]
        return out.expand(len(x), *out.shape[1:])  # a constant is a batch of one
