"""Where each row lies: line buffers, each a ring of the rows that are still needed.

Playing the schedule through says how many rows of each value are needed at once, and from when to when. Values that are
never there at the same time share their bytes. So do a value and the sum that it is part of, row by row: a sum takes
the place of an input that nothing else needs any more, so that both are one ring.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from membound.errors import ModelError
from membound.micro.integers import IntegerNet, Op
from membound.micro.schedule import begun_rows, events, first_needed

CHUNK = 32  # MB_CHUNK of membound_micro.h
MOST_BYTES = 1 << 24  # of the arena: places have 24 bits
MOST_WAIT = 3  # rows that a shortcut is tried to wait for

Spans = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Buffer:
    """Where a value lies: its first number, the rows that are kept, bytes from channel to channel and row to row."""

    at: int
    rows: int
    stride: int
    pitch: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.pitch


@dataclass(frozen=True)
class Layout:
    """The arena. `states` are the sums of means, by the number of the operation; the rest is working room."""

    whole: bool
    buffers: list[Buffer]
    states: dict[int, int]
    waits: Mapping[int, int]  # rows that an operation waits for beyond those that it needs
    sums: int  # where each begins
    entries: int
    nbytes: int

    @property
    def working_bytes(self) -> int:
        """What convolutions share at the start of the arena."""
        return _room_of(self.entries)  # the entries lie behind the sums


def _room_of(sums: int) -> int:
    """The 32-bit sums of a row of a convolution, and weights as they are decoded."""
    return sums + 4 * CHUNK if sums else 0


def sum_bytes(op: Op) -> int:
    """The 32-bit sums that a mean keeps beside its output, until its last row is there."""
    return 4 * op.channels * op.pool.size[1] if op.kind == "mean" and op.pool is not None else 0


@dataclass(frozen=True)
class Ways:
    """How rows are kept: whole maps or not, which operations wait, and which value takes another's place."""

    whole: bool
    waits: Mapping[int, int] = field(default_factory=dict)
    over: Mapping[int, int] = field(default_factory=dict)

    def root(self, value: int) -> int:
        """The value whose ring a value lies in."""
        while value in self.over:
            value = self.over[value]
        return value


@dataclass(frozen=True)
class _Shapes:
    """A network of which only shapes count: fits ask again and again about networks of other weights."""

    net: IntegerNet = field(compare=False)
    text: str


def make_layout(net: IntegerNet, whole: bool = False) -> Layout:
    """The smallest arena that was found: sums in place, shortcuts that wait."""
    ops = [
        (op.kind, op.then, op.inputs, op.output, op.first, op.channels, op.size, op.window, op.pool)
        for op in net.ops
    ]
    return _find_layout(_Shapes(net, repr((ops, net.images, net.output))), whole)


@lru_cache(maxsize=32)
def _find_layout(shapes: _Shapes, whole: bool) -> Layout:
    net = shapes.net
    ways = Ways(whole)
    best = _laid_out(net, ways)
    assert best is not None
    others = [replace(ways, over={out: value}) for out, value in _in_place(net)]
    if not whole:
        waits = range(1, MOST_WAIT + 1)
        others += [replace(ways, waits={number: wait}) for number in _shortcuts(net) for wait in waits]
    for other in others:
        both = Ways(whole, {**ways.waits, **other.waits}, {**ways.over, **other.over})
        found = _laid_out(net, both)
        if found is not None and found.nbytes < best.nbytes:
            ways, best = both, found
    if best.nbytes > MOST_BYTES:
        raise ModelError(
            f"this network takes {best.nbytes:,} bytes of RAM, and the microcontroller's runtime reaches "
            f"{MOST_BYTES:,}: take a narrower one"
        )
    return best


def _in_place(net: IntegerNet) -> list[tuple[int, int]]:
    """Values that could take the place of another: (value, the other)."""
    found = []
    for op in net.ops:
        places = {"conv": op.inputs[1:], "sum": op.inputs, "table": op.inputs}.get(op.kind, ())
        if op.kind == "conv":  # it reads all channels of the other for each of its own
            places = tuple(value for value in places if value != op.inputs[0])
        alone = sum(each.output == op.output for each in net.ops) == 1
        if alone and op.output != net.output:
            found += [(op.output, value) for value in places if net.images[value] == net.images[op.output]]
    return found


def _shortcuts(net: IntegerNet) -> list[int]:
    """Operations whose output is only added to that of another."""
    readers = _readers(net)
    return [
        number
        for number, op in enumerate(net.ops)
        if readers[op.output] and all(p for _, p in readers[op.output])
    ]


def _readers(net: IntegerNet) -> list[list[tuple[int, int]]]:
    """Of each value: the operations that read it, and as which of their inputs."""
    found: list[list[tuple[int, int]]] = [[] for _ in net.images]
    for number, op in enumerate(net.ops):
        for place, value in enumerate(op.inputs):
            found[value].append((number, place))
    return found


