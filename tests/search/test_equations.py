"""docs/RESEARCH.md says in equations what fit does: its constants are those of the code."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from membound.capture.capture import Tracer
from membound.report.paired import Comparison, student
from membound.run.layers import position_entropy
from membound.search import allocation, bits, bound, effort, eight_bits, scoring, setup
from membound.search.request import Choices
from membound.store.file import encode_tensors
from membound.store.formats import LINEAR_FROM, encode, exact_bytes, expected_bytes
from membound.store.packed import Layer, pack_layer, take_apart
from membound.train import distill, job, palette
from membound.train.recipe import annealed
from membound.train.teaching import Teaching
from membound.zoo.networks import ZOO

PAGE = Path(__file__).parents[2] / "docs" / "RESEARCH.md"


@pytest.fixture(scope="module")
def section():
    text = PAGE.read_text().split("## Fit in equations")[1].split("\n## ")[0]
    return " ".join(text.split())


def training(steps, images=60_000, **more):
    return setup._training(nn.Linear(3, 2), Choices(steps=steps, **more), images)


def test_symbols_are_explained_before_they_are_used(section):
    table, rest = section.split("A training, step by step:")
    names = {name for row in re.findall(r"\| ([^|]+) \| [^|]+ \|", table) for name in row.strip().split(", ")}
    assert {
        "N",
        "p",
        "b",
        "u",
        "n",
        "r",
        "m",
        "k",
        "f",
        "E",
        "C",
        "F",
        "M",
        "price",
        "w",
        "W",
        "B(p)",
    } <= names
    used = set(re.findall(r"(?<![\w'*^])[A-Za-z](?![\w'’*])", re.sub(r"\([^()]*20\d\d[^()]*\)", "", rest)))
    known = {name[0] for name in names if len(name) == 1 or name[1:2] in "(i"} | {"A", "I", "a", "i", "x"}
    assert used <= known, used - known


def test_the_step_by_step(section):
    steps = section.split("A training, step by step:")[1].split("**What is bounded.**")[0]
    for interval in ("a multiple of clip(N // 400, 5, 100)", "every max(1, min(100, N // 100)) steps"):
        assert interval in steps
        assert section.count(interval.removeprefix("a multiple of ")) == 2


def test_the_ramp(section):
    usual, short, trained = (
        training(setup.SHORT).ramp,
        training(setup.SHORT - 1).ramp,
        training(5000, pretrained=True).ramp,
    )
    assert f"starts from nothing has b = {usual.begin}, u = {usual.until}" in section
    assert f"in fewer than {setup.SHORT:,} steps b = {short.begin}, u = {short.until}" in section
    assert f"from trained weights b = {trained.begin:g}, u = {trained.until}" in section
    assert f"once more at p = {usual.again}" in section
    assert {short.again, trained.again} == {usual.again}
    begin, until = usual.begin, usual.until
    quarters = [begin + part * (until - begin) for part in (0.25, 0.5, 0.75, 1)]
    assert usual.looks == pytest.approx([*quarters, usual.again])
    assert usual.left(0.3) == pytest.approx(((until - 0.3) / (until - begin)) ** 3)


@pytest.mark.parametrize("steps", [100, 2000, 8000, 10_000, 39_999, 40_000, 90_000])
def test_how_often_weights_are_projected(section, steps):
    assert "every clip(N // 400, 5, 100) steps" in section
    assert training(steps).every == min(max(steps // 400, 5), 100)


def test_the_bits(section):
    assert f"the bits k from {bits.FEWEST} to {bits.MOST}" in section
    assert f"A {bits.WIDE} layer of r rows" in section
    assert f"M = {bits.FRESH:g} for" in section
    assert f"every max(1, min({bound.PALETTE_EVERY}, N // 100)) steps" in section
    weight = torch.randn(300, generator=torch.Generator().manual_seed(0))
    price = 1e-4

    def cost(k):
        near = bits.assigned(weight, bits.make_table(bits.fit_entries(weight, 2**k)))
        error = float((weight - near).double().square().sum() / weight.double().square().sum())
        return bits.FRESH * error + price * (k * len(weight) / 8 + 2 * 2**k)

    costs = {f"p{k}": cost(k) for k in range(2, 7)} | {"p8": price * (len(weight) + 2 * 1)}
    assert bits._cheapest(weight, price, bits.FRESH) == min(costs, key=costs.get)


def test_the_price_of_a_byte_is_a_median_over_weights_that_stay(section):
    assert "w^2 / E / (k / 8 + n H(m / n) / (8 m))" in section
    generator = torch.Generator().manual_seed(0)
    cut, prices = {}, []
    for name, n, m in (("a", 100, 60), ("b", 400, 30), ("c", 900, 20), ("whole", 50, 50)):
        weight = torch.zeros(n)
        weight[:m] = torch.rand(m, generator=generator) + 0.1
        cut[name] = weight
        squares = weight[:m].double().square()
        price = float(squares.min() / squares.sum()) / (4 / 8 + position_entropy(n, m) / m)
        prices += [price] * m if m < n else []
    assert bits._price(cut, {}, {}) == pytest.approx(sorted(prices)[len(prices) // 2 - 1])
    assert bits._price({"whole": cut["whole"]}, {}, {}) == 0
    assert bits.choose_types({"whole": cut["whole"]}, {}) == {"whole": bits.WIDE}
    assert "If no layer loses weights, every layer gets p8" in section


def test_the_bits_are_chosen_of_the_weights_that_stay(section):
    weight = torch.randn(300, generator=torch.Generator().manual_seed(0))
    kept = weight[weight.abs() > 1]
    assert bits._cheapest(weight * (weight.abs() > 1), 1e-3, 32) == bits._cheapest(kept, 1e-3, 32)
    assert "when each of the m has the nearest of 2^k values, or zero" in section
    assert bits.START == "p4"
    assert "with `auto` 4, and 8 in the first layer" in section
    assert bound.CHOICES == 3
    assert "at most three times in all" in section
    assert bound.LAST == 1 / 20
    assert "the mean over the twentieth" in section
    assert f"for {palette.FROM_SCRATCH} rounds from quantiles" in section
    assert f"fitted again in {palette.FROM_BEFORE} rounds from" in section
    assert bits.trained_levels(bits.WIDE) == 254
    assert "it has 254 even steps" in section


def test_the_cost(section):
    n, r, m = 400_000, 500, 4000
    assert "2 min(2^k, m) + 2 r bytes" in section
    assert "4 + 2 r in 8 bits" in section
    for k in (2, 4, 6, 8):
        beside = 2 * r + (4 if k >= LINEAR_FROM else 2 * min(2**k, m))
        whole, few = (expected_bytes(r, n // r, count, f"p{k}") for count in (n, m))
        assert min(whole.values()) == whole["dense"] == k * n / 8 + beside
        assert min(few.values()) == few["rice"]
        assert few["rice"] == pytest.approx(k * m / 8 + position_entropy(n, m) + beside, rel=0.02)
        if k < LINEAR_FROM:
            assert few["dense"] == (k + 1) * n / 8 + beside
    whole, few = (expected_bytes(r, n // r, count, "f16") for count in (n, m))
    assert min(whole.values()) == whole["dense"] == 2 * n
    assert min(few.values()) == few["delta"]
    assert few["delta"] % 3 == 0
    assert "A distance of d takes (d - 1) // 256 fillers" in section
    for distance in (256, 257, 512, 513):
        weight = np.zeros(1000, np.float32)
        weight[[0, distance]] = 1
        assert encode(weight, "delta", "f16").nbytes == 3 * (2 + (distance - 1) // 256)


@pytest.mark.parametrize("kind", ["p2", "p5", "p8"])
@pytest.mark.parametrize("folded", [False, True])
def test_scales_in_the_cost_and_in_the_file(section, kind, folded):
    """The cost counts a scale of each row; a file has them in 8 bits, and of a folded batch norm."""
    assert "layers of up to 6 bits have them only where a batch norm was folded into the layer" in section
    assert "then in r + 2 bytes" in section
    rows, columns = 64, 36
    network = nn.Sequential(nn.Conv2d(4, rows, 3), *([nn.BatchNorm2d(rows)] if folded else [])).eval()
    weight = network[0].weight.data
    weight.copy_(bits.as_if_trained(weight * (weight.abs() > weight.abs().quantile(0.7)), kind))
    if folded:
        torch.nn.init.uniform_(network[1].weight, 0.5, 2, torch.Generator().manual_seed(0))
    model = Tracer(network, torch.zeros(1, 4, 8, 8)).model()
    layer = encode_tensors(model, {**dict.fromkeys(model.tensors, "f32"), "0.weight": kind})["0.weight"]
    m = int(weight.count_nonzero())
    counted = exact_bytes(weight.numpy(), kind, packed=True)[layer.format]
    assert counted == pytest.approx(expected_bytes(rows, columns, m, kind)[layer.format], rel=0.03)
    _, sections = take_apart("0", pack_layer(Layer(layer), shorten=True))
    in_file = 2 * rows if kind == "p8" else rows + 2 if folded else 0
    assert sum(each.nbytes for each in sections) == counted - 2 * rows + in_file


def test_how_the_bound_is_found(section):
    assert f"**The trials** are at most {bound.TRIES} each time" in section
    assert f"as soon as the file takes {100 * bound.CLOSE:g} to 100 % of the budget" in section
    assert f"If the best trial takes less than {100 * bound.FULL:g} % there" in section
    assert f"more than {allocation.POINTS:,} weights" in section


def test_what_is_written(section):
    assert f"up to {scoring.ROUNDED_EXAMPLES:,} training images" in section
    assert section.count(f"more than max({scoring.ROUNDED_ERRORS}, {scoring.ROUNDING:g} %)") == 2
    assert f"by more than {100 * eight_bits.UNLEARNED:g} %" in section


def test_the_least_deviation_of_a_verdict():
    text = " ".join(PAGE.read_text().split())
    assert "s is taken as max(s, 100 / i)" in text
    found = Comparison.of([90.0, 90.0], [91.0, 91.0], images=100).uncertainty
    assert found == pytest.approx(student(2) * 1 / math.sqrt(2))
    assert f"± {student(2):.2f} * 1 / sqrt(2) = d ± {found:.2f} points" in text


def test_the_loss_of_a_teacher(section):
    heat, part = distill.TEMPERATURE, distill.PART
    assert f"temperature T = {heat:g} and part a = {part:g}" in section
    assert f"1 - a + a max(T, 1) = {1 - part + part * max(heat, 1):g}." in section
    torch.manual_seed(0)
    z, h, y = torch.randn(8, 5), torch.randn(8, 5), torch.arange(8) % 5
    plain = -z.log_softmax(1)[range(8), y].mean()
    soft = -((h / heat).softmax(1) * (z / heat).log_softmax(1)).sum(1).mean()
    expected = (1 - part) * plain + part * heat**2 * soft
    assert Teaching(nn.Identity()).loss(z, y, h).item() == pytest.approx(expected.item(), rel=1e-5)
    steady = Teaching(nn.Identity(), steady=True).loss(z, y, h).item()
    assert steady == pytest.approx(expected.item() / 2, rel=1e-5)


def rows():
    text = PAGE.read_text().split("**The learning rate**")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name.strip("`"): [each.strip() for each in rest] for name, *rest in lines[1:]}


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick", "alexnet"])
def test_the_recipes_of_the_zoo(name):
    solver = ZOO[name].solver
    recipe = annealed(solver, solver.steps)
    kind = {"sgd": "SGD", "caffe": "Caffe's SGD"}[recipe.optimizer]
    shown = [f"{recipe.lr.peak:g}", f"{recipe.weight_decay:g}", f"{recipe.batch_size}", f"{recipe.steps}"]
    assert rows()[name] == [f"{kind}, momentum {recipe.momentum:g}", *shown]
    if recipe.optimizer == "caffe":
        assert (recipe.bias_lr_mult, recipe.bias_decay_mult) == (2, 0 if name == "alexnet" else 1)


def test_the_recipes_of_other_networks(section):
    steps = f"max({job.STEPS}, {effort.PASSES} passes)"
    first, second, *_ = rows().values()
    for shown, solver in ((first, "sgd"), (second, "adamw")):
        recipe = training(5000, solver=solver).recipe
        assert shown[1:] == [
            f"{recipe.lr.peak:g}", f"{recipe.weight_decay:g}", f"{recipe.batch_size} (*)", steps
        ]  # fmt: skip
    for images in (1000, 192):
        assert f"{training(5000, images).recipe.batch_size} for {images:,}" in section
    assert training(5000, effort.STEPS_A_PASS * job.BATCH).recipe.batch_size == job.BATCH
    assert f"With fewer than {effort.STEPS_A_PASS * job.BATCH:,} training images" in section
    assert all(ZOO[name].solver is None for name in ("resnet8", "mobilenet_v1", "ds_cnn"))
    assert f"From trained weights, the peak is {setup.PRETRAINED_RATE:g} times that of the table" in section
    assert f"has {effort.TIMES['quick']:g} times the steps, `best` {effort.TIMES['best']:g} times" in section


@pytest.mark.parametrize("steps", [50, 1000, 5000])
def test_the_learning_rate(steps):
    lr, warm = training(steps).recipe.lr, min(200, steps // 10)
    for step in range(0, steps, 7):
        rising, part = 0.05 * (step + 1) / warm, (step - warm) / (steps - warm)
        expected = rising if step < warm else 0.05 * (1 + math.cos(math.pi * part)) / 2
        assert lr(step) == pytest.approx(expected)
