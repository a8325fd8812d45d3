"""When each row is computed, and where it lies: line buffers, each a ring of the rows that are still needed.

The runtime always runs the last operation that can run, one row of it, so that rows are used as soon as they are there.
Playing that through says how many rows of each value are needed at once, and from when to when; values that are never
there at the same time share their bytes. With whole maps an operation waits until its inputs are complete: the usual
way, for comparison.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from membound.errors import ModelError
from membound.micro.integers import IntegerNet, Op
from membound.micro.layers import Window

CHUNK = 32  # MB_CHUNK of membound_micro.h
MOST_BYTES = 1 << 24  # of the arena: places have 24 bits


@dataclass(frozen=True)
class Buffer:
    """Where a value lies: its first number, the rows that are kept, and bytes from channel to channel."""

    at: int
    rows: int
    stride: int
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """The arena. `states` are the sums of means, by the number of the operation; the rest is working room."""

    whole: bool
    buffers: list[Buffer]
    states: dict[int, int]
    sums: int
    entries: int
    nbytes: int


def needed_rows(window: Window, y: int, height: int) -> int:
    """How many rows of the input have to be there for row y."""
    reach = y * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1 - window.pad[0]
    return min(max(reach, 0), height)


def finished_rows(op: Op, done: int) -> int:
    """How many rows of the output are there after so many of the operation's own."""
    if op.pool is None or op.kind == "pool":
        return done
    if done == op.size[0]:
        return op.pool.size[0]
    window = op.pool.window
    return max(0, min((done + window.pad[0] - window.kernel[0]) // pool_step(op) + 1, op.pool.size[0]))


def begun_rows(op: Op, done: int) -> int:
    """The same with those that are begun: a pool writes to rows that are not finished."""
    if op.pool is None or op.kind == "pool" or done == 0:
        return done
    return min((done - 1 + op.pool.window.pad[0]) // pool_step(op) + 1, op.pool.size[0])


def pool_step(op: Op) -> int:
    """The vertical stride of a pool; one window alone has as much as it is high."""
    assert op.pool is not None
    window = op.pool.window
    return max(window.stride[0], window.kernel[0]) if op.kind == "mean" else window.stride[0]


def events(net: IntegerNet, whole: bool) -> Iterator[int]:
    """What happens, in order: -1 is a row that is fed, another number the operation that computes a row."""
    done, rows = [0] * len(net.ops), [0] * len(net.images)
    heights = [image[1] for image in net.images]
    for fed in range(heights[0]):
        rows[0] = fed + 1
        yield -1
        number = len(net.ops) - 1
        while number >= 0:
            op, y = net.ops[number], done[number]
            first, *others = op.inputs
            need = heights[first] if whole else needed_rows(op.window, y, heights[first])
            ready = y < op.size[0] and rows[first] >= need
            if ready and all(rows[each] >= (heights[each] if whole else y + 1) for each in others):
                done[number] += 1
                writers = [k for k, each in enumerate(net.ops) if each.output == op.output]
                rows[op.output] = min(finished_rows(net.ops[k], done[k]) for k in writers)
                yield number
                number = len(net.ops)
            number -= 1


def make_layout(net: IntegerNet, whole: bool = False) -> Layout:
    """Rows and places of all values."""
    heights = [image[1] for image in net.images]
    done, begun = [0] * len(net.ops), [0] * len(net.images)
    most = [0] * len(net.images)
    spans: dict[int, tuple[int, int]] = {}
    readers = [
        [
            (number, place)
            for number, op in enumerate(net.ops)
            for place, v in enumerate(op.inputs)
            if v == value
        ]
        for value in range(len(net.images))
    ]
    for time, number in enumerate(events(net, whole)):
        touched = [0]
        if number < 0:
            value, begun[0] = 0, begun[0] + 1
        else:
            op = net.ops[number]
            value, done[number] = op.output, done[number] + 1
            begun[value] = max(begun[value], begun_rows(op, done[number]))
            touched = [value, *op.inputs]
            if op.kind == "mean":
                touched.append(~number)
        lowest = begun[value]
        for reader, place in readers[value]:
            lowest = min(lowest, _first_needed(net.ops[reader], place, done[reader], heights[value]))
        if value == net.output:
            lowest = 0
        most[value] = max(most[value], begun[value] - lowest, 1)
        for each in touched:
            begin, _ = spans.get(each, (time, time))
            spans[each] = begin, time
        if number < 0:
            spans[0] = spans.get(0, (0, 0))[0], time
    if any(done[n] < op.size[0] for n, op in enumerate(net.ops)):
        raise ModelError(
            "the rows of this network never come together"
        )  # the planner's fault, not the file's
    spans[net.output] = spans[net.output][0], 1 << 60
    return _place(
        net, [heights[v] if whole else min(rows, heights[v]) for v, rows in enumerate(most)], spans, whole
    )


def _first_needed(op: Op, place: int, y: int, height: int) -> int:
    """The first row of an input that an operation still needs; beyond the last when it is finished."""
    if y >= op.size[0]:
        return height
    return max(0, y * op.window.stride[0] - op.window.pad[0]) if place == 0 else y


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


def _place(net: IntegerNet, rows: list[int], spans: dict[int, tuple[int, int]], whole: bool) -> Layout:
    pads = paddings(net)
    strides = [image[2] + pad for image, pad in zip(net.images, pads, strict=True)]
    sizes = {
        value: rows[value] * image[0] * strides[value] + pads[value] for value, image in enumerate(net.images)
    }
    for number, op in enumerate(net.ops):
        if op.kind == "mean":
            assert op.pool is not None
            sizes[~number] = 4 * op.channels * op.pool.size[1]
    convs = [op for op in net.ops if op.kind == "conv"]
    sums = 4 * max((op.size[1] for op in convs), default=0)
    room = sums + 4 * CHUNK if convs else 0
    places = _pack(sizes, spans, room)
    total = -(-max(places[key] + sizes[key] for key in sizes) // 4) * 4
    if total > MOST_BYTES:
        raise ModelError(
            f"this network takes {total:,} bytes of RAM, and the microcontroller's runtime reaches {MOST_BYTES:,}: "
            "take a narrower one"
        )
    buffers = [
        Buffer(places[value] + pads[value], rows[value], strides[value], sizes[value])
        for value in range(len(net.images))
    ]
    states = {~key: places[key] for key in sizes if key < 0}
    return Layout(whole, buffers, states, 0, sums, total)


def _pack(sizes: dict[int, int], spans: dict[int, tuple[int, int]], start: int) -> dict[int, int]:
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
