"""Which channels of a network's values are constant, and which are read: what may be left out, exactly.

Every value is followed along one axis. Along it each index has a slot (channels that only go together share one)
and, where all its elements are known to be the same number, that number.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from membound.capture.activations import ACTIVATIONS
from membound.capture.draft import BINARY, Array, Draft
from membound.capture.slots import PINNED, Ids, Mask, Slots, relax
from membound.capture.tidy import per_channel
from membound.store.graph import Node, Shape
from membound.store.operators import attributes

Numbers = NDArray[np.float64]

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@dataclass(frozen=True)
class Track:
    """A value along one axis: the slot of each index, and its number where it is constant, else NaN."""

    axis: int
    ids: Ids
    constant: Numbers


class Channels:
    """The tracks of all values of a draft, and the slots that a reader's weights or its place hold back."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.slots, self.uses = draft, Slots(), draft.uses()
        self.held: list[Ids] = []  # read by weights
        self.even: list[Ids] = []  # groups of channels that must stay as many as each other
        self.tracks = {0: self._pinned(draft.input_shape)}
        for number, node in draft.nodes.items():
            track = FOLLOWERS[node.op](self, number, node)
            act = node.attributes.get("act")
            self.tracks[number] = track if act is None else _activated(track, act)
        for number in draft.outputs:
            self.slots.pin(self.tracks[number].ids)

    def kept(self) -> dict[int, Mask]:
        """For every value the indices along its axis that stay."""
        roots = {number: self.slots.roots(track.ids) for number, track in self.tracks.items()}
        removed = np.ones(len(self.slots.parents), bool)
        removed[PINNED] = False
        for ids in self.held:
            removed[self.slots.roots(ids)] = False
        emptied = self._may_be_empty()
        some = [ids for number, ids in roots.items() if number not in emptied]
        even = [self.slots.roots(ids.reshape(-1)).reshape(ids.shape) for ids in self.even]
        removed = relax(removed, some, even)
        return {number: ~removed[ids] for number, ids in roots.items()}

    def _may_be_empty(self) -> set[int]:
        """Values that can vanish altogether: every path from them ends in a concatenation with others."""
        users, free = self.draft.users(), set[int]()
        for number in reversed(self.draft.nodes):
            if all(user != -1 and self._lets_vanish(user, number, free) for user in users[number]):
                free.add(number)
        return free

    def _lets_vanish(self, user: int, number: int, free: set[int]) -> bool:
        node, axis = self.draft.nodes[user], self.tracks[number].axis
        if node.op == "concat" and node.attributes["axis"] == axis:
            return len(node.inputs) > 1
        return user in free and node.op in (
            "act",
            "maxpool",
            "avgpool",
            "adaptive",
            "upsample",
            "resize",
            *BINARY,
        )

    # Tracks, by operator.

    def _pinned(self, shape: Shape) -> Track:
        size = shape[0] if shape else 1
        return Track(0, np.full(size, PINNED), np.full(size, np.nan))

    def _other(self, number: int, node: Node) -> Track:
        """An operator that is not followed: all it reads must stay."""
        for value in node.inputs:
            self.slots.pin(self.tracks[value].ids)
        return self._pinned(self.draft.shapes[number])

    def _along(self, value: int, axis: int) -> Track:
        """A value's track along this axis; nothing can go from one that is followed along another."""
        track = self.tracks[value]
        if track.axis == axis:
            return track
        self.slots.pin(track.ids)
        size = self.draft.shapes[value][axis]
        return Track(axis, np.full(size, PINNED), np.full(size, np.nan))

    def _conv(self, number: int, node: Node) -> Track:
        given = attributes(node)
        groups, weight = given["groups"], self.draft.weight(node.tensors["w"])
        track, bordered = self._along(node.inputs[0], 0), any(given["pad"])
        if groups == len(track.ids) and groups > 1 and not self._is_shared(node):
            each = len(weight) // groups
            ids, numbers = np.repeat(track.ids, each), np.repeat(track.constant, each)
            sums = weight.sum((1, 2, 3), dtype=np.float64)
            known = (numbers == 0) | (np.isfinite(numbers) & (not bordered))
            alive = (weight != 0).any((1, 2, 3)) & ~known
            return Track(0, ids, np.where(alive, np.nan, _zero(numbers) * sums + self._bias(node, weight)))
        per_group = weight.reshape(groups, -1, *weight.shape[1:])
        read_by = (per_group != 0).any((3, 4))
        sums = per_group.sum((3, 4), dtype=np.float64)
        constant = self._read(track, read_by, sums, bordered) + self._bias(node, weight)
        ids = self._produced(node, track, len(weight))
        if groups > 1:
            self.even.extend((track.ids.reshape(groups, -1), ids.reshape(groups, -1)))
        return Track(0, ids, constant)

    def _linear(self, number: int, node: Node) -> Track:
        weight = self.draft.weight(node.tensors["w"])
        axis = len(self.draft.shapes[number]) - 1
        track = self._along(node.inputs[0], axis)
        constant = self._read(track, (weight != 0)[None], weight[None], False) + self._bias(node, weight)
        return Track(axis, self._produced(node, track, len(weight)), constant)

    def _embedding(self, number: int, node: Node) -> Track:
        """Columns of its weight are channels: one that is 0 in every row is 0. The indices are no channels."""
        self.slots.pin(self.tracks[node.inputs[0]].ids)
        weight = self.draft.weight(node.tensors["w"])
        columns = weight.shape[1]
        ids = np.full(columns, PINNED) if self._is_shared(node) else self.slots.fresh(columns)
        return Track(len(self.draft.shapes[number]) - 1, ids, np.where(weight.any(0), np.nan, 0.0))

    def _read(self, track: Track, read_by: Mask, sums: Array, bordered: bool) -> Numbers:
        """Hold back what weights need; what each output is without its bias where it is constant.

        `read_by` and `sums` are [group, output, input]: whether a kernel is not zero, and the sum of it.
        """
        known = (track.constant == 0) | (np.isfinite(track.constant) & (not bordered))
        reads = read_by.any(1).reshape(-1)
        self.held.append(track.ids[reads & ~known])
        groups, outputs, inputs = read_by.shape
        alive = (read_by & ~known.reshape(groups, 1, inputs)).any(2)
        numbers = np.where(known & reads, track.constant, 0).reshape(groups, 1, inputs)
        some = numbers.any((0, 1))
        total = (sums[..., some] * numbers[..., some]).sum(2)
        return np.where(alive, np.nan, total).reshape(groups * outputs)

    def _bias(self, node: Node, weight: Array) -> Numbers:
        bias = self.draft.tensors[node.tensors["b"]] if "b" in node.tensors else np.zeros(len(weight))
        return bias.astype(np.float64)

    def _is_shared(self, node: Node) -> bool:
        return any(self.uses[name] > 1 for name in node.tensors.values())

    def _produced(self, node: Node, track: Track, count: int) -> Ids:
        """New slots for a layer's outputs; all stays where another layer has the same weights."""
        if self._is_shared(node):
            self.slots.pin(track.ids)
            return np.full(count, PINNED)
        return self.slots.fresh(count)

    def _maxpool(self, number: int, node: Node) -> Track:
        """Its padding loses against any number; only a dilated window can lie in nothing but padding."""
        given, track = attributes(node), self._along(node.inputs[0], 0)
        padded = any(given["pad"]) and given["dilation"] != (1, 1)
        return _changed(track, np.full(len(track.ids), np.nan)) if padded else track

    def _avgpool(self, number: int, node: Node) -> Track:
        given, track = attributes(node), self._along(node.inputs[0], 0)
        mixed = not isinstance(given["count"], str) or (given["count"] == "all" and any(given["pad"]))
        return _changed(track, np.where(track.constant == 0, 0, np.nan)) if mixed else track

    def _each_channel(self, number: int, node: Node) -> Track:
        """Within a channel, of which a constant one stays what it is."""
        return self._along(node.inputs[0], 0)

    def _layernorm(self, number: int, node: Node) -> Track:
        """What it normalizes must stay, as it is weighed against the rest; along other axes nothing is mixed."""
        track, last = self.tracks[node.inputs[0]], attributes(node)["last"]
        if track.axis >= len(self.draft.shapes[number]) - last:
            return self._other(number, node)
        return _changed(track, np.where((track.constant == 0) & ("b" not in node.tensors), 0, np.nan))

    def _act(self, number: int, node: Node) -> Track:
        return self.tracks[node.inputs[0]]

    def _binary(self, number: int, node: Node) -> Track:
        if len(node.inputs) == 2:
            return self._two(number, node)
        track, out = self.tracks[node.inputs[0]], self.draft.shapes[number]
        if out[track.axis : track.axis + 1] != (len(track.ids),):
            return self._other(number, node)
        numbers: Any = node.attributes.get("value")
        if "c" in node.tensors:
            constant = self.draft.tensors[node.tensors["c"]]
            if self._is_shared(node) and constant.shape[track.axis] > 1:
                self.slots.pin(track.ids)
            found = per_channel(constant, out, track.axis)
            numbers = np.nan if found is None else found.astype(np.float64)
        swap = node.attributes.get("swap", False)
        return _changed(
            track, _computed(node.op, *((numbers, track.constant) if swap else (track.constant, numbers)))
        )

    def _two(self, number: int, node: Node) -> Track:
        left, right = (self.tracks[value] for value in node.inputs)
        axis, shapes = left.axis, [self.draft.shapes[value] for value in node.inputs]
        if right.axis != axis or not shapes[0]:
            return self._other(number, node)
        if len(left.ids) == len(right.ids):
            self.slots.same(left.ids, right.ids)
            return _changed(left, _computed(node.op, left.constant, right.constant))
        small, large = sorted((left, right), key=lambda track: len(track.ids))
        self.slots.pin(small.ids)
        return _changed(large, np.full(len(large.ids), np.nan))

    def _concat(self, number: int, node: Node) -> Track:
        tracks = [self.tracks[value] for value in node.inputs]
        axis = tracks[0].axis
        if any(track.axis != axis for track in tracks):
            return self._other(number, node)
        if node.attributes["axis"] == axis:
            ids = np.concatenate([track.ids for track in tracks])
            return Track(axis, ids, np.concatenate([track.constant for track in tracks]))
        for track in tracks[1:]:
            self.slots.same(tracks[0].ids, track.ids)
        numbers = np.stack([track.constant for track in tracks])
        return _changed(tracks[0], np.where((numbers == numbers[0]).all(0), numbers[0], np.nan))

    def _slice(self, number: int, node: Node) -> Track:
        given, track = attributes(node), self.tracks[node.inputs[0]]
        if given["axis"] != track.axis:
            return track
        if given["step"] != 1:
            return self._other(number, node)
        part = slice(given["start"], given["stop"])
        return Track(track.axis, track.ids[part], track.constant[part])

    def _reshape(self, number: int, node: Node) -> Track:
        track = self.tracks[node.inputs[0]]
        found = same_axis(self.draft.shapes[node.inputs[0]], self.draft.shapes[number], track.axis)
        if found is None:
            return self._other(number, node)
        axis, each, together = found
        if together == 1:
            return Track(axis, np.repeat(track.ids, each), np.repeat(track.constant, each))
        ids, numbers = track.ids.reshape(-1, together), track.constant.reshape(-1, together)
        for column in ids.T[1:]:
            self.slots.same(ids[:, 0], column)
        return Track(axis, ids[:, 0], np.where((numbers == numbers[:, :1]).all(1), numbers[:, 0], np.nan))

    def _permute(self, number: int, node: Node) -> Track:
        track = self.tracks[node.inputs[0]]
        return Track(list(node.attributes["axes"]).index(track.axis), track.ids, track.constant)

    def _mean(self, number: int, node: Node) -> Track:
        track, given = self.tracks[node.inputs[0]], attributes(node)
        if track.axis in given["axes"]:
            return self._other(number, node)
        before = 0 if given["keep"] else sum(axis < track.axis for axis in given["axes"])
        return Track(track.axis - before, track.ids, track.constant)

    def _gather(self, number: int, node: Node) -> Track:
        track = self.tracks[node.inputs[0]]
        return self._other(number, node) if node.attributes["axis"] == track.axis else track

    def _softmax(self, number: int, node: Node) -> Track:
        track = self.tracks[node.inputs[0]]
        if node.attributes["axis"] == track.axis:
            return self._other(number, node)
        return _changed(track, np.full(len(track.ids), np.nan))

    def _pad(self, number: int, node: Node) -> Track:
        given, track = attributes(node), self.tracks[node.inputs[0]]
        if any(given["pad"][track.axis]):
            return self._other(number, node)
        return _changed(track, np.where(track.constant == given["value"], track.constant, np.nan))


