"""One record for one thing: here it is found what is missing for an operator, a layout, a type or an activation."""

import re
from pathlib import Path

import format_page
import pytest

from membound import _core
from membound.capture.activations import ACTIVATIONS as IN_TORCH
from membound.capture.channels import FOLLOWERS
from membound.capture.operators import CONVERSIONS
from membound.export.onnx import WRITERS
from membound.run.net import EVERY
from membound.run.plan import PLANNERS
from membound.search.bounds import ISAS, VALUES
from membound.store.graph import ACTIVATIONS
from membound.store.layouts import LAYOUTS
from membound.store.operators import OPERATORS
from membound.store.packed import PALETTE_CODES
from membound.store.values import VALUE_TYPES

bench = pytest.importorskip("membound.capture.torch_graph")
ROOT = Path(__file__).parents[2]
PLACES = {
    "a plan for the core (run/plan.py)": PLANNERS,
    "an ONNX writer (export/onnx.py)": WRITERS,
    "a rule for dead channels (capture/channels.py)": FOLLOWERS,
    "torch's function (capture/torch_graph.py)": bench.MAKERS,
    "a maker in the core (src/kernels/op_plan.cpp)": _core.operators(),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_operator_has(place):
    assert set(OPERATORS) - set(PLACES[place]) == set()


def test_no_place_has_an_operator_that_is_not_in_the_catalogue():
    for place, known in PLACES.items():
        assert set(known) - set(OPERATORS) <= {"folded"}, (
            place
        )  # the core's own: padding that a convolution does


def test_every_operator_is_captured_from_something():
    """Some conversion emits it: by its name in the package's source."""
    text = "".join(path.read_text() for path in (ROOT / "src" / "membound" / "capture").glob("*.py"))
    assert CONVERSIONS
    for name in OPERATORS:
        assert re.search(rf'"{name}"', text), name


def test_the_core_reads_every_layout_type_and_activation():
    assert set(_core.layouts()) == set(LAYOUTS)
    assert set(_core.value_types()) == set(VALUE_TYPES)
    assert set(_core.activations()) == {"none", *ACTIVATIONS}
    assert set(IN_TORCH) == set(ACTIVATIONS)


def test_codes_of_packed_layers_are_unique_and_stay():
    """They are in files: a new one gets another, none changes."""
    assert {name: each.code for name, each in LAYOUTS.items()} == {
        "dense": 0, "bitmask": 1, "indexed": 2, "csr": 3, "delta": 4, "rice": 5
    }  # fmt: skip
    assert {each.bits: name for name, each in VALUE_TYPES.items()} == {
        32: "f32", 16: "f16", **{bits: f"p{bits}" for bits in range(1, 9)}
    }  # fmt: skip
    assert PALETTE_CODES == {0: "", 1: "f32", 2: "f16", 3: "i8", 4: "linear"}


def test_the_tables_are_made_of_the_records():
    """If not: python tools/format_page.py"""
    assert format_page.page() == format_page.PAGE.read_text()


def test_the_page_names_every_layout_with_its_arrays():
    text = format_page.PAGE.read_text()
    for layout in LAYOUTS.values():
        for index in layout.arrays:
            assert (f"`{index.suffix}`" if layout.packed else f"`NAME:{index.suffix}`") in text


def test_what_help_repeats_to_be_instant_is_what_there_is():
    assert set(VALUES) == {"auto", *VALUE_TYPES}
    assert set(ISAS) == {EVERY, *_core.known_isas()}
