"""capture(): the network as it will be stored and run, from the module as it was trained."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from membound.capture.convert import convert, say_origin
from membound.capture.draft import Draft
from membound.capture.examples import Example
from membound.capture.export import FIXED, OTHER_BATCH, check_batches, export, private_copy, without_batch
from membound.capture.simplify import simplify_
from membound.capture.tidy import tidy_
from membound.errors import ModelError
from membound.modules import plain_keys
from membound.store.model import Model
from membound.store.shapes import infer_shapes


def capture(module: nn.Module, example_input: Example, *, simplify: bool = True) -> Model:
    """The graph and the weights of `module`, in eval mode; the module itself is not touched.

    `example_input` is a batch of any size, float32; its values do not matter. The size of the batch stays free. A
    network of several inputs takes a tuple of batches, or a dict where its forward takes them by name; integers stay
    whole numbers, such as indices of an embedding, and must be some that the network allows.
    With `simplify`, channels that cannot matter are left out, exactly: those whose weights nobody reads or
    that are constant; `original_shapes` has the shapes that weights had before.

    >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    >>> with torch.no_grad():
    ...     _ = net[0].weight[2:].zero_(), net[0].bias[2:].fill_(-1)
    >>> model = capture(net, torch.zeros(1, 1, 8, 8))
    >>> [node.op for node in model.graph.nodes]
    ['conv', 'reshape', 'linear']
    >>> model.tensors["3.weight"].shape, model.original_shapes["3.weight"]
    ((10, 72), (10, 288))
    """
    return Tracer(module, example_input).model(simplify=simplify)


class Tracer:
    """A module traced once, and captured with as many weights as there are: tracing is what takes long.

    Whether images are treated alike in batches of any size is checked once, with the weights that the module has.

    >>> net = nn.Linear(3, 2)
    >>> tracer = Tracer(net, torch.zeros(1, 3))
    >>> tracer.model({"weight": torch.eye(2, 3), "bias": torch.zeros(2)}).tensors["weight"].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, module: nn.Module, example_input: Example) -> None:
        private = private_copy(module)
        try:
            self._exported = export(private, example_input)
            draft = convert(self._exported)
            if isinstance(self._exported.batch, int):
                other = convert(export(private, example_input, OTHER_BATCH))
                if draft.graph() != other.graph():
                    raise ModelError(FIXED)
            check_batches(private, example_input)
        except ModelError as error:
            raise without_batch(private, example_input) or error from error.__cause__
        # Wrappers inside the module are off in the private copy; the order of what they hold is the same.
        own = zip(plain_keys(module.state_dict()), private.state_dict(keep_vars=True).values(), strict=True)
        self._state = {name: tensor for name, tensor in own if isinstance(tensor, Tensor)}

    @property
    def parameters(self) -> tuple[tuple[str, ...], ...]:
        """The names that each parameter has in a state: a tied one has several. Buffers are no parameters."""
        names: dict[tuple[Any, ...], tuple[str, ...]] = {}
        for name, own in self._state.items():
            if isinstance(own, nn.Parameter):
                place = _place(name, own)
                names[place] = (*names.get(place, ()), name)
        return tuple(names.values())

    def state(self) -> dict[str, Tensor]:
        """A copy of the weights that the module had when it was traced, in float32."""
        return {name: tensor.detach().clone() for name, tensor in self._state.items()}

    def model(self, state: Mapping[str, Tensor] | None = None, simplify: bool = True) -> Model:
        """What `capture` gives for the module with these weights: a state dict of it; None for those it had.

        The weights may be on any device and of any real type, under names with or without what wrappers put before
        them. A tied weight may be there under one of its names only.
        """
        draft = self._draft(state, simplify)
        # What has been left as it was is still the memory of the state.
        tensors = {
            name: array if array.flags.owndata else array.copy() for name, array in draft.tensors.items()
        }
        infer_shapes(graph := draft.graph(), {name: array.shape for name, array in tensors.items()})
        return Model(graph, tensors, draft.original_shapes, scales=draft.scales)

    def origins(self, state: Mapping[str, Tensor] | None = None) -> dict[int, str]:
        """The module and the line of code that nodes of `model(state)` come from, by number, as far as is known."""
        draft = self._draft(state, True)
        known = (draft.origins.get(number) for number in draft.nodes)
        return {number: say_origin(node) for number, node in enumerate(known, 1) if node is not None}

    def _draft(self, state: Mapping[str, Tensor] | None, simplify: bool) -> Draft:
        weights = self._exported.weights if state is None else self._weights(state)
        draft = convert(replace(self._exported, weights=weights))
        tidy_(draft)
        if not draft.nodes:
            raise ModelError("the network computes nothing: its output is its input")
        if 0 in draft.outputs:
            raise ModelError("an output of the network is its input: return only what it computes")
        if simplify:
            simplify_(draft)
        return draft

    def _weights(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights by the names of their nodes, from a state dict; what no state has is as it was traced."""
        given = plain_keys(state)
        found: dict[tuple[Any, ...], Tensor] = {}
        for name, own in self._state.items():
            if name not in given:
                continue
            value, place = _converted(name, given[name], own), _place(name, own)
            first = found.setdefault(place, value)
            if first is not value and not torch.equal(first, value):
                raise ModelError(f"{name} is tied to another weight, but the state has other values for it")
        missing = [name for name, own in self._state.items() if _place(name, own) not in found]
        extra = [name for name in given if name not in self._state and isinstance(given[name], Tensor)]
        if missing or extra:
            lacks = f"lacks {', '.join(missing[:8])}" if missing else ""
            has = f"has {', '.join(extra[:8])}, which the network does not" if extra else ""
            raise ModelError(
                f"the state does not fit the network: it {' and '.join(filter(None, (lacks, has)))}"
            )
        return {node: found.get(_place(node, own), own) for node, own in self._exported.weights.items()}


def _place(name: str, tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies: the same for tied ones."""
    return (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)


def _converted(name: str, value: Any, own: Tensor) -> Tensor:
    """A tensor of a state in the type that the private copy has: float32, or whole numbers as they are."""
    if not isinstance(value, Tensor) or value.is_complex() or value.is_meta:
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ModelError(f"{name} in the state is {kind}: give a tensor of real numbers that has values")
    if value.shape != own.shape:
        raise ModelError(f"{name} is {tuple(value.shape)} in the state, in the network {tuple(own.shape)}")
    return value.detach().to("cpu", own.dtype)
