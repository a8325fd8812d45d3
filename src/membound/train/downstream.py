"""Which batch norms of a network may see what bounded weights compute."""

import copy
import io
import warnings
from collections.abc import Collection
from contextlib import redirect_stdout

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from membound.modules import wrapping


class _Layers(fx.Tracer):
    """Keeps every norm and every layer of bounded weights whole, as it keeps torch's own."""

    def __init__(self, bounded: Collection[int]) -> None:
        super().__init__()
        self.bounded = bounded

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = any(id(each) in self.bounded for each in m.parameters(recurse=False))
        return own or isinstance(m, _BatchNorm) or super().is_leaf_module(m, module_qualified_name)


def norms_may_follow(model: nn.Module, bounded: Collection[nn.Parameter]) -> bool:
    """Whether a batch norm with running statistics comes after a bounded weight; True where the order is unknown.

    The order is that of the network's forward function, which is followed without numbers on a copy that shares the
    weights: whatever it sets on itself stays as it was. Where it cannot be followed, as with decisions that depend on
    values, or where it may change tensors in place, the answer is True.
    """
    norms = {
        name
        for name, each in model.named_modules()
        if isinstance(each, _BatchNorm) and each.running_mean is not None
    }
    if not norms:
        return False
    hooked = any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    if hooked or wrapping(model.state_dict()):  # they may talk to other processes
        return True
    try:
        return _follow(model, norms, {id(each) for each in bounded})
    except Exception:  # of the network's own code: it is trained already, so nothing may stop it here
        return True


def _follow(model: nn.Module, norms: set[str], bounded: set[int]) -> bool:
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    same = copy.deepcopy(model, dict(shared))
    with warnings.catch_warnings(), torch.random.fork_rng(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        graph = _Layers(bounded).trace(same)
    layers, parameters = dict(same.named_modules()), dict(same.named_parameters())
    after: set[fx.Node] = set()
    called: set[str] = set()
    for node in graph.nodes:
        name = str(node.target)
        own = list(layers[name].parameters()) if node.op == "call_module" else []
        own += [parameters[name]] if node.op == "get_attr" and name in parameters else []
        sees = any(each in after for each in node.all_input_nodes)
        if node.op == "call_module":
            called.add(name)
            if sees and name in norms:
                return True
        if sees and _may_change_others(node):
            return True
        if sees or any(id(each) in bounded for each in own):
            after.add(node)
    return bool(norms - called)  # a norm that is called in some other way may be anywhere


def _may_change_others(node: fx.Node) -> bool:
    """Whether it may write into what it is given, which others may read by another name."""
    in_place = node.op == "call_method" and str(node.target).endswith("_")
    return node.op != "output" and (in_place or "out" in node.kwargs or not node.users)
