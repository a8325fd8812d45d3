"""Pictures of made-up numbers: all of them, whole, always the same, and also where trainings have failed."""

import json
import math
import random
import xml.etree.ElementTree as ElementTree
from itertools import chain

import matplotlib
import pytest
from profiles import chiefly

from membound.paper import FIGURES, LARGE, optimization, partial
from membound.paper.claims import spread
from membound.paper.ensembles import BUDGET
from membound.paper.frontier import WEIGHTS
from membound.paper.pictures import DRAWN, save
from membound.store.sizes import best_format

SVG = "http://www.w3.org/2000/svg"
SIZES = {
    "lenet": {"conv1": 500, "conv2": 25_000, "fc1": 400_000, "fc2": 5_000},
    "quick": {"conv1": 2_400, "conv2": 25_600, "conv3": 51_200, "fc1": 65_536, "fc2": 640},
}
BIASES = {"lenet": 580, "quick": 202}
BEST = {"lenet": 99.15, "quick": 76.0}
LEAST = {"lenet": 4_311, "quick": 14_557}
TITLES = {"lenet": "LeNet on MNIST", "quick": "CIFAR-10-quick"}
WHOLE = {net: {f"{name}.weight": size for name, size in sizes.items()} for net, sizes in SIZES.items()}
LABELS = {
    "memory": ("bytes in the best of the paper's formats", "test accuracy, %", "64 KiB", "1 MiB"),
    "layers": ("nonzeros of the layer", "part of the layer, %", "nonzeros in all", "conv3"),
    "thresholding": ("part of all weights that is kept, %", "threshold delta", "test accuracy, %"),
    "partial": ("nonzero weights of conv1", "nonzero weights of fc1", "test accuracy, %", "l1 shrinkage"),
    "kernels": ("l2", "l1 shrinkage", "20 of 32 filters all zero"),
    "optimization": ("iterations", "training loss", "test accuracy, %"),
    "ensembles": ("networks, 145,578 nonzeros in all", "test accuracy, %", "reported in the paper"),
    "starvation": ("training images", "accuracy, %", "14,557 nonzeros", "our track"),
    "frontier": ("nonzero weights, without biases", "test error, %", "Dynamic Network Surgery", "our targets"),
}  # fmt: skip


def near(chance, value, by=0.2):
    return round(value + chance.gauss(0, by), 2)


def over_seeds(chance, value, by=0.2, seeds=3):
    return spread([near(chance, value, by) for _ in range(seeds)])


def count_bytes(net, counts):
    return 4 * BIASES[net] + sum(best_format(size, counts[name])[1] for name, size in WHOLE[net].items())


def loss_of(part):
    """How many points a network loses that keeps this part."""
    return 0.25 * max(-math.log10(max(part, 1e-6)) - 0.7, 0) ** 2


def search(net, seed):
    """Every candidate of a greedy search, some of which collapse."""
    chance = random.Random(seed)
    counts, rows = dict(WHOLE[net]), [candidate(net, seed, 0, None, WHOLE[net], BEST[net])]
    while rows[-1]["nonzeros"] > LEAST[net]:
        names = [name for name in counts if counts[name] > 8]
        cut = max(names, key=lambda name: counts[name] / WHOLE[net][name] ** chance.uniform(0.4, 0.9))
        tried = []
        for name in names:
            mine = counts | {name: round(counts[name] * 0.8)}
            part = sum(mine.values()) / sum(WHOLE[net].values())
            collapsed = name != cut and chance.random() < 0.02
            test = 11.35 if collapsed else BEST[net] - 2 * loss_of(part) - (name != cut) * 0.3
            tried.append(candidate(net, seed, rows[-1]["round"] + 1, name, mine, near(chance, test, 0.08)))
        winner = next(each for each in tried if each["layer"] == cut)
        winner["won"], counts = True, winner["counts"]
        rows += [*(each for each in tried if each is not winner), winner]
    return rows