# How each operator is followed; one that mixes or moves channels beyond following has `_other`.
FOLLOWERS: Mapping[str, Callable[[Channels, int, Node], Track]] = {
    "conv": Channels._conv,
    "linear": Channels._linear,
    "maxpool": Channels._maxpool,
    "avgpool": Channels._avgpool,
    "adaptive": Channels._each_channel,
    "upsample": Channels._each_channel,
    "lrn": Channels._other,
    "layernorm": Channels._layernorm,
    "act": Channels._act,
    **dict.fromkeys(BINARY, Channels._binary),
    "concat": Channels._concat,
    "reshape": Channels._reshape,
    "permute": Channels._permute,
    "slice": Channels._slice,
    "mean": Channels._mean,
    "softmax": Channels._softmax,
    "pad": Channels._pad,
    "max": Channels._mean,
    "gather": Channels._gather,
    "resize": Channels._each_channel,
    "matmul": Channels._other,
    "constant": Channels._other,
    "input": Channels._other,
    "embedding": Channels._embedding,
}


def same_axis(shape: Shape, out: Shape, axis: int) -> tuple[int, int, int] | None:
    """Where a reshape takes `axis`, how many indices each of it becomes, or how many become one.

    >>> same_axis((50, 4, 4), (800,), 0), same_axis((5,), (1, 5, 1), 0), same_axis((6, 4), (2, 3, 4), 0)
    ((0, 16, 1), (1, 1, 1), (0, 1, 3))
    """
    before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    places = [place for place in range(len(out)) if math.prod(out[:place]) == before]
    for place in sorted(places, key=lambda place: (out[place] != size, out[place] == 1)):
        rest = math.prod(out[place + 1 :])
        if out[place] % size == 0 and out[place] // size * rest == after:
            return place, out[place] // size, 1
        if size % out[place] == 0 and size // out[place] * after == rest:
            return place, 1, size // out[place]
    return None


def _changed(track: Track, constant: Numbers) -> Track:
    return Track(track.axis, track.ids, constant)


def _activated(track: Track, act: Any) -> Track:
    numbers = ACTIVATIONS[act[0]](torch.from_numpy(track.constant.copy()), *act[1:]).numpy()
    return _changed(track, np.where(np.isnan(track.constant), np.nan, numbers))


def _computed(op: str, left: Any, right: Any) -> Numbers:
    """left op right where both are known; a product with 0 is 0."""
    with np.errstate(all="ignore"):
        numbers = np.asarray(ARITHMETIC[op](left, right), np.float64)
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    return np.where((left == 0) | (right == 0), 0, numbers) if op == "mul" else numbers


def _zero(numbers: Numbers) -> Numbers:
    return np.where(np.isfinite(numbers), numbers, 0)
