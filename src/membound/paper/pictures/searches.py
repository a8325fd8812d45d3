"""What the greedy search came to: accuracy against bytes, and which layers were cut."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from membound.paper.claims import spread
from membound.paper.memory import LOSS
from membound.paper.pictures.looks import (
    ACCURACY,
    BLACK,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    TRACKS,
    Look,
    Numbers,
    Point,
    add_legend,
    add_title,
    draw_spread,
    exactly,
    focus,
    make_figure,
    set_log,
)
from membound.report.axes import find_byte_ticks, show_byte_tick

SEEDS = ("-", "--", ":")
LAYERS = {
    "conv1": Look(BLACK, "o", "-"),
    "conv2": Look(ORANGE, "^", "--"),
    "conv3": Look(GREEN, "v", "-."),
    "fc1": Look(PURPLE, "D", ":"),
    "fc2": Look(SKY, "s", (0, (5, 1, 1, 1))),
}
WAYS = {"uniform": "v", "greedy": "o", "global": "s"}
COMPARED = [
    ("paper", "uniform"),
    ("paper", "greedy"),
    ("ours", "uniform"),
    ("ours", "greedy"),
    ("ours", "global"),
]


def draw_memory(numbers: Numbers) -> Figure:
    """Accuracy against bytes, of every candidate."""
    figure = make_figure(9.2)
    panels = figure.subplots(len(numbers["nets"]), 1, squeeze=False)[:, 0]
    for axes, net in zip(panels, numbers["nets"].values(), strict=True):
        _draw_bytes(axes, net)
    add_legend(figure, panels, 2)
    return figure


def _draw_bytes(axes: Axes, net: Numbers) -> None:
    candidates = [each for each in net["candidates"] if each["test"] is not None]
    rows, dense = net["ours"]["rows"], net["ours"]["dense"]
    lost = [(each["bytes"], each["test"]) for each in candidates if not each["won"]]
    _scatter(axes, lost, "candidate of the greedy search", marker=".", markersize=4, color=GREY, alpha=0.35)
    for number, seed in enumerate(sorted({each["seed"] for each in candidates})):
        _draw_winners(axes, _winners(candidates, seed), SEEDS[number % len(SEEDS)])
    draw_spread(axes, [(row["bytes"], row["accuracy"]) for row in rows], TRACKS["ours"], "our track")
    first = [each["test"] for each in candidates if each["round"] == 0]
    begun, stars = spread(first) if first else None, {"linestyle": "none", "marker": "*", "markersize": 13}
    draw_spread(axes, [(net["dense_bytes"], begun)], TRACKS["paper"], "dense, start of the search", **stars)
    draw_spread(axes, [(net["dense_bytes"], dense)], TRACKS["ours"], "dense, our track", **stars)
    ringed = [(each["bytes"], each["test"]) for each in net["within"] if each["test"] is not None]
    _scatter(
        axes, ringed, f"smallest winner within {LOSS} points of dense", marker="o", markersize=12,
        markerfacecolor="none", markeredgecolor=BLACK, markeredgewidth=1.3,
    )  # fmt: skip
    everything: list[Point] = [(each["bytes"], exactly(each["test"])) for each in candidates]
    everything += [*((row["bytes"], row["accuracy"]) for row in rows), (net["dense_bytes"], dense)]
    set_log(axes, "x", [x for x, _ in everything], 7, find_byte_ticks, show_byte_tick)
    add_title(axes, net["title"], focus(axes, everything), _describe_factors(net["within"]))
    axes.set(xlabel="bytes in the best of the paper's formats", ylabel=ACCURACY)


def _scatter(axes: Axes, points: Sequence[tuple[float, float]], label: str, **options: Any) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), linestyle="none", label=label, **options)


def _winners(candidates: Sequence[Numbers], seed: int) -> list[Numbers]:
    mine = [each for each in candidates if each.get("won", True) and each["seed"] == seed]
    return sorted(mine, key=lambda each: each["round"])


def _draw_winners(axes: Axes, winners: Sequence[Numbers], line: str) -> None:
    colour, label = TRACKS["paper"].colour, "its winners, a line for each seed"
    x, y = [each["bytes"] for each in winners], [each["test"] for each in winners]
    axes.plot(x, y, linestyle=line, marker="o", markersize=3, linewidth=1.1, color=colour, label=label)


def _describe_factors(within: Sequence[Numbers]) -> str:
    factors = [f"{each['times_smaller']:.1f}" for each in within]
    return f"circled: {', '.join(factors)} times smaller than dense" if factors else ""


def draw_layers(numbers: Numbers) -> Figure:
    """How the nonzeros are shared out in the search, and what that is worth."""
    figure = make_figure(11.6, 7.6)
    nets = list(numbers["nets"].values())
    grid = figure.add_gridspec(5, len(nets), height_ratios=(3, 3, 2, 0.4, 3))
    shares = []
    for column, net in enumerate(nets):
        panels = [figure.add_subplot(grid[row, column]) for row in range(3)]
        _draw_shares(panels, net)
        shares.append(panels[0])
    between = figure.add_subplot(grid[3, :])
    between.set_axis_off()
    add_legend(between, shares[::-1], 5)  # the last network has all layers, in order
    ways = [figure.add_subplot(grid[4, column]) for column in range(len(nets))]
    for axes, net in zip(ways, nets, strict=True):
        _draw_ways(axes, net["compared"])
    add_legend(figure, ways, 3)
    return figure


def _draw_shares(panels: Sequence[Axes], net: Numbers) -> None:
    counts, parts, accuracy = panels
    seeds = sorted({each["seed"] for each in net["winners"]})
    for number, seed in enumerate(seeds):
        winners = _winners(net["winners"], seed)
        totals = [each["nonzeros"] for each in winners]
        for name, size in net["sizes"].items():
            kept = [each["counts"][name] for each in winners]
            _draw_layer(counts, totals, kept, name, len(seeds))
            _draw_layer(parts, totals, [100 * count / size for count in kept], name, len(seeds))
        known = [
            (total, each["test"])
            for total, each in zip(totals, winners, strict=True)
            if each["test"] is not None
        ]
        _draw_accuracy(accuracy, known, SEEDS[number % len(SEEDS)])
    everyone = [count for each in net["winners"] for count in each["counts"].values()]
    set_log(counts, "y", everyone, 6)
    for axes in panels:
        set_log(axes, "x", [each["nonzeros"] for each in net["winners"]], 5)
        axes.tick_params(labelbottom=axes is accuracy)
    points = [
        (each["nonzeros"], exactly(each["test"])) for each in net["winners"] if each["test"] is not None
    ]
    parts.set_ylim(0, 105)
    counts.set(ylabel="nonzeros of the layer")
    parts.set(ylabel="part of the layer, %")
    accuracy.set(ylabel=ACCURACY, xlabel="nonzeros in all")
    add_title(counts, net["title"])
    add_title(accuracy, "", focus(accuracy, points))


def _draw_layer(axes: Axes, x: Sequence[float], y: Sequence[float], weight: str, seeds: int) -> None:
    name = weight.removesuffix(".weight")
    look = LAYERS.get(name, Look(GREY))
    every = max(len(x) // 6, 1)
    axes.plot(
        x, y, color=look.colour, linestyle=look.line, marker=look.marker, markevery=every, markersize=4.5,
        linewidth=1.2, alpha=1 if seeds == 1 else 0.75, label=name,
    )  # fmt: skip


def _draw_accuracy(axes: Axes, points: Sequence[tuple[float, float]], line: str) -> None:
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, linestyle=line, linewidth=1.1, color=TRACKS["paper"].colour)


def _draw_ways(axes: Axes, rows: Sequence[Numbers]) -> None:
    targets = sorted({row["target"] for row in rows})
    for number, (track, way) in enumerate(COMPARED):
        look = Look(TRACKS[track].colour, WAYS[way], "none")
        aside = 0.14 * (number - (len(COMPARED) - 1) / 2)
        points = [
            (targets.index(row["target"]) + aside, row["accuracy"])
            for row in rows
            if (row["track"], row["way"]) == (track, way)
        ]
        face = {"markerfacecolor": "white"} if way == "uniform" else {}
        draw_spread(axes, points, look, f"{way}, {'our' if track == 'ours' else track} track", **face)
    axes.set_xticks(range(len(targets)), labels=[f"{target:,}" for target in targets])
    axes.set_xlim(-0.5, max(len(targets), 1) - 0.5)
    axes.grid(visible=False, axis="x")
    add_title(axes, "compared at equal nonzeros")
    axes.set(ylabel=ACCURACY, xlabel="nonzeros in all")
