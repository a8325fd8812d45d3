"""Plans: what a layer becomes, what is stored and what is not, and the page that says what networks take."""

import itertools
import json
from dataclasses import replace

import micro_page
import numpy as np
import pytest
import torch
from cortex_m4 import read_trace
from micro_networks import NETWORKS, Builder, micro
from torch import nn

from membound.capture import capture
from membound.capture.capture import Tracer
from membound.errors import ModelError
from membound.micro.arithmetic import Quantization, multipliers, quantization, sum_multipliers
from membound.micro.code import recorded_bytes
from membound.micro.cost import COSTS, STEPS, estimate
from membound.micro.flash import pack_weight
from membound.micro.layer_table import list_beside, list_layers
from membound.micro.plan import columns_of
from membound.micro.used import features
from membound.run.calibration import calibrate_activations
from membound.run.micro_net import MicroNet
from membound.search.measure import FileBytes
from membound.store.file import read_bytes, to_bytes
from membound.units import LEVELS


def kinds(name: str) -> list[str]:
    return [f"{op.kind}-{op.then}" for op in micro(NETWORKS[name]()).plan.net.ops]


def test_pools_and_additions_join_the_convolutions_before_them():
    assert kinds("lenet") == ["conv-pool", "conv-pool", "conv-store", "conv-store"]
    assert kinds("resnet8").count("conv-sum") == 3
    assert kinds("resnet8")[-2:] == ["mean-store", "conv-store"]
    assert "table-store" not in kinds("quick")  # its relu passes through the pool


def test_a_value_keeps_the_rows_that_its_window_needs():
    net = Builder((1, 20, 8), 0)
    net.conv(net.conv(0, 2, 3), 2, (5, 3), pad=(0, 1, 0, 1))
    plan = micro(net.store("p4")).plan
    assert [buffer.rows for buffer in plan.layout.buffers] == [3, 5, 16]  # all of the output


def test_a_skip_connection_keeps_rows_until_its_branches_meet():
    net = Builder((1, 24, 8), 0)
    first = net.conv(0, 2, 1)
    inner = net.conv(net.conv(net.conv(first, 2), 2), 2)
    net.flat_linear(net.add("mean", (net.add("add", (inner, first)),), axes=(1, 2)), 2)
    plan = micro(net.store("p4")).plan
    skip = plan.net.ops[0].output
    assert plan.layout.buffers[skip].rows == 4  # the row of the sum, and one more for each convolution
    assert plan.whole_bytes > plan.rows_bytes


def test_a_sum_replaces_an_input_that_nothing_else_needs():
    net = Builder((1, 24, 8), 0)
    first = net.conv(0, 2, 1)
    added = net.add("add", (net.conv(net.conv(first, 2), 2), first))
    net.flat_linear(net.add("mean", (added,), axes=(1, 2)), 2)
    plan = micro(net.store("p4")).plan
    skip, total = plan.net.ops[0].output, plan.net.ops[2].output
    assert plan.layout.buffers[total].at == plan.layout.buffers[skip].at
    assert plan.layout.buffers[total].rows == plan.layout.buffers[skip].rows == 3


def test_a_sum_leaves_an_input_that_is_needed_later():
    net = Builder((1, 24, 8), 0)
    first = net.conv(0, 2, 1)
    added = net.add("add", (net.conv(first, 2, 1), first))
    later = net.add("add", (net.conv(added, 2, 3), first))
    net.flat_linear(net.add("mean", (later,), axes=(1, 2)), 2)
    plan = micro(net.store("p4")).plan
    places = [plan.layout.buffers[op.output].at for op in plan.net.ops[:3]]
    assert places[1] != places[0] == places[2]  # the second sum replaces it, not the first


def test_a_shortcut_waits_for_the_longer_branch():
    """All of ResNet-8's arena, rows of 32 to 36 numbers for each of its 16 channels, and room to work."""
    plan = micro(NETWORKS["resnet8"]()).plan
    shortcuts = [n for n, op in enumerate(plan.net.ops) if op.window.kernel == (1, 1) and op.kind == "conv"]
    assert [plan.layout.waits.get(n, 0) for n in shortcuts[:2]] == [1, 1]
    rows = {op.output: plan.layout.buffers[op.output].rows for op in plan.net.ops}
    assert [rows[op.output] for op in plan.net.ops[:9]] == [5, 3, 5, 3, 3, 3, 1, 3, 1]
    assert plan.rows_bytes < 665 * 16


def test_no_two_values_that_live_at_once_share_bytes():
    """What the reference finds by numbers, by places: working room is below all buffers."""
    for name in NETWORKS:
        layout = micro(NETWORKS[name]()).plan.layout
        lowest = min(buffer.at - (buffer.stride > 0) for buffer in layout.buffers)
        assert lowest >= layout.entries
        assert all(buffer.at + buffer.nbytes - 1 <= layout.nbytes + 64 for buffer in layout.buffers)


