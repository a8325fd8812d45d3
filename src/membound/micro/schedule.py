"""When each row is computed: the runtime always runs the last operation that can run, one row of it.

So rows are used as soon as they are there. An operation may be told to wait for more rows of its input than it needs:
a shortcut that waits for the longer branch has one row, not two. With whole maps an operation waits until its inputs
are complete: the usual way, for comparison.
"""

from collections.abc import Iterator, Mapping

from membound.micro.integers import IntegerNet, Op
from membound.micro.layers import Window


def needed_rows(window: Window, y: int, height: int, wait: int = 0) -> int:
    """How many rows of the input have to be there for row y, and `wait` more."""
    reach = y * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1 + wait - window.pad[0]
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


def events(net: IntegerNet, whole: bool, waits: Mapping[int, int]) -> Iterator[int]:
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
            need = needed_rows(op.window, y, heights[first], waits.get(number, 0))
            need = heights[first] if whole else need
            ready = y < op.size[0] and rows[first] >= need
            if ready and all(rows[each] >= (heights[each] if whole else y + 1) for each in others):
                done[number] += 1
                writers = [k for k, each in enumerate(net.ops) if each.output == op.output]
                rows[op.output] = min(finished_rows(net.ops[k], done[k]) for k in writers)
                yield number
                number = len(net.ops)
            number -= 1


def first_needed(op: Op, place: int, y: int, height: int) -> int:
    """The first row of an input that an operation still needs; beyond the last when it is finished."""
    if y >= op.size[0]:
        return height
    return max(0, y * op.window.stride[0] - op.window.pad[0]) if place == 0 else y
