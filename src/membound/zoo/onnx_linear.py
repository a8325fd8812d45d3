"""Linear layers and embeddings, which ONNX files have as products and rows of constants: then they are trained."""

import torch
from torch import Tensor, fx, nn


def with_linear_layers(network: fx.GraphModule) -> fx.GraphModule:
    """The same network, where x W + b is a linear layer with a weight and a bias, however many axes x has.

    Rows of a constant matrix by computed indices, or by some that come in, are an embedding.
    """
    for node in list(network.graph.nodes):
        if _kind(network, node) == "OnnxGather":
            _embed_(network, node)
        if _kind(network, node) != "OnnxMatMul":
            continue
        weight = _constant(network, node.args[1])
        if weight is None or weight.dim() != 2:
            continue
        added = next(iter(node.users)) if len(node.users) == 1 else None
        bias = None if added is None else _bias(network, added, node, len(weight[0]))
        layer = nn.Linear(len(weight), len(weight[0]), bias=bias is not None)
        layer.weight.data = weight.t().contiguous()
        node.args = (node.args[0],)
        if bias is not None and added is not None:
            layer.bias.data = bias.clone()
            added.replace_all_uses_with(node)
        network.add_submodule(str(node.target), layer)
    network.graph.eliminate_dead_code()
    network.delete_all_unused_submodules()
    _drop_unused_(network)
    network.recompile()
    return network


def _embed_(network: fx.GraphModule, node: fx.Node) -> None:
    table = _constant(network, node.args[0])
    along = getattr(network.get_submodule(str(node.target)), "_axis", None)
    if table is not None and table.dim() == 2 and along == 0:
        layer = nn.Embedding(*table.shape)
        layer.weight.data = table.clone()
        node.args = (node.args[1],)
        network.add_submodule(str(node.target), layer)


def _drop_unused_(network: fx.GraphModule) -> None:
    """Constants that nobody reads any more."""
    used = {node.target for node in network.graph.nodes if node.op == "get_attr"}
    for name, _ in list(network.named_buffers()):
        above, _, own = name.rpartition(".")
        if above == "initializers" and name not in used:
            delattr(network.get_submodule(above), own)


def _kind(network: fx.GraphModule, node: fx.Node) -> str:
    return type(network.get_submodule(str(node.target))).__name__ if node.op == "call_module" else ""


def _constant(network: fx.GraphModule, node: object) -> Tensor | None:
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found: object = network
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found if isinstance(found, Tensor) and found.is_floating_point() else None


def _bias(network: fx.GraphModule, added: fx.Node, product: fx.Node, size: int) -> Tensor | None:
    """What is added to a product, if that is a number for each column."""
    if _kind(network, added) != "OnnxBinaryMathOperation" or len(added.args) != 2:
        return None
    if getattr(network.get_submodule(str(added.target)), "math_op_function", None) is not torch.add:
        return None
    left, right = added.args
    found = _constant(network, right if left is product else left)
    return found if found is not None and found.shape == (size,) else None
