"""What cannot matter is left out, exactly: channels that no later layer uses, and channels that are constant.

A channel that no weight reads goes, along every path, with the weights that made it. A channel whose weights are all
zero is the constant act(bias): where that is 0 nothing is lost with it; else w act(bias) goes into the biases of the
layers that read it, which is the same only where no zero padding lies between. One round uncovers the next.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from membound.capture.channels import Channels, Track
from membound.capture.draft import BINARY, Array, Draft
from membound.capture.slots import Mask
from membound.capture.tidy import tidy_
from membound.store.graph import Node
from membound.store.operators import attributes


def simplify_(draft: Draft) -> None:
    """Leave out what cannot matter until nothing more can go; inputs and outputs keep their shapes."""
    while _remove_channels_(draft):
        tidy_(draft)
    _join_biases_(draft)
    _drop_zero_biases_(draft)
    tidy_(draft)


def _remove_channels_(draft: Draft) -> bool:
    channels = Channels(draft)
    kept = channels.kept()
    if all(mask.all() for mask in kept.values()):
        return False
    removal = _Removal(draft, channels.tracks, kept)
    for number, node in list(draft.nodes.items()):
        removal.apply_(number, node)
    for number in [number for number in draft.nodes if not kept[number].any()]:
        del draft.nodes[number], draft.shapes[number]
    draft.drop_dead()
    return True


def _join_biases_(draft: Draft) -> None:
    """Two layers that are added, as a block and its shortcut are, need one bias: the sum of theirs."""
    users, uses = draft.users(), draft.uses()
    for number, node in draft.nodes.items():
        layers = [draft.nodes.get(value) for value in node.inputs]
        if node.op != "add" or len(layers) != 2 or node.inputs[0] == node.inputs[1]:
            continue
        if not all(
            layer is not None
            and layer.op in ("conv", "linear")
            and "b" in layer.tensors
            and "act" not in layer.attributes
            and users[value] == [number]
            and uses[layer.tensors["b"]] == 1
            and draft.shapes[value] == draft.shapes[number]
            for value, layer in zip(node.inputs, layers, strict=True)
        ):
            continue
        first, second = sorted(node.inputs)
        kept, gone = (draft.nodes[value].tensors["b"] for value in (second, first))
        if draft.nodes[first].op == draft.nodes[second].op:  # else biases lie along other axes
            draft.tensors[kept] = draft.tensors[kept] + draft.tensors[gone]
            draft.tensors[gone] = np.zeros_like(draft.tensors[gone])


def _drop_zero_biases_(draft: Draft) -> None:
    for number, node in draft.nodes.items():
        if "b" in node.tensors and not draft.tensors[node.tensors["b"]].any():
            tensors = {role: name for role, name in node.tensors.items() if role != "b"}
            draft.nodes[number] = replace(node, tensors=tensors)


class _Removal:
    """One round: every node with the channels that stay, `kept` for each value along its track's axis."""

    def __init__(self, draft: Draft, tracks: dict[int, Track], kept: dict[int, Mask]) -> None:
        self.draft, self.tracks, self.kept = draft, tracks, kept

    def apply_(self, number: int, node: Node) -> None:
        """Shrink the weights of a node and what its attributes say about the axis."""
        kept = self.kept[number]
        if not kept.any():
            return
        if node.op in ("conv", "linear"):
            node = self._layer(node, kept)
        elif node.op == "embedding" and not kept.all():
            self._store_(node.tensors["w"], self.draft.tensors[node.tensors["w"]][:, kept])
        elif node.op in BINARY and "c" in node.tensors:
            self._shrink_constant_(number, node)
        elif node.op == "concat":
            inputs = tuple(value for value in node.inputs if self.kept[value].any())
            node = replace(node, inputs=inputs)
        elif node.op == "slice":
            node = self._slice(node)
        axis, shape = self.tracks[number].axis, self.draft.shapes[number]
        shape = (*shape[:axis], int(kept.sum()), *shape[axis + 1 :]) if shape else shape
        if node.op == "reshape":
            node = replace(node, attributes={"shape": shape})
        self.draft.nodes[number], self.draft.shapes[number] = node, shape

    def _layer(self, node: Node, kept: Mask) -> Node:
        """A convolution or linear layer with fewer outputs and inputs; constant inputs go into its bias."""
        groups = node.attributes.get("groups", 1)
        weight = self.draft.tensors[node.tensors["w"]]
        track, read = self._input(node)
        if read.all() and kept.all():
            return node
        if groups == len(track.ids) and groups > 1:
            self._store_(node.tensors["w"], weight[kept])
            self._keep_scales_(node.tensors["w"], kept)
            if "b" in node.tensors:
                self._store_(node.tensors["b"], self.draft.tensors[node.tensors["b"]][kept])
            return replace(node, attributes={**node.attributes, "groups": int(read.sum())})
        return self._dense_layer(node, weight.reshape(groups, -1, *weight.shape[1:]), track, read, kept)

    def _dense_layer(self, node: Node, weight: Array, track: Track, read: Mask, kept: Mask) -> Node:
        groups = len(weight)
        rows, columns = kept.reshape(groups, -1), read.reshape(groups, -1)
        gone = np.where(read | ~np.isfinite(track.constant), 0, track.constant).reshape(groups, 1, -1)
        bias = self.draft.tensors[node.tensors["b"]] if "b" in node.tensors else np.zeros(kept.size)
        tensors = dict(node.tensors)
        if gone.any():
            some = gone.any((0, 1))
            kernels = self.draft.weight(tensors["w"]).reshape(weight.shape)[:, :, some]
            kernels = kernels.reshape(*weight.shape[:2], int(some.sum()), -1)
            bias = bias + (kernels.sum(3, dtype=np.float64) * gone[..., some]).sum(2).reshape(-1)
        parts = [part[row][:, column] for part, row, column in zip(weight, rows, columns, strict=True)]
        if "b" in tensors or gone.any():
            tensors.setdefault("b", self.draft.bias_name(tensors["w"]))
            self._store_(tensors["b"], bias[kept].astype(np.float32))
        self._store_(tensors["w"], np.concatenate(parts))
        self._keep_scales_(tensors["w"], kept)
        return replace(node, tensors=tensors)

    def _input(self, node: Node) -> tuple[Track, Mask]:
        """The track that a layer reads along, and what of it stays."""
        value = node.inputs[0]
        track, shape = self.tracks[value], self.draft.shapes[value]
        if track.axis == (0 if node.op == "conv" else len(shape) - 1):
            return track, self.kept[value]
        size = shape[0] if node.op == "conv" else shape[-1]
        return Track(0, np.zeros(size, np.int64), np.full(size, np.nan)), np.ones(size, bool)

    def _shrink_constant_(self, number: int, node: Node) -> None:
        axis, kept = self.tracks[number].axis, self.kept[number]
        constant = self.draft.tensors[node.tensors["c"]]
        if not kept.all() and constant.shape[axis] == kept.size:
            self._store_(node.tensors["c"], constant.compress(kept, axis))

    def _slice(self, node: Node) -> Node:
        given, kept = attributes(node), self.kept[node.inputs[0]]
        if given["axis"] != self.tracks[node.inputs[0]].axis or kept.all():
            return node
        ends: dict[str, Any] = {end: int(kept[: given[end]].sum()) for end in ("start", "stop")}
        return replace(node, attributes={**node.attributes, **ends})

    def _keep_scales_(self, name: str, kept: Mask) -> None:
        if name in self.draft.scales:
            self.draft.scales[name] = self.draft.scales[name][kept]

    def _store_(self, name: str, array: Array) -> None:
        """Replace a tensor, and remember the shape that it had at first."""
        if name in self.draft.tensors and self.draft.tensors[name].shape != array.shape:
            self.draft.original_shapes.setdefault(name, self.draft.tensors[name].shape)
        self.draft.tensors[name] = np.ascontiguousarray(array)
