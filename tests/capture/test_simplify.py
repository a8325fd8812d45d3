"""What simplification leaves out makes no difference: on random drafts, and rule by rule with known counts."""

import copy

import numpy as np
import pytest
import torch
from drafts import GROWTHS, Random
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from interpreter import interpret
from profiles import examples

from membound.capture.draft import Draft
from membound.capture.simplify import simplify_
from membound.capture.tidy import tidy_
from membound.store.shapes import infer_shapes

IMAGES = ["conv"] * 5 + [
    "act",
    "join",
    "concat",
    "gate",
    "pool",
    "pool",
    "adaptive",
    "upsample",
    "constant",
    "pad",
    "slice",
]


@examples(250, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.01, 0.1, 0.3, 1.0]),
    images=st.lists(st.sampled_from(IMAGES), max_size=10),
    others=st.lists(st.sampled_from([*IMAGES, *GROWTHS]), max_size=4),
)
def test_random_drafts_keep_their_outputs(seed, density, images, others):
    compare(random_draft(seed, density, [*images, *others]))


def random_draft(seed, density, growths):
    random = Random(seed, density)
    for growth in [*growths, "flatten"]:
        random.grow(growth)
    random.draft.output = random.last
    return random.draft


def compare(draft):
    """A draft, tidied and simplified, against itself as it was, in float64; the simplified one."""
    x = torch.randn(2, *draft.input_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = interpret(draft.graph(), draft.tensors, x)
    for change_ in (tidy_, simplify_):
        draft = copy.deepcopy(draft)
        change_(draft)
        shapes = infer_shapes(draft.graph(), {name: array.shape for name, array in draft.tensors.items()})
        assert shapes == list(draft.shapes.values())
        scale = max(float(expected.abs().max()), 1)
        found = interpret(draft.graph(), draft.tensors, x, draft.scales)
        torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=1e-5)
    return draft


class Net:
    """A draft made node by node; weights are random, those of channels in `zero` are zero."""

    def __init__(self, *shape):
        self.draft, self.numbers = Draft(shape), np.random.default_rng(0)

    def add(self, op, *inputs, tensors=None, **attributes):
        number = self.draft.add(op, inputs, (), attributes, tensors or {})
        self.draft.output = number
        shapes = {name: array.shape for name, array in self.draft.tensors.items()}
        self.draft.shapes[number] = infer_shapes(self.draft.graph(), shapes)[-1]
        return number

    def layer(self, op, value, name, shape, *, bias=0.0, zero=(), unread=(), **attributes):
        weight = self.numbers.normal(size=shape).astype(np.float32)
        weight[list(zero)] = 0
        weight[:, list(unread)] = 0
        self.draft.tensors |= {f"{name}.weight": weight, f"{name}.bias": np.full(shape[0], bias, np.float32)}
        tensors = {"w": f"{name}.weight", "b": f"{name}.bias"}
        return self.add(op, value, tensors=tensors, **attributes)

    def conv(self, value, name, outputs, kernel=3, groups=1, **options):
        inputs = self.draft.shapes[value][0] // groups
        options |= {"groups": groups} if groups > 1 else {}
        return self.layer("conv", value, name, (outputs, inputs, kernel, kernel), **options)

    def linear(self, value, name, outputs, **options):
        return self.layer("linear", value, name, (outputs, self.draft.shapes[value][-1]), **options)

    def constant(self, op, value, array, **attributes):
        self.draft.tensors["constant"] = np.asarray(array, np.float32)
        return self.add(op, value, tensors={"c": "constant"}, **attributes)

    def widths(self):
        """How many channels each layer keeps, after a comparison of the outputs."""
        draft = compare(self.draft)
        weights = {name: array for name, array in draft.tensors.items() if name.endswith(".weight")}
        return {name.removesuffix(".weight"): len(array) for name, array in weights.items()}


