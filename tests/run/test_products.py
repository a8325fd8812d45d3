"""Convolutions and linear layers of random shapes against torch, in every format and instruction set."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nets import FORMATS, ISAS, VALUES, check, normal, one_node, stored, thinned
from profiles import examples

from membound.run import Net

THIN = ("1", "0.5", "0.1", "0.02", "rows", "zero")
ACTS = (None, ("relu",), ("clip", -1.0, 1.0), ("leaky", 0.1), ("tanh",))


def product(
    op, shape, weight, seed, thin, format, values, batch, max_batch, bias=True, act=None, **attributes
):
    """One layer of random weights, checked."""
    scale = np.float32(np.prod(weight[1:]) ** -0.5)  # so that outputs are about 1
    tensors = {"w": thinned(normal(seed, *weight) * scale, thin, seed)}
    if bias:
        tensors["b"] = thinned(normal(seed + 1, weight[0]), "0.7", seed)
    if act is not None:
        attributes["act"] = act
    model = stored(one_node(op, shape, attributes, tensors), format, values)
    check(model, normal(seed + 2, batch, *shape), max_batch=max_batch, usual=0.3)


storage = {
    "seed": st.integers(0, 10_000),
    "thin": st.sampled_from(THIN),
    "format": st.sampled_from(FORMATS),
    "values": st.sampled_from(VALUES),
    "batch": st.integers(1, 5),
    "max_batch": st.integers(1, 4),
    "bias": st.booleans(),
    "act": st.sampled_from(ACTS),
}
SIDES = st.integers(1, 14)


@st.composite
def convolutions(draw, most_channels=12, side=SIDES):
    """The shape of an image, of a weight, and the attributes of a convolution that fits them."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    each_in, each_out = draw(st.integers(1, most_channels)), draw(st.integers(1, most_channels))
    if draw(st.integers(0, 4)) == 0:
        groups, each_in = draw(st.integers(1, most_channels)), 1  # depthwise, with a multiplier
        each_out = draw(st.integers(1, 3))
    kernel = draw(st.tuples(*[st.sampled_from([1, 1, 2, 3, 3, 5, 7])] * 2))
    stride, dilation = draw(st.tuples(*[st.integers(1, 4)] * 2)), draw(st.tuples(*[st.integers(1, 3)] * 2))
    pad = draw(st.tuples(*[st.integers(0, 4)] * 4))
    size = draw(st.tuples(side, side))
    for i in (0, 1):
        assume(size[i] + pad[i] + pad[i + 2] >= dilation[i] * (kernel[i] - 1) + 1)
    attributes = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    return (groups * each_in, *size), (groups * each_out, each_in, *kernel), attributes


@examples(250)
@given(conv=convolutions(), **storage)
def test_convolutions(conv, **options):
    shape, weight, attributes = conv
    product("conv", shape, weight, **options, **attributes)


@examples(40)
@given(conv=convolutions(most_channels=3, side=st.integers(30, 150)), **{**storage, "batch": st.just(1)})
def test_convolutions_of_wide_images(conv, **options):
    shape, weight, attributes = conv
    product("conv", shape, weight, **options, **attributes)


