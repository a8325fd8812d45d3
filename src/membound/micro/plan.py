"""All that the runtime is given, as plain records in the order of the structures of membound_micro.h."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.micro.code import SMALL, parts_of, recorded_bytes
from membound.micro.cost import estimate
from membound.micro.flash import Packed, pack_weight, size_of
from membound.micro.integers import INPUT_SHIFT, IntegerNet, Op, mean_range
from membound.micro.layout import Layout, make_layout
from membound.micro.schedule import pool_step

NONE = 0xFFFF
KINDS = {"conv": 0, "sum": 1, "pool": 2, "mean": 3, "table": 4}
THENS = {"store": 0, "sum": 1, "pool": 2}
# Bytes of the structures where pointers have 4: what a network takes of flash beside its numbers.
VALUE_BYTES, OP_BYTES, NET_BYTES = 20, 56, 28
RECORD_BYTES = {"weight": 16, "scale": 24, "sum": 16, "pool": 28}

Record = dict[str, Any]


@dataclass(frozen=True, eq=False)
class MicroPlan:
    """A network in integers with its places in RAM."""

    net: IntegerNet
    layout: Layout
    rows_bytes: int  # of the arena with line buffers, and with whole maps
    whole_bytes: int
    level: str = SMALL  # how the C will be compiled: what the code for a form of weights takes depends on it

    def at(self, level: str) -> "MicroPlan":
        """The same network for C that is compiled at this level."""
        return self if level == self.level else replace(self, level=level)

    @cached_property
    def weights(self) -> dict[int, Packed]:
        """Each in the form of fewest bytes, or all in one form where that saves more code than it costs.

        Above -Os, where speed is wanted, only forms with which it is no slower than an export for -Os: one without
        positions has a product for every zero. Where there are none, the fastest.
        """
        forms = {
            number: pack_weight(columns_of(op))
            for number, op in enumerate(self.net.ops)
            if op.weight is not None
        }
        ways = [
            {number: min(both, key=size_of) for number, both in forms.items()},
            {number: dense for number, (_, dense) in forms.items()},
            {number: sparse for number, (sparse, _) in forms.items()},
        ]
        smallest = min(ways, key=self._flash_of)
        if self.level == SMALL:
            return smallest
        small = self.at(SMALL)
        slowest = small._cycles_of(min(ways, key=small._flash_of))
        if self._cycles_of(smallest) <= slowest:
            return smallest
        fast = [way for way in ways if self._cycles_of(way) <= slowest]
        return min(fast, key=self._flash_of) if fast else min(ways, key=self._cycles_of)

    def _flash_of(self, weights: dict[int, Packed]) -> int:
        """Weights in these forms, with the code that reads them: as recorded, so that the C is the same everywhere."""
        used = parts_of(self.net.ops, [packed.sparse for packed in weights.values()])
        return sum(map(size_of, weights.values())) + recorded_bytes(used, self.level)

    def _cycles_of(self, weights: dict[int, Packed]) -> int:
        """What one example takes with weights in these forms, as estimated."""
        plan = replace(self)
        vars(plan)["weights"] = weights
        return estimate(plan, self.level).cycles

    @property
    def counters(self) -> int:
        """How many rows are counted: of operations and of values."""
        return len(self.net.ops) + len(self.net.images)

    @property
    def context_bytes(self) -> int:
        """RAM beside the stack: the arena, and the counters."""
        return self.layout.nbytes + -(-2 * self.counters // 4) * 4

    def flash_of(self, number: int) -> int:
        """The constant bytes of an operation: its numbers and its record."""
        record = op_record(self, number)
        records = sum(size for key, size in RECORD_BYTES.items() if record[key] is not None)
        return OP_BYTES + records + sum(array.nbytes for array in _arrays_of(record))

    @property
    def padding_bytes(self) -> int:
        """What is added where every array begins at a multiple of 4."""
        records = [op_record(self, number) for number in range(len(self.net.ops))]
        return sum(-array.nbytes % 4 for record in records for array in _arrays_of(record))

    @property
    def flash_bytes(self) -> int:
        """All constant data, without the code."""
        ops = sum(map(self.flash_of, range(len(self.net.ops))))
        return ops + VALUE_BYTES * len(self.net.images) + NET_BYTES + 8 * len(self.net.input)

    def multiplications(self, number: int) -> int:
        """How many the runtime does for one image: none with a 0."""
        op = self.net.ops[number]
        if op.weight is None:
            return 0
        return int(self.weights[number].count) * op.size[0] * op.size[1]


def _arrays_of(record: Record) -> list[npt.NDArray[Any]]:
    """The numbers of an operation, as net.c has them."""
    parts = [record[key] for key in RECORD_BYTES if record[key] is not None]
    return [value for part in parts for value in part.values() if isinstance(value, np.ndarray)]


def make_plan(net: IntegerNet, maps: str = "auto", level: str = SMALL) -> MicroPlan:
    """Rows or whole maps: what takes less RAM, or what is asked for ("rows", "whole"); for C compiled at `level`."""
    rows, whole = make_layout(net), make_layout(net, whole=True)
    fewer = rows if rows.nbytes <= whole.nbytes else whole
    chosen = {"auto": fewer, "rows": rows, "whole": whole}[maps]
    return MicroPlan(net, chosen, rows.nbytes, whole.nbytes, level)


def columns_of(op: Op) -> npt.NDArray[np.int8]:
    """The weight as the runtime reads it: a row a channel; columns by kernel row, kernel column, input channel."""
    assert op.weight is not None
    return op.weight.transpose(0, 2, 3, 1).reshape(len(op.weight), -1)


def value_record(plan: MicroPlan, value: int) -> Record:
    _, height, width = plan.net.images[value]
    buffer = plan.layout.buffers[value]
    return {
        "at": buffer.at,
        "pitch": buffer.pitch,
        "height": height,
        "width": width,
        "stride": buffer.stride,
        "rows": buffer.rows,
        "zero": plan.net.quantizations[value].zero,
    }


def op_record(plan: MicroPlan, number: int) -> Record:
    op = plan.net.ops[number]
    window = op.window
    groups = op.weight.shape if op.weight is not None else (op.channels, 1)
    return {
        "kind": KINDS[op.kind],
        "then": THENS[op.then],
        "in": op.inputs[0],
        "in2": op.inputs[1] if len(op.inputs) > 1 else NONE,
        "out": op.output,
        "first": op.first,
        "channels": op.channels,
        "height": op.size[0],
        "width": op.size[1],
        "kh": window.kernel[0],
        "kw": window.kernel[1],
        "sy": window.stride[0],
        "sx": window.stride[1],
        "pad_top": window.pad[0],
        "pad_left": window.pad[1],
        "dy": window.dilation[0],
        "dx": window.dilation[1],
        "wait": plan.layout.waits.get(number, 0),
        "group_in": groups[1],
        "group_out": op.channels // op.groups,
        "state": plan.layout.states.get(number, 0),
        "weight": _weight_record(plan.weights[number]) if number in plan.weights else None,
        "scale": _scale_record(op),
        "sum": None if op.sum is None else vars(op.sum),
        "pool": _pool_record(plan, op),
    }


def _weight_record(packed: Packed) -> Record:
    spare = np.zeros(3, np.uint8)  # what reads four bytes at once reads no further than this
    return {
        "stream": np.concatenate([packed.stream, spare]),
        "palette": packed.palette,
        "count": packed.count,
        "bits": packed.bits,
        "k": packed.k,
        "sparse": int(packed.sparse),
    }


def _scale_record(op: Op) -> Record | None:
    scale = op.rescale
    if scale is None:
        return None
    bias = None if op.bias is None else op.bias.astype(np.int32)
    if bias is not None and op.lift is not None:
        bias = (bias >> op.lift).astype(np.int16)
    means = op.kind in ("pool", "mean")
    return {
        "bias": bias,
        "multiplier": None if op.kind == "table" else scale.multiplier,
        "shift": None if op.kind == "table" else scale.shift,
        "table": scale.table,
        "each": int(len(scale.multiplier) > 1 and not means),
        "narrow": int(op.lift is not None),
        "lift": op.lift or 0,
        "up": scale.up,
        "zero": scale.zero,
        "low": scale.low,
        "high": scale.high,
    }


def _pool_record(plan: MicroPlan, op: Op) -> Record | None:
    pool = op.pool
    if pool is None:
        return None
    _, height, width = plan.net.images[op.inputs[0]]
    top, bottom = mean_range(pool.window, 0, height)
    left, right = mean_range(pool.window, 1, width)
    return {
        "height": pool.size[0],
        "width": pool.size[1],
        "kh": pool.window.kernel[0],
        "kw": pool.window.kernel[1],
        "sy": pool_step(op),
        "sx": pool.window.stride[1],
        "pad_top": pool.window.pad[0],
        "pad_left": pool.window.pad[1],
        "top": top,
        "left": left,
        "bottom": bottom,
        "right": right,
        "mean": int(pool.mean),
        "each": int(pool.each),
    }


def net_record(plan: MicroPlan) -> Record:
    """What is left of mb_net; `input` as two numbers a channel."""
    layout = plan.layout
    return {
        "input": np.array(plan.net.input, np.int32).reshape(-1),
        "sums": layout.sums,
        "entries": layout.entries,
        "op_count": len(plan.net.ops),
        "value_count": len(plan.net.images),
        "output": plan.net.output,
        "input_shift": INPUT_SHIFT,
        "whole": int(layout.whole),
    }