def _laid_out(net: IntegerNet, ways: Ways) -> Layout | None:
    """Rows and places of all values; None where a value would be overwritten that is still needed."""
    over = list(ways.over.values())
    if len(set(over)) < len(over):
        return None
    played = _play(net, ways)
    if played is None:
        return None
    rows, spans = played
    return _place(net, ways, rows, spans)


def _play(net: IntegerNet, ways: Ways) -> tuple[list[int], Spans] | None:
    """How many rows each ring needs, and when values are there, from the first time to the last."""
    heights = [image[1] for image in net.images]
    done, begun = [0] * len(net.ops), [0] * len(net.images)
    most = [1] * len(net.images)
    spans: Spans = {}
    readers = _readers(net)
    roots = [ways.root(value) for value in range(len(net.images))]
    rings = {root: [v for v, its in enumerate(roots) if its == root] for root in roots}

    def lowest(value: int) -> int:
        """The first row of a value that is still needed."""
        if value == net.output:
            return 0
        needs = [first_needed(net.ops[n], place, done[n], heights[value]) for n, place in readers[value]]
        return min([begun[value], *needs])

    for time, number in enumerate(events(net, ways.whole, ways.waits)):
        value, touched = 0, [0]
        if number < 0:
            begun[0] += 1
        else:
            op = net.ops[number]
            value, done[number] = op.output, done[number] + 1
            begun[value] = max(begun[value], begun_rows(op, done[number]))
            touched = [value, *op.inputs, *([~number] if op.kind == "mean" else [])]
            if value in ways.over and lowest(ways.over[value]) < done[number]:
                return None
        ring = rings[roots[value]]
        kept = max(begun[v] for v in ring) - min(lowest(v) for v in ring)
        most[roots[value]] = max(most[roots[value]], kept)
        for each in touched:
            key = roots[each] if each >= 0 else each
            spans[key] = spans.get(key, (time, time))[0], time
    if any(done[n] < op.size[0] for n, op in enumerate(net.ops)):
        raise ModelError(
            "the rows of this network never come together"
        )  # the planner's fault, not the file's
    last = roots[net.output]
    spans[last] = spans[last][0], 1 << 60
    counts = [heights[v] if ways.whole else min(most[roots[v]], heights[v]) for v in range(len(heights))]
    return counts, spans


def paddings(net: IntegerNet) -> list[int]:
    """The columns of padding between the channels of each value: as many as any convolution wants on a side."""
    found = [0] * len(net.images)
    for op in net.ops:
        if op.kind == "conv":
            value, window = op.inputs[0], op.window
            width = net.images[value][2]
            reach = (op.size[1] - 1) * window.stride[1] + (window.kernel[1] - 1) * window.dilation[1]
            found[value] = max(found[value], window.pad[1], reach - window.pad[1] - width + 1)
    return found


def _place(net: IntegerNet, ways: Ways, rows: list[int], spans: Spans) -> Layout:
    values, alone = range(len(net.images)), paddings(net)
    roots = [ways.root(value) for value in values]
    pads = [max(alone[v] for v in values if roots[v] == root) for root in roots]
    strides = [image[2] + pad for image, pad in zip(net.images, pads, strict=True)]
    # Each row has padding before its first channel, too: its neighbor may be of another value.
    pitches = [image[0] * stride + pad for image, stride, pad in zip(net.images, strides, pads, strict=True)]
    sizes = {value: rows[value] * pitches[value] for value in set(roots)}
    for number, op in enumerate(net.ops):
        if op.kind == "mean":
            sizes[~number] = sum_bytes(op)
    convs = [op for op in net.ops if op.kind == "conv"]
    sums = 4 * max((op.size[1] for op in convs), default=0)
    places = _pack(sizes, spans, _room_of(sums))
    total = -(-max(places[key] + sizes[key] for key in sizes) // 4) * 4
    buffers = [Buffer(places[roots[v]] + pads[v], rows[v], strides[v], pitches[v]) for v in values]
    states = {~key: places[key] for key in sizes if key < 0}
    return Layout(ways.whole, buffers, states, ways.waits, 0, sums, total)


def _pack(sizes: dict[int, int], spans: Spans, start: int) -> dict[int, int]:
    """The lowest place for each, largest first, beside those that are there at the same time."""
    places: dict[int, int] = {}
    for key in sorted(sizes, key=lambda key: (-sizes[key], key)):
        begin, end = spans[key]
        taken = sorted(
            (places[other], places[other] + sizes[other])
            for other in places
            if spans[other][0] <= end and begin <= spans[other][1]
        )
        at = start
        for low, high in taken:
            if at + sizes[key] <= low:
                break
            at = max(at, high)
            at = -(-at // 4) * 4 if key < 0 else at  # sums are aligned
        places[key] = at
    return places
