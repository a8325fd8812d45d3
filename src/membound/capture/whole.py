"""Whole numbers and masks: indices of embeddings, comparisons, logic. Exact in float32, where true is 1 and false 0."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from membound.capture.arithmetic import LOWEST, combine
from membound.capture.call import Call, Value


def embedding(call: Call) -> Value:
    """Rows of a weight by the numbers of a value."""
    indices = call.value("indices")
    if call.get("max_norm") is not None:
        call.fail("its max_norm changes the weight when it runs; leave it out")
    named = {"w": call.tensor(call.constant("weight"), call.within("weight"))}
    return call.emit("embedding", indices, named=named)


def converted(call: Call) -> Value:
    """aten.to and its kin: nothing to do, but for what would round, and true for any number that is not 0."""
    value = call.value("self")
    if call.dtype == torch.bool and value.whole:
        return _within_one(call, call.emit("mul", value, value))
    if not call.dtype.is_floating_point and not value.whole:
        call.fail(
            f"it rounds to {call.dtype}; only whole numbers that come in as such are supported; give them as an input"
        )
    return value


def compare(name: str) -> Any:
    """a == b is 1 - min((a - b)^2, 1) for whole numbers; a > b is a - b within 0 and 1."""

    def convert(call: Call) -> Value:
        left, right = call["self"], call["other"]
        _check_whole(call, left, right)
        if name in ("lt", "le"):
            left, right = right, left
        off = combine(call, "sub", left, right)
        if name in ("gt", "lt"):
            return _within_one(call, off)
        if name in ("ge", "le"):
            return _within_one(call, call.emit("add", off, value=1.0))
        unequal = _within_one(call, call.emit("mul", off, off))
        return unequal if name == "ne" else invert(call, unequal)

    return convert


def logical_not(call: Call) -> Value:
    value = call.value("self")
    _check_whole(call, value)
    if call.dtype != torch.bool:
        call.fail("only masks of true and false are inverted")
    return invert(call, value)


def logical(name: str) -> Any:
    """Of masks: both is the product, any the larger one."""

    def convert(call: Call) -> Value:
        if call.dtype != torch.bool:
            call.fail("only masks of true and false are combined")
        _check_whole(call, call["self"], call["other"])
        sides = [_as_numbers(call[side]) for side in ("self", "other")]
        return combine(call, "mul" if name == "and" else "maximum", *sides)

    return convert


def where(call: Call) -> Value:
    """a where the mask is on and else b: mask a + (1 - mask) b, which is exact as all are finite."""
    mask, on, off = call["condition"], call["self"], call["other"]
    if isinstance(mask, Tensor):
        mask = mask.float()
        parts = [_part(call, mask, on), _part(call, 1 - mask, off)]
    else:
        _check_whole(call, mask)
        parts = [_part(call, mask, on), _part(call, replace(invert(call, mask), place=mask.place), off)]
    return combine(call, "add", *parts)


def masked_fill(call: Call) -> Value:
    """A number where the mask is on: x (1 - mask) + number mask."""
    value, mask, number = call["self"], call["mask"], call["value"]
    if isinstance(mask, Value):
        _check_whole(call, mask)
        kept = _part(call, replace(invert(call, mask), place=mask.place), value)
    else:
        mask = mask.float()
        kept = _part(call, 1 - mask, value)
    return combine(call, "add", kept, _part(call, mask, number))


def cumulate(call: Call) -> Value:
    """aten.cumsum: a product with a triangle of ones."""
    value, axis = call.value("self"), call.axis(call["dim"])
    axes = list(range(len(value.shape)))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    shape = tuple(value.shape[each] for each in axes)
    turned = call.emit("permute", value, out=shape, axes=tuple(axes))
    ones = torch.ones(shape[-1], shape[-1]).tril()
    out = call.emit("linear", turned, out=shape, named={"w": call.tensor(ones, call.within("sums"))})
    return call.emit("permute", out, out=value.shape, axes=tuple(axes))


def add_up(call: Call) -> Value:
    """The sum of whole numbers, which a mean times their number would round: a product with ones."""
    value = call.value("self")
    if not call.get("dim"):
        call.fail("it adds up the batch; name the axes, as in x.sum(1)")
    dims = call["dim"] if isinstance(call["dim"], (list, tuple)) else [call["dim"]]
    gone = sorted({call.axis(dim) for dim in dims})
    kept = [axis for axis in range(len(value.shape)) if axis not in gone]
    shape = tuple(value.shape[axis] for axis in (*kept, *gone))
    turned = call.emit("permute", value, out=shape, axes=(*kept, *gone))
    count = math.prod(value.shape[axis] for axis in gone)
    rows = call.reshape(turned, (*shape[: len(kept)], count))
    named = {"w": call.tensor(torch.ones(1, count), call.within("ones"))}
    return call.reshape(call.emit("linear", rows, out=(*shape[: len(kept)], 1), named=named), call.shape)


def invert(call: Call, mask: Value) -> Value:
    return call.emit("sub", mask, out=mask.shape, value=1.0, swap=True)


def _within_one(call: Call, value: Value) -> Value:
    return call.emit("act", value, out=value.shape, act=["clip", 0.0, 1.0])


def _part(call: Call, mask: Any, operand: Any) -> Any:
    """An operand where the mask is on, else 0; what is minus infinity is as low as a softmax needs it."""
    operand = _as_numbers(operand)
    if isinstance(operand, Tensor):
        operand = operand.clamp_min(LOWEST)
    elif not isinstance(operand, Value):
        operand = max(float(operand), LOWEST)
    if isinstance(mask, Value) or isinstance(operand, Value):
        sized = [side.shape for side in (mask, operand) if isinstance(side, Value)]
        made = combine(replace(call, shape=_joint(call, sized)), "mul", mask, operand)
        return replace(made, place=call.place)
    return mask * operand


def _joint(call: Call, shapes: list[Any]) -> Any:
    """The shape of a product: that of its operands where they do not stretch to the result's."""
    longest = max(shapes, key=len)
    if len(longest) != len(call.shape):
        return call.shape
    return (
        tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        if len({len(s) for s in shapes}) == 1
        else call.shape
    )


def _as_numbers(operand: Any) -> Any:
    if isinstance(operand, bool):
        return float(operand)
    return operand.float() if isinstance(operand, Tensor) and operand.dtype == torch.bool else operand


def _check_whole(call: Call, *sides: Any) -> None:
    for side in sides:
        wrong = isinstance(side, Value) and not side.whole
        if wrong or (isinstance(side, Tensor) and side.is_floating_point()) or isinstance(side, float):
            call.fail(
                "it decides by numbers that are not whole, which the runtime has no operator for; relu, clamp, maximum "
                "and masks that are constants do"
            )