BETWEEN = {
    "nothing": lambda net, x: x,
    "max pool": lambda net, x: net.add("maxpool", x, kernel=(2, 2), pad=(1, 1, 0, 0)),
    "average of the valid": lambda net, x: net.add(
        "avgpool", x, kernel=(3, 3), pad=(1, 1, 1, 1), count="valid"
    ),
    "average over": lambda net, x: net.add("avgpool", x, kernel=(3, 3), stride=(2, 2), over=(1, 1)),
    "adaptive": lambda net, x: net.add("adaptive", x, kind="avg", size=(4, 4)),
    "act": lambda net, x: net.add("act", x, act=["leaky", 0.1]),
    "padded with its value": lambda net, x: net.add("pad", x, pad=((0, 0), (1, 1), (1, 1)), value=1.0),
    "depthwise": lambda net, x: net.conv(x, "depthwise", 4, groups=4),
}
BORDERED = {
    "average of all": lambda net, x: net.add("avgpool", x, kernel=(3, 3), pad=(1, 1, 1, 1)),
    "average by a number": lambda net, x: net.add("avgpool", x, kernel=(3, 3), stride=(1, 1), count=5),
    "padded with zeros": lambda net, x: net.add("pad", x, pad=((0, 0), (1, 1), (1, 1))),
    "depthwise, padded": lambda net, x: net.conv(x, "depthwise", 4, groups=4, pad=(1, 1, 1, 1)),
    "image added": lambda net, x: net.constant("add", x, np.arange(64).reshape(1, 8, 8)),
    "softmax along rows": lambda net, x: net.add("softmax", x, axis=1),
}


@pytest.mark.parametrize("between", [*BETWEEN, *BORDERED])
def test_a_channel_of_zeros_goes_with_all_that_reads_it(between):
    net = Net(2, 10, 10)
    x = net.conv(0, "first", 4, zero=[1, 3], act=["relu"])
    x = (BETWEEN | BORDERED)[between](net, x)
    net.conv(x, "second", 3, pad=(1, 1, 1, 1))
    moved = between in (
        "padded with its value",
        "image added",
        "softmax along rows",
    )  # zeros are not zeros after these
    assert net.widths()["first"] == (4 if moved else 2)


@pytest.mark.parametrize("between", [*BETWEEN, *BORDERED])
def test_a_constant_goes_into_the_biases_where_no_border_differs(between):
    net = Net(2, 10, 10)
    x = net.conv(0, "first", 4, zero=[1, 3], bias=1.0, act=["relu"])
    x = (BETWEEN | BORDERED)[between](net, x)
    net.conv(x, "second", 3)
    assert net.widths()["first"] == (2 if between in BETWEEN else 4)


@pytest.mark.parametrize("between", [*BETWEEN, *BORDERED])
def test_what_no_weight_reads_goes(between):
    net = Net(2, 10, 10)
    x = (BETWEEN | BORDERED)[between](net, net.conv(0, "first", 4, bias=1.0))
    net.conv(x, "second", 3, unread=[0, 1], pad=(1, 1, 1, 1))
    assert net.widths()["first"] == 2


def test_a_constant_stays_before_a_padded_convolution():
    net = Net(2, 6, 6)
    net.conv(net.conv(0, "first", 4, zero=[1], bias=1.0), "second", 3, pad=(0, 0, 0, 1))
    assert net.widths() == {"first": 4, "second": 3}


def test_through_a_flatten_and_linear_layers():
    net = Net(2, 6, 6)
    x = net.conv(0, "conv", 5, zero=[0, 2], bias=0.5)
    x = net.linear(net.add("reshape", x, shape=(80,)), "fc1", 6, zero=[1, 2], bias=-1.0, act=["relu"])
    x = net.linear(x, "fc2", 4, unread=[0], bias=0.3)
    net.linear(x, "fc3", 3, unread=[1, 2])
    assert net.widths() == {"conv": 3, "fc1": 3, "fc2": 2, "fc3": 3}


