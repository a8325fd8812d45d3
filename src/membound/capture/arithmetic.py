"""Activations and arithmetic: element by element, with numbers and constants broadcast as torch does."""

import math
from collections.abc import Callable
from dataclasses import replace
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


def celu(call: Call) -> Value:
    """x if x > 0 else alpha (exp(x / alpha) - 1)."""
    alpha = float(call.get("alpha", 1))
    value = call.value("self")
    out = _act(call, call.emit("div", value, out=value.shape, value=alpha), "elu", 1.0)
    return call.emit("mul", out, value=alpha)


def exponential(call: Call) -> Value:
    """exp(x) = sigmoid(x) / sigmoid(-x), to within a few roundings wherever both are finite."""
    value = call.value("self")
    below = call.emit("mul", value, out=value.shape, value=-1.0)
    return call.emit("div", _act(call, value, "sigmoid"), _act(call, below, "sigmoid"), out=value.shape)


def selu(call: Call) -> Value:
    out = _act(call, call.value("self"), "elu", 1.6732632423543772848170429916717)
    return call.emit("mul", out, value=1.0507009873554804934193349852946)


def prelu(call: Call) -> Value:
    slope = call.constant("weight")
    value = call.value("self")
    if slope.numel() == 1:
        return _act(call, value, "leaky", float(slope))
    # One slope a channel: what is above 0, and what is below it, times the slope.
    shape = (-1, *(1 for _ in value.shape[1:]))
    below = _act(call, value, "clip", -LARGEST, 0.0)
    scaled = call.emit("mul", below, named={"c": call.tensor(slope.reshape(shape), call.within("slope"))})
    return call.emit("add", _act(call, value, "relu"), scaled)


def clamp(call: Call) -> Value:
    low, high = (_bound(call, name) for name in ("min", "max"))
    value = call.value("self")
    if isinstance(low, Tensor | Value) or isinstance(high, Tensor | Value):
        for op, bound in (("maximum", low), ("minimum", high)):
            value = value if bound is None else replace(combine(call, op, value, bound), place=call.place)
        return value
    if low is None and high is None:
        return value
    if low == 0 and high is None:
        return _act(call, value, "relu")
    return _act(call, value, "clip", -LARGEST if low is None else low, LARGEST if high is None else high)


def _bound(call: Call, name: str) -> Any:
    """A bound of a clamp: absent, infinite (the same), a number, or one for each element."""
    bound = call.get(name, call.get(f"{name}_val"))
    if isinstance(bound, Tensor) and bound.numel() == 1:
        bound = bound.item()
    if isinstance(bound, Tensor | Value):
        return bound
    return None if bound is None or math.isinf(bound) else float(bound)


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
    rank = max(_rank(left), _rank(right))
    left, right = (_lifted(call, side, rank) for side in (left, right))
    if isinstance(left, Value) and isinstance(right, Value):
        if len(left.shape) != len(right.shape) or left.place != right.place:
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
    rank, place = value.rank, value.place
    shape = (1,) * (rank - other.dim()) + tuple(other.shape)
    folded = place.fold > 1 and place.outer == 1 and len(shape) == rank and shape[place.at] == place.fold
    if len(shape) != rank or (shape[place.at] != 1 and not folded):
        call.fail(f"a constant of shape {tuple(other.shape)} meets the batch")
    own = shape if place.fold > 1 else shape[: place.at] + shape[place.at + 1 :]
    return call.emit(op, value, named={"c": call.tensor(other, shape=own)}, swap=swap)


def _rank(operand: Any) -> int:
    return operand.rank if isinstance(operand, Value) else operand.dim() if isinstance(operand, Tensor) else 0


def _lifted(call: Call, operand: Any, rank: int) -> Any:
    """A value with as many of torch's axes as that, those in front being 1."""
    more = rank - operand.rank if isinstance(operand, Value) else 0
    if more == 0:
        return operand
    lifted = call.reshape(operand, (1,) * more + operand.shape)
    return replace(lifted, place=replace(operand.place, at=operand.place.at + more))


def negate(call: Call) -> Value:
    return call.emit("mul", call.value("self"), value=-1.0)


