"""Which engine to run a file in: the times of both, floats and 8-bit integers, and what they are compared with."""

import math
from collections.abc import Mapping
from typing import Any

from membound.report.elsewhere import fastest_elsewhere
from membound.report.text import Score, find_number, find_part, name_of_example, show_milliseconds

Facts = Mapping[str, Any]
SAME = 1.05  # times as fast or as slow that are not worth a word
MOST = (
    1.5  # times that noise may explain: latencies are the least of interleaved turns, also on a busy machine
)


def say_engines(final: Facts, dense: Facts, score: Score) -> str | None:
    """How long an image takes in both engines, that to use first: beside dense, and the fastest other runtime.

    >>> int8 = {"latency_ms": 0.5, "latency_by": "ONNX Runtime"}
    >>> final, dense = {"latency_ms": 0.6}, {"latency_ms": 0.9, "int8": int8}
    >>> print(say_engines(final | {"engine_int8": {"latency_ms": 0.25, "accuracy": 98.9}}, dense, Score()))
    In 8-bit integers (engine int8): 0.250 ms an image, 2.4 times as fast as in floats, 2.0 times as fast as dense \
int8 in ONNX Runtime (0.500 ms), 98.90 %. In floats: 0.600 ms an image, 1.5 times as fast as dense (0.900 ms).
    >>> own = final | {"engine_int8": {"latency_ms": 0.25, "accuracy": 1}}
    >>> print(say_engines(own, {}, Score("F1", percent=False)))
    In 8-bit integers (engine int8): 0.250 ms an image, 2.4 times as fast as in floats, F1 1.000. \
In floats: 0.600 ms an image.
    >>> print(say_engines(final | {"engine_int8": {"latency_ms": 0.75}}, dense, Score()))
    In floats: 0.600 ms an image, 1.5 times as fast as dense (0.900 ms). Dense int8 in ONNX Runtime: 0.500 ms. \
In 8-bit integers (engine int8): 0.750 ms, 1.2 times as slow as in floats.
    >>> in_floats = {"floats_elsewhere": {"latency_ms": 0.4, "latency_by": "ONNX Runtime"}}
    >>> print(say_engines(final, dense | in_floats, Score()))
    In floats: 0.600 ms an image, 1.5 times as fast as dense (0.900 ms). Dense floats in ONNX Runtime: 0.400 ms.
    >>> say_engines(final, {}, Score())
    '0.600 ms an image.'
    """
    floats, peer = say_speed(final, dense), fastest_elsewhere(dense)
    if floats is None:
        return None
    there = "" if peer is None else f"{peer[1]} in {peer[2]}"
    taken = None if peer is None else find_number(peer[0], "latency_ms")
    other = find_part(final, "engine_int8")
    ours, accuracy = find_number(other, "latency_ms"), find_number(other, "accuracy")
    beside = "" if ours is None else compare_engines(final)
    if ours is None or not gains_by_integers(final):
        elsewhere = "" if taken is None else f" {there[:1].upper()}{there[1:]}: {show_milliseconds(taken)}."
        more = (
            "" if ours is None else f" In 8-bit integers (engine int8): {show_milliseconds(ours)}, {beside}."
        )
        return f"In floats: {floats}{elsewhere}{more}" if elsewhere or more else floats
    words = f"{show_milliseconds(ours)} an {name_of_example(final)}, {beside}"
    if peer is not None and taken is not None:
        compared = compare_speed(ours, taken, noise_between(other, peer[0]), there)
        words = f"{words}, {compared} ({show_milliseconds(taken)})"
    judged = "; evaluate it before you ship it" if accuracy is None else f", {score.show_named(accuracy)}"
    return f"In 8-bit integers (engine int8): {words}{judged}. In floats: {floats}"


def say_which(final: Facts) -> str | None:
    """Why the lines to copy name the engine that they do.

    >>> say_which({"latency_ms": 0.6, "engine_int8": {"latency_ms": 0.25}})
    'Engine int8 is 2.4 times as fast as floats here: 0.250 ms an image, floats 0.600 ms.'
    >>> say_which({"latency_ms": 0.6, "engine_int8": {"latency_ms": 0.9}})
    'In floats, the default: 0.600 ms an image. Engine int8 is 1.5 times as slow as floats here (0.900 ms).'
    """
    floats, integers = _times(final)
    if floats is None or integers is None:
        return None
    first, second = show_milliseconds(floats), show_milliseconds(integers)
    compared, example = compare_speed(integers, floats, SAME, "floats"), name_of_example(final)
    if gains_by_integers(final):
        return f"Engine int8 is {compared} here: {second} an {example}, floats {first}."
    return f"In floats, the default: {first} an {example}. Engine int8 is {compared} here ({second})."


def say_speed(final: Facts, dense: Facts) -> str | None:
    """How long an image takes in floats, beside dense."""
    ours, theirs = find_number(final, "latency_ms"), find_number(dense, "latency_ms")
    if ours is None:
        return None
    words = f"{show_milliseconds(ours)} an {name_of_example(final)}"
    return (
        f"{words}."
        if theirs is None
        else f"{words}, {compare_speed(ours, theirs, noise_between(final, dense))} ({show_milliseconds(theirs)})."
    )


def gains_by_integers(final: Facts) -> bool:
    """Whether the same file is faster with convolutions in 8-bit integers, by the least times of turns with floats.

    What a usual turn adds does not count: on a busy machine it would hide any gain. The least times are of moments that
    nobody disturbed.

    >>> gains_by_integers({"latency_ms": 0.6, "latency_spread": 0.9, "engine_int8": {"latency_ms": 0.5}})
    True
    """
    floats, integers = _times(final)
    return floats is not None and integers is not None and floats > integers * SAME


def compare_engines(final: Facts) -> str:
    """
    >>> compare_engines({"latency_ms": 0.6, "engine_int8": {"latency_ms": 0.61}})
    'about as fast as in floats'
    """
    floats, integers = _times(final)
    return compare_speed(integers or 0.0, floats or 0.0, SAME, "in floats")


def _times(final: Facts) -> tuple[float | None, float | None]:
    return find_number(final, "latency_ms"), find_number(find_part(final, "engine_int8"), "latency_ms")


def noise_between(ours: Facts, theirs: Facts) -> float:
    """How many times as fast or as slow may be chance: what usual turns of both add to their latencies.

    >>> round(noise_between({"latency_spread": 0.1}, {"latency_spread": 0.2}), 2), noise_between({}, {})
    (1.32, 1.05)
    >>> noise_between({"latency_spread": 0.9}, {"latency_spread": 0.9})
    1.5
    """
    spreads = [1 + (find_number(net, "latency_spread") or 0.0) for net in (ours, theirs)]
    return min(MOST, max(SAME, math.prod(spreads)))


def compare_speed(ours: float, theirs: float, noise: float = SAME, other: str = "dense") -> str:
    """
    >>> compare_speed(2.0, 5.0), compare_speed(5.0, 2.0), compare_speed(1.0, 1.2, noise=1.3)
    ('2.5 times as fast as dense', '2.5 times as slow as dense', 'about as fast as dense')
    """
    times = theirs / ours if ours else math.inf
    if 1 / noise <= times <= noise:
        return f"about as fast as {other}"
    shown = max(times, 1 / times)
    return f"{shown:.1f} times as {'fast' if times > 1 else 'slow'} as {other}"
