"""What the greedy search came to: accuracy against bytes, and which layers were cut."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from membound.paper.lab import spread
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
    add_legend,
    add_title,
    draw_spread,
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
COMPARED = [("paper", "uniform"), ("paper", "greedy"), ("ours", "uniform"), ("ours", "greedy"), ("ours", "global")]


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
    stars = {"linestyle": "none", "marker": "*", "markersize": 13, "markeredgecolor": "white"}
    begun = spread(first) if first else None
    draw_spread(axes, [(net["dense_bytes"], begun)], TRACKS["paper"], "dense, which the search starts from", **stars)
    draw_spread(axes, [(net["dense_bytes"], dense)], TRACKS["ours"], "dense, our track", **stars)
    ringed = [(each["bytes"], each["test"]) for each in net["within"] if each["test"] is not None]
    _scatter(
        axes, ringed, f"smallest winner within {LOSS} points of dense", marker="o", markersize=12,
        markerfacecolor="none", markeredgecolor=BLACK, markeredgewidth=1.3,
    )  # fmt: skip
    ours = [(row["bytes"], row["accuracy"]["mean"]) for row in rows]
    everything = [*((each["bytes"], each["test"]) for each in candidates), *ours, (net["dense_bytes"], dense["mean"])]
    set_log(axes, "x", [x for x, _ in everything], 7, find_byte_ticks, show_byte_tick)
    add_title(axes, net["title"], focus(axes, everything), _describe_factors(net["within"]))
    axes.set(xlabel="bytes in the best of the paper's formats", ylabel=ACCURACY)


def _scatter(axes: Axes, points: Sequence[tuple[float, float]], label: str, **options: Any) -> None:
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, linestyle="none", label=label, **options)


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
    figure = make_figure(11.4, 7.6)
    above, below = figure.subfigures(2, 1, height_ratios=(8, 3.4))
    nets = list(numbers["nets"].values())
    rows = above.subplots(3, len(nets), squeeze=False, sharex="col", height_ratios=(3, 3, 2))
    for column, net in enumerate(nets):
        _draw_shares(rows[:, column], net)
    add_legend(above, rows[1], 5)
    _draw_comparisons(below, nets)
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
        known = [(total, each["test"]) for total, each in zip(totals, winners, strict=True) if each["test"] is not None]
        line = {"linestyle": SEEDS[number % len(SEEDS)], "linewidth": 1.1, "color": TRACKS["paper"].colour}
        accuracy.plot([x for x, _ in known], [y for _, y in known], **line)
    everyone = [count for each in net["winners"] for count in each["counts"].values()]
    set_log(counts, "y", everyone, 6)
    set_log(counts, "x", [each["nonzeros"] for each in net["winners"]], 5)
    points = [(each["nonzeros"], each["test"]) for each in net["winners"] if each["test"] is not None]
    parts.set_ylim(0, 105)
    counts.set(ylabel="nonzeros of the layer")
    parts.set(ylabel="part of the layer, %")
    accuracy.set(ylabel=ACCURACY, xlabel="nonzeros in all")
    add_title(counts, net["title"])
    focus(accuracy, points)


def _draw_layer(axes: Axes, x: Sequence[float], y: Sequence[float], weight: str, seeds: int) -> None:
    name = weight.removesuffix(".weight")
    look = LAYERS.get(name, Look(GREY))
    every = max(len(x) // 6, 1)
    axes.plot(
        x, y, color=look.colour, linestyle=look.line, marker=look.marker, markevery=every, markersize=4.5,
        linewidth=1.2, alpha=1 if seeds == 1 else 0.75, label=name,
    )  # fmt: skip


def _draw_comparisons(figure: SubFigure, nets: Sequence[Numbers]) -> None:
    panels = figure.subplots(1, len(nets), squeeze=False)[0]
    for axes, net in zip(panels, nets, strict=True):
        _draw_ways(axes, net["compared"])
        axes.set(ylabel=ACCURACY, xlabel="nonzeros in all")
    add_legend(figure, panels, 3)


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