def square(call: Call) -> Value:
    return call.emit("mul", call.value("self"), call.value("self"))


def power(call: Call) -> Value:
    value, exponent = call.value("self"), call["exponent"]
    if isinstance(exponent, Tensor) and exponent.numel() == 1:
        exponent = exponent.item()
    if isinstance(exponent, Tensor | Value) or abs(exponent) not in (0.5, 1, 2, 3, 4):
        found = exponent if isinstance(exponent, int | float) else "a tensor"
        call.fail(f"its exponent is {found}; 0.5, 1, 2, 3 and 4 are supported, and these negated")
    out = value
    if abs(exponent) == 0.5:
        out = _act(call, value, "sqrt")
    elif abs(exponent) > 1:
        out = call.emit("mul", value, value)
    if abs(exponent) > 2:
        out = call.emit("mul", out, value if abs(exponent) == 3 else out)
    return out if exponent > 0 else call.emit("div", out, value=1.0, swap=True)


def reciprocal(call: Call) -> Value:
    return call.emit("div", call.value("self"), value=1.0, swap=True)


def reciprocal_root(call: Call) -> Value:
    return call.emit("div", _act(call, call.value("self"), "sqrt"), value=1.0, swap=True)


def absolute(call: Call) -> Value:
    return _act(call, call.value("self"), "leaky", -1.0)


def softsign(call: Call) -> Value:
    value = call.value("self")
    return call.emit("div", value, call.emit("add", _act(call, value, "leaky", -1.0), value=1.0))


def softplus(call: Call) -> Value:
    """log(1 + e^(beta x)) / beta; what torch leaves out above its threshold is too small to see."""
    beta, threshold = float(call.get("beta", 1)), float(call.get("threshold", 20))
    if threshold < 15:
        call.fail(f"its threshold is {threshold}; from 15 on it is supported")
    value = call.value("self")
    if beta == 1:
        return _act(call, value, "softplus")
    out = _act(call, call.emit("mul", value, value=beta), "softplus")
    return call.emit("mul", out, value=1 / beta)


def log_sigmoid(call: Call) -> Value:
    """log(1 / (1 + e^-x)) = -softplus(-x)."""
    value = call.value("self")
    below = call.emit("mul", value, out=value.shape, value=-1.0)
    return call.emit("mul", _act(call, below, "softplus"), value=-1.0)


def gated(call: Call) -> Value:
    """aten.glu: the first half times the sigmoid of the second."""
    value, axis = call.value("self"), call.axis(call.get("dim", -1))
    half = value.shape[axis] // 2
    first, second = (
        call.emit("slice", value, axis=axis, start=start, stop=start + half, step=1) for start in (0, half)
    )
    return call.emit("mul", first, _act(call, second, "sigmoid"))


def add_product(call: Call) -> Value:
    """aten.addcmul: self + value * tensor1 * tensor2."""
    first, second = call["tensor1"], call["tensor2"]
    product = combine(call, "mul", first, second) if _any_value(first, second) else first * second
    return combine(call, "add", call["self"], _scaled(call, product, float(call.get("value", 1))))


def add_quotient(call: Call) -> Value:
    """aten.addcdiv: self + value * tensor1 / tensor2."""
    first, second = call["tensor1"], call["tensor2"]
    quotient = combine(call, "div", first, second) if _any_value(first, second) else first / second
    return combine(
        call, "add", call["self"], _scaled(call, _put(call, quotient), float(call.get("value", 1)))
    )


def between(call: Call) -> Value:
    """aten.lerp: self + weight (end - self)."""
    start, end = call["self"], call["end"]
    off = combine(call, "sub", end, start) if _any_value(start, end) else end - start
    return combine(call, "add", start, _put(call, combine(call, "mul", _put(call, off), call["weight"])))


def _put(call: Call, operand: Any) -> Any:
    """A value that was just made, with the batch where the result has it."""
    return replace(operand, place=call.place) if isinstance(operand, Value) else operand


def _any_value(*operands: Any) -> bool:
    return any(isinstance(operand, Value) for operand in operands)


LOWEST = -1e30  # stands for minus infinity in what a softmax sees
