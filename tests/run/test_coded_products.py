"""The core on weights of few bits: every layout and type of values, with a scale a row and without, on every path.

The reference is torch in float64 on what the codes mean. A sum may be off by 16 units in the last place of the sum of
its terms' sizes.
"""

import numpy as np
import pytest
import torch
from codes import LAYOUTS, TYPES, coded, conv_plan, linear_plan, packed, run
from profiles import chiefly

from membound import _core

ISAS = _core.isas()
TOLERANCE = 2.0**-20
CASES = [(layout, values, scaled) for layout in LAYOUTS for values in TYPES for scaled in (False, True)]
every_case = pytest.mark.parametrize(
    "case",
    chiefly(
        [
            *((layout, "p4", True) for layout in LAYOUTS),
            *(("rice", values, False) for values in TYPES),
            *(("csr", f"p{bits}", bits % 2 == 0) for bits in range(1, 9)),
            ("dense", "p8", True),
            ("dense", "f32", True),
            ("bitmask", "p3", False),
            ("delta", "f16", True),
        ],
        CASES,
    ),
)


def sparse(rng, shape, density):
    return rng.standard_normal(shape).astype(np.float32) * (rng.random(shape) < density)


def check_conv(shape, kernel, density, layout, values, scaled, *, pad=0, stride=1, groups=1, out=16, batch=2):
    rng = np.random.default_rng(len(layout) + 10 * len(values) + out)
    weight = coded(
        sparse(rng, (out, shape[0] // groups, kernel, kernel), density), layout, values, out, scaled=scaled
    )
    x, bias = rng.standard_normal((batch, *shape)).astype(np.float32), rng.standard_normal(out)
    arguments = {"padding": pad, "stride": stride, "groups": groups}

    def convolved(change):
        tensors = (torch.from_numpy(change(array)) for array in (x.astype(np.float64), weight.meaning, bias))
        return torch.nn.functional.conv2d(*tensors, **arguments).numpy()

    wanted, sizes = convolved(np.asarray), convolved(np.abs)
    plan = conv_plan(weight, shape, bias.astype(np.float32), pad, stride, groups)
    for isa in ISAS:
        for threads in (1, 2):
            found = run(plan, shape, x, isa, threads, max_batch=1 + threads)
            assert (np.abs(found - wanted) <= TOLERANCE * sizes).all(), f"{isa}, {threads} threads"


def check_linear(rows, columns, batch, density, layout, values, scaled, **options):
    rng = np.random.default_rng(rows + columns + batch)
    weight = coded(sparse(rng, (rows, columns), density), layout, values, rows, scaled=scaled, **options)
    x, bias = rng.standard_normal((batch, columns)).astype(np.float32), rng.standard_normal(rows)
    wanted = x.astype(np.float64) @ weight.meaning.T + bias
    sizes = np.abs(x).astype(np.float64) @ np.abs(weight.meaning).T + np.abs(bias)
    for isa in ISAS:
        found = run(linear_plan(weight, bias.astype(np.float32)), (columns,), x, isa)
        assert (np.abs(found - wanted) <= TOLERANCE * sizes).all(), isa


@every_case
def test_convolutions_met_nonzero_by_nonzero(case):
    check_conv((40, 9, 11), 3, 0.05, *case, pad=1)
    check_conv((64, 14, 14), 1, 0.2, *case)


@every_case
def test_convolutions_as_dense_blocks(case):
    check_conv((30, 9, 9), 3, 0.9, *case, pad=1, out=19)
    check_conv((3, 20, 20), 5, 1.0, *case, stride=2, out=17)  # packed as a whole


@every_case
def test_depthwise_convolutions(case):
    check_conv((12, 13, 10), 3, 0.7, *case, pad=1, groups=12, out=12)


@every_case
@pytest.mark.parametrize("batch", [1, 19])
def test_linear_layers(case, batch):
    check_linear(37, 301, batch, 0.2, *case)
    check_linear(5, 700, batch, 1.0, *case)


@pytest.mark.parametrize("k", [0, 1, 2, 5, 7, 8, 9, 12, 15])
def test_gaps_cut_at_any_bit(k):
    for density in (0.0, 0.01, 0.3, 1.0):
        check_linear(23, 411, 1, density, "rice", "p4", False, k=k)
        check_linear(23, 411, 19, density, "rice", "p3", True, k=k)
    check_linear(3, 70001, 1, 0.001, "rice", "f16", False, k=k)


@pytest.mark.parametrize("values", ["p4", "p8", "f16"])
@pytest.mark.parametrize("gap", [1000, 0x3FFE, 0x3FFF, 0x4000, 65470, 65536, 140000])
@pytest.mark.parametrize("k", [0, 4, 9, 10])
def test_gaps_of_any_width(gap, values, k):
    """Kernels decode near entries in 16 bits: up to there, at the edge and beyond, also from row to row."""
    rng = np.random.default_rng(gap + k)
    dense = np.zeros((9, 40009), np.float32)
    dense.reshape(-1)[[3, 4, 90, 91 + gap, 92 + gap, 200000 + gap, 200001 + gap]] = 1
    dense[8, ::7] = 1
    weight = coded(dense, "rice", values, len(dense), k=k)
    x, bias = rng.standard_normal((1, dense.shape[1])).astype(np.float32), np.zeros(len(dense), np.float32)
    wanted = x.astype(np.float64) @ weight.meaning.T
    sizes = np.abs(x).astype(np.float64) @ np.abs(weight.meaning).T
    for isa in ISAS:
        found = run(linear_plan(weight, bias), (dense.shape[1],), x, isa)
        assert (np.abs(found - wanted) <= TOLERANCE * sizes).all(), isa


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layout", ["bitmask", "rice"])
def test_inputs_that_no_nonzero_meets_may_be_infinite(isa, layout):
    rng = np.random.default_rng(0)
    dense = sparse(rng, (23, 411), 0.3)
    dense[:, 5::9] = 0
    weight = coded(dense, layout, "p4", len(dense))
    x = rng.standard_normal((1, 411)).astype(np.float32)
    plan, shape = linear_plan(weight, np.zeros(len(dense), np.float32)), (411,)
    wanted = run(plan, shape, x, isa)
    x[:, 5::9] = np.inf
    assert np.array_equal(run(plan, shape, x, isa), wanted)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "dense"])
