"""The ratios that benchmarks/deployment.py reports."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from deployment import compare, ratio, summary


def row(name: str, *turns: float) -> dict:
    return {"name": name, "min_ms": min(turns), "turns_ms": list(turns)}


def test_a_ratio_has_the_interval_of_its_turns():
    found = ratio(row("openvino", 2.0, 4.0, 2.0, 4.0), row("membound", 1.0, 1.0, 1.0, 1.0))
    assert found["ratio"] == pytest.approx(math.sqrt(8))
    half = 3.18 * (math.log(2) / math.sqrt(3)) / 2  # t x deviation / sqrt(n), of logarithms
    assert math.log(found["high"] / found["ratio"]) == pytest.approx(half)
    assert math.log(found["ratio"] / found["low"]) == pytest.approx(half)


def test_float32_races_float32_and_few_bits_race_int8():
    rows = [
        row("membound", 2.0, 2.0),
        row("membound net-f16", 2.5, 2.5),
        row("membound net-p4", 1.0, 1.0),
        row("onnxruntime", 4.0, 4.0),
        row("openvino", 3.0, 3.0),
        row("openvino default", 0.1, 0.1),
        row("openvino int8", 1.5, 1.5),
        {"name": "deepsparse", "error": "it ended"},
    ]
    found = compare(rows)
    assert (found["fastest_peer"], found["times_faster"]) == ("openvino", 1.5)
    assert set(found["ratios"]) == {"onnxruntime", "openvino"}
    assert found["fastest_int8"] == "openvino int8"
    assert {key: each["ratio"] for key, each in found["int8_ratios"].items()} == pytest.approx(
        {"f32": 0.75, "f16": 0.6, "p4": 1.5}
    )


def test_the_summary_counts_rows_that_are_ahead():
    found = summary([{"times_faster": 0.5}, {"times_faster": 2.0}, {"times_faster": 8.0}])
    assert found == {"rows": 3, "ahead": 2, "geometric_mean": pytest.approx(2.0), "least": 0.5}
