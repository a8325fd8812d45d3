"""Shapes: as torch has them where a graph is sound, one clear error with the node's name where it is not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from torch.nn import functional as F

from membound.errors import ModelError
from membound.store.graph import Graph, Node
from membound.store.operators import OPERATORS, attributes
from membound.store.shapes import infer_shapes

TENSORS = {
    "conv": (8, 3, 5, 5), "grouped": (8, 1, 3, 3), "bias": (8,), "matrix": (10, 7), "ten": (10,),
    "image": (3, 9, 1), "vector": (7,),
}  # fmt: skip
CONV = {"w": "conv", "b": "bias"}


def shape_of(op, shapes, attributes=None, tensors=None):
    """The output of one node, whose inputs have these shapes."""
    if isinstance(shapes, tuple):
        shapes = [shapes]
    first = shapes[0] if shapes else (1,)
    nodes = [
        Node("pad", (0,), {"pad": tuple((0, b - a) for a, b in zip(first, s, strict=True))})
        for s in shapes[1:]
    ]
    nodes.append(Node(op, tuple(range(len(shapes))), attributes or {}, tensors or {}))
    return infer_shapes(Graph(first, tuple(nodes), len(nodes)), TENSORS)[-1]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "tensors", "expected"),
    [
        ("conv", (3, 9, 9), {}, CONV, (8, 5, 5)),
        ("conv", (3, 9, 9), {"stride": [2, 1], "pad": [2, 0, 1, 3], "act": ["relu"]}, CONV, (8, 4, 8)),
        ("conv", (3, 9, 9), {"dilation": (2, 1)}, {"w": "conv"}, (8, 1, 5)),
        ("conv", (4, 9, 9), {"groups": 4}, {"w": "grouped", "b": "bias"}, (8, 7, 7)),
        ("conv", (3, 1, 1), {"pad": (9, 9, 9, 9)}, CONV, (8, 15, 15)),
        ("linear", (7,), {}, {"w": "matrix", "b": "ten"}, (10,)),
        ("linear", (4, 5, 7), {"act": ("clip", 0, 6)}, {"w": "matrix"}, (4, 5, 10)),
        ("maxpool", (3, 9, 9), {"kernel": (2, 3)}, None, (3, 4, 3)),
        ("maxpool", (3, 9, 9), {"kernel": (2, 2), "pad": (0, 0, 1, 1)}, None, (3, 5, 5)),
        ("avgpool", (3, 9, 9), {"kernel": (2, 2), "over": (1, 0), "count": "valid"}, None, (3, 5, 4)),
        ("avgpool", (3, 9, 9), {"kernel": (9, 9), "count": 7}, None, (3, 1, 1)),
        ("adaptive", (3, 9, 9), {"kind": "max", "size": (2, 20)}, None, (3, 2, 20)),
        ("upsample", (3, 9, 7), {"factor": [2, 3]}, None, (3, 18, 21)),
        ("upsample", (1, 1, 1), {"factor": (16384, 1)}, None, (1, 16384, 1)),
        ("lrn", (3, 9, 9), {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1}, None, (3, 9, 9)),
        ("layernorm", (3, 7), {}, {"w": "vector", "b": "vector"}, (3, 7)),
        ("layernorm", (5, 3, 9, 1), {"last": 3, "eps": 1}, {"w": "image"}, (5, 3, 9, 1)),
        ("act", (), {"act": ("gelu",)}, None, ()),
        ("add", [(3, 1), (3, 5)], {}, None, (3, 5)),
        ("sub", (3, 9, 9), {"value": 2, "swap": True}, None, (3, 9, 9)),
        ("mul", (3, 9, 9), {"act": ["tanh"]}, {"c": "image"}, (3, 9, 9)),
        ("div", (1, 9, 9), {}, {"c": "image"}, (3, 9, 9)),
        ("concat", [(3, 2), (3, 5), (3, 2)], {"axis": 1}, None, (3, 9)),
        ("reshape", (3, 4), {"shape": (2, 6)}, None, (2, 6)),
        ("reshape", (1, 1), {"shape": ()}, None, ()),
        ("permute", (3, 4, 5), {"axes": (2, 0, 1)}, None, (5, 3, 4)),
        ("slice", (3, 10), {"axis": 1, "start": 1, "stop": 9, "step": 3}, None, (3, 3)),
        ("mean", (3, 4, 5), {"axes": (2, 1)}, None, (3,)),
        ("mean", (3, 4, 5), {"axes": (1, 2), "keep": True}, None, (3, 1, 1)),
        ("softmax", (3, 4), {"axis": 1, "log": True}, None, (3, 4)),
        ("maximum", [(3, 1), (3, 5)], {}, None, (3, 5)),
        ("minimum", (3, 9, 9), {"value": 2}, None, (3, 9, 9)),
        ("max", (3, 4, 5), {"axes": (2, 1), "keep": True}, None, (3, 1, 1)),
        ("gather", (3, 4, 5), {"axis": 1, "indices": [3, 0]}, None, (3, 2, 5)),
        ("matmul", [(1, 2, 3), (4, 3, 3)], {}, None, (4, 2, 3)),
        ("matmul", [(2, 3), (5, 3)], {"transpose": True, "scale": 0.5}, None, (2, 5)),
        ("resize", (3, 9, 7), {"kind": "cubic", "size": [2, 20], "corners": True}, None, (3, 2, 20)),
        ("resize", (3, 9, 7), {"kind": "exact", "size": (9, 8), "scale": [1.1, 1.2]}, None, (3, 9, 8)),
        ("constant", [], {}, {"c": "image"}, (3, 9, 1)),
        ("input", [], {"shape": [3, 4]}, None, (3, 4)),
        ("input", [], {"shape": ()}, None, ()),
        ("embedding", (5,), {}, {"w": "matrix"}, (5, 7)),
        ("embedding", (), {}, {"w": "matrix"}, (7,)),
        ("pad", (3, 4), {"pad": ((0, 0), (1, 2)), "value": -1.5}, None, (3, 7)),
    ],
)  # fmt: skip
def test_the_shape_of_each_operator(op, shapes, attributes, tensors, expected):
    assert shape_of(op, shapes, attributes, tensors) == expected


def test_every_operator_is_tested():
    marks = test_the_shape_of_each_operator.pytestmark[0].args[1]
    assert {case[0] for case in marks} == set(OPERATORS)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "tensors", "words"),
    [
        ("conv", (3, 9), {}, CONV, r"its input has the shape \[3, 9\]"),
        ("conv", (4, 9, 9), {}, CONV, "in 1 groups does not fit an input of 4 channels"),
        ("conv", (3, 9, 9), {}, {"w": "matrix"}, r"its weight has the shape \[10, 7\]"),
        ("conv", (3, 9, 9), {}, {"w": "conv", "b": "ten"}, r"its bias has the shape \[10\]: it must be \[8\]"),
        ("conv", (3, 4, 9), {}, CONV, "a window over 5 does not fit 4"),
        ("conv", (3, 9, 9), {"stride": (1,)}, CONV, r"stride is \[1\]: it must be a list of 2 whole numbers"),
        ("conv", (3, 9, 9), {"groups": True}, CONV, "groups is True"),
        ("conv", (3, 9, 9), {"pad": (0, 0, 0, -1)}, CONV, "pad is .* from 0 to 16384"),
        ("conv", (3, 9, 9), {}, {"w": "conv", "c": "ten"}, "in the role 'c': its roles are w, b"),
        ("linear", (8,), {}, {"w": "matrix"}, r"its weight \[10, 7\] does not fit an input of shape \[8\]"),
        ("linear", (7,), {}, {"w": "bias"}, "its weight has the shape"),
        ("linear", (), {}, {"w": "matrix"}, "does not fit"),
        ("linear", (7,), {}, {"b": "ten"}, "lacks its tensor w"),
        ("linear", (7,), {}, {"w": "none"}, "the tensor 'none', which is not there"),
        ("maxpool", (3, 9, 9), {"kernel": (2, 2), "pad": (2, 0, 0, 0)}, None, "ends in the padding of 2"),
        ("avgpool", (3, 9, 9), {"kernel": (2, 2), "over": (3, 0)}, None, "starts beyond the image of 9"),
        ("avgpool", (3, 9, 9), {"kernel": (2, 2), "count": "some"}, None, "count is 'some'"),
        ("avgpool", (3, 9, 9), {"kernel": (2, 2), "count": 0}, None, "count is 0"),
        ("adaptive", (3, 9, 9), {"kind": "min", "size": (1, 1)}, None, "kind is 'min'"),
        ("upsample", (3, 9), {"factor": (2, 2)}, None, r"its input has the shape \[3, 9\]"),
        ("upsample", (3, 9, 9), {}, None, "lacks the attribute 'factor'"),
        ("upsample", (3, 9, 9), {"factor": 2}, None, "factor is 2: it must be .* 2 whole numbers from 1 to 16384"),
        ("upsample", (3, 9, 9), {"factor": (2, 0)}, None, r"factor is \[2, 0\]"),
        ("upsample", (3, 9, 9), {"factor": (1.5, 1)}, None, r"factor is \[1.5, 1\]"),
        ("upsample", (3, 9, 9), {"factor": (1, 16385)}, None, r"factor is \[1, 16385\]"),
        ("upsample", (8, 9, 9), {"factor": (16384, 16384)}, None, "its output has the shape"),
        ("layernorm", (7,), {"last": 2}, None, r"normalizes the last 2 axes of an input of shape \[7\]"),
        ("layernorm", (3, 7), {"last": 2}, {"w": "vector"}, r"its tensor w has the shape \[7\]: it must be \[3, 7\]"),
        ("layernorm", (3, 7), {}, {"b": "ten"}, r"its tensor b has the shape \[10\]: it must be \[7\]"),
        ("layernorm", (7,), {"eps": 0}, None, "eps is 0: it must be a finite float32 number above 0"),
        ("layernorm", (7,), {"last": 0}, None, "last is 0: it must be a whole number from 1 to 8"),
        ("layernorm", (7,), {}, {"c": "vector"}, "its roles are w, b"),
        ("lrn", (), {"size": 5, "alpha": 1, "beta": 1, "k": 1}, None, "has no axes"),
        ("lrn", (3,), {"size": (5, 5), "alpha": 1, "beta": 1, "k": 1}, None, "size is"),
        ("lrn", (3,), {"size": 5, "alpha": float("nan"), "beta": 1, "k": 1}, None, "alpha is nan"),
        ("act", (3,), {"act": ["relu", 1]}, None, "act is .*clip"),
        ("act", (3,), {"act": None}, None, "act is None"),
        ("add", [(3, 2), (3, 5)], {}, None, r"operands \[3, 2\] and \[3, 5\] do not broadcast"),
        ("add", (3, 9), {}, {"c": "image"}, "do not broadcast"),
        ("sub", [(3, 5), (3, 5)], {"swap": True}, None, "swap goes with a constant"),
        ("add", (3,), {}, None, "1 inputs and 0 constants"),
        ("add", [(3,), (3,)], {"value": 1}, None, "2 inputs and 1 constants"),
        ("concat", [(3, 2), (4, 2)], {"axis": 1}, None, "differ beyond axis 1"),
        ("concat", (3, 2), {"axis": 2}, None, "axis 2 is not there"),
        ("concat", (3, 2), {"axis": -1}, None, "axis is -1"),
        ("permute", (3, 2), {"axes": (0, 0)}, None, "do not reorder"),
        ("slice", (3, 2), {"axis": 0, "start": 2, "stop": 4}, None, "not a range within axis 0"),
        ("slice", (3, 2), {"axis": 0, "start": 1, "stop": 1}, None, "not a range"),
        ("mean", (3, 2), {"axes": ()}, None, "not distinct axes"),
        ("mean", (3, 2), {"axes": (1, 1)}, None, "not distinct axes"),
        ("mean", (3, 2), {"axes": (2,)}, None, "not distinct axes"),
        ("mean", (3, 2), {"axes": (0,), "keep": 1}, None, "keep is 1: it must be true or false"),
        ("softmax", (3, 2), {"axis": 5}, None, "axis 5 is not there"),
        ("max", (3, 2), {"axes": (2,)}, None, "not distinct axes"),
        ("gather", (3, 2), {"axis": 2, "indices": (0,)}, None, "axis 2 is not there"),
        ("gather", (3, 2), {"axis": 0, "indices": (0, 3)}, None, "index 3 is not there in axis 0"),
        ("gather", (3, 2), {"axis": 0, "indices": ()}, None, "indices is .*: it must be a list of 1 to 16384 indices"),
        ("gather", (3, 2), {"axis": 0, "indices": (-1,)}, None, "indices is"),
        ("matmul", [(3, 2), (3, 2)], {}, None, r"its matrices \[3, 2\] and \[3, 2\] do not fit"),
        ("matmul", [(3, 2), (3, 3)], {"transpose": True}, None, r"\[3, 3\], transposed, do not fit"),
        ("matmul", [(3,), (3,)], {}, None, "as many axes as each other, at least two"),
        ("matmul", [(2, 3, 3), (3, 3, 3)], {}, None, "do not broadcast"),
        ("matmul", (3, 2), {}, None, "has 1 inputs: 2 are allowed"),
        ("resize", (3, 9), {"kind": "linear", "size": (2, 2)}, None, r"its input has the shape \[3, 9\]"),
        ("resize", (3, 9, 9), {"kind": "lanczos", "size": (2, 2)}, None, "kind is 'lanczos'"),
        ("resize", (3, 9, 9), {"kind": "linear", "size": (0, 2)}, None, "size is"),
        ("resize", (3, 9, 9), {"kind": "exact", "size": (2, 2), "corners": True}, None, "corners do not go with exact"),
        ("resize", (3, 9, 9), {"kind": "cubic", "size": (2, 2), "scale": (0, 1)}, None, "scale is"),
        ("constant", (3,), {}, {"c": "ten"}, "has 1 inputs: 0 are allowed"),
        ("pad", (3, 2), {"pad": ((1, 1),)}, None, "one pair for each"),
        ("pad", (3, 2), {"pad": (1, 1)}, None, "list of pairs"),
        ("act", (3,), {"act": ("relu",)}, {"w": "matrix"}, "in the role 'w': its roles are none"),
        ("conv", [(3, 9, 9), (3, 9, 9)], {}, CONV, "has 2 inputs: 1 are allowed"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_the_nodes_name(op, shapes, attributes, tensors, words):
    with pytest.raises(ModelError, match=words) as caught:
        shape_of(op, shapes, attributes, tensors)
    number = len(shapes) if isinstance(shapes, list) else 1
    assert str(caught.value).startswith(f"node {number} ({op}): ")
    assert "\n" not in str(caught.value)


@given(
    size=st.integers(1, 12),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    dilation=st.integers(1, 3),
)
@examples(200)
def test_convolutions_and_pools_have_the_shapes_of_torch(size, kernel, stride, pads, dilation):
    padded = F.pad(torch.zeros(1, 1, size, size), (pads[1], pads[0], pads[0], pads[1]))
    window = {
        "stride": (stride,) * 2,
        "dilation": (dilation,) * 2,
        "pad": (pads[0], pads[1], pads[1], pads[0]),
    }
    graph = Graph((1, size, size), (Node("conv", (0,), window, {"w": "w"}),), 1)
    pool = Graph((1, size, size), (Node("maxpool", (0,), {"kernel": (kernel,) * 2, **window}),), 1)
    weight = torch.zeros(2, 1, kernel, kernel)
    if dilation * (kernel - 1) + 1 > size + sum(pads):
        for refused in (graph, pool):
            with pytest.raises(ModelError, match="does not fit"):
                infer_shapes(refused, {"w": tuple(weight.shape)})
        return
    expected = F.conv2d(padded, weight, stride=stride, dilation=dilation).shape[1:]
    assert infer_shapes(graph, {"w": tuple(weight.shape)})[1] == tuple(expected)
    out, extent = expected[1], dilation * (kernel - 1) + 1
    if max(pads) >= extent or (out - 1) * stride - min(pads) >= size:
        with pytest.raises(ModelError, match="reach the image"):
            infer_shapes(pool, {})
    else:
        expected = F.max_pool2d(padded, kernel, stride, 0, dilation).shape[1:]
        assert infer_shapes(pool, {})[1] == tuple(expected)


def test_shapes_are_limited():
    relu = {"act": ("relu",)}
    with pytest.raises(ModelError, match="the input has the shape"):
        infer_shapes(Graph((2**16, 2**16), (Node("act", (0,), relu),), 1), {})
    nodes = (Node("act", (0,), relu), Node("concat", (1, 1), {"axis": 0}))
    with pytest.raises(ModelError, match=r"node 2 \(concat\): its output has the shape"):
        infer_shapes(Graph((2**30,), nodes, 2), {})
    with pytest.raises(ModelError, match=r"node 4 \(act\): the values up to here have"):
        infer_shapes(Graph((2**31 - 1,), tuple(Node("act", (i,), relu) for i in range(6)), 6), {})
    with pytest.raises(ModelError, match="1 to 100000 are allowed"):
        infer_shapes(Graph((1,), (), 0), {})


def test_numpy_numbers_are_not_python_numbers():
    with pytest.raises(ModelError, match="kernel is"):
        shape_of("maxpool", (3, 9, 9), {"kernel": (np.int64(2), 2)})


def test_attributes_are_completed():
    node = Node("avgpool", (0,), {"kernel": [3, 3], "over": [1, 1]})
    assert attributes(node) == {
        "kernel": (3, 3), "stride": (3, 3), "pad": (0, 0, 0, 0), "over": (1, 1), "count": "all",
    }  # fmt: skip