def test_linear_layers_of_empty_short_and_long_rows(layout):
    """Rows are decoded some hundred at once, and long ones in parts."""
    check_linear(400, 97, 1, 0.02, layout, "p4", True)
    check_linear(300, 60, 1, 0.15, layout, "f16", False)
    check_linear(3, 4000, 1, 0.6, layout, "p3", False)


@pytest.mark.parametrize("bits", range(1, 5))
@pytest.mark.parametrize("columns", [15, 16, 31, 200])
def test_linear_layers_in_slices(bits, columns):
    """Of 16 rows and windows of 15 columns, where the instruction set has them: also at the edges."""
    check_linear(16 * 7 + bits, columns, 1, 0.7, "csr", f"p{bits}", bits % 2 == 0)
    check_linear(2000 + bits, columns, 3, 0.05, "csr", f"p{bits}", False)


@pytest.mark.parametrize(
    ("layout", "values"), [("csr", "f32"), ("csr", "p4"), ("csr", "p8"), ("rice", "p4"), ("rice", "f16")]
)
def test_what_no_row_takes_may_be_infinite(layout, values):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 61)).astype(np.float32)
    weight = sparse(rng, (90, 61), 0.3)
    weight[:, ::5] = 0
    x[:, ::5] = np.inf
    stored = coded(weight, layout, values)
    wanted = np.where(np.isinf(x), 0, x).astype(np.float64) @ stored.meaning.T
    for isa in ISAS:
        found = run(linear_plan(stored, np.zeros(90, np.float32)), (61,), x, isa)
        assert np.abs(found - wanted).max() < 1e-4, isa


def test_slices_are_counted_where_they_are_made_and_stay_below_float32():
    def memory(density, values, isa):
        weight = sparse(np.random.default_rng(0), (64, 1000), density)
        plan = linear_plan(coded(weight, "csr", values), np.zeros(64, np.float32))[0]
        return {
            each: _core.Network([plan], [1000], [1], isa=isa).memory(each)[0] for each in _core.known_isas()
        }

    for isa in ISAS:
        for values in ("p4", "p3"):
            dense, thin = memory(0.1, values, isa), memory(0.01, values, isa)
            assert 12_000 < dense["avx512"] - dense["avx2"] < 6_400 * 3.5
            assert dense["scalar"] == dense["avx2"] == dense["neon"]
            assert len(set(thin.values())) == len(set(memory(0.1, "p5", isa).values())) == 1


