"""Activations and arithmetic: element by element, with numbers and constants broadcast as torch does."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from membound.capture.call import Call, Value

LARGEST = float(np.finfo(np.float32).max)  # for clips that are open on one side


def activation(*act: Any, **arguments: str) -> Callable[[Call], Value]:
    """A function that emits `act`, followed by the call's arguments of those names, as numbers."""

    def convert(call: Call) -> Value:
        return _act(call, call.value("self"), *act, *(float(call[name]) for name in arguments.values()))

    return convert


def _act(call: Call, value: Value, *act: Any) -> Value:
    return call.emit("act", value, out=value.shape, act=list(act))


def gelu(call: Call) -> Value:
    return _act(call, call.value("self"), "gelu_tanh" if call.get("approximate") == "tanh" else "gelu")


def elu(call: Call) -> Value:
    """scale * (x if x > 0 else alpha (exp(input_scale x) - 1))."""
    if call.get("input_scale", 1) != 1:
        call.fail(f"its input_scale is {call['input_scale']}; only 1 is supported")
    out = _act(call, call.value("self"), "elu", float(call.get("alpha", 1)))
    scale = float(call.get("scale", 1))
    return out if scale == 1 else call.emit("mul", out, value=scale)


def selu(call: Call) -> Value:
    out = _act(call, call.value("self"), "elu", 1.6732632423543772848170429916717)
    return call.emit("mul", out, value=1.0507009873554804934193349852946)


def prelu(call: Call) -> Value:
    slope = call.constant("weight")
    if slope.numel() != 1:
        call.fail("one slope for each channel is not supported; one slope for all is")
    return _act(call, call.value("self"), "leaky", float(slope))


def clamp(call: Call) -> Value:
    low, high = (_bound(call, name) for name in ("min", "max"))
    value = call.value("self")
    if low is None and high is None:
        return value
    if low == 0 and high is None:
        return _act(call, value, "relu")
    return _act(call, value, "clip", -LARGEST if low is None else low, LARGEST if high is None else high)


def _bound(call: Call, name: str) -> float | None:
    """A bound of a clamp: absent, infinite (the same) or a number."""
    bound = call.get(name, call.get(f"{name}_val"))
    if isinstance(bound, Tensor) and bound.numel() == 1:
        bound = bound.item()
    if bound is None or bound in (-math.inf, math.inf):
        return None
    if not isinstance(bound, (int, float)):
        call.fail(f"its {name} is a tensor; only numbers are supported")
    return float(bound)


def binary(op: str, *, swap: bool = False) -> Callable[[Call], Value]:
    """Arithmetic on two values, or on a value and a number or constant; `alpha` multiplies the second."""

    def convert(call: Call) -> Value:
        if call.get("rounding_mode") is not None:
            call.fail("division that rounds is not supported")
        left, right = call["self"], call["other"]
        alpha = call.get("alpha", 1)
        left, right = (_scaled(call, left, alpha), right) if swap else (left, _scaled(call, right, alpha))
        return combine(call, op, right if swap else left, left if swap else right)

    return convert


def _scaled(call: Call, operand: Any, alpha: float) -> Any:
    if alpha == 1:
        return operand
    if isinstance(operand, Value):
        return call.emit("mul", operand, out=operand.shape, value=float(alpha))
    return operand * alpha


def combine(call: Call, op: str, left: Any, right: Any) -> Value:
    """Emit left op right, where at least one is a value; constants are broadcast as torch does."""
    if isinstance(left, Value) and isinstance(right, Value):
        if len(left.shape) != len(right.shape):
            call.fail("its operands differ in their number of axes, so that one's batch meets other axes")
        return call.emit(op, left, right)
    swap = isinstance(right, Value) and op in ("sub", "div")
    value, other = (left, right) if isinstance(left, Value) else (right, left)
    if isinstance(other, Tensor) and other.numel() == 1 and len(call.shape) == len(value.shape):
        other = other.item()
    if not isinstance(other, Tensor):
        if not math.isfinite(other):
            call.fail(f"its operand is {other}")
        return call.emit(op, value, value=float(other), swap=swap)
    rank = len(value.shape)
    shape = (1,) * (rank + 1 - other.dim()) + tuple(other.shape)
    if len(shape) != rank + 1 or shape[0] != 1:
        call.fail(f"a constant of shape {tuple(other.shape)} meets the batch")
    return call.emit(op, value, named={"c": call.tensor(other, shape=shape[1:])}, swap=swap)


def negate(call: Call) -> Value:
    return call.emit("mul", call.value("self"), value=-1.0)


def square(call: Call) -> Value:
    return call.emit("mul", call.value("self"), call.value("self"))


def power(call: Call) -> Value:
    if call["exponent"] != 2:
        call.fail("only squares are supported")
    return square(call)


def reciprocal(call: Call) -> Value:
    return call.emit("div", call.value("self"), value=1.0, swap=True)
