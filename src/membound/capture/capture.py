"""capture(): the network as it will be stored and run, from the module as it was trained."""

from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from membound.capture.convert import convert
from membound.capture.export import FIXED, OTHER_BATCH, check_batches, export, private_copy
from membound.capture.simplify import simplify_
from membound.capture.tidy import tidy_
from membound.errors import ModelError
from membound.store.model import Model
from membound.store.shapes import infer_shapes


def capture(module: nn.Module, example_input: Tensor | NDArray[Any], *, simplify: bool = True) -> Model:
    """The graph and the weights of `module`, in eval mode; the module itself is not touched.

    `example_input` is a batch of any size, float32; its values do not matter. The size of the batch stays free.
    With `simplify`, channels that cannot matter are left out, exactly: those whose weights nobody reads or
    that are constant; `original_shapes` has the shapes that weights had before.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    >>> with torch.no_grad():
    ...     _ = net[0].weight[2:].zero_(), net[0].bias[2:].fill_(-1)
    >>> model = capture(net, torch.zeros(1, 1, 8, 8))
    >>> [node.op for node in model.graph.nodes]
    ['conv', 'reshape', 'linear']
    >>> model.tensors["3.weight"].shape, model.original_shapes["3.weight"]
    ((10, 72), (10, 288))
    """
    private = private_copy(module)
    exported = export(private, example_input)
    draft = convert(exported)
    if isinstance(exported.batch, int):
        other = convert(export(private, example_input, OTHER_BATCH))
        if draft.graph() != other.graph():
            raise ModelError(FIXED)
    check_batches(private, example_input)
    tidy_(draft)
    if not draft.nodes:
        raise ModelError("the network computes nothing: its output is its input")
    if simplify:
        simplify_(draft)
    model = Model(draft.graph(), draft.tensors, draft.original_shapes)
    infer_shapes(model.graph, {name: tensor.shape for name, tensor in model.tensors.items()})
    return model