@pytest.mark.parametrize("bits", range(2, 9))
def test_palettes_of_equal_steps(bits):
    """They are computed, not looked up, to the same numbers."""
    steps = (np.arange(2**bits, dtype=np.float32) - 2 ** (bits - 1)) * np.float32(0.0371)
    codes = np.arange(2**bits)
    for palette in (steps, steps + np.float32(1e-3)):
        matrix = _core.Matrix(
            layout="dense",
            values_type=f"p{bits}",
            rows=2**bits,
            columns=1,
            entries=2**bits,
            values=packed(codes, bits),
            arrays=[],
            palette=palette,
        )
        plan = _core.OpPlan("linear", [0], [[1]], [2**bits], "none", [], {}, matrix, {})
        for isa in ISAS:
            for batch in (1, 16):
                x = np.full((batch, 1), 1, np.float32)
                found = run((plan, (2**bits,)), (1,), x, isa)
                assert (found == palette).all()


def test_a_code_beyond_the_palette_means_zero():
    """And reads nothing outside of it: fuzzed files are run under sanitizers."""
    codes = np.array([0b1011_0001], np.uint8)  # 1 and 11, where the palette has two entries
    matrix = _core.Matrix("dense", "p4", 1, 2, 2, codes, [], palette=np.array([5, 7], np.float32))
    plan = _core.OpPlan("linear", [0], [[2]], [1], "none", [], {}, matrix, {"b": np.zeros(1, np.float32)})
    for isa in ISAS:
        assert run((plan, (1,)), (2,), np.ones((1, 2), np.float32), isa).tolist() == [[7.0]]


def test_palette_and_scales_are_counted_and_a_row_of_rice_takes_twelve_bytes():
    rng = np.random.default_rng(0)
    weight = sparse(rng, (8, 50), 0.2)

    def tables(layout, values, scaled):
        plan = linear_plan(coded(weight, layout, values, scaled=scaled), np.zeros(8, np.float32))[0]
        return _core.Network([plan], [50], [1]).memory()[0]

    others = tables("csr", "f32", False)
    assert tables("csr", "p4", False) == others + 16 * 4
    assert tables("csr", "p8", True) == others + 256 * 4 + 8 * 4
    assert tables("rice", "f16", False) == others + 8 * 12 + 4


def matrix(**changes):
    numbers = np.zeros(1, np.uint8)
    given = {
        "layout": "rice",
        "values_type": "p4",
        "rows": 1,
        "columns": 4,
        "entries": 2,
        "values": numbers,
        "arrays": [np.array([3], np.uint8), np.zeros(1, np.uint8)],
        "palette": np.ones(16, np.float32),
        "parameter": 2,
    }
    return _core.Matrix(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": np.zeros(2, np.uint8)}, "an array is not as large as its shape"),
        (
            {"arrays": [np.array([3], np.uint8), np.zeros(2, np.uint8)]},
            "an array is not as large as its shape",
        ),
        ({"arrays": [np.array([3], np.uint16), np.zeros(1, np.uint8)]}, "an index of another type"),
        ({"arrays": []}, "an index of another type"),
        ({"palette": None}, "codes without a palette, or a palette without codes"),
        ({"palette": np.ones(17, np.float32)}, "a palette of more entries than there are codes, or of none"),
        ({"palette": np.ones(0, np.float32)}, "a palette of more entries than there are codes, or of none"),
        ({"palette": np.ones(16)}, "a palette of another type"),
        ({"scales": np.ones(2, np.float32)}, "not one scale a row"),
        ({"scales": np.ones(1)}, "scales of another type"),
        ({"parameter": 16}, "gaps cut at a bit that is not within 0 and 15"),
        ({"parameter": -1}, "gaps cut at a bit that is not within 0 and 15"),
        (
            {"layout": "dense", "entries": 4, "values": np.zeros(2, np.uint8), "arrays": []},
            "a parameter of a layout other than rice",
        ),
        ({"values_type": "p9"}, "there is no p9"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(changes, message):
    matrix()
    with pytest.raises(ValueError, match=message) as error:
        matrix(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": [np.array([1], np.uint8), np.zeros(1, np.uint8)]}, "fewer entries than there are values"),
        ({"arrays": [np.array([6], np.uint8), np.zeros(1, np.uint8)]}, "an entry outside of the weight"),
    ],
)
def test_gaps_that_lead_outside_are_refused(changes, message):
    """Files are validated before; the core reads all gaps at load anyway, and kernels rely on them."""
    plan = _core.OpPlan("linear", [0], [[4]], [1], "none", [], {}, matrix(**changes), {})
    with pytest.raises(ValueError, match=message):
        _core.Network([plan], [4], [1])
