"""Products of values with constants and with each other, and attention, which is made of them."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from membound.capture import advice
from membound.capture.arithmetic import LOWEST, combine
from membound.capture.call import Call, Value


def product(call: Call) -> Value:
    """aten.matmul, mm, bmm and addmm: a linear layer where one side is a constant matrix."""
    left, right = _operands(call)
    if isinstance(right, Tensor) and isinstance(left, Value) and left.rank >= right.dim() > 2:
        # The same matrix for all: einsum writes it so.
        right = right.reshape(right.shape[-2:]) if math.prod(right.shape[:-2]) == 1 else right
    alpha, beta = float(call.get("alpha", 1)), float(call.get("beta", 1))
    if isinstance(left, Value) and isinstance(right, Tensor) and right.dim() == 2:
        named = {"w": call.tensor(right.t().contiguous() * alpha, call.within("weight"))}
        if "mat1" in call.args:
            bias = call.constant("self").expand(right.shape[1])
            named["b"] = call.tensor(bias if beta == 1 else bias * beta, call.within("bias"))
        return call.emit("linear", left, named=named)
    if isinstance(left, Tensor) and left.dim() == 2 and isinstance(right, Value) and len(right.shape) >= 2:
        return _from_the_left(call, left, right)
    if "mat1" in call.args:
        call.fail("only products of a value with one constant matrix are added to")
    first, second = (_as_value(call, side) for side in (left, right))
    _check_matrices(call, first, second)
    return call.emit("matmul", first, second)


def added_product(call: Call) -> Value:
    """aten.baddbmm: beta self + alpha batch1 batch2."""
    if (call.get("alpha", 1), call.get("beta", 1)) != (1, 1):
        call.fail("its factors alpha and beta must be 1")
    made = product(replace(call, args={"self": call["batch1"], "mat2": call["batch2"]}))
    return combine(call, "add", replace(made, place=call.place), _added(call["self"]))


def _operands(call: Call) -> tuple[Any, Any]:
    if "mat1" in call.args:
        return call["mat1"], call["mat2"]
    return call["self"], call["mat2"] if "mat2" in call.args else call["other"]


def _from_the_left(call: Call, matrix: Tensor, value: Value) -> Value:
    """W x = (x^T W^T)^T."""
    axes = (*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2)
    turned = call.emit("permute", value, out=tuple(value.shape[axis] for axis in axes), axes=axes)
    named = {"w": call.tensor(matrix, call.within("weight"))}
    out = call.emit("linear", turned, out=(*turned.shape[:-1], matrix.shape[0]), named=named)
    return call.emit("permute", out, axes=axes)


def _as_value(call: Call, side: Any) -> Value:
    return side if isinstance(side, Value) else replace(call.constant_value(side), place=call.place)


def _check_matrices(call: Call, left: Value, right: Value) -> None:
    if len(left.shape) != len(right.shape) or left.place != right.place:
        call.fail("its operands differ in their number of axes, so that one's batch meets other axes")
    if len(left.shape) < 2 or left.place.at >= left.rank - 2:
        call.fail(f"the batch is one of the axes of its matrices; {advice.BATCH_FIRST}")


def attend(call: Call) -> Value:
    """softmax(query key^T scale + mask) value."""
    query, key, value = (call.value(name) for name in ("query", "key", "value"))
    if call.get("dropout_p", 0.0):
        call.fail("its dropout stays on in eval mode; pass dropout_p only in training, else 0.0")
    _check_matrices(call, query, key)
    if call.get("enable_gqa", False):
        key, value = (_for_heads(call, each, query.shape[-3]) for each in (key, value))
    scale = float(call.get("scale", 1 / math.sqrt(query.shape[-1])))
    shape = (*query.shape[:-1], key.shape[-2])
    scores = call.emit("matmul", query, key, out=shape, transpose=True, scale=scale)
    scores = replace(scores, place=query.place)
    mask = call.get("attn_mask")
    if call.get("is_causal", False):
        mask = torch.ones(shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = combine(replace(call, shape=shape), "add", scores, _added(mask))
    weights = call.emit("softmax", scores, out=shape, axis=len(shape) - 1)
    return call.emit("matmul", weights, value)


def _for_heads(call: Call, value: Value, heads: int) -> Value:
    """As many keys or values as there are heads of queries, where several queries share one."""
    axis = len(value.shape) - 3
    size = value.shape[axis]
    if size == heads:
        return value
    shape = (*value.shape[:axis], heads, *value.shape[axis + 1 :])
    indices = tuple(head * size // heads for head in range(heads))
    return replace(call.emit("gather", value, out=shape, axis=axis, indices=indices), place=value.place)


def _added(mask: Any) -> Any:
    """A mask as numbers to add: where it is off, so low that nothing is left."""
    if not isinstance(mask, Tensor):
        return mask
    if mask.dtype == torch.bool:
        return torch.where(mask, 0.0, LOWEST)
    return mask.clamp_min(LOWEST)