@pytest.mark.parametrize("real", [1e-9, 1e-4, 0.24999, 0.25, 0.9999, 1.0, 77.7])
def test_multipliers_are_near_what_they_stand_for(real):
    m, shift, up = multipliers(np.array([real, -real / 3]))
    found = m.astype(float) * 2.0**up / 2.0 ** (16 + shift.astype(float))
    assert np.allclose(found, [real, -real / 3], rtol=2**-14, atol=2**-45)
    assert (shift >= 1).all()


def test_additions_stay_within_32_bits():
    for real in ([1.0, 1.0], [100.0, 0.001], [1e-6, 2e-6], [0.5, -0.5]):
        whole, constant, shift = sum_multipliers(real, -128, [-128, 127])
        assert abs(constant) + 128 * sum(map(abs, whole)) < 2**31
        assert np.allclose(np.array(whole) / 2**shift, real, atol=max(map(abs, real)) * 2**-19 + 2**-shift)


def test_zero_is_exact():
    for low, high in ((-1.0, 3.0), (0.0, 6.0), (0.5, 2.0), (-7.0, -1.0), (0.0, 0.0)):
        made = quantization(low, high)
        assert made.round(0.0) == made.zero
    assert Quantization(0.5, -128).round([-9.0, 200.0]).tolist() == [-128, 127]


def test_few_values_take_few_bits():
    draw = np.random.default_rng(0)
    dense = draw.choice([-7, 3], (16, 100))
    assert pack_weight(dense)[1].bits == 1
    sparse = np.where(draw.random((64, 900)) < 0.03, draw.choice([-9, -2, 4, 8], (64, 900)), 0)
    packed, _ = pack_weight(sparse)
    entropy = -(0.03 * np.log2(0.03) + 0.97 * np.log2(0.97)) * sparse.size / 8
    assert packed.nbytes < 1.06 * entropy + packed.count * 2 / 8 + 8


def _flash(plan, way):
    """Constants and code with these weights."""
    made = replace(plan)
    made.__dict__["weights"] = way  # as if they had been chosen
    return made.flash_bytes + recorded_bytes(features(made), made.level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.8, 1.0])
def test_forms_of_weights_are_those_of_the_least_flash_with_their_code(level, kept):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        model[2].weight *= torch.rand(model[2].weight.shape) < kept
        model[4].weight *= torch.rand(model[4].weight.shape) < 0.1
    stored = FileBytes(Tracer(model, torch.zeros(1, 3, 6, 6)), "p8").stored()
    scales = calibrate_activations(
        stored, np.random.default_rng(0).normal(size=(8, 3, 6, 6)).astype(np.float32)
    )
    net = MicroNet(stored, activations=scales, compiled=level)
    plan = net.plan
    forms = {n: pack_weight(columns_of(op)) for n, op in enumerate(plan.net.ops) if op.weight is not None}
    ways = [dict(zip(forms, way, strict=True)) for way in itertools.product(*forms.values())]
    assert _flash(plan, plan.weights) == min(_flash(plan, way) for way in ways)
    other = MicroNet(stored, activations=scales, compiled=next(each for each in LEVELS if each != level))
    given = np.random.default_rng(1).integers(0, 256, (4, 3, 6, 6)).astype(np.uint8)
    assert np.array_equal(net.integers(given), other.integers(given))
    assert net.memory() == other.memory(level)


@pytest.mark.parametrize("kept", [0.02, 0.2])
def test_an_export_for_speed_is_no_slower_than_one_for_size(kept):
    """Without positions the code is smaller, but computes every zero: that is never taken where it costs more."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, (5, 1)), nn.ReLU(), nn.Conv2d(16, 24, (5, 1)))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.copy_(layer.weight.sign() * (torch.rand(layer.weight.shape) < kept))
    stored = FileBytes(Tracer(model, torch.zeros(1, 3, 64, 1)), "p2").stored()
    small = MicroNet(stored, activations=dict.fromkeys(range(4), (1.0, 0))).plan
    fast = small.at("-O2")
    assert estimate(fast, "-O2").cycles < estimate(small, "-Os").cycles
    every = replace(fast)
    every.__dict__["weights"] = {n: pack_weight(columns_of(small.net.ops[n]))[1] for n in fast.weights}
    assert estimate(every, "-O2").cycles > estimate(small, "-Os").cycles
    assert _flash(fast, every.weights) < _flash(fast, fast.weights)


def test_the_page_says_what_was_measured():
    """If not: python tools/micro_page.py"""
    assert micro_page.written(micro_page.PAGE.read_text()) == micro_page.PAGE.read_text()


def test_a_fit_shows_what_int8_costs_where_that_was_measured():
    both = {"name": "net", "seeds": 3, "most_flash": 9_000, "most_ram": 2_000}
    both["accuracy"] = {"mean": 98.5, "std": 0.1, "n": 3}
    known = {
        "float_accuracy": {"mean": 98.75, "std": 0.2, "n": 3},
        "cost": {"mean": 0.25, "std": 0.1, "n": 3},
    }
    rows = [{**both, "activations": "trained"}, {**both, **known, "activations": "calibrated"}]
    lines = micro_page.fitted({"summary": rows}).splitlines()
    assert lines[2:] == [
        "| net | trained | 9,000 | 2,000 | 3 | 98.50 ± 0.10 % |  |  |",
        "| net | calibrated | 9,000 | 2,000 | 3 | 98.50 ± 0.10 % | 98.75 ± 0.20 % | 0.25 ± 0.10 |",
    ]


def test_estimated_times_are_near_what_was_counted():
    recorded = {row["name"]: row["levels"] for row in json.loads(micro_page.SPEED.read_text())["rows"]}
    for name, make in NETWORKS.items():
        if name == "mobilenet":  # recorded at another size
            continue
        for level, counted in recorded[f"{name}, random weights"].items():
            found = estimate(micro(make()).plan, level)
            assert found.instructions == pytest.approx(counted["instructions"], rel=0.15), (name, level)
            assert found.cycles == pytest.approx(counted["cycles"], rel=0.15), (name, level)


def test_layers_take_their_parts_of_the_time():
    plan = micro(NETWORKS["resnet8"]()).plan
    parts = [estimate(plan, "-O2", number).cycles for number in range(len(plan.net.ops))]
    assert sum(parts) == pytest.approx(estimate(plan, "-O2").cycles, abs=len(parts))
    assert min(parts) > 0


def test_a_trace_of_an_emulator_gives_instructions_and_cycles():
    text = """IN: loop