def candidate(net, seed, round, layer, counts, test):
    return {
        "seed": seed, "round": round, "layer": layer, "won": round == 0, "validation": test, "test": test,
        "nonzeros": sum(counts.values()) + BIASES[net], "counts": dict(counts), "bytes": count_bytes(net, counts),
        "bytes_f16": count_bytes(net, counts) // 2,
    }  # fmt: skip


def memory(chance, seeds=3):
    return {"nets": {net: memory_of(chance, net, seeds) for net in SIZES}}


def memory_of(chance, net, seeds):
    searches = [search(net, seed) for seed in range(seeds)]
    dense_bytes, rows = count_bytes(net, WHOLE[net]), []
    for part in (0.5, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01):
        counts = {name: round(part * size) for name, size in WHOLE[net].items()}
        limit = sum(counts.values()) + BIASES[net]
        size, accuracy = (
            count_bytes(net, counts),
            over_seeds(chance, BEST[net] + 0.2 - loss_of(part), 0.1, seeds),
        )
        rows.append(
            {"limit": limit, "nonzeros": limit, "bytes": size, "bytes_f16": size // 2, "accuracy": accuracy}
        )
    within = []
    for rounds in searches:
        best = [each for each in rounds if each["won"] and each["test"] > BEST[net] - 0.5][-1]
        smaller = dense_bytes / best["bytes"]
        within.append(
            {key: best[key] for key in ("seed", "nonzeros", "bytes", "test")}
            | {"times_smaller": smaller, "times_smaller_f16": 2 * smaller}
            | {"validation_loss": 0.4, "dense_test": BEST[net]}
        )
    ours = {"iterations": 5000, "dense": over_seeds(chance, BEST[net] + 0.2, 0.1, seeds), "rows": rows}
    return {
        "title": TITLES[net], "dense_bytes": dense_bytes, "candidates": list(chain(*searches)), "within": within,
        "ours": ours,
    }  # fmt: skip


def layers(chance, seeds=3):
    nets = {}
    for net in SIZES:
        facts = ("seed", "round", "validation", "test", "nonzeros", "counts")
        found = [each for seed in range(seeds) for each in search(net, seed) if each["won"]]
        compared = [
            {
                "track": track, "way": way, "target": target, "nonzeros": target,
                "accuracy": over_seeds(chance, BEST[net] - lost - 3 * loss_of(target / 431_080), 0.2, seeds),
            }
            for target in (LEAST[net], 2 * LEAST[net], 5 * LEAST[net])
            for track, way, lost in (
                ("paper", "uniform", 3), ("paper", "greedy", 1), ("ours", "uniform", 1.5), ("ours", "greedy", 0.5),
                ("ours", "global", 0.2),
            )
        ]  # fmt: skip
        winners = [{name: each[name] for name in facts} for each in found]
        nets[net] = {"title": TITLES[net], "sizes": WHOLE[net], "winners": winners, "compared": compared}
    return {"nets": nets}


def thresholding(chance, seeds=3):
    points = []
    for seed in range(seeds):
        for density in (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1):
            emptied = [
                name for name, least in (("conv1.weight", 0.3), ("fc2.weight", 0.1)) if density <= least
            ]
            counts = {name: 0 if name in emptied else int(density * n) for name, n in WHOLE["quick"].items()}
            after = 10.0 if emptied else near(chance, 76 - 400 * max(0.7 - density, 0) ** 2, 0.8)
            point = {"seed": seed, "density": density, "delta": near(chance, 0.05 * (1 - density), 0.0005)}
            point |= {"counts": counts, "emptied": emptied, "thresholded": after}
            if not emptied:
                point |= {
                    "paper": near(chance, 75.5 - 3 * (1 - density), 0.4),
                    "ours": near(chance, 77.5, 0.3),
                }
            points.append(point)
    dense = {"paper": over_seeds(chance, 75.9, 0.4, seeds), "ours": over_seeds(chance, 77.8, 0.3, seeds)}
    return {"dense": dense, "points": points, "iterations": 5000}


def partial_sparsity(chance, seeds=3):
    return {"panels": [panel(chance, net, layer, seeds) for net, layer in partial.PANELS], "negligible": 1e-3}


def panel(chance, net, layer, seeds):
    size, best, rows = SIZES[net][layer], BEST[net], []
    for method in partial.METHODS:
        if method in ("hidden", "rank") and layer != "fc1":
            continue
        lost = {"l2": 4, "subgradient": 2, "shrink": 1.5, "hidden": 3, "rank": 1, "l0": 1, "ours": 0.4}[
            method
        ]
        for strength in (0.8, 0.5, 0.2, 0.1, 0.05, 0.01):
            emptied = method == "shrink" and strength == 0.01
            for seed in range(seeds):
                nonzeros = 0 if emptied else round(size * strength * chance.uniform(0.95, 1.05))
                accuracy = 10.0 if emptied else near(chance, best - lost * 2 * loss_of(strength), 0.1)
                row = {"method": method, "strength": strength, "seed": seed}
                rows.append(row | {"accuracy": accuracy, "nonzeros": nonzeros})
    return {
        "net": net, "layer": layer, "title": f"{TITLES[net]}, {layer}", "size": size, "iterations": 5000,
        "dense": over_seeds(chance, best, 0.1, seeds), "ours_dense": over_seeds(chance, best + 0.2, 0.1, seeds),
        "rows": rows,
    }  # fmt: skip


def kernels(chance, seeds=3):
    smooth = [
        [math.sin(0.9 * n * (i % 7) + n) + 0.4 * chance.gauss(0, 1) for i in range(75)] for n in range(32)
    ]
    sparse = [
        [0.0] * 75 if n % 8 < 5 else [value if abs(value) > 0.7 else 0.0 for value in row]
        for n, row in enumerate(smooth)
    ]
    row = {"strength": None, "seed": 0, "accuracy": over_seeds(chance, 75.9), "nonzeros": 2400, "all_zero": 0}
    shrunk = {
        "strength": 10.0,
        "seed": 0,
        "accuracy": 73.21,
        "nonzeros": 400,
        "all_zero": 20,
        "filters": sparse,
    }
    one = {"mean": 1.0, "std": 0.0, "n": 1}
    sweep = [{"strength": 10.0, "all_zero": one, "nonzeros": one, "accuracy": one}]
    return {"l2": {**row, "filters": smooth}, "shrink": shrunk, "sweep": sweep}


def optimization_numbers(chance, seeds=10):
    rows = []
    for number, method in enumerate(optimization.METHODS):
        for seed in range(seeds):
            end, rate = near(chance, 73 + number, 0.4), 1 + 0.1 * number
            curve = [
                {
                    "iteration": step,
                    "loss": near(chance, 0.6 + 0.05 * number + 1.6 * math.exp(-rate * step / 1200), 0.02),
                    "accuracy": near(chance, end - 45 * math.exp(-rate * step / 900), 0.5),
                }
                for step in range(200, 5001, 200)
            ]
            rows.append({"method": method, "seed": seed, "accuracy": end, "failure": None, "curve": curve})
    return {"iterations": 5000, "rows": rows, "strength": 1e-3, "keep": 0.2}


def ensembles(chance, seeds=3):
    rows = []
    for track, base in (("paper", 75.7), ("ours", 77.5), ("longer", 80.0)):
        for n in range(1, 6):
            for trial in range(seeds):
                scores = near(chance, base + 1.5 * (n > 1) - 0.5 * max(n - 2, 0), 0.25)
                members = [near(chance, base - n / 2) for _ in range(n)]
                row = {"track": track, "n": n, "trial": trial, "nonzeros": BUDGET, "members": members}
                rows.append(row | {"scores": scores, "probabilities": scores - 0.05})
    return {"budget": BUDGET, "rows": rows, "iterations": {"paper": 5000, "ours": 5000, "longer": 20_000}}


def starvation(chance, seeds=3):
    rows = []
    for track in ("paper", "ours"):
        for size in (1_000, 2_500, 5_000, 10_000, 25_000, 50_000):
            for lost, model in enumerate(("dense", "28,249 nonzeros", "14,557 nonzeros")):
                for seed in range(seeds):
                    test = near(
                        chance, 35 + 24 * math.log10(size / 1000) + (1 - size / 25_000) * lost / 2, 0.6
                    )
                    train = near(chance, 99 - 5 * lost - 9 * math.log10(size / 1000), 0.5)
                    row = {"track": track, "size": size, "model": model, "seed": seed, "train": train}
                    rows.append(row | {"test": test, "nonzeros": 145_578})
    return {"rows": rows}


def frontier(chance, seeds=5):
    rows = []
    for count in (None, *WEIGHTS):
        errors = [near(chance, 0.7 if count is None else WEIGHTS[count] - 0.03, 0.04) for _ in range(seeds)]
        nonzeros = 430_500 if count is None else count
        row = {"weights": count, "weight_nonzeros": nonzeros, "nonzeros": nonzeros + 580}
        rows.append(row | {"error": spread(errors), "errors": errors, "counts": WHOLE["lenet"]})
    return {"iterations": 40_000, "batch_size": 128, "rows": rows}


MADE = {
    "memory": memory, "layers": layers, "thresholding": thresholding, "partial": partial_sparsity,
    "kernels": kernels, "optimization": optimization_numbers, "ensembles": ensembles, "starvation": starvation,
    "frontier": frontier,
}  # fmt: skip


def make_document(name, quick=False, **changes):
    numbers = MADE[name](random.Random(name), **changes)
    document = {"figure": name, "about": f"Figure '{name}'.\n\nMore.", "quick": quick, "numbers": numbers}
    return json.loads(json.dumps(document, allow_nan=False))  # as it is written and read


def draw(folder, name, document):
    """The texts of a picture, and the bytes of its two files."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder, name, document)
    assert {path.name for path in folder.iterdir()} == {f"{name}.svg", f"{name}.png"}
    svg, png = (folder / f"{name}.svg").read_bytes(), (folder / f"{name}.png").read_bytes()
    texts = [
        "".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{{{SVG}}}text")
    ]
    return texts, svg, png


def fail_memory(numbers):
    for net in numbers["nets"].values():
        net["candidates"] = net["candidates"][:3]
        net["candidates"][1]["test"] = None
        net["within"], net["ours"]["rows"] = [], []


def fail_layers(numbers):
    for net in numbers["nets"].values():
        net["compared"] = net["compared"][1:2]
        for winner in net["winners"][::2]:
            winner["test"] = None
        net["winners"][-1]["counts"]["conv1.weight"] = 0
    numbers["nets"]["lenet"] |= {"winners": [], "compared": []}


def fail_thresholding(numbers):
    for point in numbers["points"]:
        point["emptied"] = ["conv1.weight"] if point["density"] < 0.75 else []
        point["paper"] = None
        point.pop("ours", None)


def fail_partial(numbers):
    for panel in numbers["panels"]:
        for row in panel["rows"]:
            if row["method"] == "subgradient" or (row["method"], row["seed"]) == ("l0", 1):
                row |= {"accuracy": None, "nonzeros": None}
            if row["method"] == "shrink":
                row |= {"accuracy": 10.0, "nonzeros": 0}
    numbers["panels"][-1]["rows"] = []


def fail_kernels(numbers):
    numbers["shrink"] |= {"accuracy": None, "all_zero": 32, "filters": [[0.0] * 75] * 32}


def fail_optimization(numbers):
    for row in numbers["rows"]:
        if row["method"] == "shrink" or row["seed"] == 0:
            row |= {"accuracy": None, "failure": "the loss is not finite", "curve": []}
        if row["method"] == "l0":
            row["curve"] = [{"iteration": 200, "loss": 1e6, "accuracy": None}]


def fail_ensembles(numbers):
    numbers["rows"] = [row for row in numbers["rows"] if row["track"] != "longer" and row["n"] in (1, 5)]
    for row in numbers["rows"]:
        if row["track"] == "ours" or row["trial"] == 0:
            row |= {"scores": None, "probabilities": None, "members": [None] * row["n"], "nonzeros": None}


def fail_starvation(numbers):
    numbers["rows"] = [row for row in numbers["rows"] if row["track"] == "paper"]
    for row in numbers["rows"]:
        if row["model"] == "dense" or row["seed"] == 0:
            row |= {"train": None, "test": None, "nonzeros": None}


def fail_frontier(numbers):
    numbers["rows"] = numbers["rows"][1:3]
    for row in numbers["rows"]:
        row |= {"error": {"mean": 90.2, "std": 0.0, "n": 1}, "errors": [90.2]}


FAILED = {
    "memory": fail_memory, "layers": fail_layers, "thresholding": fail_thresholding, "partial": fail_partial,
    "kernels": fail_kernels, "optimization": fail_optimization, "ensembles": fail_ensembles,
    "starvation": fail_starvation, "frontier": fail_frontier,
}  # fmt: skip


def test_every_figure_has_a_picture():
    assert tuple(DRAWN) == (*FIGURES, *LARGE)
    assert tuple(MADE) == tuple(LABELS) == FIGURES


@pytest.mark.parametrize("name", chiefly(["memory", "thresholding", "kernels"], FIGURES))
@pytest.mark.one_in(3)
def test_axes_are_named_in_text_and_the_same_numbers_give_the_same_bytes(name, tmp_path):
    document = make_document(name)
    texts, svg, png = draw(tmp_path / "once", name, document)
    assert set(LABELS[name]) <= set(texts)
    assert not any(text.startswith("QUICK") for text in texts)
    assert b"<dc:date>" not in svg
    assert png.startswith(b"\x89PNG")
    assert draw(tmp_path / "twice", name, document) == (texts, svg, png)


@pytest.mark.parametrize("name", chiefly(["kernels"], FIGURES))
def test_small_numbers_of_one_seed_are_drawn_and_said_to_be_small(name, tmp_path):
    texts, *_ = draw(tmp_path, name, make_document(name, quick=True, seeds=1))
    assert set(LABELS[name]) | {"QUICK: small, not the paper's sizes"} <= set(texts)


@pytest.mark.parametrize("name", chiefly(["optimization", "starvation", "kernels"], FIGURES))
@pytest.mark.one_in(3)
def test_failed_trainings_and_missing_points_are_left_out(name, tmp_path):
    document = make_document(name)
    FAILED[name](document["numbers"])
    draw(tmp_path, name, document)


@pytest.mark.full
def test_what_lies_far_below_is_counted(tmp_path):
    document = make_document("memory", seeds=1)
    net = document["numbers"]["nets"]["quick"]
    known = [each for each in net["candidates"] if each["test"] > 70 and not each["won"]]
    net["candidates"] = [each for each in net["candidates"] if each["won"]] + known
    known[0]["test"] = known[1]["test"] = 10.0
    texts, *_ = draw(tmp_path, "memory", document)
    assert any(text.startswith("▾ 2 points below 7") for text in texts)


def test_settings_of_the_user_count_for_nothing_and_stay(tmp_path):
    document = make_document("ensembles")
    _, *plain = draw(tmp_path / "plain", "ensembles", document)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "savefig.bbox": "tight"}):
        _, *drawn = draw(tmp_path / "set", "ensembles", document)
        assert matplotlib.rcParams["font.size"] == 30
    assert drawn == plain
