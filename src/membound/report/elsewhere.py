"""How fast the dense network is elsewhere, or in 8 bits here: in floats or in int8, whichever is faster."""

from collections.abc import Mapping
from typing import Any

from membound.report.text import find_number, find_part, find_text

Facts = Mapping[str, Any]
OURS = "membound"  # times dense in 8 bits where no other runtime is faster


def fastest_elsewhere(dense: Facts) -> tuple[Facts, str, str] | None:
    """Its time, and what runs where; None where nothing but the file and dense in floats was timed.

    >>> int8, floats = ({"latency_ms": ms, "latency_by": "ONNX Runtime"} for ms in (0.5, 0.4))
    >>> fastest_elsewhere({"int8": int8})[1:], fastest_elsewhere({"int8": int8, "floats_elsewhere": floats})[1:]
    (('dense int8', 'ONNX Runtime'), ('dense floats', 'ONNX Runtime'))
    """
    known = [
        (net, kind, by)
        for kind, net in (
            ("dense int8", find_part(dense, "int8")),
            ("dense floats", find_part(dense, "floats_elsewhere")),
        )
        if find_number(net, "latency_ms") is not None and (by := find_text(net, "latency_by")) is not None
    ]
    return min(known, key=lambda each: find_number(each[0], "latency_ms") or 0.0) if known else None
