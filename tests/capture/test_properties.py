"""Operators of attention, norms, resizing and recurrence over shapes, axes and options, against torch in float64.

Each example is a network of its own, traced, stored and run; test_from_torch.py has one of each for `make test`.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import net
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import examples
from torch import nn

from membound.capture import capture
from membound.run import Net
from membound.store.file import read_bytes, to_bytes

pytestmark = pytest.mark.full
SIZE = st.integers(1, 9)
PAIR = st.tuples(SIZE, SIZE)
SMALL = st.tuples(st.integers(1, 4), st.integers(1, 4))


def agree(network, *shape, few=2e-5):
    """On batches of 1 and 3; and none in, none out."""
    torch.manual_seed(0)
    network = network.eval()
    run = Net(read_bytes(to_bytes(capture(network, torch.zeros(1, *shape)))), max_batch=2, threads=1)
    precise = copy.deepcopy(network).double()
    for batch in (1, 3):
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(batch))
        torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                wanted = precise(x.double()).numpy()
        finally:
            torch.set_default_dtype(torch.float32)
        found = run(x.numpy())
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max(initial=0) <= few * max(1, np.abs(wanted).max(initial=0))
    assert run(np.zeros((0, *shape), np.float32)).shape == (0, *wanted.shape[1:])


def of(function):
    return net(lambda m, x: function(x))


@examples(60)
@given(SMALL, SMALL, SMALL, SMALL, st.sampled_from([1, 2]), st.booleans(), PAIR)
def test_transposed_convolutions(kernel, stride, padding, dilation, groups, more, size):
    pads = [p - 1 for p in padding]
    extra = [int(more and max(s, d) > 1) for s, d in zip(stride, dilation, strict=True)]
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(size, stride, pads, dilation, kernel, extra, strict=True)
    ]
    assume(min(sizes) >= 1)
    agree(nn.ConvTranspose2d(4, 6, kernel, stride, pads, extra, groups, more, dilation), 4, *size)


@examples(60)
@given(
    st.sampled_from(["nearest", "nearest-exact", "bilinear", "bicubic"]),
    st.one_of(PAIR.map(lambda size: {"size": size}), st.floats(0.4, 3).map(lambda by: {"scale_factor": by})),
    st.booleans(),
    PAIR,
)
def test_interpolation(mode, how, corners, size):
    assume("size" in how or min(size) * how["scale_factor"] >= 1)
    options = {"align_corners": corners} if mode.startswith("bi") else {}
    agree(of(lambda x: 1.5 * F.interpolate(x, mode=mode, **how, **options)), 3, *size)


@examples(40)
@given(st.data(), st.tuples(st.integers(1, 3), SIZE, SIZE), st.integers(1, 20))
def test_products_of_values_broadcast(data, shape, columns):
    """Along channels one of the operands may have an axis of 1, and so may its matrices."""
    axis = data.draw(st.sampled_from([None, 1, 2]))

    def forward(m, x):
        other = m.linear(x)
        other = other if axis is None else other.mean(axis, keepdim=True)
        return x.transpose(2, 3) @ other if axis != 2 else other @ m.linear(x).transpose(2, 3)

    agree(net(forward, linear=nn.Linear(shape[2], columns)), *shape)


@examples(60)
@given(st.data(), st.sampled_from(["group", "instance", "layer", "rms", "vector"]), PAIR, st.integers(1, 4))
def test_norms(data, kind, size, groups):
    channels = groups * data.draw(st.integers(1, 3))
    affine, eps = data.draw(st.booleans()), data.draw(st.sampled_from([1e-5, 1e-2]))
    if kind == "group":
        assume(channels // groups * size[0] * size[1] > 1)  # torch itself refuses a group of one value
        network = nn.GroupNorm(groups, channels, eps, affine)
    elif kind == "instance":
        assume(size[0] * size[1] > 1)
        network = nn.InstanceNorm2d(channels, eps, affine=affine)
    elif kind in ("layer", "rms"):
        last = data.draw(st.integers(1, 3))
        network = (nn.LayerNorm if kind == "layer" else nn.RMSNorm)((channels, *size)[-last:], eps, affine)
    else:
        axes = data.draw(st.sets(st.integers(1, 3), min_size=1).map(sorted))
        order, keep = data.draw(st.sampled_from([1, 2])), data.draw(st.booleans())
        network = of(lambda x: torch.linalg.vector_norm(x, order, dim=axes, keepdim=keep))
    # Few elements of nearly the same value are divided by next to nothing.
    agree(network, channels, *size, few=2e-3 if kind != "vector" else 2e-5)


@examples(40)
@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 12),
    SIZE,
    st.sampled_from(["", "causal", "on", "add"]),
)
def test_attention(heads, queries, keys, width, mask):
    """Cross attention: queries are the first part of the input, keys and values the rest."""

    def forward(m, x):
        query, key = x[:, :, :queries], x[:, :, queries:]
        options = {"is_causal": True} if mask == "causal" else {}
        if mask == "on":
            options["attn_mask"] = torch.ones(queries, keys, dtype=torch.bool).tril(keys)
        if mask == "add":
            options["attn_mask"] = torch.linspace(-2, 2, keys).expand(queries, keys)
        return F.scaled_dot_product_attention(query, key, key * 2, **options)

    agree(net(forward), heads, queries + keys, width)


@examples(30)
@given(
    st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]), st.integers(1, 6), SIZE, st.integers(2, 9), st.integers(1, 2),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_recurrent_layers(cell, steps, inputs, hidden, layers, both, bias, first, projected):
    options = {"proj_size": hidden - 1} if projected and cell is nn.LSTM else {}
    layer = cell(inputs, hidden, layers, bias=bias, batch_first=first, bidirectional=both, **options)

    def forward(m, x):
        found = m.rnn(x if first else x.transpose(0, 1))[0]
        return found if first else found.transpose(0, 1)

    agree(net(forward, rnn=layer), steps, inputs)


@examples(120)
@given(st.data(), st.tuples(SIZE, SIZE, SIZE))
def test_moves_and_reductions(data, shape):
    axis = data.draw(st.integers(1, 3))
    axes = data.draw(st.sets(st.integers(1, 3), min_size=1).map(sorted))
    shift, keep = data.draw(st.integers(-9, 9)), data.draw(st.booleans())
    places = data.draw(st.lists(st.integers(0, shape[axis - 1] - 1), min_size=1, max_size=5))
    mode = data.draw(st.sampled_from(["reflect", "replicate", "circular"]))
    pads = [min(data.draw(st.integers(0, 3)), shape[dim] - (mode == "reflect")) for dim in (2, 2, 1, 1)]
    function = data.draw(
        st.sampled_from(
            [
                lambda x: x.roll(shift, axis),
                lambda x: x.flip(axes),
                lambda x: x.amax(axes, keepdim=keep),
                lambda x: x.max(axis, keepdim=keep)[0],
                lambda x: x.amin(axes, keepdim=keep),
                lambda x: x.min(axis, keepdim=keep)[0],
                lambda x: x.var(axes, correction=0, keepdim=keep),
                lambda x: torch.cat([x, 2 * x], axis).std(axis, keepdim=keep),
                lambda x: x.tril(shift),
                lambda x: x.triu(shift),
                lambda x: F.pixel_unshuffle(x.repeat(1, 1, 2, 2), 2),
                lambda x: x.mean(axes, keepdim=keep),
                lambda x: x.sum(axes, keepdim=keep),
                lambda x: x.softmax(axis),
                lambda x: x.log_softmax(axis),
                lambda x: x.index_select(axis, torch.tensor(places)),
                lambda x: F.pad(x, pads, mode),
                lambda x: F.pad(x, [1, -min(1, shape[2] - 1), 0, 2], value=0.5),
                lambda x: torch.stack([x, 2 * x], axis),
                lambda x: torch.cat([x.amax(axis, keepdim=True), x], axis),
            ]
        )
    )
    agree(of(lambda x: function(x) * 1.5), *shape)


@examples(60)
@given(st.data(), st.tuples(SIZE, SIZE, SIZE))
def test_functions_of_elements(data, shape):
    spread = tuple(data.draw(st.sampled_from([1, size])) for size in shape)
    constant = torch.randn(1, *spread, generator=torch.Generator().manual_seed(2))
    mask = constant > 0
    network = data.draw(
        st.sampled_from(
            [
                nn.PReLU(shape[0], init=0.3),
                nn.Mish(),
                nn.Softplus(beta=1.5),
                nn.Softsign(),
                nn.CELU(0.7),
                nn.LogSigmoid(),
                of(lambda x: torch.rsqrt(x.abs() + 0.1)),
                of(lambda x: x.clamp(min=constant.to(x.dtype))),
                of(torch.abs),
                of(lambda x: torch.maximum(x, constant.to(x.dtype))),
                of(lambda x: torch.minimum(constant.to(x.dtype), x)),
                of(lambda x: torch.addcmul(x, x, constant.to(x.dtype), value=0.5)),
                of(lambda x: x.masked_fill(mask, -2.0)),
                of(lambda x: torch.where(mask, x, -x)),
                of(lambda x: F.glu(torch.cat([x, 2 * x], 2), 2)),
                of(lambda x: torch.exp(x) - constant.to(x.dtype)),
                of(lambda x: F.normalize(x, dim=1)),
            ]
        )
    )
    agree(network, *shape)
