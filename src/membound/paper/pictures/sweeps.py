"""Accuracy against how much is kept: by thresholds, in one layer by many methods, and in all of LeNet."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from membound.paper import frontier, partial, thresholding
from membound.paper.pictures.looks import (
    ACCURACY,
    BLACK,
    GREY,
    METHODS,
    SMALL,
    TRACKS,
    Look,
    Numbers,
    Point,
    add_legend,
    add_title,
    count,
    draw_level,
    draw_spread,
    focus,
    make_figure,
    set_log,
)
from membound.report.axes import widen

WAYS = {
    "thresholded": (METHODS["l2"], "l2, thresholded after training"),
    "paper": (TRACKS["paper"], "projection in training, paper track"),
    "ours": (TRACKS["ours"], "projection in training, our track"),
}
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}  # behind words among lines
ROOM = 2.0  # times the worst published error: above that, points are only marked at the edge


def draw_thresholding(numbers: Numbers) -> Figure:
    """Accuracy of networks that lose their small weights, after training or in it."""
    figure = make_figure(5.6)
    axes = figure.subplots()
    rows = thresholding.means(dict(numbers))
    for track, value in numbers["dense"].items():
        name = "our" if track == "ours" else track
        look = Look(TRACKS[track].colour, line=":")
        draw_level(axes, value, look, f"dense, {name} track")
    for way, (look, label) in WAYS.items():
        draw_spread(axes, [(100 * row["density"], row[way]) for row in rows], look, label)
    for row in rows:
        if row["emptied"]:
            _name_emptied(axes, row)
    _set_delta_axis(axes, rows)
    axes.set(xlabel="part of all weights that is kept, %", ylabel=ACCURACY)
    add_legend(figure, [axes], 2)
    return figure


def _name_emptied(axes: Axes, row: Numbers) -> None:
    """Upright, for its neighbours have names too."""
    names = ", ".join(name.removesuffix(".weight") for name in row["emptied"])
    low, high = axes.get_ylim()
    height = row["thresholded"]["mean"] if row["thresholded"] else low
    down = height > (low + high) / 2
    axes.annotate(
        f"{names} empty", (100 * row["density"], height), (0, -11 if down else 11), textcoords="offset points",
        rotation=90, ha="center", va="top" if down else "bottom", fontsize=SMALL, bbox=PAPER,
    )  # fmt: skip


def _set_delta_axis(axes: Axes, rows: Sequence[Numbers]) -> None:
    """The thresholds, above the parts that they keep."""
    parts = [100 * row["density"] for row in rows]
    axes.set_xticks(parts, labels=[f"{part:.0f}" for part in parts])
    above = axes.secondary_xaxis("top")
    above.set_xticks(parts, labels=[f"{row['delta']['mean']:.2g}" for row in rows])
    above.set_xlabel("threshold delta")


def draw_partial(numbers: Numbers) -> Figure:
    """Accuracy against the nonzeros of the only layer that is made sparse, by methods."""
    figure = make_figure(8.6, 7.6)
    panels = numbers["panels"]
    all_axes = figure.subplots((len(panels) + 1) // 2, 2, squeeze=False).flatten()
    for axes, panel in zip(all_axes, panels, strict=False):
        _draw_methods(axes, panel)
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    add_legend(figure, all_axes, 3)
    return figure


def _draw_methods(axes: Axes, panel: Numbers) -> None:
    known = {**panel, "rows": [row for row in panel["rows"] if row["nonzeros"] is not None]}
    draw_level(axes, panel["dense"], Look(BLACK, line=(0, (1, 3))), "dense, l2")
    draw_level(axes, panel["ours_dense"], Look(TRACKS["ours"].colour, line=(0, (1, 3))), "dense, our track")
    points = [(panel["size"], panel["dense"]), (panel["size"], panel["ours_dense"])]
    emptied = 0
    for method, name in partial.METHODS.items():
        curve = partial.curve(known, method)
        some = [point for point in curve if point["nonzeros"] > 0]
        emptied += len(curve) - len(some)
        mine = [(point["nonzeros"], point["accuracy"]) for point in some]
        draw_spread(axes, mine, METHODS[method], name, markersize=5)
        points += mine
    set_log(axes, "x", [x for x, _ in points], 5)
    notes = [focus(axes, points), f"{count(emptied, 'point')} with no weights at all" if emptied else ""]
    add_title(axes, panel["title"], *notes)
    axes.set(xlabel=f"nonzero weights of {panel['layer']}", ylabel=ACCURACY)


def draw_frontier(numbers: Numbers) -> Figure:
    """Test error against nonzero weights, ours and others'."""
    figure = make_figure(5.6)
    axes = figure.subplots()
    sparse = [(row["weight_nonzeros"], row["error"]) for row in numbers["rows"] if row["weights"] is not None]
    dense = [(row["weight_nonzeros"], row["error"]) for row in numbers["rows"] if row["weights"] is None]
    draw_spread(axes, sparse, TRACKS["ours"], "ours")
    draw_spread(axes, dense, TRACKS["ours"], "ours, dense", linestyle="none", marker="*", markersize=13)
    targets = frontier.WEIGHTS
    axes.plot(
        list(targets), list(targets.values()), linestyle="none", marker="_", markersize=13, color=GREY,
        markeredgewidth=2, label="our targets",
    )  # fmt: skip
    _draw_published(axes)
    set_log(axes, "x", [*targets, *(x for x, _ in [*sparse, *dense])], 7)
    note = _limit_errors(axes, [*sparse, *dense])
    add_title(axes, "LeNet on MNIST", note)
    axes.set(xlabel="nonzero weights, without biases", ylabel="test error, %")
    add_legend(figure, [axes], 4)
    return figure


def _draw_published(axes: Axes) -> None:
    x, y = [weights for _, weights, _ in frontier.PUBLISHED], [error for _, _, error in frontier.PUBLISHED]
    axes.plot(x, y, linestyle="none", marker="X", markersize=8, color=BLACK, label="published")
    for name, weights, error in frontier.PUBLISHED:
        below = " dropout" in name  # in short lines: our own curve is near
        axes.annotate(
            name.replace(" ", "\n") if below else name, (weights, error), (-4, -10) if below else (10, 4),
            textcoords="offset points", va="top" if below else "baseline", fontsize=10, bbox=PAPER, zorder=1.5,
        )  # fmt: skip


def _limit_errors(axes: Axes, ours: Sequence[Point]) -> str:
    """Errors far above all published ones must not press those into one line; says in words how many those are."""
    published = [error for _, _, error in frontier.PUBLISHED]
    errors = [(x, value["mean"], value["std"]) for x, value in ours if value is not None]
    near = [(mean - std, mean + std) for _, mean, std in errors if mean <= ROOM * max(published)]
    ends = [*published, *frontier.WEIGHTS.values(), *(end for pair in near for end in pair)]
    low, high = widen(min(ends), max(ends))
    axes.set_ylim(low, high)
    above = [x for x, mean, _ in errors if mean > high]
    if not above:
        return ""
    colour = TRACKS["ours"].colour
    axes.plot(above, [high] * len(above), linestyle="none", marker=6, color=colour, clip_on=False)
    return f"▴ {count(len(above), 'point')} of ours above {high:.3g} %"