def test_one_round_uncovers_the_next():
    net = Net(1, 4, 4)
    x = 0
    for depth in range(5):
        x = net.conv(x, f"conv{depth}", 4, 1, zero=[depth % 4] if depth == 2 else [])
    weights = net.draft.tensors
    for depth in (
        2,
        3,
        4,
    ):  # channel 0 of each is read by channel 1 of the next alone, which is read by nobody
        weights[f"conv{depth}.weight"][:, 0] = 0
    for depth in (2, 3):
        weights[f"conv{depth}.weight"][1, 0] = 1
        weights[f"conv{depth + 1}.weight"][:, 1] = 0
    assert net.widths() == {"conv0": 4, "conv1": 3, "conv2": 1, "conv3": 2, "conv4": 4}


@pytest.mark.parametrize(("zero", "other", "kept"), [([0, 1], [1, 2], 3), ([0], [1], 4)])
def test_an_addition_keeps_what_either_side_needs(zero, other, kept):
    net = Net(2, 6, 6)
    x, y = net.conv(0, "left", 4, zero=zero), net.conv(0, "right", 4, zero=other)
    net.conv(net.add("add", x, y, act=["relu"]), "last", 2, pad=(1, 1, 1, 1))
    assert net.widths() == {"left": kept, "right": kept, "last": 2}


def test_a_shortcut_read_elsewhere_keeps_its_channel():
    net = Net(2, 6, 6)
    x = net.conv(0, "stem", 4)
    y = net.conv(x, "branch", 4, pad=(1, 1, 1, 1))
    net.conv(net.add("add", x, y), "last", 2, unread=[0, 1])
    assert net.widths() == {"stem": 4, "branch": 4, "last": 2}
    net.draft.tensors["branch.weight"][:, [0, 1]] = 0
    assert net.widths() == {"stem": 2, "branch": 2, "last": 2}


def test_concatenated_channels_go_one_by_one_and_empty_branches_altogether():
    net = Net(2, 6, 6)
    parts = [net.conv(0, name, 3, zero=zero) for name, zero in [("a", [0]), ("b", [0, 1, 2]), ("c", [])]]
    pooled = net.add("maxpool", net.add("act", parts[1], act=["silu"]), kernel=(1, 1))
    net.conv(net.add("concat", parts[0], pooled, parts[2], axis=0), "last", 2, unread=[8])
    assert net.widths() == {"a": 2, "c": 2, "last": 2}


def test_a_gate_goes_with_its_channel():
    net = Net(2, 6, 6)
    x = net.conv(0, "conv", 4, zero=[1, 2])
    y = net.conv(net.add("mean", x, axes=(1, 2), keep=True), "reduce", 2, 1, act=["relu"])
    y = net.conv(y, "expand", 4, 1, act=["sigmoid"])
    net.conv(net.add("mul", x, y), "last", 3, pad=(1, 1, 1, 1))
    assert net.widths() == {"conv": 2, "reduce": 2, "expand": 2, "last": 3}


def test_a_dead_depthwise_channel_is_the_constant_of_its_bias():
    net = Net(2, 6, 6)
    x = net.conv(0, "expand", 4, 1, zero=[0, 1], act=["relu"])
    x = net.conv(x, "depthwise", 8, groups=4, pad=(1, 1, 1, 1), bias=0.7, act=["silu"])
    net.conv(x, "project", 3, 1)
    assert net.widths() == {"expand": 2, "depthwise": 4, "project": 3}