@examples(30)
@given(
    channels=st.integers(100, 700),
    outputs=st.integers(1, 80),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.sampled_from([(1, 1), (3, 3), (1, 3)]),
    stride=st.sampled_from([(1, 1), (2, 2)]),
    **{**storage, "batch": st.just(2)},
)
def test_convolutions_of_many_channels(channels, outputs, size, kernel, stride, **options):
    pad = (kernel[0] // 2, kernel[1] // 2) * 2
    product("conv", (channels, *size), (outputs, channels, *kernel), **options, pad=pad, stride=stride)


# Shapes that cross every block: of channels, of columns, of rows of the image, of pixels, of output channels.
BLOCKS = {
    "channels": ((96, 27, 27), (40, 96, 5, 5), {"pad": (2, 2, 2, 2)}),
    "rows": ((2, 90, 130), (9, 2, 3, 3), {"pad": (1, 1, 1, 1)}),
    "one long row": ((1, 1, 3000), (5, 1, 1, 9), {"pad": (0, 4, 0, 4)}),
    "one long column": ((1, 3000, 1), (5, 1, 9, 1), {"pad": (4, 0, 4, 0)}),
    "pixels": ((3, 40, 41), (33, 3, 3, 3), {}),
    "a pixel": ((600, 1, 1), (70, 600, 1, 1), {}),
    "a pixel, padded": ((300, 1, 1), (70, 300, 3, 3), {"pad": (1, 1, 1, 1)}),
    "stride beyond the kernel": ((3, 33, 35), (8, 3, 2, 2), {"stride": (5, 4)}),
    "stride beyond the image": ((3, 5, 5), (8, 3, 2, 2), {"stride": (50, 40)}),
    "padding beyond the kernel": ((2, 4, 4), (6, 2, 3, 3), {"pad": (9, 7, 11, 5)}),
    "a channel each, wide": ((4, 9, 245), (8, 1, 3, 3), {"pad": (1, 1, 1, 1), "groups": 4}),
    "a channel each, in steps": (
        (5, 30, 121),
        (5, 1, 5, 5),
        {"pad": (1, 2, 2, 2), "stride": (2, 2), "groups": 5},
    ),
    "a channel each, by sevens": ((6, 19, 33), (12, 1, 7, 7), {"pad": (3, 3, 3, 3), "groups": 6}),
    "a channel each, padded far": ((4, 3, 5), (4, 1, 5, 5), {"pad": (7, 20, 6, 4), "groups": 4}),
    "a channel each, in other steps": (
        (3, 17, 40),
        (3, 1, 3, 3),
        {"pad": (0, 1, 1, 0), "stride": (3, 2), "groups": 3},
    ),
    "rows that begin within a byte": ((299, 7, 7), (21, 299, 1, 1), {}),
    "many channels, many pixels": ((150, 37, 41), (12, 150, 1, 1), {}),
    "long rows, few nonzeros": ((40, 6, 230), (9, 40, 3, 3), {"pad": (1, 1, 1, 1)}),
    "channels a power of two apart": ((70, 32, 32), (9, 70, 1, 1), {}),
    "a channel each, with many rows": ((3, 9, 20), (30, 1, 3, 3), {"pad": (1, 1, 1, 1), "groups": 3}),
    "pixels left out": ((20, 30, 31), (12, 20, 1, 1), {"stride": (2, 3)}),
    "first of alexnet": ((3, 227, 227), (96, 3, 11, 11), {"stride": (4, 4)}),
    "groups of alexnet": ((96, 27, 27), (64, 48, 5, 5), {"pad": (2, 2, 2, 2), "groups": 2}),
}


LARGE = {  # beyond 65,536 floats
    "by threes": ((64, 40, 40), (32, 64, 3, 3), {"pad": (1, 1, 1, 1)}),
    "groups": ((96, 27, 27), (64, 48, 5, 5), {"pad": (2, 2, 2, 2), "groups": 2}),
    "by sevens": ((40, 44, 44), (24, 40, 7, 7), {"pad": (3, 3, 3, 3)}),
}


@pytest.mark.parametrize("thin", ["1", "0.3", "0.05", "rows", "zero"])
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.one_in(9)
def test_convolutions_across_blocks(name, thin):
    shape, weight, attributes = BLOCKS[name]
    for number, format in enumerate(FORMATS):
        values = VALUES[(number + len(name)) % len(VALUES)]
        act = ACTS[(number + len(name) + len(thin)) % len(ACTS)]
        product("conv", shape, weight, 3, thin, format, values, 1, 1, act=act, **attributes)


@pytest.mark.parametrize("format", ["csr", "rice"])
@pytest.mark.parametrize("name", LARGE)
def test_large_images_are_laid_out_tile_by_tile(name, format):
    """What a tile reads comes to a band of its own: channels are nearer to each other there than in the image."""
    shape, weight, attributes = LARGE[name]
    product("conv", shape, weight, 3, "0.1", format, "f32", 1, 1, **attributes)


@pytest.mark.parametrize("act", [None, ("relu",), ("clip", 0.0, 6.0)])
@pytest.mark.parametrize("isa", ISAS)
def test_what_is_no_number_stays(isa, act):
    """Sums are brought within the activation's limits as they are stored; NaN is within none."""
    weight = np.zeros((2, 1, 1, 1), np.float32)
    weight[0] = 1.0
    attributes = {} if act is None else {"act": act}
    net = Net(stored(one_node("conv", (1, 3, 7), attributes, {"w": weight}), "bitmask"), isa=isa)
    x = normal(1, 1, 1, 3, 7)
    x[0, 0, 1, 6] = np.nan
    found = net(x)
    assert np.isnan(found[0, 0, 1, 6])
    assert np.isnan(found).sum() == 1


def test_an_output_whose_terms_cancel():
    product("linear", (200,), (1, 200), 1, "1", "bitmask", "f32", 1, 1, bias=False)


@examples(150)
@given(
    lead=st.lists(st.integers(1, 4), max_size=3),
    outputs=st.one_of(st.just(1), st.integers(1, 80)),
    inputs=st.one_of(st.just(1), st.integers(1, 80), st.integers(200, 1200)),
    **{**storage, "batch": st.sampled_from([1, 2, 3, 7, 16, 33]), "max_batch": st.sampled_from([1, 4, 16])},
)
def test_linear(lead, outputs, inputs, **options):
    product("linear", (*lead, inputs), (outputs, inputs), **options)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [65535, 65536, 65537, 140_000])
@pytest.mark.one_in(9)
def test_linear_with_wide_columns(columns, format, values):
    for thin, batch in (("0.001", 1), ("0.001", 5), ("0.6", 3)):
        product("linear", (columns,), (3, columns), 5, thin, format, values, batch, 5)


@pytest.mark.parametrize("format", FORMATS)
def test_linear_with_more_nonzeros_than_short_pointers_count(format):
    for thin in ("0.9", "0.2"):
        product("linear", (700,), (400, 700), 5, thin, format, "f32", 3, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_that_end_in_fillers_and_gaps(format):
    """Nonzeros farther apart than a row, at row ends, at row starts and alone."""
    for places in ([0], [511 * 40 - 1], [39, 40], [0, 39, 40, 10_000, 10_239], [5000, 5256, 5512, 5769], []):
        weight = np.zeros(511 * 40, np.float32)
        weight[places] = np.arange(1, len(places) + 1)
        for values in VALUES:
            model = one_node("linear", (40,), {}, {"w": weight.reshape(511, 40)})
            check(stored(model, format, values), normal(1, 6, 40), max_batch=6)
            check(stored(model, format, values), normal(1, 1, 40))


def test_halves_of_every_value():
    """Every finite half is read exactly, in dense and sparse formats, by every instruction set."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves) & (halves != 0)].astype(np.float32)
    for format in FORMATS:
        weight = np.zeros((len(halves), 3), np.float32)
        weight[:, 1] = halves
        model = stored(one_node("linear", (3,), {}, {"w": weight}), format, "f16")
        check(model, np.array([[0, 1, 0]], np.float32), tolerance=0)
