"""How trainings went: loss and accuracy along the way, several networks for one, and with fewer images."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from membound.paper import ensembles, optimization, starvation
from membound.paper.claims import spread
from membound.paper.lab import TRACKS as TRACK_NAMES
from membound.paper.lab import name_track
from membound.paper.pictures.looks import (
    ACCURACY,
    BLACK,
    GREEN,
    METHODS,
    PURPLE,
    TRACKS,
    Look,
    Numbers,
    add_legend,
    add_title,
    draw_spread,
    make_figure,
    set_log,
)
from membound.report.axes import widen

MOST_LOSS = 1.3 * math.log(10)  # a little above guessing; of what diverges nothing more can be learnt
MODELS = (Look(BLACK, "o"), Look(GREEN, "s"), Look(PURPLE, "^"))


def draw_optimization(numbers: Numbers) -> Figure:
    """Training loss and test accuracy along the way, of every repetition."""
    figure = make_figure(7.8)
    panels = figure.subplots(2, 1, sharex=True)
    for method, name in optimization.METHODS.items():
        rows = [row for row in numbers["rows"] if row["method"] == method]
        failed = sum(row["accuracy"] is None for row in rows)
        label = name + (f" ({failed} of {len(rows)} failed)" if failed else "")
        for axes, value in zip(panels, ("loss", "accuracy"), strict=True):
            _draw_repetitions(axes, [row["curve"] for row in rows], value, METHODS[method], label)
    loss, accuracy = panels
    losses = [entry["loss"] for row in numbers["rows"] for entry in row["curve"] if entry["loss"] is not None]
    near = [value for value in losses if value <= MOST_LOSS] or [0.0, MOST_LOSS]
    loss.set(ylabel="training loss", ylim=widen(min(near), max(near)))
    accuracy.set(ylabel=ACCURACY, xlabel="iterations")
    accuracy.xaxis.set_major_formatter("{x:,.0f}")
    add_legend(figure, panels, 2)
    return figure


def _draw_repetitions(
    axes: Axes, curves: Sequence[Sequence[Numbers]], value: str, look: Look, label: str
) -> None:
    """Each as a thin line, and the mean of those that got so far."""
    reached: dict[int, list[float]] = {}
    for curve in curves:
        known = [(entry["iteration"], entry[value]) for entry in curve if entry[value] is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], color=look.colour, linewidth=0.5, alpha=0.35)
        for iteration, found in known:
            reached.setdefault(iteration, []).append(found)
    x = sorted(reached)
    mean = [sum(reached[iteration]) / len(reached[iteration]) for iteration in x]
    every = max(len(x) // 8, 1)
    axes.plot(
        x,
        mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markevery=every,
        markersize=5,
        label=label,
    )


def draw_ensembles(numbers: Numbers) -> Figure:
    """Accuracy of n networks under the nonzeros of one."""
    figure = make_figure(5.4)
    axes = figure.subplots()
    reported = [(n - 0.12, {"mean": mean, "std": std}) for n, (mean, std) in ensembles.PAPER.items()]
    draw_spread(axes, reported, Look(BLACK, "X", ":"), "reported in the paper")
    # A trial with a failed member has no accuracy.
    known = [
        row for row in numbers["rows"] if None not in (row["scores"], row["probabilities"], *row["members"])
    ]
    means = ensembles.means({**numbers, "rows": known})
    for number, track in enumerate(TRACK_NAMES):
        points = [(row["n"] + 0.08 * number - 0.04, row["scores"]) for row in means if row["track"] == track]
        steps = numbers["iterations"].get(track)
        name = name_track(track) + (f", {steps:,} iterations" if steps else "")
        draw_spread(axes, points, TRACKS[track], name)
    axes.set_xticks(list(ensembles.PAPER))
    axes.set(xlabel=f"networks, {numbers['budget']:,} nonzeros in all", ylabel=ACCURACY)
    add_legend(figure, [axes], 2)
    return figure


def draw_starvation(numbers: Numbers) -> Figure:
    """Training and test accuracy against how many images there are, and how far sparse networks are ahead."""
    figure = make_figure(7, 7.6)
    # Where training failed there are no numbers to take means of.
    known = [row for row in numbers["rows"] if row["test"] is not None and row["train"] is not None]
    means = starvation.means({**numbers, "rows": known})
    looks = dict(zip(dict.fromkeys(row["model"] for row in numbers["rows"]), MODELS, strict=False))
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    for (above, below), track in zip(panels.T, ("paper", "ours"), strict=True):
        _draw_sizes(above, [row for row in means if row["track"] == track], looks)
        _draw_lead(below, [row for row in known if row["track"] == track], looks)
        add_title(above, name_track(track))
        below.set(xlabel="training images")
    panels[0, 0].set(ylabel="accuracy, %")
    panels[1, 0].set(ylabel="sparse less dense,\ntest, points")
    panels[0, 0].plot([], [], color="#555555", linestyle="-", label="test images (solid)")
    panels[0, 0].plot([], [], color="#555555", linestyle="--", label="training images (dashed)")
    add_legend(figure, panels[0, ::-1], 2)
    return figure


def _draw_sizes(axes: Axes, rows: Sequence[Numbers], looks: Mapping[str, Look]) -> None:
    for model, look in looks.items():
        mine = [row for row in rows if row["model"] == model]
        draw_spread(axes, [(row["size"], row["test"]) for row in mine], look, model)
        opened = {"linestyle": "--", "markerfacecolor": "white", "linewidth": 1.2}
        draw_spread(axes, [(row["size"], row["train"]) for row in mine], look, "_training", **opened)
    sizes = sorted({row["size"] for row in rows})
    set_log(axes, "x", sizes, find=lambda low, high, most: sizes)


def _draw_lead(axes: Axes, rows: Sequence[Numbers], looks: Mapping[str, Look]) -> None:
    """Seed by seed, which has the same images for all models: on the scale above, the lines lie on each other."""
    test = {(row["model"], row["size"], row["seed"]): row["test"] for row in rows}
    for model, look in looks.items():
        leads: dict[int, list[float]] = {}
        for (name, size, seed), accuracy in test.items():
            if name == model != "dense" and ("dense", size, seed) in test:
                leads.setdefault(size, []).append(accuracy - test["dense", size, seed])
        draw_spread(axes, [(size, spread(lead)) for size, lead in leads.items()], look, model)
    axes.axhline(0, color=BLACK, linewidth=1)