0x00000100:  6808       ldr      r0, [r1]
0x00000102:  3801       subs     r0, #1
0x00000104:  d1fc       bne      #0x100

Trace 0: 0xffff [00800408/00000100/00000110/ff020200] loop
Trace 0: 0xffff [00800408/00000100/00000110/ff020200] loop
IN: main
0x00000106:  4770       bx       lr

Trace 0: 0xffff [00800408/00000106/00000110/ff020200] main
Trace 0: 0xffff [00800408/00000100/00000110/ff020200] loop
"""
    assert read_trace(text.splitlines()) == (6, 2 * 4 + 2)  # taken once; main is not the network's


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_recurrent_network_is_refused_by_its_name(kind):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = getattr(nn, kind)(6, 5, batch_first=True)
            self.last = nn.Linear(5, 3)

        def forward(self, x):
            return self.last(self.recurrent(x.flatten(2).transpose(1, 2))[0][:, -1])

    stored = read_bytes(to_bytes(capture(Words().eval(), torch.zeros(1, 6, 3, 1)), "p8"))
    with pytest.raises(
        ModelError, match=r"^GRU/LSTM is not supported on a microcontroller: take convolutions"
    ):
        MicroNet(stored, activations={})


@pytest.mark.parametrize("name", ["lenet", "resnet8", "concat"])
def test_the_arena_is_explained_by_what_is_listed(name):
    """What lies in it at different times shares bytes; nothing but alignment takes any beside what is listed."""
    plan = micro(NETWORKS[name]()).plan
    listed = [*list_layers(plan, "-Os"), *list_beside(plan)]
    assert sum(part["row_bytes"] for part in listed) >= plan.layout.nbytes - 4
    assert max(part["row_bytes"] for part in listed) <= plan.layout.nbytes
    means = [number for number, op in enumerate(plan.net.ops) if op.kind == "mean"]
    for number in means:  # a number takes a byte, and its sum four
        op = plan.net.ops[number]
        assert listed[number]["row_bytes"] >= 5 * op.channels


def test_the_guide_says_what_a_multiplication_takes():
    guide = (micro_page.PAGE.parent / "MICRO.md").read_text()
    for width, words in (
        (1, "1 place wide (sequences, linear layers)"),
        (8, "8 wide"),
        (32, "32 wide (images)"),
    ):
        said = []
        for level in LEVELS:
            cycles = dict(zip(STEPS, COSTS[level][1], strict=True))
            many = cycles["last" if width == 1 else "eight"]
            said += [round(many + cycles[each] / width) for each in ("value", "dense_value")]
        assert f"| {words} | {' | '.join(map(str, said))} |" in guide
    recorded = {row["name"]: row for row in json.loads(micro_page.SPEED.read_text())["rows"]}
    counted, plan = recorded["resnet8, random weights"]["levels"], micro(NETWORKS["resnet8"]()).plan
    count = sum(plan.multiplications(number) for number in range(len(plan.net.ops)))
    assert [round(counted[level]["cycles"] / count) for level in LEVELS] == [16, 9]


def test_the_guide_says_what_its_dense_network_takes_for_a_multiplication():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, (5, 1), stride=(2, 1)), nn.ReLU(), nn.Conv2d(8, 16, (5, 1), stride=(2, 1)), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    plan = MicroNet(
        FileBytes(Tracer(model, torch.zeros(1, 3, 64, 1)), "p8").stored(),
        activations=dict.fromkeys(range(9), (1.0, 0)),
    ).plan
    count = sum(plan.multiplications(number) for number in range(len(plan.net.ops)))
    found = [estimate(plan.at(level), level).cycles / count for level in LEVELS]
    assert found == pytest.approx([110, 80], rel=0.1)