def test_groups_lose_as_many_channels_each():
    net = Net(2, 8, 8)
    x = net.conv(0, "first", 6, zero=[0, 1, 4])
    x = net.conv(x, "grouped", 8, groups=2, zero=[0, 6, 7])
    net.conv(x, "last", 2)
    assert net.widths() == {"first": 4, "grouped": 6, "last": 2}


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("lrn", {"size": 3, "alpha": 1.0, "beta": 0.75, "k": 1.0}),
        ("layernorm", {"last": 3}),
        ("softmax", {"axis": 0}),
        ("mean", {"axes": (0,), "keep": True}),
        ("pad", {"pad": ((1, 0), (0, 0), (0, 0))}),
        ("slice", {"axis": 0, "start": 0, "stop": 4, "step": 2}),
        ("reshape", {"shape": (2, 32)}),
    ],
)
def test_channels_stay_before_what_mixes_them(op, attributes):
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 4, zero=[0])
    net.linear(net.add(op, x, **attributes), "last", 3)
    assert net.widths()["first"] == 4


def test_channels_go_through_a_norm_of_other_axes():
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 4, zero=[0])
    net.conv(net.add("layernorm", x, last=2), "last", 3)
    assert net.widths() == {"first": 3, "last": 3}


def test_channels_and_constants_go_through_upsampling():
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 4, zero=[0, 2], bias=1.0)
    net.conv(net.add("upsample", x, factor=(2, 3)), "last", 3)
    assert net.widths() == {"first": 2, "last": 3}


def test_a_branch_of_nothing_vanishes_through_upsampling():
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 4, zero=[0, 1, 2, 3])
    x = net.add("upsample", x, factor=(2, 2))
    other = net.add("upsample", net.conv(0, "second", 3), factor=(2, 2))
    net.conv(net.add("concat", x, other, axis=0), "last", 3)
    assert net.widths() == {"second": 3, "last": 3}


def test_upsampling_by_one_is_nothing():
    net = Net(2, 6, 6)
    x = net.add("upsample", net.conv(0, "first", 4), factor=(1, 1))
    net.conv(x, "last", 3)
    assert [node.op for node in compare(net.draft).nodes.values()] == ["conv", "conv"]


def test_channels_go_through_slices_and_permutations():
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 6, zero=[0, 3])
    y = net.add("slice", x, axis=0, start=1, stop=4)
    y = net.add("permute", y, axes=(1, 2, 0))
    net.linear(y, "last", 3, unread=[1])
    assert net.widths() == {"first": 1, "last": 3}


def test_weights_that_layers_share_stay():
    net = Net(4, 6, 6)
    x = net.conv(0, "one", 4, 1, zero=[1])
    net.add("conv", x, tensors={"w": "one.weight", "b": "one.bias"})
    assert net.widths() == {"one": 4}


def test_the_output_keeps_its_shape_and_a_dead_network_its_constants():
    net = Net(2, 6, 6)
    x = net.conv(0, "first", 4, zero=[0, 1, 2, 3], bias=1.0)
    net.conv(x, "second", 3, zero=[1])
    draft = compare(net.draft)
    assert draft.shapes[draft.output] == (3, 2, 2)
    assert draft.original_shapes == {
        "first.weight": (4, 2, 3, 3),
        "first.bias": (4,),
        "second.weight": (3, 4, 3, 3),
    }


def test_biases_of_zeros_are_dropped():
    net = Net(2, 6, 6)
    net.conv(0, "first", 3)
    assert list(compare(net.draft).tensors) == ["first.weight"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_gate_written_out_is_an_activation_of_its_layer(swapped):
    net = Net(3, 6, 6)
    conv = net.conv(0, 4, 3)
    gate = net.add("act", conv, act=["sigmoid"])
    net.add("mul", *((gate, conv) if swapped else (conv, gate)))
    simplified = compare(net.draft)
    (node,) = simplified.graph().nodes
    assert list(node.attributes["act"]) == ["silu"]


def test_a_gate_by_another_value_stays():
    net = Net(3, 6, 6)
    conv, other = net.conv(0, 4, 3), net.conv(0, 4, 3)
    net.add("mul", other, net.add("act", conv, act=["sigmoid"]))
    assert "mul" in [node.op for node in compare(net.draft).graph().nodes]
